//! What a resource of this kind says.

use converge_sdk::process::{Seconds, Variables};
use converge_sdk::{ReactionRequest, TaskError};
use serde::Deserialize;

/// The spec of a resource.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) script: String,
    pub(crate) interpreter: Option<String>,
    pub(crate) args: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) env: Variables,
    pub(crate) timeout_seconds: Option<Seconds>,
}

impl Spec {
    /// Reads and checks it.
    pub(crate) fn of(request: &ReactionRequest) -> Result<Self, TaskError> {
        let spec: Spec = request.spec()?;
        if spec.script.trim().is_empty() {
            return Err(TaskError::terminal(
                "spec.script is blank: write the script to run there",
            ));
        }
        // A shell that meets one takes the script for a binary and ends with 126, as if trying again could help.
        if let Some(at) = spec.script.find('\0') {
            let line = spec.script[..at].matches('\n').count() + 1;
            return Err(TaskError::terminal(format!(
                "spec.script contains a NUL byte in line {line}, which no script can hold: take it out"
            )));
        }
        if spec
            .interpreter
            .as_deref()
            .is_some_and(|name| name.trim().is_empty())
        {
            return Err(TaskError::terminal(
                "spec.interpreter is blank: name a program, or leave it out for the default",
            ));
        }
        Ok(spec)
    }
}
