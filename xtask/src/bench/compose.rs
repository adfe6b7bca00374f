//! Composers on their own: no control plane, no worker, one process.

use anyhow::{Context, Result, bail};

use super::Setting;
use super::harness::{Goal, Sample, Variant, compare};

/// A stdcel graph of 1,000 resources, of 10,000, and reading each.
pub(super) fn stdcel(setting: &Setting) -> Result<()> {
    let measure = |resources: &'static str, field: &'static str| {
        let program = setting.programs.stdcel.clone();
        move |_: u32| -> Result<Sample> {
            let output = std::process::Command::new(&program)
                .args([resources, "5"])
                .output()?;
            if !output.status.success() {
                bail!(
                    "{}: {}",
                    program.display(),
                    String::from_utf8_lossy(&output.stderr).trim()
                );
            }
            let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            let value = report[field]
                .as_f64()
                .with_context(|| format!("no {field} in {report}"))?;
            Ok(Sample { value, cpu: None })
        }
    };
    let variant = |name: &str, goal: Option<f64>, run| Variant {
        name: name.to_owned(),
        goal: goal.map(Goal::Value),
        run,
    };
    compare(
        "ms",
        setting.rounds,
        vec![
            variant(
                "compose 1,000 resources",
                Some(100.0),
                Box::new(measure("1000", "compose_ms")),
            ),
            variant(
                "compose 10,000 resources",
                Some(1_500.0),
                Box::new(measure("10000", "compose_ms")),
            ),
            variant(
                "read a graph of 1,000",
                None,
                Box::new(measure("1000", "parse_ms")),
            ),
            variant(
                "read a graph of 10,000",
                None,
                Box::new(measure("10000", "parse_ms")),
            ),
        ],
    )
}
