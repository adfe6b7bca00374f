//! What a write carries besides its path and query: a condition and a body, read in this order, and refused where the route takes none.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName};
use converge_engine::command::Precondition;
use converge_types::json::Doc;

use crate::body::Incoming;
use crate::check::Checks;
use crate::problem::Problem;

/// A write of which neither was read yet.
#[derive(Debug)]
pub(crate) struct Write {
    headers: HeaderMap,
    body: Incoming,
}

impl<S: Send + Sync> FromRequest<S> for Write {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, state: &S) -> Result<Self, Problem> {
        Ok(Self {
            headers: request.headers().clone(),
            body: Incoming::from_request(request, state).await?,
        })
    }
}

impl Write {
    /// The condition and the body.
    pub(crate) async fn conditional(self, limit: usize) -> Result<(Precondition, Doc), Problem> {
        let precondition = precondition(&self.headers)?;
        Ok((precondition, self.body.doc(limit).await?))
    }

    /// The condition; there must be no body.
    pub(crate) async fn conditional_bare(self) -> Result<Precondition, Problem> {
        let precondition = precondition(&self.headers)?;
        self.body.none().await?;
        Ok(precondition)
    }

    /// The body; there must be no condition.
    pub(crate) async fn unconditional(self, limit: usize) -> Result<Doc, Problem> {
        unconditional(&self.headers)?;
        self.body.doc(limit).await
    }

    /// There must be neither.
    pub(crate) async fn bare(self) -> Result<(), Problem> {
        unconditional(&self.headers)?;
        self.body.none().await
    }
}

/// `If-Match` and `If-None-Match` of a write.
fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let mut checks = Checks::default();
    let text = |name: &HeaderName, checks: &mut Checks| {
        let mut values = headers.get_all(name).iter();
        let first = values.next()?;
        if values.next().is_some() {
            checks.add(name.as_str(), "given more than once");
        }
        Some(first.to_str().unwrap_or("?").trim().to_owned())
    };
    let wanted = text(&IF_MATCH, &mut checks);
    let unwanted = text(&IF_NONE_MATCH, &mut checks);
    let precondition = match (wanted.as_deref(), unwanted.as_deref()) {
        (None, None) => Precondition::None,
        (Some(_), Some(_)) => {
            checks.add("if-match", "cannot be combined with if-none-match");
            Precondition::None
        }
        (Some("*"), None) => Precondition::Exists,
        (Some(tag), None) => etag(tag).map_or_else(
            || {
                checks.add(
                    "if-match",
                    format!("{tag:?} is neither * nor one ETag of this API, such as \"42\""),
                );
                Precondition::None
            },
            Precondition::Revision,
        ),
        (None, Some("*")) => Precondition::Absent,
        (None, Some(tag)) => {
            checks.add(
                "if-none-match",
                format!("on a write only * has a meaning, not {tag:?}"),
            );
            Precondition::None
        }
    };
    checks.finish()?;
    Ok(precondition)
}

/// For routes whose command has no condition: better refused than ignored.
fn unconditional(headers: &HeaderMap) -> Result<(), Problem> {
    let mut checks = Checks::default();
    for name in [IF_MATCH, IF_NONE_MATCH] {
        if headers.contains_key(&name) {
            checks.add(name.as_str(), "this route takes no condition");
        }
    }
    checks.finish()
}

fn etag(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('"')?.strip_suffix('"')?;
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}
