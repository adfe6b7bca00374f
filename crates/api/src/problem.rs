//! What a client is told when a request does not do what it asked for: `application/problem+json`, always.
//!
//! The one place that maps refusals and store failures to HTTP statuses.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use converge_api_types::ProblemItem;
use converge_engine::Refusal;
use converge_engine::store::{StoreError, TransactError};

/// How long a client should wait before it tries a store again that cannot write.
const RETRY_AFTER_SECS: HeaderValue = HeaderValue::from_static("1");
/// Most problems that are listed; one more says that there are more.
const ITEMS: usize = 1_000;

/// A refused or failed request.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    /// In place of the words for the status.
    title: Option<&'static str>,
    detail: String,
    errors: Vec<ProblemItem>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            title: None,
            detail: detail.into(),
            errors: Vec::new(),
        }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A 404 that a client can tell from that of an object.
    pub(crate) fn no_route(detail: impl Into<String>) -> Self {
        Self {
            title: Some(converge_api_types::Problem::NO_ROUTE),
            ..Self::not_found(detail)
        }
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
    }

    /// A failure that is no fault of the request. The log has it too, because nobody else would.
    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        tracing::error!(error = %detail, "request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    pub(crate) fn with_errors(mut self, errors: Vec<ProblemItem>) -> Self {
        self.errors = errors;
        if self.errors.len() > ITEMS {
            let more = self.errors.len() - ITEMS;
            self.errors.truncate(ITEMS);
            self.errors.push(item("", format!("and {more} more")));
        }
        self
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

/// One problem at a place: a pointer into the body, or the name of a parameter or header.
pub(crate) fn item(location: impl Into<String>, message: impl Into<String>) -> ProblemItem {
    ProblemItem {
        location: location.into(),
        message: message.into(),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = converge_api_types::Problem {
            title: self
                .title
                .or(self.status.canonical_reason())
                .unwrap_or("Error")
                .to_owned(),
            status: self.status.as_u16(),
            detail: self.detail,
            errors: self.errors,
        };
        // Strings and numbers only: this cannot fail, and an empty body would still carry the status.
        let bytes = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (self.status, bytes).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECS);
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        let (status, problems) = match refusal {
            Refusal::Invalid { problems, .. } => (StatusCode::BAD_REQUEST, problems),
            Refusal::Unprocessable { problems, .. } => (StatusCode::UNPROCESSABLE_ENTITY, problems),
            Refusal::NotFound(_) => (StatusCode::NOT_FOUND, Vec::new()),
            Refusal::Conflict { problems, .. } => (StatusCode::CONFLICT, problems),
            Refusal::Precondition(_) => (StatusCode::PRECONDITION_FAILED, Vec::new()),
            Refusal::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, Vec::new()),
            _ => (StatusCode::BAD_REQUEST, Vec::new()),
        };
        let errors = problems
            .into_iter()
            .map(|problem| item(problem.location, problem.message))
            .collect();
        Self::new(status, detail).with_errors(errors)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Corrupt(_) => Self::internal(error.to_string()),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }
}

impl From<TransactError> for Problem {
    fn from(error: TransactError) -> Self {
        match error {
            TransactError::Refused(refusal) => refusal.into(),
            TransactError::Store(error) => error.into(),
        }
    }
}
