//! Interleaved rounds, medians, ratios.
//!
//! Every round runs each variant once, so that a slow minute of the machine touches all of them; a ratio is the median of the rounds' own ratios.

use std::time::Duration;

use anyhow::Result;

use crate::interrupt;

/// What one variant measured in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// In the table's unit.
    pub(crate) value: f64,
    /// CPU time per task, all processes of the variant together.
    pub(crate) cpu: Option<Duration>,
}

/// What to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// In the table's unit.
    Value(f64),
    /// Of the baseline.
    Ratio(f64),
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(value) => f.pad(&shown(*value)),
            Self::Ratio(ratio) => f.pad(&format!("ratio {ratio:.2}")),
        }
    }
}

/// Something to measure. The first variant of a table is its baseline.
pub(crate) struct Variant<'a> {
    pub(crate) name: String,
    /// Shown, never enforced.
    pub(crate) goal: Option<Goal>,
    pub(crate) run: Box<dyn FnMut(u32) -> Result<Sample> + 'a>,
}

/// Runs the rounds and prints the table. The variants share `state`, one after another.
pub(crate) fn compare(unit: &str, rounds: u32, mut variants: Vec<Variant<'_>>) -> Result<()> {
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for (variant, taken) in variants.iter_mut().zip(&mut samples) {
            interrupt::check()?;
            taken.push((variant.run)(round)?);
        }
        eprint!(".");
    }
    eprintln!();
    print!(
        "{}",
        table(
            unit,
            &variants
                .iter()
                .map(|variant| (variant.name.as_str(), variant.goal))
                .collect::<Vec<_>>(),
            &samples
        )
    );
    Ok(())
}

fn table(unit: &str, variants: &[(&str, Option<Goal>)], samples: &[Vec<Sample>]) -> String {
    let mut text = format!(
        "{:<34} {:>12} {:>23} {:>12} {:>7} {:>10}\n",
        "",
        format!("median {unit}"),
        "min … max",
        "CPU/task us",
        "ratio",
        "goal"
    );
    for ((name, goal), taken) in variants.iter().zip(samples) {
        let values: Vec<f64> = taken.iter().map(|sample| sample.value).collect();
        let ratios: Vec<f64> = taken
            .iter()
            .zip(&samples[0])
            .map(|(own, base)| own.value / base.value)
            .collect();
        let cpu: Vec<f64> = taken
            .iter()
            .filter_map(|sample| sample.cpu)
            .map(|cpu| cpu.as_secs_f64() * 1e6)
            .collect();
        let (low, high) = values
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(*value), high.max(*value))
            });
        text.push_str(&format!(
            "{name:<34} {:>12} {:>23} {:>12} {:>7.2} {:>10}\n",
            shown(median(values)),
            format!("{} … {}", shown(low), shown(high)),
            if cpu.is_empty() {
                "-".to_owned()
            } else {
                shown(median(cpu))
            },
            median(ratios),
            goal.map_or_else(|| "-".to_owned(), |goal| goal.to_string()),
        ));
    }
    text
}

/// Three significant figures are all that such a measurement has.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The median; NaN of nothing.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        let of = |values: [f64; 3]| values.map(|value| Sample { value, cpu: None }).to_vec();
        // The machine halves its speed in the last round: the ratio must not see it.
        let text = table(
            "per s",
            &[("base", None), ("other", Some(Goal::Value(100.0)))],
            &[of([100.0, 100.0, 50.0]), of([80.0, 80.0, 40.0])],
        );
        let line: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(
            line,
            ["other", "80.0", "40.0", "…", "80.0", "-", "0.80", "100"]
        );
    }

    #[test]
    fn rounds_are_interleaved() {
        let order = std::cell::RefCell::new(Vec::new());
        let order_of = &order;
        let variant = |name: &'static str| Variant {
            name: name.into(),
            goal: None,
            run: Box::new(move |round| {
                order_of.borrow_mut().push((round, name));
                Ok(Sample {
                    value: 1.0,
                    cpu: None,
                })
            }),
        };
        compare("x", 2, vec![variant("a"), variant("b")]).unwrap();
        assert_eq!(*order.borrow(), [(0, "a"), (0, "b"), (1, "a"), (1, "b")]);
    }
}
