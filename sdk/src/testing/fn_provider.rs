//! A provider made of a closure.

use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    KindVersion, Outcome, Provider, ProviderConfig, ReactionRequest, TaskContext, TaskError,
};

type Work = dyn Fn(
        TaskContext,
        ReactionRequest,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, TaskError>> + Send>>
    + Send
    + Sync;

/// A provider made of closures.
pub struct FnProvider {
    kind: KindVersion,
    work: Box<Work>,
    ready: Box<dyn Fn() -> bool + Send + Sync>,
    on_config: Box<dyn Fn(ProviderConfig) + Send + Sync>,
    grace: Duration,
}

impl FnProvider {
    /// A provider of this pair whose `work` is the closure.
    pub fn new<F>(
        kind: KindVersion,
        work: impl Fn(TaskContext, ReactionRequest) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Outcome, TaskError>> + Send + 'static,
    {
        Self {
            kind,
            work: Box::new(move |ctx, request| Box::pin(work(ctx, request))),
            ready: Box::new(|| true),
            on_config: Box::new(|_| {}),
            grace: Duration::from_secs(5),
        }
    }

    /// Sets what it says when it is asked whether it is ready.
    #[must_use]
    pub fn with_ready(mut self, ready: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.ready = Box::new(ready);
        self
    }

    /// Sets what it does with a default config.
    #[must_use]
    pub fn with_on_config(
        mut self,
        on_config: impl Fn(ProviderConfig) + Send + Sync + 'static,
    ) -> Self {
        self.on_config = Box::new(on_config);
        self
    }

    /// Sets its cleanup grace.
    #[must_use]
    pub fn with_cleanup_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

#[async_trait]
impl Provider for FnProvider {
    fn kind(&self) -> KindVersion {
        self.kind.clone()
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        (self.work)(ctx.clone(), request).await
    }

    fn on_config(&self, config: ProviderConfig) {
        (self.on_config)(config);
    }

    fn ready(&self) -> bool {
        (self.ready)()
    }

    fn cleanup_grace(&self) -> Duration {
        self.grace
    }
}
