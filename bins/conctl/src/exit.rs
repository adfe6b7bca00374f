//! How conctl ends: the exit codes, and the one error type that carries one.

use std::fmt;
use std::io;

use converge_client::types::Problem;
use converge_client::{Error, OptionsError};

/// All is well.
pub(crate) const OK: u8 = 0;
/// The server refused or does not serve that, a document is wrong, or a resource failed.
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
    /// Every call of a command would meet it alike: naming the object of one would only mislead.
    is_general: bool,
}

/// What verbs return.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with a code and something to say.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            is_general: false,
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
        let what = what.to_string();
        let first = self.message.lines().next().unwrap_or_default();
        if !self.is_general && !self.message.is_empty() && !names(first, &what) {
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

/// Whether a text has this name in it, not as a part of another.
fn names(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    !name.is_empty()
        && text.match_indices(name).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
}

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        let message = match &err {
            Error::Refused(problem) => {
                with_verbs(problem).unwrap_or_else(|| problem_text(problem, |_| None))
            }
            Error::Unreachable { .. } => format!(
                "{err}\nIs it running? --server or CONVERGE_SERVER says where it is; `converge dev` starts one."
            ),
            Error::NotServed { .. } => format!(
                "{err}\nIt is older than this conctl, or leaves that out; `conctl cluster` shows what runs."
            ),
            _ => err.to_string(),
        };
        let code = match &err {
            Error::Refused(problem) => code_of_status(problem.status),
            Error::Unreachable { .. } | Error::Tls { .. } => UNREACHABLE,
            _ => REFUSED,
        };
        let is_general = matches!(
            err,
            Error::Unreachable { .. } | Error::Tls { .. } | Error::NotServed { .. }
        );
        Self {
            code,
            message,
            is_general,
        }
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

/// A refusal that names a route, told in conctl's verbs.
fn with_verbs(problem: &Problem) -> Option<String> {
    let (said, route) = problem.detail.split_once("; its events: ")?;
    let name = said.split(' ').next()?;
    let is_about_events = route.ends_with("/events?deleted=true");
    is_about_events.then(|| format!("{said}; `conctl events {name} --deleted` shows what happened"))
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
        if problem.errors.len() == 1
            && let Some(said) = text.strip_suffix(&error.message)
        {
            // The detail has said it, location and all; only the place in a file is news.
            let Some(place) = &place else { continue };
            let said = said.trim_end_matches([':', ' ']);
            let said = said.strip_suffix(&error.location).unwrap_or(said);
            text = said.trim_end_matches([':', ' ']).to_owned();
            if text.is_empty() {
                return format!("{place}: {}: {}", error.location, error.message);
            }
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
