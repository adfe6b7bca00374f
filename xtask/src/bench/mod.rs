//! `cargo xtask bench`: measurements with a baseline in the same run.
//!
//! A bench is a function in [`BENCHES`]. It is given what it measures, built as it is shipped, makes its variants and hands them to [`harness::compare`], which interleaves the
//! rounds. These are measurements for people, not tests: nothing here fails because the machine is slow.

mod bare_chain;
mod compose;
mod graphs;
mod harness;
mod latency;
mod load;
mod stacked;
mod starlark;

use std::path::PathBuf;

use anyhow::Result;

use crate::{interrupt, steps, tree};

/// A measurement: its name on the command line, what it tells, and the function.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&Setting) -> Result<()>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "shell",
        about: "`:` through the whole stack, against a bare loop that spawns `bash FILE` with three pipes",
        run: stacked::shell,
    },
    Bench {
        name: "noop",
        about: "no-op leaf reconciles through SQLite, gRPC and a worker",
        run: stacked::noop,
    },
    Bench {
        name: "latency",
        about: "one resource from apply to Ready, nothing else running",
        run: latency::apply_to_ready,
    },
    Bench {
        name: "stdcel",
        about: "a stdcel graph of 1,000 and of 10,000 resources, composed and read",
        run: compose::stdcel,
    },
    Bench {
        name: "fan",
        about: "leaves under one root, from apply to the root's Ready: 10,000 against 1,000",
        run: graphs::fan,
    },
    Bench {
        name: "chain",
        about: "a chain of 1,000 leaves, each waiting for the one before",
        run: graphs::chain,
    },
    Bench {
        name: "start",
        about: "stdworker from start to serving",
        run: stacked::start,
    },
    Bench {
        name: "memory",
        about: "resident memory of an idle control plane and worker",
        run: stacked::memory,
    },
    Bench {
        name: "starlark",
        about: "stdstarlark composing 125 children, against Google's Go Starlark",
        run: starlark::compose,
    },
];

/// What every bench gets.
pub(crate) struct Setting {
    rounds: u32,
    programs: Programs,
}

/// What is measured. One selection of packages for all of it: another one would build with other features, hence all again.
struct Programs {
    converge: PathBuf,
    stdworker: PathBuf,
    noop: PathBuf,
    graph: PathBuf,
    stdcel: PathBuf,
    starlark: PathBuf,
}

impl Programs {
    fn build(profile: &str) -> Result<Self> {
        let packages = [
            "converge",
            "stdworker",
            "converge-testkit",
            "stdcel",
            "stdstarlark",
        ];
        let mut selection = vec!["--profile", profile, "--bins", "--examples"];
        selection.extend(packages.into_iter().flat_map(|package| ["-p", package]));
        let built = tree::build(&selection)?;
        Ok(Self {
            converge: tree::built(&built, "converge")?,
            stdworker: tree::built(&built, "stdworker")?,
            noop: tree::built(&built, "noop_worker")?,
            graph: tree::built(&built, "graph_worker")?,
            stdcel: tree::built(&built, "bench_graph")?,
            starlark: tree::built(&built, "bench_compose")?,
        })
    }
}

/// Runs the benches named, or all of them.
pub(crate) fn run(names: &[String], rounds: u32, profile: &str, list: bool) -> Result<()> {
    if list {
        BENCHES
            .iter()
            .for_each(|bench| println!("{:<10} {}", bench.name, bench.about));
        return Ok(());
    }
    let benches = steps::named("bench", "bench", BENCHES, |bench| bench.name, names)?;
    interrupt::listen()?;
    let setting = Setting {
        rounds,
        programs: Programs::build(profile)?,
    };
    for bench in benches {
        println!("\n{}: {}", bench.name, bench.about);
        (bench.run)(&setting)?;
    }
    Ok(())
}
