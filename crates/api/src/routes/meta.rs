//! What the server says about itself: version, health, OpenAPI and its page. Metrics are in `metrics`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use converge_api_types as api;

use super::{Answer, metrics};
use crate::answer::json;
use crate::check::QueryArgs;
use crate::{Api, openapi};

/// The page needs nothing but itself and the document.
const PAGE: &str = include_str!("../docs.html");
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/version", get(version))
        .route("/livez", get(livez))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(document))
        .route("/docs", get(docs))
}

/// What this server is.
#[utoipa::path(get, path = "/api/v1/version", tag = "server", responses((status = 200, description = "the version", body = api::Version)))]
pub(crate) async fn version(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    query.none()?;
    let body = api::Version {
        name: "converge".to_owned(),
        version: api.options.version.clone(),
        commit: api.options.commit.clone(),
        api_version: "v1".to_owned(),
        store: api.options.store.clone(),
    };
    Ok(json(StatusCode::OK, &body))
}

/// The process answers.
#[utoipa::path(get, path = "/api/v1/livez", tag = "server", responses((status = 200, description = "it does", body = api::Health)))]
pub(crate) async fn livez() -> Response {
    health(Vec::new())
}

/// The store can be read.
#[utoipa::path(get, path = "/api/v1/healthz", tag = "server", responses((status = 200, description = "well", body = api::Health), (status = 503, description = "not well", body = api::Health)))]
pub(crate) async fn healthz(State(api): State<Arc<Api>>) -> Response {
    health(vec![api.reads().await])
}

/// The server can do its work: the store takes writes, and it is not shutting down.
#[utoipa::path(get, path = "/api/v1/readyz", tag = "server", responses((status = 200, description = "ready", body = api::Health), (status = 503, description = "not ready", body = api::Health)))]
pub(crate) async fn readyz(State(api): State<Arc<Api>>) -> Response {
    let serving = if api.draining.load(Ordering::Acquire) {
        Err("shutting down".to_owned())
    } else {
        Ok(())
    };
    let writes = api.store.writable().map_err(|error| error.to_string());
    health(vec![
        check("serving", serving),
        api.reads().await,
        check("store writes", writes),
    ])
}

impl Api {
    async fn reads(&self) -> api::HealthCheck {
        let read = self.store.revision().await;
        check(
            "store reads",
            read.map(|_| ()).map_err(|error| error.to_string()),
        )
    }
}

fn check(name: &str, found: Result<(), String>) -> api::HealthCheck {
    api::HealthCheck {
        name: name.to_owned(),
        ok: found.is_ok(),
        message: found.err(),
    }
}

fn health(checks: Vec<api::HealthCheck>) -> Response {
    let (status, word) = if checks.iter().all(|check| check.ok) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    };
    json(
        status,
        &api::Health {
            status: word.to_owned(),
            checks,
        },
    )
}

/// This API as an OpenAPI document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "server", responses((status = 200, description = "the document")))]
pub(crate) async fn document() -> Response {
    let kind = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, kind)], openapi::document()).into_response()
}

/// A page that shows the document, from this server alone.
#[utoipa::path(get, path = "/api/v1/docs", tag = "server", responses((status = 200, description = "the page")))]
pub(crate) async fn docs() -> Response {
    let headers: [(HeaderName, &str); 3] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, PAGE).into_response()
}
