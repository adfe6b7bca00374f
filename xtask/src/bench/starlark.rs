//! A composition of 125 children by stdstarlark, the provider end to end, against Google's Go Starlark in the same run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Setting;
use super::harness::{Goal, Sample, Variant, compare};
use crate::tree;

const RUNS: &str = "1000";
/// What a warm composition may take.
const GOAL_US: f64 = 2_000.0;

/// Microseconds per composition, the median of a round's runs.
pub(crate) fn compose(setting: &Setting) -> Result<()> {
    let ours = setting.programs.starlark.clone();
    let script = tree::root().join("providers/stdstarlark/examples/bench/compare_go.py");
    let mut variants = Vec::new();
    match python_with_starlark_go() {
        Ok(python) => variants.push(Variant {
            name: "PyPI starlark-go".into(),
            goal: None,
            run: Box::new(move |_| median_us(Command::new(&python).arg(&script).arg(RUNS))),
        }),
        Err(error) => eprintln!("starlark-go is left out, it does not install here: {error:#}"),
    }
    variants.push(Variant {
        name: "stdstarlark, through its child".into(),
        goal: Some(Goal::Value(GOAL_US)),
        run: Box::new(move |_| median_us(Command::new(&ours).arg(RUNS))),
    });
    compare("us", setting.rounds, variants)
}

fn median_us(command: &mut Command) -> Result<Sample> {
    let text = tree::read(command)?;
    let answer: Value =
        serde_json::from_str(&text).with_context(|| format!("no JSON came back: {text}"))?;
    let value = answer["p50_us"]
        .as_f64()
        .with_context(|| format!("no p50_us in {text}"))?;
    Ok(Sample { value, cpu: None })
}

/// A virtual environment under `target/`, made once.
fn python_with_starlark_go() -> Result<PathBuf> {
    let dir = tree::root().join("target/bench-starlark-go");
    let python = dir.join("bin/python");
    let works = |python: &PathBuf| {
        tree::read(Command::new(python).args(["-c", "import starlark_go"])).is_ok()
    };
    if !works(&python) {
        tree::read(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        tree::read(Command::new(&python).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "starlark-go==1.0.1",
        ]))?;
    }
    Ok(python)
}
