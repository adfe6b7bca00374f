//! Child processes of a test: found in this build's directory, ended with their handle, their output kept for the failure message.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

/// Lines kept of what a process said.
const KEPT_LINES: usize = 4_000;

/// The program `name` of this build.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program");
    let built = test
        .ancestors()
        .nth(2)
        .expect("tests live in target/PROFILE/deps")
        .join(name);
    assert!(
        built.exists(),
        "{} has not been built: run `cargo xtask test`, or `cargo build --workspace` once",
        built.display()
    );
    built
}

/// A running program.
pub struct Process {
    child: Child,
    name: String,
    lines: Arc<Mutex<Vec<String>>>,
    readers: JoinSet<()>,
}

impl Process {
    /// Starts a program; its output is read as it comes.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let mut readers = JoinSet::new();
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(read(stdout, lines.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(read(stderr, lines.clone()));
        }
        Self {
            child,
            name: name.to_owned(),
            lines,
            readers,
        }
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has ended and was waited for.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().expect("it runs")).expect("a pid fits")
    }

    /// Sends a signal to the process alone.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the process is there");
    }

    /// Kills it and waits.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub async fn kill(mut self) {
        self.child.start_kill().expect("the process is there");
        self.child.wait().await.expect("it can be waited for");
    }

    /// Waits for its end; the exit code, or `None` when a signal ended it.
    ///
    /// # Panics
    /// When it does not end within the usual limit.
    pub async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(crate::wait::LIMIT, self.child.wait()).await;
        let status =
            ended.unwrap_or_else(|_| panic!("{} does not end:\n{}", self.name, self.output()));
        while self.readers.join_next().await.is_some() {}
        status.expect("it can be waited for").code()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// What it said so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}

async fn read(from: impl AsyncRead + Unpin, lines: Arc<Mutex<Vec<String>>>) {
    let mut from = BufReader::new(from).lines();
    while let Ok(Some(line)) = from.next_line().await {
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT_LINES {
            lines.remove(0);
        }
        lines.push(line);
    }
}

/// Pids of processes whose command line contains `needle`.
#[must_use]
pub fn pids_with(needle: &str) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(needle) && *pid != i32::try_from(std::process::id()).unwrap_or(0)
    })
    .collect()
}
