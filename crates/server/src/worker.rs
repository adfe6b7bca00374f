//! `--worker PATH`: a worker program beside the control plane, started again when it ends.
//!
//! It leads a process group of its own, so that a Ctrl-C on the terminal reaches us alone and we end it in order.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::options::ENTRY_VARIABLES;

/// Between two starts, growing while it keeps ending at once.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// One that ran this long had started well.
const STABLE: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Debug, Clone)]
pub(crate) struct Supervised {
    pub(crate) program: PathBuf,
    /// Where the broker answers.
    pub(crate) broker: String,
    pub(crate) heartbeat: Duration,
    /// After SIGTERM, until SIGKILL.
    pub(crate) grace: Duration,
}

impl Supervised {
    /// Runs it until `stop`, then ends it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut pause = PAUSE;
        while !stop.is_cancelled() {
            let began = Instant::now();
            match self.start() {
                Ok(mut child) => {
                    tracing::info!(program = %self.program.display(), pid = child.id(), "worker started");
                    tokio::select! {
                        () = stop.cancelled() => return end(&mut child, self.grace).await,
                        ended = child.wait() => match ended {
                            Ok(status) => tracing::warn!(%status, "the worker ended; starting it again"),
                            Err(error) => tracing::warn!(%error, "the worker could not be waited for; starting it again"),
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(program = %self.program.display(), %error, "the worker could not be started; trying again")
                }
            }
            if began.elapsed() >= STABLE {
                pause = PAUSE;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn start(&self) -> std::io::Result<Child> {
        let mut command = Command::new(resolved(&self.program));
        for variable in ENTRY_VARIABLES {
            command.env_remove(variable);
        }
        command
            .env("BROKER_ADDR", &self.broker)
            .env(
                "WORKER_HEARTBEAT_INTERVAL",
                format!("{}ms", self.heartbeat.as_millis()),
            )
            // Its own end must fit into ours, cleaning up included.
            .env(
                "WORKER_DRAIN_TIMEOUT",
                format!("{}ms", (self.grace / 2).as_millis()),
            )
            // Killed, we could not end it.
            .env("WORKER_PARENT_PID", std::process::id().to_string())
            .stdin(Stdio::null())
            // Our stdout is for the addresses; what the worker says is for people.
            .stdout(std::io::stderr())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }
}

/// A path of one part is a program of PATH to the operating system, and a file here to a person, when there is such a file.
fn resolved(program: &Path) -> PathBuf {
    if program.components().count() == 1 && program.is_file() {
        return Path::new(".").join(program);
    }
    program.to_owned()
}

async fn end(child: &mut Child, grace: Duration) {
    let Some(pid) = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .map(Pid::from_raw)
    else {
        return;
    };
    // To the worker alone: it ends the programs it runs in its own order.
    if let Err(error) = kill(pid, Signal::SIGTERM) {
        tracing::warn!(%error, "the worker could not be told to end");
    }
    if tokio::time::timeout(grace, child.wait()).await.is_err() {
        tracing::warn!("the worker did not end in time and is killed");
        // The group exists as long as its leader has not been waited for.
        let _ = killpg(pid, Signal::SIGKILL);
        let _ = child.wait().await;
    }
}
