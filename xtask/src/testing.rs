//! Every test of the workspace: unit, integration and documentation tests, all features on.

use anyhow::Result;

use crate::{needs, tree};

/// Checks what tests call, then runs `cargo test`. In CI what is missing is installed first where that is possible.
pub(crate) fn run(install: bool, args: &[String]) -> Result<()> {
    needs::for_tests(install || std::env::var_os("CI").is_some())?;
    let mut command = tree::cargo();
    command
        .args(["test", "--workspace", "--all-features", "--no-fail-fast"])
        .args(args);
    tree::run(&mut command)
}
