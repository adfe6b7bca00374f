//! `cargo xtask conformance`: the CEL specification's own tests against stdcel's evaluator.
//!
//! The data is the npm package `@bufbuild/cel-spec` (Apache-2.0), fetched once into `target/` at the version named here; it
//! is not part of this repository. What stdcel fails is listed in `providers/stdcel/conformance/known.json`, with reasons.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::tree::{self, cargo, run as must};

const PACKAGE: &str = "@bufbuild/cel-spec";
const VERSION: &str = "0.6.1";

/// Fetches the data if it is not there yet, runs the tests, prints the counts per file.
pub(crate) fn run() -> Result<()> {
    let root = tree::root();
    let folder = root.join("target/conformance").join(VERSION);
    let unpacked = folder.join("package");
    if !unpacked.join("package.json").exists() {
        fs::create_dir_all(&folder)?;
        let spec = format!("{PACKAGE}@{VERSION}");
        must(
            Command::new("npm")
                .args(["pack", "--silent", spec.as_str()])
                .current_dir(&folder),
        )?;
        let archive = fs::read_dir(&folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
            .context("npm pack left no archive")?;
        must(
            Command::new("tar")
                .arg("-xzf")
                .arg(&archive)
                .current_dir(&folder),
        )?;
    }
    let tests = folder.join("tests.json");
    dump(
        &root.join("providers/stdcel/conformance/dump.mjs"),
        &unpacked,
        &tests,
    )?;
    let run = [
        "run",
        "--quiet",
        "-p",
        "stdcel",
        "--example",
        "conformance",
        "--",
    ];
    must(cargo().args(run).arg(&tests))
}

fn dump(script: &Path, unpacked: &Path, to: &Path) -> Result<()> {
    let output = Command::new("node")
        .arg(script)
        .arg(unpacked)
        .stderr(Stdio::inherit())
        .output();
    let output = output.context("node is needed to read the specification's data")?;
    if !output.status.success() {
        bail!("{} failed: {}", script.display(), output.status);
    }
    fs::write(to, output.stdout).with_context(|| format!("cannot write {}", to.display()))
}
