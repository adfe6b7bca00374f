//! One run of one test, in a process of its own, within bounded time, leaving nothing behind.
//!
//! A test whose guard is taken out may well leave programs running: that is what some guards are for. This process adopts every orphan of
//! the tests it runs, so that they are ended before the next one starts.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::copy::Executable;
use crate::interrupt;

/// No test takes longer, on a busy machine and with every wait in it running out.
const LIMIT: Duration = Duration::from_secs(240);
/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// When two looks are so far apart, the machine was asleep or somebody had stopped this process, and most likely the test with it.
const STOOD_STILL: Duration = Duration::from_secs(2);
/// A test that was run while the machine stood still says nothing: its time limits are those of a machine that runs. So often it is run.
const RUNS: usize = 5;
/// How long killed leftovers may take to go.
const GONE: Duration = Duration::from_secs(10);

/// Of what a test said, so much is shown.
const SAID_CHARS: usize = 200;

/// How a test ended.
pub(crate) enum End {
    Passed,
    /// As a failed test; what it said.
    Failed(String),
    /// It was still running at the limit.
    Hung,
    /// The process ended in another way than a test harness ends.
    Crashed(ExitStatus),
    /// The binary has no test of this name, or does not run it.
    NotThere,
}

impl End {
    pub(crate) fn word(&self) -> String {
        match self {
            End::Passed => "passed".to_owned(),
            End::Failed(_) => "failed".to_owned(),
            End::Hung => format!("did not end within {} s", LIMIT.as_secs()),
            End::Crashed(status) => format!("crashed ({status})"),
            End::NotThere => "is not in its binary".to_owned(),
        }
    }
}

/// A test that ran.
pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) took: Duration,
    pub(crate) output: String,
}

/// From now on orphans of what this process starts are its children.
pub(crate) fn adopt_leftovers() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
        .context("could not adopt the orphans of the tests (Linux 3.4 or newer is needed)")
}

/// Runs one test the way `cargo test` does.
pub(crate) fn run(executable: &Executable, name: &str) -> Result<Ran> {
    for _ in 1..RUNS {
        let (ran, stood_still) = run_once(executable, name)?;
        if !stood_still {
            return Ok(ran);
        }
        println!("    the machine stood still while {name} ran: again");
    }
    Ok(run_once(executable, name)?.0)
}

/// What became of it, and whether the machine stood still meanwhile.
fn run_once(executable: &Executable, name: &str) -> Result<(Ran, bool)> {
    let dir = tempfile::tempdir().context("could not create a temporary directory")?;
    let log = dir.path().join("output");
    let file = std::fs::File::create(&log).context("could not create a log")?;
    let twin = file.try_clone().context("could not open a log twice")?;
    let began = Instant::now();
    let mut child = Command::new(&executable.path)
        .args(["--exact", name])
        .current_dir(&executable.package)
        .env("CARGO_MANIFEST_DIR", &executable.package)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(twin)
        .process_group(0)
        .spawn()
        .with_context(|| format!("could not start {}", executable.path.display()))?;
    let (ended, stood_still) = wait(&mut child)?;
    let took = began.elapsed();
    end_leftovers()?;
    let output = std::fs::read(&log).context("could not read a log")?;
    let output = String::from_utf8_lossy(&output).into_owned();
    let ran = Ran {
        end: ended.map_or(End::Hung, |status| end_of(status, &output)),
        took,
        output,
    };
    Ok((ran, stood_still))
}

/// Its status, `None` when it was killed at the limit; and whether the machine stood still meanwhile, which uses up none of the limit.
/// Orphans that end meanwhile are reaped, as init would.
fn wait(child: &mut Child) -> Result<(Option<ExitStatus>, bool)> {
    let id = Pid::from_raw(i32::try_from(child.id()).context("a pid that does not fit")?);
    let (mut ran, mut looked, mut stood_still) = (Duration::ZERO, Instant::now(), false);
    loop {
        let since = looked.elapsed();
        looked += since;
        stood_still |= since > STOOD_STILL;
        ran += since.min(STOOD_STILL);
        if let Some(status) = child.try_wait().context("could not wait for a test")? {
            return Ok((Some(status), stood_still));
        }
        let asked = interrupt::check();
        if asked.is_err() || ran > LIMIT {
            // It may have ended in between.
            let _ = killpg(id, Signal::SIGKILL);
            child.wait().context("could not wait for a test")?;
            end_leftovers()?;
            return asked.map(|()| (None, stood_still));
        }
        reap_all_but(id);
        std::thread::sleep(LOOK);
    }
}

fn reap_all_but(test: Pid) {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(status) = waitid(Id::All, look) {
        match status.pid() {
            Some(pid) if pid != test => {
                let _ = waitpid(pid, None);
            }
            _ => return,
        }
    }
}

/// Ends what the test left running. Nothing else is a child of this process now.
fn end_leftovers() -> Result<()> {
    let began = Instant::now();
    loop {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL);
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(LOOK),
            Ok(_) => {}
            Err(_) => return Ok(()),
        }
        if began.elapsed() > GONE {
            anyhow::bail!(
                "programs a test left behind cannot be ended: {:?}",
                children()
            );
        }
    }
}

fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let mut pids = Vec::new();
    for list in lists {
        let parsed = list
            .split_ascii_whitespace()
            .filter_map(|pid| pid.parse().ok());
        pids.extend(parsed.map(Pid::from_raw));
    }
    pids
}

/// What the harness's exit and its last line say together.
fn end_of(status: ExitStatus, output: &str) -> End {
    let result = output
        .lines()
        .rev()
        .find(|line| line.starts_with("test result: "))
        .unwrap_or_default();
    match status.code() {
        Some(0) if result.contains(" 1 passed; 0 failed;") => End::Passed,
        Some(0) => End::NotThere,
        Some(101) if result.contains(" 0 passed; 1 failed;") => End::Failed(said(output)),
        _ => End::Crashed(status),
    }
}

/// What the first panic said, in one line.
fn said(output: &str) -> String {
    let panicked = output
        .lines()
        .skip_while(|line| !line.contains("panicked at "));
    let said: Vec<&str> = panicked
        .skip(1)
        .map(str::trim)
        .take_while(|line| !line.is_empty() && !line.starts_with("note: "))
        .collect();
    if said.is_empty() {
        return "it said nothing".to_owned();
    }
    said.join(" ").chars().take(SAID_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    const FAILED: &str = "running 1 test\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\n\nthread 'a' (7) panicked at src/a.rs:1:2:\nit ran\n  twice\nnote: run with\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out\n";

    fn end(code: i32, output: &str) -> End {
        end_of(ExitStatus::from_raw(code << 8), output)
    }

    #[test]
    fn only_a_failed_test_counts_as_a_failure() {
        assert!(matches!(end(101, FAILED), End::Failed(said) if said == "it ran twice"));
        let passed = "test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert!(matches!(end(0, passed), End::Passed));
        let nothing = "test result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert!(matches!(end(0, nothing), End::NotThere));
        assert!(matches!(end(101, ""), End::Crashed(_)));
        let aborted = ExitStatus::from_raw(6);
        assert!(matches!(end_of(aborted, FAILED), End::Crashed(_)));
    }
}
