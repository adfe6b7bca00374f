//! `serve`: what the `main` of a worker calls. Environment, signals and logging around [`run_worker`](crate::run_worker).

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::worker::{Endpoint, run_worker_at};
use crate::{LogFormat, OptionsError, Provider, RunOptions, WorkerError};

/// The exit code after a second signal, as a shell reports a program that SIGINT ended.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// How often a worker looks whether the process that started it is there.
const PARENT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a worker could not be served, or did not end in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The environment is not usable.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// Signals cannot be handled here.
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    /// The worker did not start, or did not end in order.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

impl ServeError {
    /// The exit code a program should end with: 64 for what its caller got wrong, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            ServeError::Options(_)
            | ServeError::Worker(WorkerError::Registration { .. } | WorkerError::Tls { .. }) => 64,
            ServeError::Signals(_) | ServeError::Worker(_) => 1,
        }
    }
}

/// Serves the providers until SIGTERM or SIGINT, then drains.
///
/// Reads [`RunOptions::from_env`], installs a `tracing` subscriber that writes to stderr if none is set, and runs
/// [`run_worker`](crate::run_worker). A second signal kills the programs of all tasks, reports nothing and exits with 130.
///
/// # Errors
/// Before anything is dialled if the environment is not usable; at the end if a drain could not deliver every result.
pub async fn serve(providers: Vec<Arc<dyn Provider>>) -> Result<(), ServeError> {
    serve_with(providers, RunOptions::from_env()?).await
}

/// Like [`serve`], with options from elsewhere: for a program with flags of its own.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    providers: Vec<Arc<dyn Provider>>,
    options: RunOptions,
) -> Result<(), ServeError> {
    start_logging(&options);
    // An address that cannot be had shows before what a killed worker left is waited for.
    let endpoint = options.health_addr.map(Endpoint::bind).transpose()?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
    let shutdown = CancellationToken::new();
    let first = shutdown.clone();
    let mut signals = JoinSet::new();
    if let Some(parent) = options.parent {
        let orphaned = shutdown.clone();
        signals.spawn(async move {
            left_by(parent).await;
            tracing::warn!(
                parent,
                "the process that started this worker is gone: ending"
            );
            orphaned.cancel();
        });
    }
    signals.spawn(async move {
        either(&mut terminate, &mut interrupt).await;
        first.cancel();
        either(&mut terminate, &mut interrupt).await;
        tracing::warn!(
            "a second signal: ending at once; the broker gives what ran here to another worker when its lease is over"
        );
        #[cfg(feature = "process")]
        crate::process::kill_all();
        exit_at_once();
    });
    // What a killed worker left may take its grace to end; a signal does not wait for it.
    #[cfg(feature = "process")]
    tokio::select! {
        _ = crate::process::prepare_worker() => {}
        () = shutdown.cancelled() => {}
    }
    #[cfg(feature = "process")]
    signals.spawn(crate::process::keep_watch());
    let ended = run_worker_at(providers, options, endpoint, shutdown.cancelled_owned()).await;
    #[cfg(feature = "process")]
    crate::process::clean_up();
    Ok(ended?)
}

/// Ready once the process with this number is gone. It need not be our parent: a script may have come between.
async fn left_by(started_by: u32) {
    let is_parent = parent_id() == started_by;
    let entry = format!("/proc/{started_by}");
    let mut look = tokio::time::interval(PARENT_INTERVAL);
    loop {
        look.tick().await;
        let is_gone = if is_parent {
            // Sure also while nobody has waited for it.
            parent_id() != started_by
        } else {
            Path::new("/proc/self").exists() && !Path::new(&entry).exists()
        };
        if is_gone {
            return;
        }
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a second signal means: now, whatever is still running"
)]
fn exit_at_once() -> ! {
    std::process::exit(EXIT_SECOND_SIGNAL)
}

/// Logs to stderr unless the program has set a subscriber of its own.
fn start_logging(options: &RunOptions) {
    let filter = EnvFilter::try_new(&options.log_level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours(
            io::stderr().is_terminal(),
            std::env::var_os("NO_COLOR").as_deref(),
        ))
        .with_writer(io::stderr);
    // An error means that there is one already, which is then the one to use.
    let _ = match options.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Colours are for people at a terminal who did not ask to be spared them (<https://no-color.org>).
fn colours(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_only() {
        assert!(colours(true, None));
        assert!(colours(true, Some(OsStr::new(""))));
        assert!(!colours(true, Some(OsStr::new("1"))));
        assert!(!colours(false, None));
    }
}
