//! Steps that are timed and whose failures are gathered, so that one run of CI tells everything it can.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::usage::usage;

/// A named piece of work.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) work: fn() -> Result<()>,
}

/// What of `all` is named, or all of it when nothing is; a name there is none of is refused.
pub(crate) fn named<'a, T>(
    what: &str,
    task: &str,
    all: &'a [T],
    name: impl Fn(&T) -> &'static str,
    wanted: &[String],
) -> Result<Vec<&'a T>> {
    let unknown: Vec<&str> = wanted
        .iter()
        .map(String::as_str)
        .filter(|wanted| !all.iter().any(|one| name(one) == *wanted))
        .collect();
    if !unknown.is_empty() {
        return Err(usage(format!(
            "no such {what}: {} (see `cargo xtask {task} --list`)",
            unknown.join(", ")
        )));
    }
    Ok(all
        .iter()
        .filter(|one| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name(one)))
        .collect())
}

/// Runs the steps one after another, a failing one included, and prints what each took.
pub(crate) fn run(steps: &[&Step]) -> Result<()> {
    let started = Instant::now();
    let mut done: Vec<(&str, Duration, Result<()>)> = Vec::new();
    for step in steps {
        println!("\n==> {}", step.name);
        let began = Instant::now();
        let result = (step.work)();
        if let Err(error) = &result {
            println!("FAILED: {}: {error:#}", step.name);
        }
        done.push((step.name, began.elapsed(), result));
    }
    println!("\n{:<12} {:>8}", "step", "seconds");
    for (name, took, result) in &done {
        println!(
            "{name:<12} {:>8.1}  {}",
            took.as_secs_f64(),
            if result.is_ok() { "ok" } else { "FAILED" }
        );
    }
    println!("{:<12} {:>8.1}", "all", started.elapsed().as_secs_f64());
    let failed: Vec<&str> = done
        .iter()
        .filter(|(_, _, result)| result.is_err())
        .map(|(name, ..)| *name)
        .collect();
    if !failed.is_empty() {
        bail!(
            "{} of {} steps failed: {}",
            failed.len(),
            done.len(),
            failed.join(", ")
        );
    }
    Ok(())
}
