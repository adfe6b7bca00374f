//! How a task fails: for good, or until it is tried again.

use std::fmt;

use crate::{Condition, Json};

/// A failed reaction.
///
/// *Terminal*: no retry can help until the spec, or the config it read, changes. *Transient*: the control plane tries again
/// with backoff. `?` on any foreign error makes a transient one, which is why this type does not implement
/// [`std::error::Error`] itself.
///
/// ```
/// use converge_sdk::TaskError;
///
/// fn read(path: &str) -> Result<String, TaskError> {
///     if path.is_empty() {
///         return Err(TaskError::terminal("spec.path is empty: name a file"));
///     }
///     Ok(std::fs::read_to_string(path)?) // an I/O error may pass: transient
/// }
/// assert!(read("").unwrap_err().is_terminal());
/// assert!(!read("/no/such/file").unwrap_err().is_terminal());
/// ```
pub struct TaskError(Box<Inner>);

struct Inner {
    terminal: bool,
    message: String,
    status: Option<Json>,
    conditions: Vec<Condition>,
}

impl TaskError {
    /// A failure that no retry can fix until the spec or the config changes.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::make(true, message.into())
    }

    /// A failure that may pass by itself; it is tried again with backoff.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::make(false, message.into())
    }

    /// The same failure for an error of another type, its causes included, that no retry can fix.
    pub fn terminal_from(error: impl std::error::Error) -> Self {
        Self::make(true, chain(&error))
    }

    fn make(terminal: bool, message: String) -> Self {
        let message = if message.trim().is_empty() {
            // The wire tells success from failure by this text.
            "failed without a message".to_owned()
        } else {
            message
        };
        Self(Box::new(Inner {
            terminal,
            message,
            status: None,
            conditions: Vec::new(),
        }))
    }

    /// A status to store beside the failure. It replaces the stored one whole.
    #[must_use]
    pub fn with_status(mut self, status: impl Into<Json>) -> Self {
        self.0.status = Some(status.into());
        self
    }

    /// Conditions to store beside the failure.
    #[must_use]
    pub fn with_conditions(mut self, conditions: impl IntoIterator<Item = Condition>) -> Self {
        self.0.conditions.extend(conditions);
        self
    }

    /// Puts `what` and a colon before the message.
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// True if no retry can help.
    pub fn is_terminal(&self) -> bool {
        self.0.terminal
    }

    /// What happened, as a person reads it.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The status that goes with the failure.
    pub fn status(&self) -> Option<&Json> {
        self.0.status.as_ref()
    }

    /// The conditions that go with the failure.
    pub fn conditions(&self) -> &[Condition] {
        &self.0.conditions
    }

    /// Takes the error apart: message, status, conditions.
    pub(crate) fn into_parts(self) -> (bool, String, Option<Json>, Vec<Condition>) {
        let inner = *self.0;
        (
            inner.terminal,
            inner.message,
            inner.status,
            inner.conditions,
        )
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError")
            .field("terminal", &self.0.terminal)
            .field("message", &self.0.message)
            .field("status", &self.0.status)
            .field("conditions", &self.0.conditions)
            .finish()
    }
}

impl<E: std::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        Self::make(false, chain(&error))
    }
}

/// An error and its causes in one line. A cause that its parent already repeats is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConditionStatus;

    #[derive(Debug, thiserror::Error)]
    #[error("could not reach the lab")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_foreign_error_is_transient_and_tells_its_causes() {
        let run = || -> Result<(), TaskError> { Err(Outer(std::io::Error::other("cable cut")))? };
        let error = run().unwrap_err();
        assert!(!error.is_terminal());
        assert_eq!(error.message(), "could not reach the lab: cable cut");
    }

    #[test]
    fn what_goes_with_a_failure_is_kept() {
        let error = TaskError::terminal("bad")
            .with_status(serde_json::json!({"tried": 3}))
            .with_conditions([Condition::new("Ready", ConditionStatus::False)])
            .context("apply");
        assert_eq!(error.message(), "apply: bad");
        assert_eq!(
            error.status().and_then(Json::as_str),
            Some(r#"{"tried":3}"#)
        );
        assert_eq!(error.conditions().len(), 1);
    }

    #[test]
    fn a_failure_always_has_a_message() {
        assert_eq!(
            TaskError::transient(" ").message(),
            "failed without a message"
        );
    }
}
