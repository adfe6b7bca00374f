//! The REST API: axum over the engine's commands and a store's reads. One file per resource under `routes`.
//!
//! What must hold:
//! - Nothing is written but by [`converge_engine::Store::transact`], and an answer to a write leaves after its commit.
//! - Every answer that is not a success is `application/problem+json`, unknown routes and methods included.
//! - Every body, list and wait has a bound. Documents are kept and sent as the bytes they came in.
//! - Nobody gets in by accident: see `access`.
//!
//! Not here: listening, connections and shutdown (`converge-server`), what a command means (`converge-engine`), the shapes of bodies
//! (`converge-api-types`).

mod access;
mod answer;
mod body;
mod check;
mod once;
mod openapi;
mod problem;
mod routes;
mod token;
mod write;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use converge_engine::Store;
use converge_engine::fleet::Fleet;
use converge_engine::model::Millis;
use converge_types::ids::KindVersion;
use tokio::sync::watch;

use crate::once::Once;
use crate::problem::Problem;

pub use openapi::document as openapi_document;
pub use token::{ClientCertificate, Token};

/// What the server tells its API about itself.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Names that `Host` and `Origin` may have beside loopback, with or without a port.
    pub allowed_hosts: Vec<String>,
    /// The newest of these must come with every request that no [`ClientCertificate`] speaks for; probes need none. Without, nobody is
    /// asked for a token.
    pub token: Option<watch::Receiver<Arc<Token>>>,
    /// The release.
    pub version: String,
    /// The commit it was built from, where that is known.
    pub commit: Option<String>,
    /// `sqlite` or `postgres`.
    pub store: String,
    /// `all`, `control` or `broker`.
    pub role: String,
    /// Where workers reach the broker of this process.
    pub broker_address: String,
    /// When the process started.
    pub started_ms: Millis,
}

/// What the routes share.
pub struct Api {
    store: Arc<dyn Store>,
    fleet: Arc<dyn Fleet>,
    options: Options,
    draining: AtomicBool,
    /// Answers by the first digit of their status; for `/metrics`.
    answered: [AtomicU64; 6],
    /// Kinds whose cap is reached, and when that was found.
    capacity: Mutex<Option<(Instant, Arc<HashSet<KindVersion>>)>>,
    once: Once,
}

impl Api {
    /// An API over a store and a fleet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, fleet: Arc<dyn Fleet>, options: Options) -> Arc<Self> {
        Arc::new(Self {
            store,
            fleet,
            options,
            draining: AtomicBool::new(false),
            answered: Default::default(),
            capacity: Mutex::default(),
            once: Once::default(),
        })
    }

    /// From now on `/readyz` says 503; everything else goes on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }
}

/// Every route, under `/api/v1` and `/api`; what probes and browsers ask for is at the top as well.
pub fn router(api: Arc<Api>) -> Router {
    let resources = routes::all().route_layer(middleware::from_fn(access::writes_are_json));
    Router::new()
        .merge(routes::meta::router())
        .nest("/api", routes::meta::router().merge(resources.clone()))
        .nest("/api/v1", routes::meta::router().merge(resources))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(api.clone(), access::guard))
        .with_state(api)
}

async fn unknown_route(uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    Problem::no_route(format!(
        "there is no route {path}; /api/v1/openapi.json and /docs list them"
    ))
}

async fn wrong_method(method: Method, uri: Uri) -> Problem {
    let path: String = uri.path().chars().take(200).collect();
    let detail = format!("{path} does not take {method}; the header Allow says what it takes");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
