//! What surrounds one task while it runs: cancellation, deadline, lease, and the configuration it works under.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::config::Effective;
use crate::{Json, KindVersion, ProviderConfig, TaskError};

/// Why a task is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The task's deadline is over.
    Deadline,
    /// The worker is shutting down and its drain budget is spent.
    Drain,
    /// Somebody else holds the claim now; nothing this task reports will be stored.
    LeaseLost,
}

/// How sure it is that this task still holds its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// As far as is known, yes.
    Held,
    /// No stream to a broker was up for the length of a lease: another worker may have the task by now. Start no new
    /// irreversible step.
    Uncertain,
    /// No.
    Lost,
}

/// What surrounds one task while it runs. Cheap to clone.
///
/// Tests and offline tools make one with [`TaskContext::builder`].
#[derive(Clone)]
pub struct TaskContext(Arc<Inner>);

struct Inner {
    cancel: CancellationToken,
    /// 0 while nothing was cancelled, else the reason by its number.
    reason: AtomicU8,
    lost: AtomicBool,
    uncertain: Arc<AtomicBool>,
    deadline: Option<Instant>,
    cleanup_grace_ms: AtomicU64,
    claim_epoch: i64,
    span: tracing::Span,
    config: Arc<Effective>,
}

/// The other end of a [`TaskContext`]: cancels it. Held by the worker, and by tests of providers.
#[derive(Clone)]
pub struct TaskControl(Arc<Inner>);

impl TaskContext {
    /// Starts a context for a task of this pair.
    pub fn builder(kind: KindVersion) -> TaskContextBuilder {
        TaskContextBuilder {
            kind,
            claim_epoch: 1,
            deadline: None,
            cleanup_grace: Duration::from_secs(5),
            default: ProviderConfig::default(),
            over: ProviderConfig::default(),
            uncertain: Arc::default(),
            span: tracing::Span::none(),
        }
    }

    /// Resolves when the task should stop, with the reason. From then on it has its cleanup grace to end cleanly; after
    /// that its future is dropped.
    pub async fn cancelled(&self) -> CancelReason {
        self.0.cancel.cancelled().await;
        self.cancel_reason().unwrap_or(CancelReason::Drain)
    }

    /// Why the task should stop; `None` as long as it should not.
    pub fn cancel_reason(&self) -> Option<CancelReason> {
        match self.0.reason.load(Ordering::Acquire) {
            1 => Some(CancelReason::Deadline),
            2 => Some(CancelReason::Drain),
            3 => Some(CancelReason::LeaseLost),
            _ => None,
        }
    }

    /// True once the task should stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancel_reason().is_some()
    }

    /// When the task will be cancelled for taking too long; `None` if never.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// How long the task may take to end once it is cancelled.
    pub fn cleanup_grace(&self) -> Duration {
        Duration::from_millis(self.0.cleanup_grace_ms.load(Ordering::Relaxed))
    }

    /// Changes the cleanup grace of this task, once it knows its config. Takes effect also when the task is already
    /// cancelled.
    pub fn set_cleanup_grace(&self, grace: Duration) {
        let millis = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.0.cleanup_grace_ms.store(millis, Ordering::Relaxed);
    }

    /// Whether the task still holds its claim. Look before every irreversible step.
    pub fn lease(&self) -> LeaseState {
        if self.0.lost.load(Ordering::Acquire) {
            LeaseState::Lost
        } else if self.0.uncertain.load(Ordering::Acquire) {
            LeaseState::Uncertain
        } else {
            LeaseState::Held
        }
    }

    /// A number that grows with every claim of this resource: a fencing token for systems outside.
    pub fn claim_epoch(&self) -> i64 {
        self.0.claim_epoch
    }

    /// The task's span. `work` runs inside it; a thread of one's own enters it to log under the task.
    pub fn span(&self) -> &tracing::Span {
        &self.0.span
    }

    /// The pair this task belongs to.
    pub fn kind_version(&self) -> &KindVersion {
        &self.0.config.kind
    }

    /// Decodes the effective config: the default with the resource's override merged over it.
    ///
    /// # Errors
    /// Transient if there is neither (it may be applied a second later); terminal, with pointer and column, if it does not
    /// fit.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        self.decode_config(self.effective_config()?)
    }

    /// Decodes the effective config; `None` if there is neither a default nor an override.
    ///
    /// # Errors
    /// Terminal, with pointer and column, if it does not fit.
    pub fn config_if_any<T: DeserializeOwned>(&self) -> Result<Option<T>, TaskError> {
        self.effective_config_if_any()?
            .map(|config| self.decode_config(config))
            .transpose()
    }

    fn decode_config<T: DeserializeOwned>(&self, config: &Json) -> Result<T, TaskError> {
        config.decode().map_err(|error| {
            TaskError::terminal(format!(
                "config of {} is not valid: {error}",
                self.kind_version()
            ))
        })
    }

    /// The effective config as bytes.
    ///
    /// # Errors
    /// Transient if there is none; terminal, naming the key, if default and override cannot be merged.
    pub fn effective_config(&self) -> Result<&Json, TaskError> {
        self.effective_config_if_any()?
            .ok_or_else(|| self.missing("providerconfig"))
    }

    /// The effective config as bytes; `None` if there is neither a default nor an override.
    ///
    /// # Errors
    /// Terminal, naming the key, if the two cannot be merged.
    pub fn effective_config_if_any(&self) -> Result<Option<&Json>, TaskError> {
        self.0.config.spec()
    }

    /// The effective bundle: the override's if it has one, else the default's.
    ///
    /// # Errors
    /// Transient if there is none.
    pub fn bundle(&self) -> Result<&Bytes, TaskError> {
        self.bundle_if_any()
            .ok_or_else(|| self.missing("providerconfig with a bundle"))
    }

    /// The effective bundle, if there is one.
    pub fn bundle_if_any(&self) -> Option<&Bytes> {
        self.0.config.bundle()
    }

    fn missing(&self, what: &str) -> TaskError {
        TaskError::transient(format!(
            "{} has no {what} yet: apply one",
            self.kind_version()
        ))
    }

    /// The default that the task started under.
    pub fn default_config(&self) -> &ProviderConfig {
        &self.0.config.default
    }

    /// The resource's own override, as stored.
    pub fn override_config(&self) -> &ProviderConfig {
        &self.0.config.over
    }
}

impl fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("kind_version", self.kind_version())
            .field("claim_epoch", &self.claim_epoch())
            .field("deadline", &self.deadline())
            .field("lease", &self.lease())
            .field("cancel_reason", &self.cancel_reason())
            .finish_non_exhaustive()
    }
}

impl TaskControl {
    /// Cancels the task. The first reason stays; a lost lease shows in [`TaskContext::lease`] in any case.
    pub fn cancel(&self, reason: CancelReason) {
        if reason == CancelReason::LeaseLost {
            self.0.lost.store(true, Ordering::Release);
        }
        let number = match reason {
            CancelReason::Deadline => 1,
            CancelReason::Drain => 2,
            CancelReason::LeaseLost => 3,
        };
        // Losing the race is fine: somebody else's reason came first.
        let _ = self
            .0
            .reason
            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        self.0.cancel.cancel();
    }

    /// Says whether the claim is uncertain: no stream to a broker for the length of a lease.
    ///
    /// In a worker this is one flag for all tasks.
    pub fn set_uncertain(&self, uncertain: bool) {
        self.0.uncertain.store(uncertain, Ordering::Release);
    }

    /// The context this controls.
    pub fn context(&self) -> TaskContext {
        TaskContext(Arc::clone(&self.0))
    }
}

impl fmt::Debug for TaskControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskControl").field(&self.context()).finish()
    }
}

/// Builds a [`TaskContext`].
#[derive(Debug)]
#[must_use]
pub struct TaskContextBuilder {
    kind: KindVersion,
    claim_epoch: i64,
    deadline: Option<Instant>,
    cleanup_grace: Duration,
    default: ProviderConfig,
    over: ProviderConfig,
    uncertain: Arc<AtomicBool>,
    span: tracing::Span,
}

impl TaskContextBuilder {
    /// Sets the epoch of the claim; 1 if not set.
    pub fn claim_epoch(mut self, epoch: i64) -> Self {
        self.claim_epoch = epoch;
        self
    }

    /// Sets what [`TaskContext::deadline`] says. The context does not cancel itself: whoever holds the control does.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the cleanup grace; 5 s if not set.
    pub fn cleanup_grace(mut self, grace: Duration) -> Self {
        self.cleanup_grace = grace;
        self
    }

    /// Sets the kind's default config.
    pub fn default_config(mut self, config: ProviderConfig) -> Self {
        self.default = config;
        self
    }

    /// Sets the resource's override.
    pub fn override_config(mut self, config: ProviderConfig) -> Self {
        self.over = config;
        self
    }

    /// Sets the span; none if not set.
    pub fn span(mut self, span: tracing::Span) -> Self {
        self.span = span;
        self
    }

    /// Shares the flag that says whether all claims of a worker are uncertain.
    pub(crate) fn uncertain(mut self, flag: Arc<AtomicBool>) -> Self {
        self.uncertain = flag;
        self
    }

    /// The context.
    #[must_use]
    pub fn build(self) -> TaskContext {
        self.build_with_control().0
    }

    /// The context, and what cancels it.
    #[must_use]
    pub fn build_with_control(self) -> (TaskContext, TaskControl) {
        let millis = u64::try_from(self.cleanup_grace.as_millis()).unwrap_or(u64::MAX);
        let inner = Arc::new(Inner {
            cancel: CancellationToken::new(),
            reason: AtomicU8::new(0),
            lost: AtomicBool::new(false),
            uncertain: self.uncertain,
            deadline: self.deadline,
            cleanup_grace_ms: AtomicU64::new(millis),
            claim_epoch: self.claim_epoch,
            span: self.span,
            config: Arc::new(Effective::new(self.kind, self.default, self.over)),
        });
        (TaskContext(Arc::clone(&inner)), TaskControl(inner))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn demo() -> TaskContextBuilder {
        TaskContext::builder(KindVersion::new("demo", 1))
    }

    #[tokio::test]
    async fn the_first_reason_of_a_cancellation_stays() {
        let (ctx, control) = demo().build_with_control();
        assert!(!ctx.is_cancelled());
        control.cancel(CancelReason::Deadline);
        control.cancel(CancelReason::LeaseLost);
        assert_eq!(ctx.cancelled().await, CancelReason::Deadline);
        assert_eq!(ctx.lease(), LeaseState::Lost);
    }

    #[test]
    fn an_uncertain_lease_may_become_certain_again() {
        let (ctx, control) = demo().build_with_control();
        control.set_uncertain(true);
        assert_eq!(ctx.lease(), LeaseState::Uncertain);
        control.set_uncertain(false);
        assert_eq!(ctx.lease(), LeaseState::Held);
    }

    #[test]
    fn an_absent_config_may_come_yet_and_a_wrong_one_stays_wrong() {
        let absent = demo().build();
        assert!(
            !absent
                .config::<serde_json::Value>()
                .unwrap_err()
                .is_terminal()
        );
        assert!(!absent.bundle().unwrap_err().is_terminal());
        assert_eq!(absent.config_if_any::<u8>().unwrap(), None);

        let wrong = demo()
            .default_config(ProviderConfig::new().with_spec(json!({"size": "x"})))
            .build();
        let error = wrong
            .config::<std::collections::BTreeMap<String, u8>>()
            .unwrap_err();
        assert!(error.is_terminal());
        assert!(
            error.message().contains("demo/v1 is not valid: at /size"),
            "{error}"
        );
        assert!(error.message().contains("column"), "{error}");
    }

    #[test]
    fn an_override_is_merged_over_the_default_and_its_bundle_replaces() {
        let ctx = demo()
            .default_config(
                ProviderConfig::new()
                    .with_spec(json!({"a": {"x": 1, "y": 2}}))
                    .with_bundle(&b"old"[..]),
            )
            .override_config(
                ProviderConfig::new()
                    .with_spec(json!({"a": {"y": 3}}))
                    .with_bundle(&b"new"[..]),
            )
            .build();
        assert_eq!(
            ctx.effective_config().unwrap().as_str(),
            Some(r#"{"a":{"x":1,"y":3}}"#)
        );
        assert_eq!(&ctx.bundle().unwrap()[..], b"new");
        assert_eq!(ctx.default_config().bundle.as_deref(), Some(&b"old"[..]));
        assert_eq!(ctx.override_config().bundle.as_deref(), Some(&b"new"[..]));
    }

    #[test]
    fn a_malformed_override_is_terminal_and_names_the_key() {
        let ctx = demo()
            .default_config(ProviderConfig::new().with_spec(json!({"region": "x"})))
            .override_config(
                ProviderConfig::new().with_spec(Json::from_bytes_unchecked(r#"{"region": tru}"#)),
            )
            .build();
        let error = ctx.effective_config().unwrap_err();
        assert!(error.is_terminal());
        assert!(error.message().contains("/region"), "{error}");
    }
}
