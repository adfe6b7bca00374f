//! Proof that the tests which prove the product's safety can fail: each guard is taken out once, and its tests must then fail.
//!
//! Owns the order: a copy of the committed tree, the tests as they are (they must pass), then guard after guard: out, build, run, back in.
//! What must hold: a guard counts as caught only when every test it names ran and failed as a test; what does not compile, crashes or hangs
//! is told apart. Not here: the list (`xtask/guards/*.toml`, read by `list`), the copy and its builds (`copy`), one run (`test_run`).

mod copy;
mod list;
mod test_run;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use copy::Copy;
use list::{Binary, Guard, Test};
use test_run::End;

use crate::{interrupt, needs, tree};

/// What became of one guard.
enum Verdict {
    /// Every test failed; what the first one said.
    Caught(String),
    /// What went otherwise.
    Missed(String),
}

/// Takes the guards out one by one, or names them.
pub(crate) fn run(names: &[String], list: bool) -> Result<()> {
    if list {
        for guard in select(list::read(&tree::root())?, names)? {
            println!("{:<36} {}", guard.name, guard.protects);
        }
        return Ok(());
    }
    needs::for_tests(false)?;
    interrupt::listen()?;
    test_run::adopt_leftovers()?;
    let copy = Copy::of_commit()?;
    let all = list::read(copy.root())?;
    let wrong = list::problems(&all, copy.root())?;
    if !wrong.is_empty() {
        bail!(
            "the list of guards is out of date\n  {}",
            wrong.join("\n  ")
        );
    }
    let guards = select(all, names)?;
    let started = Instant::now();
    as_they_are(&copy, &guards)?;
    let verdicts = take_out_all(&copy, &guards)?;
    let missed: Vec<&str> = guards
        .iter()
        .zip(&verdicts)
        .filter(|(_, (verdict, _))| matches!(verdict, Verdict::Missed(_)))
        .map(|(guard, _)| guard.name.as_str())
        .collect();
    table(&guards, &verdicts);
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    if !missed.is_empty() {
        bail!(
            "{} of {} guards can be taken out without their tests failing: {} ({minutes:.0} min)",
            missed.len(),
            guards.len(),
            missed.join(", ")
        );
    }
    println!(
        "\n{} guards, each one caught ({minutes:.0} min)",
        guards.len()
    );
    Ok(())
}

/// Those whose name is given, or whose file is (`lease` means every guard of `lease.toml`); all without any.
fn select(guards: Vec<Guard>, names: &[String]) -> Result<Vec<Guard>> {
    let is = |guard: &Guard, name: &str| {
        guard.name == name || guard.name.split('/').next() == Some(name)
    };
    let unknown: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !guards.iter().any(|guard| is(guard, name)))
        .collect();
    if !unknown.is_empty() {
        return Err(crate::usage::usage(format!(
            "no such guard: {} (see `cargo xtask guards --list`)",
            unknown.join(", ")
        )));
    }
    Ok(guards
        .into_iter()
        .filter(|guard| names.is_empty() || names.iter().any(|name| is(guard, name)))
        .collect())
}

/// Every test passes while nothing is taken out, else its failure would prove nothing.
fn as_they_are(copy: &Copy, guards: &[Guard]) -> Result<()> {
    let tests: BTreeSet<&Test> = guards.iter().flat_map(|guard| &guard.tests).collect();
    println!("building what {} tests need", tests.len());
    let binaries: BTreeSet<&Binary> = tests.iter().map(|test| &test.binary).collect();
    let built = match copy.build(&binaries)? {
        Ok(built) => built,
        Err(said) => bail!("the committed tree does not compile\n{said}"),
    };
    let mut failed = Vec::new();
    for test in &tests {
        let ran = test_run::run(&built[&test.binary], &test.name)?;
        println!(
            "{:>7.1} s  {:<8}  {test}",
            ran.took.as_secs_f64(),
            ran.end.word()
        );
        if !matches!(ran.end, End::Passed) {
            failed.push(format!("{test}: {}\n{}", ran.end.word(), ran.output));
        }
    }
    if !failed.is_empty() {
        bail!(
            "{} of {} tests do not pass with every guard in place\n{}",
            failed.len(),
            tests.len(),
            failed.join("\n")
        );
    }
    Ok(())
}

/// One after another, those of one crate together: each build then compiles that crate and what depends on it, and no other.
fn take_out_all(copy: &Copy, guards: &[Guard]) -> Result<Vec<(Verdict, Duration)>> {
    let mut order: Vec<usize> = (0..guards.len()).collect();
    order.sort_by_key(|at| guards[*at].edits()[0].file.clone());
    let mut verdicts = BTreeMap::new();
    for (done, at) in order.into_iter().enumerate() {
        let guard = &guards[at];
        let began = Instant::now();
        let verdict = take_out(copy, guard)?;
        let took = began.elapsed();
        let word = match &verdict {
            Verdict::Caught(said) => format!("caught: {said}"),
            Verdict::Missed(why) => format!("NOT CAUGHT: {why}"),
        };
        println!(
            "{:>3}/{}  {:>5.0} s  {}  {word}",
            done + 1,
            guards.len(),
            took.as_secs_f64(),
            guard.name
        );
        verdicts.insert(at, (verdict, took));
    }
    Ok(verdicts.into_values().collect())
}

fn take_out(copy: &Copy, guard: &Guard) -> Result<Verdict> {
    let _out = copy.without(&guard.edits())?;
    let binaries: BTreeSet<&Binary> = guard.tests.iter().map(|test| &test.binary).collect();
    let built = match copy.build(&binaries)? {
        Ok(built) => built,
        Err(said) => {
            return Ok(Verdict::Missed(format!(
                "without it the tree does not compile\n{said}"
            )));
        }
    };
    let mut first = None;
    let mut wrong = Vec::new();
    for test in &guard.tests {
        let ran = test_run::run(&built[&test.binary], &test.name)?;
        match ran.end {
            End::Failed(said) => {
                first.get_or_insert(said);
            }
            End::Hung if guard.hangs => {
                first.get_or_insert("it hangs, as expected".to_owned());
            }
            End::Crashed(status) if guard.crashes => {
                first.get_or_insert(format!("it crashes, as expected ({status})"));
            }
            end => wrong.push(format!("{test} {}", end.word())),
        }
    }
    Ok(match (wrong.is_empty(), first) {
        (true, Some(said)) => Verdict::Caught(said),
        _ => Verdict::Missed(wrong.join("; ")),
    })
}

fn table(guards: &[Guard], verdicts: &[(Verdict, Duration)]) {
    println!("\n{:<36} {:<10} {:>5}  tests", "guard", "taken out", "s");
    for (guard, (verdict, took)) in guards.iter().zip(verdicts) {
        let word = match verdict {
            Verdict::Caught(_) => "caught",
            Verdict::Missed(_) => "NOT CAUGHT",
        };
        let tests: Vec<String> = guard.tests.iter().map(Test::to_string).collect();
        println!(
            "{:<36} {word:<10} {:>5.0}  {}",
            guard.name,
            took.as_secs_f64(),
            tests.join(", ")
        );
    }
}
