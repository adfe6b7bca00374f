//! `cargo xtask bench`: measurements with a baseline in the same run.
//!
//! A bench is a function in [`BENCHES`]. It builds what it needs as it is shipped, makes its variants and hands them to [`harness::compare`], which interleaves the
//! rounds. These are measurements for people, not tests: nothing here fails because the machine is slow.

mod compose;
mod graphs;
mod harness;
mod load;
mod stacked;
mod starlark;

use std::collections::BTreeMap;
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
        run: stacked::latency,
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
    profile: String,
}

impl Setting {
    /// Builds programs with the profile that is measured.
    fn build(&self, selection: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
        let profile = ["--profile", &self.profile];
        tree::build(&[&profile, selection].concat())
    }
}

/// The programs most benches drive.
struct Programs {
    converge: PathBuf,
    noop: PathBuf,
    graph: PathBuf,
}

impl Programs {
    fn build(setting: &Setting) -> Result<Self> {
        let built = setting.build(&[
            "-p",
            "converge",
            "-p",
            "converge-testkit",
            "--bins",
            "--examples",
        ])?;
        Ok(Self {
            converge: tree::built(&built, "converge")?,
            noop: tree::built(&built, "noop_worker")?,
            graph: tree::built(&built, "graph_worker")?,
        })
    }
}

/// The worker of all providers: a build of its own, since it takes the longest and few benches need it.
fn stdworker(setting: &Setting) -> Result<PathBuf> {
    let built = setting.build(&["-p", "stdworker", "--bins"])?;
    tree::built(&built, "stdworker")
}

/// Runs the benches named, or all of them.
pub(crate) fn run(names: &[String], rounds: u32, profile: String, list: bool) -> Result<()> {
    if list {
        BENCHES
            .iter()
            .for_each(|bench| println!("{:<10} {}", bench.name, bench.about));
        return Ok(());
    }
    let benches = steps::named("bench", "bench", BENCHES, |bench| bench.name, names)?;
    interrupt::listen()?;
    let setting = Setting { rounds, profile };
    for bench in benches {
        println!("\n{}: {}", bench.name, bench.about);
        (bench.run)(&setting)?;
    }
    Ok(())
}
