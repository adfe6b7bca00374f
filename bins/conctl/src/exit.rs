//! How conctl ends: the exit codes, and the one error type that carries one.

use std::fmt;
use std::io;

use converge_client::types::Problem;
use converge_client::{Error, OptionsError};

/// All is well.
pub(crate) const OK: u8 = 0;
/// The server refused, a document is wrong, or a resource failed.
pub(crate) const REFUSED: u8 = 1;
/// There is no such object.
pub(crate) const NOT_FOUND: u8 = 3;
/// Somebody else's change is in the way.
pub(crate) const CONFLICT: u8 = 4;
/// What was waited for did not happen in time.
pub(crate) const TIMEOUT: u8 = 5;
/// No server answered.
pub(crate) const UNREACHABLE: u8 = 6;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 64;

/// Why a verb did not do what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the process exits with.
    pub(crate) code: u8,
    /// For people; empty when everything was said already.
    pub(crate) message: String,
}

/// What verbs return.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with a code and something to say.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    /// A failure that has been reported line by line.
    pub(crate) fn reported(code: u8) -> Self {
        Self::new(code, "")
    }

    /// The same failure, naming what it was about.
    pub(crate) fn about(mut self, what: impl fmt::Display) -> Self {
        // Every call of a command meets an unreachable server alike: naming the object would only mislead.
        if self.code != UNREACHABLE && !self.message.is_empty() {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }
}

/// The code for an answer with this HTTP status.
pub(crate) fn code_of_status(status: u16) -> u8 {
    match status {
        404 => NOT_FOUND,
        409 | 412 => CONFLICT,
        _ => REFUSED,
    }
}

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        let message = match &err {
            Error::Refused(problem) => problem_text(problem, |_| None),
            Error::Unreachable { .. } => format!(
                "{err}\nIs it running? --server or CONVERGE_SERVER says where it is; `converge dev` starts one."
            ),
            _ => err.to_string(),
        };
        let code = match &err {
            Error::Refused(problem) => code_of_status(problem.status),
            Error::Unreachable { .. } => UNREACHABLE,
            _ => REFUSED,
        };
        Self { code, message }
    }
}

impl From<OptionsError> for Failure {
    fn from(err: OptionsError) -> Self {
        Self::usage(chain(&err))
    }
}

impl From<io::Error> for Failure {
    fn from(err: io::Error) -> Self {
        // Whoever reads stdout has seen enough (`| head`): that is not a failure.
        if err.kind() == io::ErrorKind::BrokenPipe {
            return Self::reported(OK);
        }
        Self::new(REFUSED, format!("cannot write the output: {err}"))
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

/// A refusal for people: what happened, then every violation on its own line. `place` may know where in a file a location
/// is.
pub(crate) fn problem_text(problem: &Problem, place: impl Fn(&str) -> Option<String>) -> String {
    let mut text = if problem.detail.is_empty() {
        format!("{} ({})", problem.title, problem.status)
    } else {
        problem.detail.clone()
    };
    for error in &problem.errors {
        let place = place(&error.location);
        if place.is_none() && problem.errors.len() == 1 && text.ends_with(&error.message) {
            // The detail has said it, location and all.
            continue;
        }
        text.push_str("\n  ");
        if let Some(place) = place {
            text.push_str(&place);
            text.push_str(": ");
        }
        if !error.location.is_empty() {
            text.push_str(&error.location);
            text.push_str(": ");
        }
        text.push_str(&error.message);
    }
    text
}
