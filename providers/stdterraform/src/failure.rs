//! Why a task ends without success: one reason, one message, and whether trying again helps.

/// A failure on its way to the control plane. Its message may still hold secrets; they are taken out in one place, at the very end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Nothing but a changed spec, config or source helps.
    pub(crate) terminal: bool,
    /// In one word, for the condition.
    pub(crate) reason: &'static str,
    /// For a person.
    pub(crate) message: String,
}

impl Failure {
    /// Nothing but a changed spec, config or source helps.
    pub(crate) fn terminal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            terminal: true,
            reason,
            message: message.into(),
        }
    }

    /// It may work later.
    pub(crate) fn transient(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            terminal: false,
            reason,
            message: message.into(),
        }
    }

    /// The worker's own disk did not do what it must.
    pub(crate) fn disk(what: impl std::fmt::Display, error: &std::io::Error) -> Self {
        Self::transient("WorkerDisk", format!("{what}: {error}"))
    }

    /// Puts what was being done in front.
    pub(crate) fn context(mut self, what: impl std::fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}
