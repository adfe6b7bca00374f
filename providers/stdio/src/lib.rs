//! `stdio`: resources handled by an external program, in any language.
//!
//! Per task the operator's program runs once: one JSON request on its stdin, one JSON response on its stdout. It may run more
//! than once for one generation. How programs are run and ended is `converge_sdk::process`; what is said on either pipe is
//! [`request`] and [`response`]; what the operator says about the program is `config.rs`.

mod config;
pub mod request;
pub mod response;
mod run;

use std::sync::Arc;
use std::time::Duration;

use converge_sdk::{
    KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError, async_trait,
    process,
};

/// The leaf kind served when nothing else is said.
pub const KIND: &str = "stdio";
/// The composer kind served when nothing else is said.
pub const COMPOSER_KIND: &str = "stdio-composer";

/// The manifest of [`KIND`].
pub const MANIFEST: &str = include_str!("../stdio.kind.json");
/// The manifest of [`COMPOSER_KIND`].
pub const COMPOSER_MANIFEST: &str = include_str!("../stdio-composer.kind.json");

/// The variable that names the program where a config does not.
pub const COMMAND_VARIABLE: &str = "STDIO_COMMAND";

/// Whether a kind emits children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Leaf,
    Composer,
}

/// Serves one kind, version 1, with the program its config names.
#[derive(Debug, Clone)]
pub struct Stdio {
    kind: KindVersion,
    role: Role,
    fallback: Option<String>,
}

impl Stdio {
    /// A kind that emits no children. Reads `STDIO_COMMAND` once.
    #[must_use]
    pub fn leaf(kind: &str) -> Self {
        Self::new(kind, Role::Leaf)
    }

    /// A kind that emits children. Reads `STDIO_COMMAND` once.
    #[must_use]
    pub fn composer(kind: &str) -> Self {
        Self::new(kind, Role::Composer)
    }

    /// The program to run where the config names none, in place of `STDIO_COMMAND`.
    #[must_use]
    pub fn with_fallback(mut self, command: Option<String>) -> Self {
        self.fallback = command.filter(|command| !command.is_empty());
        self
    }

    fn new(kind: &str, role: Role) -> Self {
        let stdio = Stdio {
            kind: KindVersion::new(kind, 1),
            role,
            fallback: None,
        };
        stdio.with_fallback(std::env::var(COMMAND_VARIABLE).ok())
    }

    /// The provider, as a worker wants it.
    #[must_use]
    pub fn into_provider(self) -> Arc<dyn Provider> {
        Arc::new(self)
    }
}

/// Checks what a kind's config says about its program, without running it. `fallback` stands for `STDIO_COMMAND`.
///
/// # Errors
/// As a task would fail: terminal if the config is wrong or no program is named.
pub fn check_config(ctx: &TaskContext, fallback: Option<&str>) -> Result<(), TaskError> {
    config::Config::of(ctx)?.command(fallback).map(drop)
}

#[async_trait]
impl Provider for Stdio {
    fn kind(&self) -> KindVersion {
        self.kind.clone()
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        if request.stage == Stage::Compose && self.role == Role::Leaf {
            return Err(TaskError::terminal(format!(
                "this worker serves {} as a leaf, but its manifest asks it to compose: list the kind in STDIO_COMPOSER_KINDS \
                 instead of STDIO_KINDS",
                self.kind
            )));
        }
        run::run(ctx, &request, self.fallback.as_deref()).await
    }

    fn ready(&self) -> bool {
        process::ready()
    }

    fn cleanup_grace(&self) -> Duration {
        process::DEFAULT_GRACE + Duration::from_secs(1)
    }
}
