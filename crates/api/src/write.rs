//! What a write carries besides its path and query: a condition and a body, read in this order, and refused where the route takes none.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use converge_engine::command::Precondition;
use converge_types::json::Doc;

use crate::body::Incoming;
use crate::check::{precondition, unconditional};
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
