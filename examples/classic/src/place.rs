//! The outside world of the leaves: a directory with one file per thing.
//!
//! What must hold for whatever stands in its place: doing a thing twice ends where doing it once does, and a file is there whole or not at
//! all, because a task may be cut anywhere and come again.

use std::io::ErrorKind;
use std::path::PathBuf;

use converge_sdk::{ReactionRequest, TaskContext, TaskError};
use serde::Deserialize;
use serde_json::Value;

/// What the operator configures for `database` and `service`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    directory: PathBuf,
}

/// Where the thing of one resource lies.
pub(crate) struct Place {
    file: PathBuf,
    draft: PathBuf,
}

impl Place {
    /// The place of the resource of this task.
    pub(crate) fn of(ctx: &TaskContext, request: &ReactionRequest) -> Result<Self, TaskError> {
        let config: Config = ctx.config()?;
        // Kind and name are unique, and neither holds a `/`.
        let name = format!("{}-{}", request.resource.kind, request.resource.name);
        Ok(Self {
            file: config.directory.join(format!("{name}.json")),
            // Claims of one resource never share an epoch, so a run that was given up cannot write into the draft of the next.
            draft: config
                .directory
                .join(format!("{name}.{}.draft", ctx.claim_epoch())),
        })
    }

    /// Makes the thing, or brings it in line.
    pub(crate) async fn put(&self, what: &Value) -> Result<(), TaskError> {
        tokio::fs::write(&self.draft, what.to_string()).await?; // an I/O error is transient
        tokio::fs::rename(&self.draft, &self.file).await?;
        Ok(())
    }

    /// Takes it away.
    pub(crate) async fn remove(&self) -> Result<(), TaskError> {
        match tokio::fs::remove_file(&self.file).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()), // gone already is gone
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Tasks as the worker would hand them over.

    use std::path::Path;

    use converge_sdk::{
        KindVersion, Outcome, Provider, ProviderConfig, ReactionRequest, Resource, Stage,
        TaskContext, TaskError,
    };
    use serde_json::{Value, json};

    /// Runs one reaction of a leaf against a directory.
    pub(crate) async fn run(
        provider: &dyn Provider,
        stage: Stage,
        directory: &Path,
        spec: Value,
    ) -> Result<Outcome, TaskError> {
        let kind: KindVersion = provider.kind();
        let reaction = if stage == Stage::Delete {
            "teardown"
        } else {
            "work"
        };
        let ctx = TaskContext::builder(kind.clone())
            .claim_epoch(1)
            .default_config(ProviderConfig::new().with_spec(json!({ "directory": directory })))
            .build();
        let resource = Resource::new(kind.kind(), "shop-x").with_spec(spec);
        let request = ReactionRequest::builder(stage, reaction, kind, resource).build();
        provider.work(&ctx, request).await
    }

    /// The status of a success.
    pub(crate) fn status(outcome: Outcome) -> Value {
        outcome.status.unwrap().decode().unwrap()
    }

    /// Names in a directory, sorted.
    pub(crate) fn files(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = directory
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}
