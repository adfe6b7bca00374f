//! What is answered to a request: a pure function of its method, its path and what is shown.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};

use super::Exposed;
use crate::worker::health::Verdict;
use crate::worker::metrics;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

pub(super) type Answer = Response<Full<Bytes>>;

/// The answer; the body of one to HEAD is left out by the server.
pub(super) fn to(method: &Method, path: &str, exposed: &Exposed) -> Answer {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        "/livez" | "/healthz" | "/readyz" | "/metrics" if !is_read => {
            let mut answer = with(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            let allowed = HeaderValue::from_static("GET, HEAD");
            answer.headers_mut().insert(ALLOW, allowed);
            answer
        }
        "/livez" | "/healthz" => verdict(&exposed.health.live()),
        "/readyz" => verdict(&exposed.health.ready()),
        "/metrics" => with(
            StatusCode::OK,
            metrics::CONTENT_TYPE,
            exposed.metrics.text(),
        ),
        _ => with(
            StatusCode::NOT_FOUND,
            TEXT,
            "here are /livez, /healthz, /readyz and /metrics\n",
        ),
    }
}

fn verdict(verdict: &Verdict) -> Answer {
    let status = if verdict.is_ok() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // Texts and booleans can be written.
    let mut body = serde_json::to_string(verdict).unwrap_or_default();
    body.push('\n');
    with(status, JSON, body)
}

fn with(status: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
