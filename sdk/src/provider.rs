//! The trait an author implements.

use std::time::Duration;

use async_trait::async_trait;

use crate::{KindVersion, Outcome, ProviderConfig, ReactionRequest, TaskContext, TaskError};

/// Serves one kind at one version.
///
/// One value serves all tasks of its pair, concurrently. A panic in [`work`](Self::work) fails that task terminally with the
/// panic's message, and nothing else.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The one pair it serves. Must always give the same answer.
    fn kind(&self) -> KindVersion;

    /// Does the work of one reaction.
    ///
    /// Called at least once per claim: after a lost lease the same generation comes again, so a second run must end where
    /// the first did. Runs concurrently with itself for other resources, never for the same resource.
    ///
    /// # Cancellation
    /// [`TaskContext::cancelled`] resolves on deadline, drain or lease loss. Finish within the cleanup grace; then the
    /// future is dropped.
    ///
    /// # Errors
    /// [`TaskError::terminal`] if only a new spec or config can help, [`TaskError::transient`] otherwise; `?` gives
    /// transient.
    async fn work(&self, ctx: &TaskContext, request: ReactionRequest)
    -> Result<Outcome, TaskError>;

    /// Takes the kind's default config: before the first task, then after every edit. An empty config means that there is
    /// none. The config of each task is in its context; this is for what outlives tasks, such as a pool of connections.
    ///
    /// Must not block. A panic is logged and the pair says that it is not ready until the next config.
    fn on_config(&self, _config: ProviderConfig) {}

    /// Whether it can take tasks now. Polled every 2 s; while it says `false` the broker sends this pair's tasks elsewhere.
    ///
    /// Must not block. A panic is logged and counts as `false`.
    fn ready(&self) -> bool {
        true
    }

    /// How long a cancelled `work` may take to end cleanly, unless the task sets its own with
    /// [`TaskContext::set_cleanup_grace`].
    fn cleanup_grace(&self) -> Duration {
        Duration::from_secs(5)
    }
}
