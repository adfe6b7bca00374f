//! `/kinds`: what kinds there are, their schemas, and a pass for all resources of one.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use converge_api_types as api;
use converge_engine::store::ResourceFilter;
use converge_types::ids::KindVersion;
use converge_types::phase::rfc3339_ms;

use super::manifests::{shown_policy, shown_reactions};
use super::{Answer, resources, steering};
use crate::Api;
use crate::answer::{cut, json, list, raw, unsigned};
use crate::check::{PathArgs, QueryArgs};
use crate::problem::Problem;
use crate::write::Write;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/kinds", get(kinds))
        .route("/kinds/{kind}/schema", get(schema))
        .route("/kinds/{kind}/reconcile", post(reconcile))
}

/// Every kind and version that has a manifest.
#[utoipa::path(get, path = "/api/v1/kinds", tag = "kinds", params(("limit" = Option<u32>, Query, minimum = 1, maximum = 500), ("cursor" = Option<String>, Query)), responses(
    (status = 200, description = "one page", body = api::List<api::Kind>)))]
pub(crate) async fn kinds(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    let (limit, after) = query.read(&["limit", "cursor"], &[], |checks| {
        let limit = query.limit(checks) as usize;
        (limit, query.parsed::<KindVersion>(checks, "cursor"))
    })?;
    let revision = api.store.revision().await?;
    let mut rows = api.store.manifest_list().await?;
    if let Some(after) = after {
        rows.retain(|(row, _)| row.kv > after);
    }
    let next = cut(&mut rows, limit, |(row, _)| row.kv.to_string());
    let members = api.fleet.members();
    let workers = |kv: &KindVersion| {
        let workers = members.iter().flat_map(|broker| &broker.workers);
        let serving = workers.filter(|worker| {
            worker
                .pairs
                .iter()
                .any(|(pair, ready)| pair == kv && *ready)
        });
        serving.count() as u64
    };
    let items = rows.iter().map(|(row, pair)| {
        let manifest = row.manifest();
        api::Kind {
            kind: row.kv.kind.to_string(),
            kind_version: row.kv.version.into(),
            description: manifest.description.clone(),
            composer: row.compiled.composer().is_some(),
            reactions: shown_reactions(manifest),
            finalizer_name: manifest.finalizer_name.as_ref().map(ToString::to_string),
            policy: shown_policy(&row.policy),
            manifest_version: unsigned(row.version),
            resources: pair.resources,
            workers: workers(&row.kv),
            created_at: rfc3339_ms(row.created_ms),
            updated_at: rfc3339_ms(row.updated_ms),
        }
    });
    Ok(list(items.collect(), revision, next))
}

/// The schemas of a kind, of its newest version unless one is named.
#[utoipa::path(get, path = "/api/v1/kinds/{kind}/schema", tag = "kinds", params(("kind" = String, Path), ("version" = Option<i64>, Query)), responses(
    (status = 200, description = "the schemas", body = api::KindSchema), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn schema(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
) -> Answer {
    let kind = path.kind()?;
    let wanted = query.read(&["version"], &[], |checks| query.version(checks))?;
    let row = match wanted {
        Some(version) => {
            let kv = KindVersion { kind, version };
            api.manifest(&kv).await?
        }
        None => {
            let rows = api.store.manifest_list().await?;
            let newest = rows
                .into_iter()
                .map(|(row, _)| row)
                .filter(|row| row.kv.kind == kind)
                .max_by_key(|row| row.kv.version);
            newest.ok_or_else(|| unknown_kind(kind.as_str()))?
        }
    };
    let manifest = row.manifest();
    let body = api::KindSchema {
        kind: row.kv.kind.to_string(),
        kind_version: row.kv.version.into(),
        spec_schema: manifest.spec_schema.as_ref().map(raw).transpose()?,
        status_schema: manifest.status_schema.as_ref().map(raw).transpose()?,
        config_schema: manifest.config_schema.as_ref().map(raw).transpose()?,
    };
    Ok(json(StatusCode::OK, &body))
}

/// Asks for one full pass of every resource of a kind, or of those in one phase.
#[utoipa::path(post, path = "/api/v1/kinds/{kind}/reconcile", tag = "kinds", params(("kind" = String, Path), api::KindQuery, ("Idempotency-Key" = Option<String>, Header)), responses(
    (status = 202, description = "asked for", body = api::KindReconciled), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn reconcile(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    headers: HeaderMap,
    write: Write,
) -> Answer {
    let kind = path.kind()?;
    let (wanted, phase) = query.read(&["version", "phase"], &[], |checks| {
        let wanted = query.version(checks);
        let phase = query
            .get("phase")
            .and_then(|word| resources::phase(checks, word));
        (wanted, phase)
    })?;
    write.bare().await?;
    let rows = api.store.manifest_list().await?;
    if !rows.iter().any(|(row, _)| {
        row.kv.kind == kind && wanted.is_none_or(|version| row.kv.version == version)
    }) {
        return Err(unknown_kind(kind.as_str()));
    }
    let scope = format!("reconcile kind {kind}");
    let filter = ResourceFilter {
        kv: wanted.map(|version| KindVersion {
            kind: kind.clone(),
            version,
        }),
        kind: Some(kind),
        phase,
        ..ResourceFilter::default()
    };
    let work = steering::reconcile_kind(&api, &filter);
    let reconciled = api.once.run(&headers, &scope, work).await?.unwrap_or(0);
    let body = api::KindReconciled { reconciled };
    Ok(json(StatusCode::ACCEPTED, &body))
}

fn unknown_kind(kind: &str) -> Problem {
    Problem::not_found(format!(
        "kind {kind} is not known here in that version: apply its manifest first"
    ))
}
