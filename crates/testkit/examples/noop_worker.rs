//! A worker whose one kind, `noop`, does nothing: what is left is the cost of the control plane, the wire and the SDK.
//!
//! Driven by `cargo xtask bench`; configured like any worker (`BROKER_ADDR`, `WORKER_MAX_PARALLEL`, …).

use std::process::ExitCode;
use std::sync::Arc;

use converge_sdk::{
    KindVersion, Outcome, Provider, ReactionRequest, TaskContext, TaskError, async_trait, serve,
};

struct Noop;

#[async_trait]
impl Provider for Noop {
    fn kind(&self) -> KindVersion {
        KindVersion::new("noop", 1)
    }

    async fn work(
        &self,
        _ctx: &TaskContext,
        _request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        Ok(Outcome::new())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(vec![Arc::new(Noop)]).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("noop_worker: {error}");
            ExitCode::FAILURE
        }
    }
}
