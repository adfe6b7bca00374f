//! Programs that misbehave, each in a way that somebody's runner once got wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod endings;
mod escapes;
mod output;
mod spawning;

use std::future::pending;
use std::path::Path;
use std::time::{Duration, Instant};

use converge_sdk::process::{Command, Environment, Finished, Inherit, run_until};

/// A bash script, run by name.
fn bash(script: &str) -> Command {
    Command::new("bash", Environment::inherited(&Inherit::All))
        .arg("-c")
        .arg(script)
}

async fn finish(command: Command) -> Finished {
    run_until(command, pending::<()>())
        .await
        .expect("the program starts")
}

/// Waits for a condition, with a limit.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < limit, "not within 10 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether a process runs (a zombie does not).
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// Whether there is such a process at all, dead and unreaped included.
fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

/// The number a script printed as its `index`th line.
fn printed_pid(finished: &Finished, index: usize) -> u32 {
    let text = finished.stdout.text(4096);
    let line = text
        .lines()
        .nth(index)
        .unwrap_or_else(|| panic!("line {index} of {text:?}"));
    line.trim()
        .parse()
        .unwrap_or_else(|_| panic!("a pid in line {index} of {text:?}"))
}
