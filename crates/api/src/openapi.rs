//! The API as an OpenAPI document, written from the handlers.

use std::sync::LazyLock;

use converge_api_types as api;
use utoipa::OpenApi;

use crate::routes::{
    cluster, events, graph, kinds, manifests, meta, metrics, providerconfigs, resources, steering,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Converge",
        description = "Resources, kinds and their configuration. Every route is under /api as well. Errors are application/problem+json."
    ),
    paths(
        resources::apply,
        resources::list_all,
        resources::roots,
        resources::summary,
        resources::read,
        resources::delete,
        steering::reconcile,
        steering::quarantine,
        steering::unquarantine,
        steering::rollback,
        steering::spec_history,
        events::events,
        graph::children,
        graph::dependencies,
        graph::graph,
        manifests::apply,
        manifests::read,
        manifests::delete,
        manifests::policy,
        kinds::kinds,
        kinds::schema,
        kinds::reconcile,
        providerconfigs::apply,
        providerconfigs::list_all,
        providerconfigs::read,
        providerconfigs::delete,
        cluster::members,
        meta::version,
        meta::livez,
        meta::healthz,
        meta::readyz,
        metrics::metrics,
        meta::document,
        meta::docs,
    ),
    components(schemas(api::Problem, api::ProblemItem))
)]
struct Document;

/// The document as JSON.
#[must_use]
pub fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        // Names and texts of ours: this does not fail, and a test reads it.
        Document::openapi().to_json().unwrap_or_default()
    });
    &TEXT
}
