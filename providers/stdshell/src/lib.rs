//! `stdshell`: a resource that is an inline script.
//!
//! The script is written to a private directory, handed to its interpreter (never executed itself, so neither `noexec` nor a
//! writer elsewhere gets in the way), and is Ready when it exits with 0. It may run more than once for one generation.
//! How programs are run and ended is `converge_sdk::process`; what the spec and the config say is in `spec.rs` and
//! `config.rs`; `run.rs` puts them together.

mod config;
mod run;
mod spec;

use std::sync::Arc;
use std::time::Duration;

use converge_sdk::{
    KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError, async_trait,
    process,
};

/// The kind this provider serves.
pub const KIND: &str = "stdshell";

/// The kind's manifest.
pub const MANIFEST: &str = include_str!("../stdshell.kind.json");

/// The provider.
#[must_use]
pub fn provider() -> Arc<dyn Provider> {
    Arc::new(Stdshell)
}

/// Runs the scripts of kind `stdshell`, version 1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdshell;

#[async_trait]
impl Provider for Stdshell {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        match (request.stage, request.reaction.as_str()) {
            (Stage::Work, "work") => run::run(ctx, &request).await,
            _ => Err(request.unknown_reaction()),
        }
    }

    fn ready(&self) -> bool {
        process::ready()
    }

    fn cleanup_grace(&self) -> Duration {
        process::DEFAULT_GRACE + Duration::from_secs(1)
    }
}
