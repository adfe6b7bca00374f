//! Shapes that every route shares: references, lists, problems, header names.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// A document kept as the bytes it arrived in.
pub type Json = Box<RawValue>;

/// RFC 3339 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`.
pub type Timestamp = String;

/// The largest `limit` a list takes.
pub const MAX_PAGE: u32 = 500;

/// Header names of this API, in the lower case that HTTP/2 uses.
pub mod header {
    /// On the answer to a write: `created`, `configured` or `unchanged`.
    pub const APPLY_RESULT: &str = "x-apply-result";
    /// On a list: the cursor of the next page. Absent on the last one.
    pub const NEXT_CURSOR: &str = "x-next-cursor";
    /// On `POST …/ops` and `…/reconcile`: the same key never does the thing twice.
    pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
}

/// Names a resource: the pair is unique in one control plane.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// The kind, such as `stdshell`.
    pub kind: String,
    /// The name within the kind.
    pub name: String,
}

impl ObjectRef {
    /// The reference to `kind/name`.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// One page of a list. The next page's cursor is in the header [`header::NEXT_CURSOR`].
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct List<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The store-wide change number this page was read at; a watch resumes from it.
    pub revision: u64,
}

/// Why a request was refused (RFC 9457, `application/problem+json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of problem in a few words, the same for every occurrence of it.
    pub title: String,
    /// The HTTP status code again.
    pub status: u16,
    /// What happened to this request, and what to do about it.
    #[serde(default)]
    pub detail: String,
    /// Every violation found, not only the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemItem>,
}

impl Problem {
    /// The title when the server has no such route: what was asked for is not there to be asked for, by any name.
    pub const NO_ROUTE: &str = "No Such Route";

    /// Whether the server does not have the route at all, or takes no request like this one on it.
    pub fn is_no_route(&self) -> bool {
        self.title == Self::NO_ROUTE || self.status == 405
    }
}

/// One violation among possibly many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemItem {
    /// Where: a JSON pointer into the body (`/spec/script`), or the name of a parameter or header.
    #[serde(default)]
    pub location: String,
    /// What is wrong there.
    pub message: String,
}

/// What a write did, as said by the header [`header::APPLY_RESULT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApplyResult {
    /// The object did not exist before.
    Created,
    /// The object existed and changed.
    Configured,
    /// The object is by value what was asked for already.
    Unchanged,
}

impl ApplyResult {
    /// The word used in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
        }
    }

    /// Reads the header's word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Created, Self::Configured, Self::Unchanged]
            .into_iter()
            .find(|result| result.as_str() == word)
    }
}

impl fmt::Display for ApplyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
