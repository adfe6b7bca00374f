//! The tasks of this repository: what CI, a developer and a visitor run.
//!
//! Everything here is a thin, synchronous program around `cargo`, the three binaries and files of the tree. It links no crate of the workspace, so that
//! `cargo xtask demo` compiles little before it compiles the product, and nothing depends on it.

mod arrows;
mod bench;
mod ci;
mod codegen;
mod conctl;
mod conformance;
mod deny;
mod dist;
mod example;
mod guards;
mod http;
mod hygiene;
mod interrupt;
mod live;
mod manifest;
mod needs;
mod new_provider;
mod process;
mod public_api;
mod run;
mod stack;
mod steps;
mod testing;
mod tree;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "The tasks of this repository",
    disable_version_flag = true
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Start a control plane and a worker on free ports, apply the demo and show it converge.
    Demo {
        /// End by itself: exit 0 once every resource is Ready, 1 if one does not get there.
        #[arg(long)]
        once: bool,
        /// Keep the data directory and the logs, and say where they are.
        #[arg(long)]
        keep: bool,
        /// Build with optimisations (slower to compile).
        #[arg(long)]
        release: bool,
    },
    /// Run an example to Ready, check what it promises, and take it down again.
    Example {
        /// The folder's name under `examples/`.
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Run every example whose programs are installed.
        #[arg(long, conflicts_with = "name")]
        all: bool,
        /// Stay until Ctrl-C and show it live.
        #[arg(long, conflicts_with = "all")]
        watch: bool,
        /// Keep the data directory and the logs, and say where they are.
        #[arg(long)]
        keep: bool,
        /// Build with optimisations (slower to compile).
        #[arg(long)]
        release: bool,
    },
    /// Run every test of the workspace.
    Test {
        /// Install what the tests need and this machine lacks, where that can be done unattended (CI implies it).
        #[arg(long)]
        install: bool,
        /// Passed on to `cargo test`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// What CI runs.
    Ci {
        /// Only these steps (repeat the flag; `--list` names them).
        #[arg(long = "step", value_name = "STEP")]
        steps: Vec<String>,
        /// Name the steps and stop.
        #[arg(long)]
        list: bool,
    },
    /// Show that the tests which prove the product's safety fail when what they prove is taken out of the code.
    Guards {
        /// Only these guards; the name of a file of the list means all in it.
        names: Vec<String>,
        /// Name the guards and stop.
        #[arg(long)]
        list: bool,
    },
    /// Generate the Rust code of the wire from `sdk/proto`.
    Codegen {
        /// Write nothing; fail if what is checked in differs.
        #[arg(long)]
        check: bool,
    },
    /// Measure: interleaved rounds, the median, CPU per task, ratios to a baseline of the same run.
    Bench {
        /// Only these benches.
        names: Vec<String>,
        /// Rounds of each variant.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
        rounds: u32,
        /// How the programs are built: `shipped` is what `dist` packs, `release` builds in half the time and runs 5 % slower.
        #[arg(long, default_value = "shipped")]
        profile: String,
        /// Name the benches and stop.
        #[arg(long)]
        list: bool,
    },
    /// Run the CEL specification's own tests against stdcel: passed and failed per file, each failure with its reason.
    Conformance,
    /// Build the release binaries and pack them with their licence into `target/dist`.
    Dist,
    /// Copy a provider crate out of the tree, renamed, as the start of your own.
    NewProvider {
        /// The new crate and kind: lower-case letters, digits and `-`.
        name: String,
        /// Which provider to start from.
        #[arg(long, default_value = "stdshell")]
        from: String,
        /// Where to put it [default: ./NAME].
        #[arg(long)]
        to: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::refuse(&error),
    };
    let result = match cli.task {
        Task::Demo {
            once,
            keep,
            release,
        } => example::demo(
            once,
            run::Options {
                keep,
                build: run::Build::of(release),
            },
        ),
        Task::Example {
            all: true,
            keep,
            release,
            ..
        } => example::all(run::Options {
            keep,
            build: run::Build::of(release),
        }),
        Task::Example {
            name,
            watch,
            keep,
            release,
            ..
        } => example::one(
            &name.unwrap_or_default(),
            watch,
            run::Options {
                keep,
                build: run::Build::of(release),
            },
        ),
        Task::Test { install, args } => testing::run(install, &args),
        Task::Ci { steps, list } => ci::run(&steps, list),
        Task::Guards { names, list } => guards::run(&names, list),
        Task::Codegen { check } => codegen::run(check),
        Task::Bench {
            names,
            rounds,
            profile,
            list,
        } => bench::run(&names, rounds, &profile, list),
        Task::Conformance => conformance::run(),
        Task::Dist => dist::run(),
        Task::NewProvider { name, from, to } => new_provider::run(&name, &from, to),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            usage::exit_code(&error)
        }
    }
}
