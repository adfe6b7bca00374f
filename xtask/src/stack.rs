//! A control plane and a worker on free ports with a temporary data directory, gone when the handle is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{Process, tail};
use crate::{interrupt, process};

/// How long the control plane may take to answer on both ports.
const START: Duration = Duration::from_secs(30);

/// Where the control plane answers, as it writes it to `addresses.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) api: String,
    pub(crate) broker: String,
}

/// What runs. Fields end in this order: the worker drains while the control plane still answers.
pub(crate) struct Stack {
    worker: Option<Process>,
    converge: Process,
    pub(crate) at: Addresses,
    dir: tempfile::TempDir,
}

impl Stack {
    /// Starts `converge dev` and waits until it answers.
    pub(crate) fn start(converge: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("converge-")
            .tempdir()
            .context("could not make a temporary directory")?;
        let data = dir.path().join("data");
        let process = Process::start(
            Command::new(converge)
                .args([
                    "dev",
                    "--listen",
                    "127.0.0.1:0",
                    "--broker-listen",
                    "127.0.0.1:0",
                    "--data-dir",
                ])
                .arg(&data)
                .current_dir(dir.path())
                // Settings of the caller's shell must not reach it.
                .env_remove("LISTEN_ADDR")
                .env_remove("BROKER_LISTEN_ADDR"),
            &dir.path().join("converge.log"),
            Duration::from_secs(12),
        )?;
        let mut stack = Self {
            worker: None,
            converge: process,
            at: Addresses {
                api: String::new(),
                broker: String::new(),
            },
            dir,
        };
        stack.at = stack.addresses(&data.join("addresses.json"))?;
        Ok(stack)
    }

    fn addresses(&mut self, file: &Path) -> Result<Addresses> {
        let limit = Instant::now() + START;
        loop {
            interrupt::check()?;
            if let Some(status) = self.converge.ended()? {
                bail!(
                    "converge ended at once ({status}):\n{}",
                    tail(self.converge.log(), 20)
                );
            }
            // It is renamed into place, so what is there is whole.
            if let Ok(text) = std::fs::read_to_string(file) {
                return serde_json::from_str(&text)
                    .with_context(|| format!("could not parse {}", file.display()));
            }
            if Instant::now() > limit {
                bail!(
                    "converge did not answer within {} s:\n{}",
                    START.as_secs(),
                    tail(self.converge.log(), 20)
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts a worker that dials the broker.
    pub(crate) fn worker(
        &mut self,
        program: &Path,
        dir: &Path,
        env: &BTreeMap<String, String>,
    ) -> Result<()> {
        let log = self.dir.path().join("worker.log");
        let command = &mut Command::new(program);
        command
            .current_dir(dir)
            .env("BROKER_ADDR", &self.at.broker)
            .env("WORKER_DRAIN_TIMEOUT", "5s")
            .envs(env);
        for name in [
            "WORKER_KINDS",
            "STDIO_KINDS",
            "STDIO_COMPOSER_KINDS",
            "STDIO_COMMAND",
            "TLS_CERT_FILE",
            "TLS_KEY_FILE",
            "BROKER_CA_FILE",
        ] {
            if !env.contains_key(name) {
                command.env_remove(name);
            }
        }
        self.worker = Some(Process::start(command, &log, Duration::from_secs(15))?);
        Ok(())
    }

    /// Ends the worker, so that another one can be started.
    pub(crate) fn stop_worker(&mut self) {
        self.worker = None;
    }

    /// Fails when one of the two has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (name, process) in [
            ("converge", Some(&mut self.converge)),
            ("the worker", self.worker.as_mut()),
        ] {
            if let Some(process) = process
                && let Some(status) = process.ended()?
            {
                bail!("{name} ended ({status}):\n{}", tail(process.log(), 20));
            }
        }
        Ok(())
    }

    /// CPU time of both and of the programs they ran to their end.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let worker = self
            .worker
            .as_ref()
            .map(|worker| process::cpu(worker.id()))
            .transpose()?
            .unwrap_or_default();
        Ok(process::cpu(self.converge.id())? + worker)
    }

    /// Resident memory in bytes: control plane, worker.
    pub(crate) fn resident(&self) -> Result<(u64, u64)> {
        let worker = self
            .worker
            .as_ref()
            .map(|worker| process::resident(worker.id()))
            .transpose()?
            .unwrap_or_default();
        Ok((process::resident(self.converge.id())?, worker))
    }

    /// The directory everything is in.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The last lines of both logs.
    pub(crate) fn logs(&self) -> String {
        let mut text = format!("converge, last lines:\n{}", tail(self.converge.log(), 15));
        if let Some(worker) = &self.worker {
            text.push_str(&format!("worker, last lines:\n{}", tail(worker.log(), 25)));
        }
        text
    }

    /// Stops both but leaves the directory; returns where it is.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.worker = None;
        self.converge.stop();
        self.dir.disable_cleanup(true);
        self.dir.path().to_owned()
    }
}
