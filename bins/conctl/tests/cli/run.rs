//! Runs `conctl` in an empty directory with nothing of this process's environment, and makes its output comparable.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use jiff::{SignedDuration, Timestamp};

use crate::fake::Fake;

/// In the golden files: when things were made, and when they last changed.
const MADE: &str = "2026-01-02T03:04:05.678Z";
const CHANGED: &str = "2026-01-02T03:05:00.000Z";

/// A directory to run in, and the times that stand for those of the golden files.
pub(crate) struct World {
    dir: tempfile::TempDir,
    made: String,
    changed: String,
    server: Option<String>,
}

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Everything, for a snapshot.
    pub(crate) fn whole(&self) -> String {
        format!(
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let ago = |hours: i64, minutes: i64| {
            let at = Timestamp::now()
                - SignedDuration::from_mins(hours * 60 + minutes)
                - SignedDuration::from_secs(5);
            format!("{at:.3}")
        };
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            made: ago(3, 0),
            changed: ago(1, 30),
            server: None,
        }
    }

    pub(crate) fn with(fake: &Fake) -> Self {
        Self {
            server: Some(fake.url.clone()),
            ..Self::new()
        }
    }

    pub(crate) fn talk_to(mut self, fake: &Fake) -> Self {
        self.server = Some(fake.url.clone());
        self
    }

    /// An answer of the API, from its golden file, with times of today.
    pub(crate) fn golden(&self, name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../crates/api-types/tests/golden")
            .join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        text.replace(MADE, &self.made)
            .replace(CHANGED, &self.changed)
    }

    /// A resource's answer: the golden one with other values at these keys.
    pub(crate) fn resource(&self, changes: serde_json::Value) -> String {
        let mut value: serde_json::Value =
            serde_json::from_str(&self.golden("resource")).expect("JSON");
        for (key, change) in changes.as_object().expect("an object") {
            if change.is_null() {
                value.as_object_mut().expect("an object").remove(key);
            } else {
                value[key] = change.clone();
            }
        }
        value.to_string()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_conctl"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path());
        if let Some(server) = &self.server {
            command.env("CONVERGE_SERVER", server);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, "")
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &str) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("conctl starts");
        let mut pipe = child.stdin.take().expect("a pipe");
        // A command that does not read stdin may have closed it.
        let _ = pipe.write_all(stdin.as_bytes());
        drop(pipe);
        self.ran(&child.wait_with_output().expect("conctl ends"))
    }

    fn ran(&self, output: &Output) -> Ran {
        Ran {
            code: output.status.code().expect("not a signal"),
            stdout: self.stable(&String::from_utf8_lossy(&output.stdout)),
            stderr: self.stable(&String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// What differs from run to run, replaced by what does not.
    fn stable(&self, text: &str) -> String {
        let text = text
            .replace(&self.made, MADE)
            .replace(&self.changed, CHANGED);
        match &self.server {
            Some(server) => text.replace(server.as_str(), "[server]"),
            None => text,
        }
    }
}
