//! What CI runs: the cheap checks first, so that a slip is told within seconds, then everything that compiles.

use std::process::Command;

use anyhow::Result;

use crate::steps::{self, Step};
use crate::tree::{self, cargo, run as must};
use crate::{arrows, deny, example, hygiene, public_api, testing};

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        work: || must(cargo().args(["fmt", "--all", "--check"])),
    },
    Step {
        name: "hygiene",
        work: hygiene::check,
    },
    Step {
        name: "arrows",
        work: arrows::check,
    },
    Step {
        name: "deny",
        work: deny::check,
    },
    Step {
        name: "clippy",
        work: || {
            must(cargo().args([
                "clippy",
                "--workspace",
                "--all-targets",
                "--all-features",
                "--",
                "-D",
                "warnings",
            ]))
        },
    },
    Step {
        name: "doc",
        work: public_api::check,
    },
    Step {
        name: "test",
        work: || testing::run(false, &[]),
    },
    Step {
        name: "codegen",
        work: generated_code,
    },
    Step {
        name: "examples",
        work: example::all_in_ci,
    },
];

/// `codegen --check` by the xtask that the tests have built: with all features on, the generator is in it, and nothing is compiled again.
fn generated_code() -> Result<()> {
    let built = tree::build(tree::AS_TESTED)?;
    must(
        Command::new(tree::built(&built, "xtask")?)
            .current_dir(tree::root())
            .args(["codegen", "--check"]),
    )
}

/// Runs the steps named, or all of them.
pub(crate) fn run(only: &[String], list: bool) -> Result<()> {
    if list {
        STEPS.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    steps::run(&steps::named("step", "ci", STEPS, |step| step.name, only)?)
}
