//! One run of an example: apply, watch until Ready, compare, take down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::conctl::{Conctl, Row};
use crate::live::Live;
use crate::manifest::{Apply, Manifest, Worker, kind_file};
use crate::stack::Stack;
use crate::{interrupt, tree};

/// Lines of a graph that are still a picture.
const SCREEN: usize = 30;

/// What the command line decides about a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Keep the data directory.
    pub(crate) keep: bool,
    /// What is built.
    pub(crate) build: Build,
}

/// How the programs are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// Only what is needed, and nothing optimised: the shortest way from a fresh clone.
    Least,
    /// The same, optimised.
    Release,
    /// The whole workspace with all features: what `cargo test` has built already is used again.
    AsTested,
}

impl Build {
    /// What `--release` on the command line means.
    pub(crate) fn of(release: bool) -> Self {
        if release { Self::Release } else { Self::Least }
    }
}

/// The programs a run needs.
pub(crate) struct Programs {
    converge: PathBuf,
    conctl: PathBuf,
    worker: Option<PathBuf>,
}

impl Programs {
    /// Builds them.
    pub(crate) fn build(worker: &Worker, options: Options) -> Result<Self> {
        let (package, target) = match worker {
            Worker::Built {
                package, target, ..
            } => (package.as_str(), Some(target.as_str())),
            Worker::Stdworker => ("stdworker", Some("stdworker")),
            Worker::Nobody => ("", None),
        };
        let mut selection = vec!["-p", "converge", "-p", "conctl"];
        match (worker, target) {
            (Worker::Built { example: true, .. }, Some(target)) => {
                selection.extend(["-p", package, "--bins", "--example", target]);
            }
            (_, Some(_)) => selection.extend(["-p", package]),
            (_, None) => {}
        }
        match options.build {
            Build::Least => selection.extend(["--profile", "quick"]),
            Build::Release => selection.push("--release"),
            Build::AsTested => selection = tree::AS_TESTED.to_vec(),
        }
        let built = tree::build(&selection)?;
        Ok(Self {
            converge: tree::built(&built, "converge")?,
            conctl: tree::built(&built, "conctl")?,
            worker: target
                .map(|target| tree::built(&built, target))
                .transpose()?,
        })
    }
}

/// An example that is up.
pub(crate) struct Run<'a> {
    dir: &'a Path,
    manifest: &'a Manifest,
    pub(crate) stack: Stack,
    pub(crate) conctl: Conctl,
    live: Live,
}

impl<'a> Run<'a> {
    /// Starts the processes and applies everything.
    pub(crate) fn start(
        dir: &'a Path,
        manifest: &'a Manifest,
        programs: &Programs,
    ) -> Result<Self> {
        let mut stack = Stack::start(&programs.converge)?;
        let scratch = stack.dir().join("example");
        std::fs::create_dir(&scratch)
            .with_context(|| format!("could not create {}", scratch.display()))?;
        let conctl = Conctl::new(programs.conctl.clone(), &stack.at.api);
        println!(
            "control plane {}   broker {}",
            stack.at.api, stack.at.broker
        );
        if let Some(worker) = &programs.worker {
            let path = std::env::var("PATH").unwrap_or_default();
            let mut env: BTreeMap<String, String> = manifest
                .env
                .iter()
                .map(|(name, value)| {
                    let value = value
                        .replace("__EXAMPLE_DIR__", &dir.display().to_string())
                        .replace("__EXAMPLE_TMP__", &scratch.display().to_string())
                        .replace("__PATH__", &path);
                    (name.clone(), value)
                })
                .collect();
            env.insert("EXAMPLE_DIR".into(), dir.display().to_string());
            env.insert("EXAMPLE_TMP".into(), scratch.display().to_string());
            stack.worker(worker, dir, &env)?;
        }
        let root = tree::root();
        for kind in &manifest.kinds {
            conctl.apply(&kind_file(&root, kind), None)?;
        }
        let applied = stack.dir().join("applied");
        for (at, Apply { file, bundle }) in manifest.apply.iter().enumerate() {
            let to = applied
                .join(at.to_string())
                .join(file.file_name().unwrap_or(file.as_os_str()));
            render(
                &dir.join(file),
                &to,
                &[("__EXAMPLE_DIR__", dir), ("__EXAMPLE_TMP__", &scratch)],
            )?;
            let bundle = bundle.as_ref().map(|bundle| dir.join(bundle));
            print!("{}", conctl.apply(&to, bundle.as_deref())?);
        }
        Ok(Self {
            dir,
            manifest,
            stack,
            conctl,
            live: Live::new(),
        })
    }

    /// Draws the state once.
    pub(crate) fn look(&mut self) -> Result<Vec<Row>> {
        self.stack.check()?;
        let rows = self.conctl.list()?;
        self.live.show(&rows);
        Ok(rows)
    }

    /// Watches until everything that must be Ready is; fails with what a person needs to see why not.
    pub(crate) fn until_ready(&mut self) -> Result<()> {
        let limit = Instant::now() + Duration::from_secs(self.manifest.timeout_seconds);
        let mut failed_since: Option<Instant> = None;
        loop {
            interrupt::check()?;
            let rows = self.look()?;
            let unready = unready(&rows, self.manifest.ready.as_deref());
            if unready.is_empty() {
                return Ok(());
            }
            // A terminal failure stays, unless something it waits for from outside is still on its way.
            let failed = rows.iter().any(|row| row.phase == "Failed");
            failed_since = failed.then(|| failed_since.unwrap_or_else(Instant::now));
            if Instant::now() > limit
                || failed_since.is_some_and(|since| since.elapsed() > Duration::from_secs(5))
            {
                let mut report = String::new();
                for id in unready.iter().take(5) {
                    report.push_str(&self.conctl.describe(id));
                    report.push('\n');
                }
                bail!(
                    "not Ready: {}\n{report}{}",
                    unready.join(", "),
                    self.stack.logs()
                );
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Compares what the example promises with what the API answers.
    pub(crate) fn expect(&self) -> Result<()> {
        let mut wrong = Vec::new();
        for (id, fields) in &self.manifest.expect {
            let answer = self.conctl.get(id)?;
            wrong.extend(differences(id, &answer, fields));
        }
        if !wrong.is_empty() {
            bail!(
                "{} promised values differ\n  {}",
                wrong.len(),
                wrong.join("\n  ")
            );
        }
        Ok(())
    }

    /// What composers made, drawn with what flows where: one tree for each composite at the top that a screen has room for.
    pub(crate) fn graphs(&self) -> Result<String> {
        let mut text = String::new();
        for id in composites(&self.conctl.list()?) {
            let graph = self.conctl.graph(&id)?;
            if graph.lines().count() <= SCREEN {
                text.push_str(&format!("\n{graph}"));
            }
        }
        Ok(text)
    }

    /// Deletes what the example made and checks that nothing of it is left.
    pub(crate) fn take_down(&mut self) -> Result<()> {
        let rows = self.conctl.list()?;
        let roots = match &self.manifest.teardown {
            Some(named) => named.clone(),
            None => rows
                .iter()
                .filter(|row| row.owner().is_none())
                .map(Row::id)
                .collect(),
        };
        for id in &roots {
            interrupt::check()?;
            self.conctl
                .delete(id, self.manifest.timeout_seconds)
                .with_context(|| {
                    format!(
                        "{id} does not go away\n{}\n{}",
                        self.conctl.describe(id),
                        self.stack.logs()
                    )
                })?;
        }
        let left = self.look()?;
        if self.manifest.teardown.is_none() && !left.is_empty() {
            bail!(
                "left over: {}",
                left.iter().map(Row::id).collect::<Vec<_>>().join(", ")
            );
        }
        Ok(())
    }

    /// The example's folder, for messages.
    pub(crate) fn dir(&self) -> &Path {
        self.dir
    }
}

/// Those without an owner that own something.
fn composites(rows: &[Row]) -> Vec<String> {
    let owners: BTreeSet<String> = rows.iter().filter_map(Row::owner).collect();
    rows.iter()
        .filter(|row| row.owner().is_none())
        .map(Row::id)
        .filter(|id| owners.contains(id))
        .collect()
}

/// Those that are not Ready yet, the named ones that do not exist included.
fn unready(rows: &[Row], named: Option<&[String]>) -> Vec<String> {
    let phases: BTreeMap<String, &str> = rows
        .iter()
        .map(|row| (row.id(), row.phase.as_str()))
        .collect();
    let wanted: BTreeSet<String> = named.map_or_else(
        || phases.keys().cloned().collect(),
        |named| named.iter().cloned().collect(),
    );
    if wanted.is_empty() {
        return vec!["(nothing was applied)".to_owned()];
    }
    wanted
        .into_iter()
        .filter(|id| phases.get(id) != Some(&"Ready"))
        .collect()
}

fn differences(id: &str, answer: &Value, fields: &BTreeMap<String, Value>) -> Vec<String> {
    fields
        .iter()
        .filter_map(|(pointer, wanted)| match answer.pointer(pointer) {
            Some(found) if found == wanted => None,
            Some(found) => Some(format!("{id} {pointer}: {found} instead of {wanted}")),
            None => Some(format!("{id} {pointer}: missing, {wanted} was promised")),
        })
        .collect()
}

/// Copies a file or a tree with placeholders replaced. Only text is looked into.
fn render(from: &Path, to: &Path, places: &[(&str, &Path)]) -> Result<()> {
    if from.is_dir() {
        std::fs::create_dir_all(to)
            .with_context(|| format!("could not create {}", to.display()))?;
        for entry in from
            .read_dir()
            .with_context(|| format!("could not list {}", from.display()))?
        {
            let entry = entry.with_context(|| format!("could not list {}", from.display()))?;
            render(&entry.path(), &to.join(entry.file_name()), places)?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("could not create {}", parent.display()))?;
    }
    let mut bytes =
        std::fs::read(from).with_context(|| format!("could not read {}", from.display()))?;
    if let Ok(text) = std::str::from_utf8(&bytes) {
        bytes = places
            .iter()
            .fold(text.to_owned(), |text, (name, path)| {
                text.replace(name, &path.display().to_string())
            })
            .into_bytes();
    }
    std::fs::write(to, bytes).with_context(|| format!("could not write {}", to.display()))
}

#[cfg(test)]
mod tests;
