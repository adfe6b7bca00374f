//! A worker that serves one kind: it keeps a file with the message of the day.
//!
//! Run it against a broker: `BROKER_ADDR=http://127.0.0.1:9090 cargo run --example motd`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use converge_sdk::{
    Condition, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
    async_trait, serve,
};
use serde::Deserialize;
use serde_json::json;

/// What people write into the spec of a `motd` resource.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    text: String,
}

/// What the operator configures for the kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    directory: PathBuf,
}

struct Motd;

#[async_trait]
impl Provider for Motd {
    fn kind(&self) -> KindVersion {
        KindVersion::new("motd", 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        let config: Config = ctx.config()?; // absent: transient; wrong: terminal, with pointer and column
        let path = config.directory.join(&request.resource.name);
        match (request.stage, &*request.reaction) {
            (Stage::Work, "work") => {
                let spec: Spec = request.spec()?;
                tokio::fs::write(&path, &spec.text).await?; // an I/O error is transient
                Ok(Outcome::new()
                    .with_status(json!({"path": path, "bytes": spec.text.len()}))
                    .with_condition(Condition::ready("Written")))
            }
            (Stage::Delete, "teardown") => match tokio::fs::remove_file(&path).await {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(Outcome::new()), // gone already is gone: a task may run twice
            },
            _ => Err(request.unknown_reaction()),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(vec![Arc::new(Motd)]).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}
