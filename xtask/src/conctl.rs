//! `conctl` as the examples use it: the command line a reader would type, its JSON read back.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::tree;

/// The program and the server it talks to.
pub(crate) struct Conctl {
    program: PathBuf,
    server: String,
}

/// One resource of a list: what the live view shows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Row {
    kind: String,
    name: String,
    /// `Ready`, `Reconciling`, …
    pub(crate) phase: String,
    /// Why it is not settled.
    #[serde(default)]
    pub(crate) waiting: Option<String>,
    #[serde(default)]
    failure: Option<Failure>,
    #[serde(default)]
    owner: Option<Owner>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Failure {
    message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

impl Row {
    /// `kind/name`.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// The owner's `kind/name`, for a composer's child.
    pub(crate) fn owner(&self) -> Option<String> {
        self.owner
            .as_ref()
            .map(|owner| format!("{}/{}", owner.kind, owner.name))
    }

    /// One line on what is going on: the failure, else the waiting reason.
    pub(crate) fn note(&self) -> String {
        // A message of several lines says the most telling thing last.
        let failure = self.failure.as_ref().map(|failure| {
            let words: Vec<&str> = failure.message.split_whitespace().collect();
            words.join(" ").chars().take(120).collect::<String>()
        });
        let failure = failure.as_deref().filter(|text| !text.is_empty());
        match (failure, self.waiting.as_deref()) {
            (Some(failure), Some(waiting)) => format!("{failure} ({waiting})"),
            (Some(text), None) | (None, Some(text)) => text.to_owned(),
            (None, None) => String::new(),
        }
    }

    #[cfg(test)]
    pub(crate) fn made(id: &str, phase: &str, owner: Option<&str>) -> Self {
        let split = |id: &str| {
            id.split_once('/')
                .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
                .unwrap()
        };
        let (kind, name) = split(id);
        let owner = owner.map(split).map(|(kind, name)| Owner { kind, name });
        Self {
            kind,
            name,
            phase: phase.to_owned(),
            waiting: None,
            failure: None,
            owner,
        }
    }
}

impl Conctl {
    pub(crate) fn new(program: PathBuf, server: &str) -> Self {
        Self {
            program,
            server: server.to_owned(),
        }
    }

    /// The command line without a verb, for a person to type.
    pub(crate) fn shown(&self) -> String {
        format!("{} --server {}", self.program.display(), self.server)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The server is given by variable, so that a test of the option's place is not needed here.
        command
            .env("CONVERGE_SERVER", &self.server)
            .env("NO_COLOR", "1");
        command
    }

    /// Applies a file or a folder.
    pub(crate) fn apply(&self, file: &Path, bundle: Option<&Path>) -> Result<String> {
        let mut command = self.command();
        command.arg("apply").arg("-f").arg(file);
        if let Some(bundle) = bundle {
            command.arg("--bundle").arg(bundle);
        }
        tree::read(&mut command)
    }

    /// Every resource.
    pub(crate) fn list(&self) -> Result<Vec<Row>> {
        #[derive(Deserialize)]
        struct List {
            items: Vec<Row>,
        }
        let text = tree::read(self.command().args(["list", "-o", "json"]))?;
        let list: List =
            serde_json::from_str(&text).context("conctl list printed something unexpected")?;
        Ok(list.items)
    }

    /// One resource as the API answers it.
    pub(crate) fn get(&self, id: &str) -> Result<Value> {
        let text = tree::read(self.command().args(["get", id, "-o", "json"]))?;
        serde_json::from_str(&text)
            .with_context(|| format!("conctl get {id} printed something that is not JSON"))
    }

    /// What a person would read first about a resource that does not get Ready.
    pub(crate) fn describe(&self, id: &str) -> String {
        tree::read(self.command().args(["describe", id]))
            .unwrap_or_else(|error| format!("{error:#}\n"))
    }

    /// A composite and what it is made of, as a tree.
    pub(crate) fn graph(&self, id: &str) -> Result<String> {
        tree::read(self.command().args(["graph", id]))
    }

    /// Deletes a resource and waits until it is gone.
    pub(crate) fn delete(&self, id: &str, timeout_seconds: u64) -> Result<()> {
        tree::read(self.command().args([
            "delete",
            id,
            "--wait",
            "--timeout",
            &format!("{timeout_seconds}s"),
        ]))
        .map(|_| ())
    }
}
