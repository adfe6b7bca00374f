//! Workers: the real `stdworker`.

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::process::Command;

use crate::plane::Plane;
use crate::process::{Process, program};
use crate::wait;

/// A running worker.
pub struct Worker {
    /// Its process.
    pub process: Process,
}

impl Worker {
    /// Starts a worker of these kinds that takes `parallel` tasks at a time, and waits until the broker knows it.
    pub async fn start(plane: &Plane, kinds: &str, parallel: u32) -> Self {
        Self::start_with(plane, kinds, parallel, &[]).await
    }

    /// As [`Worker::start`], with more variables.
    pub async fn start_with(
        plane: &Plane,
        kinds: &str,
        parallel: u32,
        env: &[(&str, &str)],
    ) -> Self {
        let command = Command::new(program("stdworker"));
        Self::start_by(command, plane, kinds, parallel, env).await
    }

    /// As [`Worker::start_with`], by a command that becomes the worker.
    ///
    /// # Panics
    /// When it does not connect.
    pub async fn start_by(
        mut command: Command,
        plane: &Plane,
        kinds: &str,
        parallel: u32,
        env: &[(&str, &str)],
    ) -> Self {
        // By name and not by number: the broker may still list one that was killed a moment ago.
        let before = connected(plane).await;
        command
            .env("BROKER_ADDR", &plane.broker)
            .env("WORKER_KINDS", kinds)
            .env("WORKER_MAX_PARALLEL", parallel.to_string())
            .env("WORKER_HEARTBEAT_INTERVAL", "200ms")
            .env("LOG_LEVEL", "debug")
            .envs(env.iter().copied());
        let mut process = Process::start("stdworker", command);
        wait::until("the worker to connect", || {
            assert!(
                process.is_running(),
                "the worker ended:\n{}",
                process.output()
            );
            let (now, before) = (connected(plane), &before);
            async move { (!now.await.is_subset(before)).then_some(()) }
        })
        .await;
        Self { process }
    }

    /// Kills the worker alone, at once; what it runs lives on.
    pub async fn kill(self) {
        self.process.kill().await;
    }

    /// Stops it in its tracks.
    pub fn freeze(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Asks it to drain and waits for its end; the exit code.
    pub async fn drain(mut self) -> (Option<i32>, String) {
        self.process.signal(Signal::SIGTERM);
        let code = self.process.ended().await;
        (code, self.process.output())
    }
}

/// Workers the broker knows: their names, and since when it does.
async fn connected(plane: &Plane) -> BTreeSet<(String, String)> {
    let Ok(members) = plane.client.list(&["cluster-members"], &[]).await else {
        return BTreeSet::new();
    };
    let mut workers = BTreeSet::new();
    for broker in members.items {
        let broker: Value = serde_json::from_str(broker.get()).expect("members are JSON");
        for worker in broker["workers"].as_array().into_iter().flatten() {
            workers.insert((worker["id"].to_string(), worker["connected_at"].to_string()));
        }
    }
    workers
}
