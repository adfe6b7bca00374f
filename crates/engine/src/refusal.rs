//! Why a command was refused, in words for the person who sent it. The API maps each variant to one status.

use converge_types::ids::KindVersion;

/// One problem of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer (or name of a query parameter) of what is wrong; empty = the whole.
    pub location: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    pub fn new(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            location: location.into(),
            message: message.into(),
        }
    }
}

/// A refused command. Nothing was written for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// 400: the input is wrong; every problem at once.
    #[error("{summary}")]
    Invalid {
        /// One line.
        summary: String,
        /// Each problem.
        problems: Vec<Problem>,
    },
    /// 422: a manifest breaks the rules for manifests.
    #[error("{summary}")]
    Unprocessable {
        /// One line.
        summary: String,
        /// Each violation.
        problems: Vec<Problem>,
    },
    /// 404.
    #[error("{0}")]
    NotFound(String),
    /// 409: the state of things forbids it; says which and what to do.
    #[error("{summary}")]
    Conflict {
        /// One line.
        summary: String,
        /// Each obstacle, where there are several.
        problems: Vec<Problem>,
    },
    /// 412: `If-Match` / `If-None-Match` did not hold.
    #[error("{0}")]
    Precondition(String),
    /// 413.
    #[error("{0}")]
    TooLarge(String),
}

impl Refusal {
    /// A conflict with nothing more to list.
    pub fn conflict(summary: impl Into<String>) -> Self {
        Self::Conflict {
            summary: summary.into(),
            problems: Vec::new(),
        }
    }

    /// A document (`what`: the spec, the config) that breaks rules of its kind.
    pub fn does_not_fit(what: &str, kv: &KindVersion, problems: Vec<Problem>) -> Self {
        let summary = match problems.as_slice() {
            [one] => format!(
                "{what} does not fit {kv}: {}: {}",
                one.location, one.message
            ),
            many => format!("{what} does not fit {kv}: {} violations", many.len()),
        };
        Self::Invalid { summary, problems }
    }

    /// An invalid input with one problem.
    pub fn invalid(location: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Invalid {
            summary: message.clone(),
            problems: vec![Problem::new(location, message)],
        }
    }
}
