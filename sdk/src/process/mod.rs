//! Run programs under the rules of a task (feature `process`, Linux).
//!
//! [`run`] starts one program in its own process group, feeds and drains its three pipes at once, keeps a bounded part of what
//! it writes, and ends with the program's whole tree gone: whatever left the group (`setsid`, a double fork) is found by a
//! cookie in its environment and killed. A timeout or a cancellation asks first (SIGTERM, or SIGINT for programs that save
//! their work on it), waits a grace period, then kills. What happened is told apart in words: [`Finished::failure`] and
//! [`SpawnError`] say whether trying again helps.
//!
//! A worker calls [`prepare_worker`] once before its first task (`serve` does): only then do escaped processes come back to it,
//! and what a killed worker left on the machine is ended there.
//!
//! ```
//! use converge_sdk::process::{self, Command, Environment};
//! use converge_sdk::{Outcome, ReactionRequest, TaskContext, TaskError};
//!
//! async fn work(ctx: &TaskContext, request: ReactionRequest) -> Result<Outcome, TaskError> {
//!     let env = Environment::for_task(&Default::default(), ctx, &request);
//!     let finished = process::run(ctx, Command::new("uname", env).arg("-r")).await?;
//!     if let Some(failure) = finished.failure() {
//!         return Err(failure.into());
//!     }
//!     let release = finished.stdout.text(1024);
//!     Ok(Outcome::new().with_status(serde_json::json!({"release": release.trim()})))
//! }
//! ```

mod capture;
mod command;
mod cookie;
mod env;
mod error;
mod leash;
mod lines;
mod outcome;
mod pressure;
mod procfs;
mod pump;
mod redact;
mod registry;
mod run;
mod scratch;
mod seconds;
mod signals;
mod spawner;
mod startup;

pub use capture::{Captured, tail_text};
pub use command::{Capture, Command, DEFAULT_GRACE, RESPONSE_LIMIT_BYTES, StopSignal};
pub use env::{Environment, Inherit, Variables};
pub use error::SpawnError;
pub use outcome::{Ending, Exit, Failure, Finished, TERMINAL_EXIT_CODE};
pub use pressure::ready;
pub use redact::{REDACTED, Redactions};
pub use run::{run, run_until};
pub use seconds::Seconds;
pub(crate) use startup::keep_watch;
pub use startup::{Prepared, prepare_worker};

/// Kills every program of this process and what it started, at once: for a second signal, when nothing is waited for any more.
pub fn kill_all() {
    registry::kill_all();
    clean_up();
}

/// Removes what was kept for further programs: for the end of a worker. `serve` calls it.
pub fn clean_up() {
    scratch::remove_idle(true);
}
