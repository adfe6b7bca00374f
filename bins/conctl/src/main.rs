//! `conctl`: the command line of the REST API.
//!
//! What must hold: data goes to stdout and everything else to stderr; the exit code says what happened (`exit.rs`); numbers
//! in documents keep every digit on the way in and out. One file per verb under `verbs/`; reading documents is in
//! `document/`, showing them in `output/`.

mod bundle;
mod cli;
mod context;
mod document;
mod exit;
mod names;
mod output;
mod verbs;
mod waiting;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::exit::Failure;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => {
            // What cannot be printed (a closed pipe) cannot be reported either.
            let _ = err.print();
            return ExitCode::from(if err.use_stderr() {
                exit::USAGE
            } else {
                exit::OK
            });
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::from(exit::OK),
        Err(failure) => {
            if !failure.message.is_empty() {
                let mut text = output::clean_lines(&failure.message);
                text.push('\n');
                let _ = std::io::stderr().write_all(format!("error: {text}").as_bytes());
            }
            ExitCode::from(failure.code)
        }
    }
}

fn run(cli: Cli) -> exit::Result {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|err| Failure::new(exit::REFUSED, format!("cannot start: {err}")))?;
    let mut cx = Context::new(cli.server);
    let result = runtime.block_on(Box::pin(dispatch(&mut cx, cli.command)));
    let flushed = cx.out.flush();
    result?;
    flushed
}

async fn dispatch(cx: &mut Context, command: Command) -> exit::Result {
    match command {
        Command::Apply(args) => verbs::apply::run(cx, args).await,
        Command::Get(args) => verbs::get::run(cx, args).await,
        Command::List(args) => verbs::list::run(cx, args).await,
        Command::Describe(args) => verbs::describe::run(cx, args).await,
        Command::Delete(args) => verbs::delete::run(cx, args).await,
        Command::Events(args) => verbs::events::run(cx, args).await,
        Command::Graph(args) => verbs::graph::run(cx, args).await,
        Command::Wait(args) => verbs::wait::run(cx, args).await,
        Command::Reconcile(args) => verbs::reconcile::run(cx, args).await,
        Command::Quarantine(args) => {
            verbs::quarantine::run(cx, args, verbs::quarantine::Turn::On).await
        }
        Command::Unquarantine(args) => {
            verbs::quarantine::run(cx, args, verbs::quarantine::Turn::Off).await
        }
        Command::Rollback(args) => verbs::rollback::run(cx, args).await,
        Command::Ops(args) => verbs::ops::run(cx, args).await,
        Command::Cluster(args) => verbs::cluster::run(cx, args).await,
        Command::Sync(args) => verbs::sync::run(cx, args).await,
        Command::Diff(args) => verbs::diff::run(cx, args).await,
        Command::Bundle(args) => verbs::bundle::run(cx, args),
        Command::Completion(args) => verbs::completion::run(cx, args),
    }
}
