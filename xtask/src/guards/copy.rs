//! A throw-away copy of the committed tree, in which guards are taken out and tests are built.
//!
//! It lives below the target directory and keeps its own build output. Both stay between runs, and only files that differ are written, so
//! that a second run compiles what has changed since. Nothing outside of it is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::list::{Binary, Edit, Packages};
use crate::{interrupt, tree};

/// Programs that the tests of `converge-testkit` start without cargo knowing it.
const STARTED: &[&str] = &["converge", "stdworker", "conctl"];
/// Those that its binary `wire` starts: its workers are in the test itself.
const STARTED_BY_WIRE: &[&str] = &["converge"];
/// Lines of the compiler that are shown when something does not compile.
const SHOWN_LINES: usize = 60;

/// See the module.
pub(crate) struct Copy {
    root: PathBuf,
    output: PathBuf,
    packages: Packages,
}

/// An executable of tests, and what cargo would run it with.
pub(crate) struct Executable {
    pub(crate) path: PathBuf,
    /// Its package's directory.
    pub(crate) package: PathBuf,
}

/// What the compiler said of a tree that does not compile.
type Said = String;

/// A change of the copy; the files are written back when it is dropped.
pub(crate) struct Out(Vec<(PathBuf, String)>);

impl Copy {
    /// Makes the copy, or brings the one of an earlier run up to date.
    pub(crate) fn of_commit() -> Result<Self> {
        let dir = tree::target_dir()?.join("guards");
        let root = dir.join("tree");
        std::fs::create_dir_all(&root)
            .with_context(|| format!("could not create {}", root.display()))?;
        let mut git = Command::new("git");
        // With an index of its own, git writes the files that differ from the commit and removes those it does not have.
        git.current_dir(tree::root())
            .env("GIT_INDEX_FILE", dir.join("index"))
            .arg("--work-tree")
            .arg(&root)
            .args(["read-tree", "--reset", "-u", "HEAD"]);
        tree::read(&mut git)?;
        let changed = tree::read(Command::new("git").current_dir(tree::root()).args([
            "status",
            "--porcelain",
            "--untracked-files=no",
        ]))?;
        if !changed.trim().is_empty() {
            println!("what is not committed is not looked at");
        }
        Ok(Self {
            packages: Packages::read(&root)?,
            output: dir.join("build"),
            root,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Takes a guard out until the value is dropped.
    pub(crate) fn without(&self, edits: &[&Edit]) -> Result<Out> {
        let mut out = Out(Vec::new());
        for edit in edits {
            let path = self.root.join(&edit.file);
            let before = std::fs::read_to_string(&path)
                .with_context(|| format!("could not read {}", path.display()))?;
            let after = edit.apply(&before)?;
            std::fs::write(&path, after)
                .with_context(|| format!("could not write {}", path.display()))?;
            out.0.push((path, before));
        }
        Ok(out)
    }

    /// Builds test binaries, and the programs their tests start.
    pub(crate) fn build(
        &self,
        binaries: &BTreeSet<&Binary>,
    ) -> Result<std::result::Result<BTreeMap<Binary, Executable>, Said>> {
        let mut found = BTreeMap::new();
        for mut cargo in self.invocations(binaries) {
            interrupt::check()?;
            let output = cargo
                .stdin(Stdio::null())
                .output()
                .context("could not start cargo")?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let lines: Vec<&str> = said.lines().collect();
                let from = lines.iter().position(|line| line.starts_with("error"));
                let shown = &lines[from.unwrap_or(0)..];
                return Ok(Err(shown[..shown.len().min(SHOWN_LINES)].join("\n")));
            }
            self.collect(&String::from_utf8_lossy(&output.stdout), &mut found)?;
        }
        for binary in binaries {
            if !found.contains_key(*binary) {
                bail!("cargo built no test binary {binary}");
            }
        }
        Ok(Ok(found))
    }

    /// Integration tests are selected by name over the whole workspace, so that every crate is compiled in one shape only. For the unit
    /// tests of a library that would build those of every other too: they are built by package, with dependencies of their own.
    fn invocations(&self, binaries: &BTreeSet<&Binary>) -> Vec<Command> {
        let mut invocations = Vec::new();
        let targets: BTreeSet<&str> = binaries
            .iter()
            .filter_map(|binary| binary.target.as_deref())
            .collect();
        if !targets.is_empty() {
            let mut cargo = self.cargo();
            cargo.args(["build", "--workspace", "--all-features"]);
            for target in targets {
                cargo.args(["--test", target]);
            }
            let programs: BTreeSet<&str> = binaries
                .iter()
                .flat_map(|binary| started_by(binary))
                .copied()
                .collect();
            for program in programs {
                cargo.args(["--bin", program]);
            }
            invocations.push(cargo);
        }
        for binary in binaries.iter().filter(|binary| binary.target.is_none()) {
            let mut cargo = self.cargo();
            cargo.args(["test", "--no-run", "--all-features", "--lib"]);
            cargo.args(["--package", &binary.package]);
            invocations.push(cargo);
        }
        for cargo in &mut invocations {
            cargo.arg("--message-format=json-render-diagnostics");
        }
        invocations
    }

    fn cargo(&self) -> Command {
        let mut cargo = tree::cargo();
        cargo
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.output)
            // One line changes from build to build.
            .env_remove("CARGO_INCREMENTAL");
        cargo
    }

    fn collect(&self, messages: &str, into: &mut BTreeMap<Binary, Executable>) -> Result<()> {
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line)
                .context("cargo wrote a build message that is not JSON")?;
            let (Some(path), Some(manifest)) = (
                message["executable"].as_str(),
                message["manifest_path"].as_str(),
            ) else {
                continue;
            };
            if message["profile"]["test"] != true {
                continue;
            }
            let Some((package, dir)) = self.packages.at(manifest) else {
                continue;
            };
            let target = &message["target"];
            let target = match target["kind"][0].as_str() {
                Some("test") => target["name"].as_str().map(str::to_owned),
                Some("lib") => None,
                _ => continue,
            };
            let binary = Binary {
                package: package.to_owned(),
                target,
            };
            let executable = Executable {
                path: path.into(),
                package: dir.to_owned(),
            };
            into.insert(binary, executable);
        }
        Ok(())
    }
}

fn started_by(binary: &Binary) -> &'static [&'static str] {
    match (binary.package.as_str(), binary.target.as_deref()) {
        ("converge-testkit", Some("wire")) => STARTED_BY_WIRE,
        ("converge-testkit", Some(_)) => STARTED,
        _ => &[],
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        // The last edit first: two may be of one file.
        for (path, before) in self.0.drain(..).rev() {
            if let Err(error) = std::fs::write(&path, before) {
                eprintln!("could not write {} back: {error}", path.display());
            }
        }
    }
}
