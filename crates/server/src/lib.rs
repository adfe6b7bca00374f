//! The server: options, wiring, shutdown order. The only place that names a store.
//!
//! What must hold: the data directory is locked before anything in it is touched; nothing listens beyond loopback by accident; after the
//! first SIGTERM or SIGINT the process is gone within ten seconds with everything committed on disk, after the second at once.

mod data_dir;
mod dev;
mod entry;
mod http;
pub mod options;
mod signals;
mod sweeps;
mod tls;
mod token;
mod worker;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use tracing_subscriber::EnvFilter;

use entry::Entry;
use options::{Cli, Dev, USAGE, Verb, log_filter};

/// The runtime's threads get this long to end after everything else has.
const RUNTIME_GRACE: Duration = Duration::from_millis(200);

/// Runs `converge` with these arguments, program name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is no error; the rest to stderr. A closed pipe is nobody's concern.
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let Verb::Dev(args) = cli.command;
    let level = std::env::var_os("LOG_LEVEL").map(|text| text.to_string_lossy().into_owned());
    let (options, filter) = match (args.read(), log_filter(level.as_deref())) {
        (Ok(options), Ok(filter)) => (options, filter),
        (options, filter) => {
            let wrong = options.err().into_iter().flatten();
            for line in wrong.chain(filter.err()) {
                eprintln!("converge: {line}");
            }
            return ExitCode::from(USAGE);
        }
    };
    log(filter);
    // Files that cannot be used are wrong usage too, and nothing is locked or bound for them.
    let entry = match Entry::read(&options.entry) {
        Ok(entry) => entry,
        Err(wrong) => {
            for line in wrong {
                eprintln!("converge: {line}");
            }
            return ExitCode::from(USAGE);
        }
    };
    match run(options, entry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("converge: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: Dev, entry: Entry) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("converge")
        .build();
    let runtime = runtime.context("could not start the runtime")?;
    let ended = runtime.block_on(Box::pin(dev::run(options, entry)));
    runtime.shutdown_timeout(RUNTIME_GRACE);
    ended
}

/// To stderr, as `RUST_LOG` or else `LOG_LEVEL` says.
fn log(level: EnvFilter) {
    let filter = EnvFilter::try_from_default_env().unwrap_or(level);
    let spared = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colour = std::io::stderr().is_terminal() && !spared;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour)
        .with_writer(std::io::stderr);
    // Only a second call in one process fails, and then there is a log already.
    let _ = lines.try_init();
}
