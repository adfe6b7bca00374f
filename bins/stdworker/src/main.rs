//! `stdworker`: the worker that ships in the box. Registers the general-purpose providers by kind and serves them.
//!
//! What it hosts is `hosted.rs`, how it is told to run is `flags.rs`; everything a worker does is `converge_sdk`.

mod flags;
mod hosted;
mod kinds;
mod render;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use converge_sdk::{RunOptions, ServeError, serve_with};

use crate::flags::Flags;
use crate::hosted::{Hosted, HostedError};

/// The command line, a variable or a list of kinds makes no sense.
const EXIT_USAGE: u8 = 64;

const ABOUT: &str = "Serve Converge's general-purpose kinds: scripts, programs, Terraform modules, and compositions as data";

const LONG_ABOUT: &str = "\
Serve Converge's general-purpose kinds: scripts, programs, Terraform modules, and compositions as data.

A worker dials the control plane's broker, says which kinds it serves, and does the work it is sent; it keeps nothing, so any number of them may run anywhere. \
SIGTERM or SIGINT lets running tasks finish within the drain timeout; a second one kills them.";

const EXAMPLES: &str = "\
Examples:
  stdworker --broker-addr http://127.0.0.1:9090          serve every kind
  WORKER_KINDS=stdshell,stdcel stdworker                 serve these only (BROKER_ADDR is set)
  STDIO_KINDS=dns,mail STDIO_COMMAND=./handler stdworker  serve kinds of your own with a program of yours
  stdworker kinds                                        what would be served
  stdworker render --kind stdcel --config graph.yaml --spec spec.yaml   what a compose would emit

Every flag has the variable shown beside it; the flag wins. Durations read 500ms, 30s, 5m, 1h30m.
Exit codes: 0 ended in order, 1 something broke or a result was not delivered, 64 usage, 130 ended by a second signal.";

#[derive(Debug, Parser)]
#[command(name = "stdworker", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(subcommand_negates_reqs = true)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve tasks until SIGTERM or SIGINT; what happens without a command.
    Serve,
    /// Print the kinds this worker would serve.
    Kinds(kinds::KindsArgs),
    /// Print what a compose would emit, without a broker.
    Render(render::RenderArgs),
}

/// The command line. What only makes sense for serving is taken by every command, since it may come before the command's name, and
/// shown by those that serve.
fn command_line() -> clap::Command {
    let cli = Cli::command();
    let serving = |unless: &'static str| {
        let flags = cli.get_arguments();
        let flags = flags.filter(move |flag| {
            flag.get_help_heading() == Some(flags::SERVING) && flag.get_id() != unless
        });
        flags
            .map(|flag| flag.clone().hide(true))
            .collect::<Vec<_>>()
    };
    // The kinds that would be served are those selected.
    let (of_kinds, of_render) = (serving("worker_kinds"), serving(""));
    cli.mut_subcommand("kinds", |kinds| kinds.args(of_kinds))
        .mut_subcommand("render", |render| render.args(of_render))
}

fn main() -> ExitCode {
    stdstarlark::enter_child_if_asked();
    let parsed = command_line().try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            // Nothing can be done about a closed stderr.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let hosted = Hosted::of(&cli.flags);
    match (cli.command.unwrap_or(Command::Serve), hosted) {
        (Command::Serve, hosted) => serve(&cli.flags, hosted),
        (Command::Kinds(args), Ok(hosted)) => kinds::run(&args, &cli.flags, &hosted),
        (Command::Render(args), Ok(hosted)) => {
            render::run(&args, &cli.flags, &hosted.into_providers())
        }
        (Command::Kinds(_) | Command::Render(_), Err(wrong)) => {
            for error in &wrong {
                eprintln!("stdworker: {error}");
            }
            exit_code(&wrong)
        }
    }
}

/// Usage, if anything of it is.
fn exit_code(wrong: &[HostedError]) -> ExitCode {
    let codes = wrong.iter().map(HostedError::exit_code);
    ExitCode::from(codes.max().unwrap_or(EXIT_USAGE))
}

/// The options and the kinds, or everything that is wrong with both, one line each.
fn check(
    flags: &Flags,
    hosted: Result<Hosted, Vec<HostedError>>,
) -> Result<(RunOptions, Hosted), ExitCode> {
    let options = RunOptions::from_vars(|variable| flags.get(variable));
    let hosted = match (&options, hosted) {
        (Ok(options), Ok(hosted)) => match hosted.check_selection(options.kinds.as_deref()) {
            Ok(()) => Ok(hosted),
            Err(error) => Err(vec![error]),
        },
        (_, hosted) => hosted,
    };
    let (options, wrong) = match (options, hosted) {
        (Ok(options), Ok(hosted)) => return Ok((options, hosted)),
        (options, hosted) => (options, hosted.err().unwrap_or_default()),
    };
    eprintln!("stdworker cannot start:");
    let code = match &options {
        Ok(_) => exit_code(&wrong),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_USAGE)
        }
    };
    for error in &wrong {
        eprintln!("{error}");
    }
    eprintln!("See stdworker --help.");
    Err(code)
}

fn serve(flags: &Flags, hosted: Result<Hosted, Vec<HostedError>>) -> ExitCode {
    let (options, hosted) = match check(flags, hosted) {
        Ok(checked) => checked,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("stdworker could not start its threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let served = hosted
        .selected(options.kinds.as_deref())
        .map(|kind| kind.pair.to_string());
    let line = format!(
        "stdworker {} serves {} for {}, {} tasks at once",
        env!("CARGO_PKG_VERSION"),
        served.collect::<Vec<_>>().join(", "),
        options.broker,
        options.max_parallel
    );
    let ended = runtime.block_on(async {
        let mut serving = pin!(serve_with(hosted.into_providers(), options));
        // Its first step installs the signal handlers: who reads the line may send a signal.
        match poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await {
            Poll::Ready(ended) => ended,
            Poll::Pending => {
                eprintln!("{line}");
                serving.await
            }
        }
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stdworker: {}", chain(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &ServeError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
