//! Where things are in this repository, and how `cargo` and `git` are called on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The repository's root. `cargo run` sets the variable; without it (the binary started by hand) the path it was built from is used.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    here.parent()
        .map_or_else(|| here.clone(), Path::to_path_buf)
}

/// `cargo`, the one that runs us, in the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What `cargo run` set for us would be wrong for another package.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
            || text == "CARGO_CRATE_NAME"
        {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command with our own standard streams; an error names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    let status = command
        .status()
        .with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns its stdout; on failure the error carries its stderr.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("could not start `{line}`"))?;
    if !output.status.success() {
        bail!(
            "`{line}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{line}` wrote something that is not UTF-8"))
}

fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Builds targets and returns where each executable is, by target name. `selection` is what selects them (`-p`, `--example`, `--release`).
pub(crate) fn build(selection: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo();
    command
        .arg("build")
        .args(selection)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit());
    let line = line(&command);
    let output = command
        .output()
        .with_context(|| format!("could not start `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed ({})", output.status);
    }
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| line.starts_with('{'))
    {
        let message: Value =
            serde_json::from_str(line).context("cargo wrote a build message that is not JSON")?;
        if let (Some(name), Some(path)) = (
            message["target"]["name"].as_str(),
            message["executable"].as_str(),
        ) {
            found.insert(name.to_owned(), PathBuf::from(path));
        }
    }
    Ok(found)
}

/// Selects what `cargo test --workspace --all-features` builds besides the tests, so that it is not compiled in another shape.
pub(crate) const AS_TESTED: &[&str] = &["--workspace", "--all-features", "--bins", "--examples"];

/// Looks a built target up.
pub(crate) fn built(found: &BTreeMap<String, PathBuf>, name: &str) -> Result<PathBuf> {
    found
        .get(name)
        .cloned()
        .with_context(|| format!("the build made no executable `{name}`"))
}

/// The files git tracks or would (not ignored), relative to the root. Includes new files, so that a check sees them before they are committed.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    let list = read(Command::new("git").current_dir(root()).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    Ok(list
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).symlink_metadata().is_ok())
        .collect())
}

/// The directory build output goes to.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let metadata: Value = serde_json::from_str(&read(cargo().args([
        "metadata",
        "--no-deps",
        "--format-version=1",
    ]))?)
    .context("cargo metadata")?;
    Ok(PathBuf::from(
        metadata["target_directory"]
            .as_str()
            .context("cargo metadata names no target directory")?,
    ))
}
