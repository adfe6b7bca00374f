//! What a person asks of a resource beside its spec: reconcile, quarantine, rollback, and its history.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use converge_api_types as api;
use converge_engine::command::{self, Command, Reply};
use converge_engine::store::ResourceFilter;
use converge_types::phase::rfc3339_ms;

use super::{Answer, unexpected};
use crate::Api;
use crate::answer::{list, raw, unsigned};
use crate::body::shape;
use crate::check::{PathArgs, QueryArgs};
use crate::problem::Problem;
use crate::write::Write;

/// Bodies of a few numbers.
const SMALL_BYTES: usize = 64 << 10;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/resources/{kind}/{name}/reconcile", post(reconcile))
        .route("/resources/{kind}/{name}/quarantine", post(quarantine))
        .route("/resources/{kind}/{name}/unquarantine", post(unquarantine))
        .route("/resources/{kind}/{name}/rollback", post(rollback))
        .route("/resources/{kind}/{name}/spec-history", get(spec_history))
}

/// Ends a pin and the backoff and asks for one full pass.
#[utoipa::path(post, path = "/api/v1/resources/{kind}/{name}/reconcile", tag = "resources",
    params(("kind" = String, Path), ("name" = String, Path), api::ScopeQuery, ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 202, description = "asked for", body = api::Resource), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn reconcile(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    headers: HeaderMap,
    write: Write,
) -> Answer {
    let (kind, name) = path.resource()?;
    let recursive = is_recursive(&query)?;
    write.bare().await?;
    let scope = format!("reconcile {kind}/{name}");
    let command = command::ResourceReconcile {
        kind: kind.clone(),
        name: name.clone(),
        recursive,
        who: None,
    };
    let work = api.command(Command::ResourceReconcile(command));
    let reply = api.once.run(&headers, &scope, work).await?;
    let reply = reply.unwrap_or(Reply::Accepted { resources: 0 });
    api.written(reply, &kind, &name).await
}

/// Stops the next claim of any stage.
#[utoipa::path(post, path = "/api/v1/resources/{kind}/{name}/quarantine", tag = "resources",
    params(("kind" = String, Path), ("name" = String, Path), api::ScopeQuery),
    responses((status = 202, description = "held back", body = api::Resource), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn quarantine(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    hold(&api, path, query, write, true).await
}

/// Lets it go on.
#[utoipa::path(post, path = "/api/v1/resources/{kind}/{name}/unquarantine", tag = "resources",
    params(("kind" = String, Path), ("name" = String, Path), api::ScopeQuery),
    responses((status = 202, description = "let go", body = api::Resource), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn unquarantine(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    hold(&api, path, query, write, false).await
}

async fn hold(api: &Api, path: PathArgs, query: QueryArgs, write: Write, on: bool) -> Answer {
    let (kind, name) = path.resource()?;
    let recursive = is_recursive(&query)?;
    write.bare().await?;
    let command = command::ResourceQuarantine {
        kind: kind.clone(),
        name: name.clone(),
        recursive,
        on,
        who: None,
    };
    let reply = api.command(Command::ResourceQuarantine(command)).await?;
    api.written(reply, &kind, &name).await
}

fn is_recursive(query: &QueryArgs) -> Result<bool, Problem> {
    query.read(&["recursive"], &[], |checks| {
        query.flag(checks, "recursive")
    })
}

/// Applies a kept authored state whole, as a new generation.
#[utoipa::path(post, path = "/api/v1/resources/{kind}/{name}/rollback", tag = "resources", request_body = api::RollbackRequest,
    params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "rolled back", body = api::Resource), (status = 404, description = "not there, or that generation is not kept", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn rollback(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    let (kind, name) = path.resource()?;
    query.none()?;
    let doc = write.unconditional(SMALL_BYTES).await?;
    let wanted: api::RollbackRequest = shape(&doc, &[("generation", true)])?;
    let generation = i64::try_from(wanted.generation).unwrap_or(i64::MAX);
    let command = command::ResourceRollback {
        kind: kind.clone(),
        name: name.clone(),
        generation,
        who: None,
    };
    let reply = api.command(Command::ResourceRollback(command)).await?;
    api.written(reply, &kind, &name).await
}

/// The authored states that are kept, newest first.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}/spec-history", tag = "resources", params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "the history", body = api::List<api::SpecRevision>), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn spec_history(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
) -> Answer {
    let (kind, name) = path.resource()?;
    query.none()?;
    let revision = api.store.revision().await?;
    let view = api.existing(&kind, &name).await?;
    let history = api.store.history_list(view.row.uid).await?;
    let items = history
        .iter()
        .map(|kept| {
            Ok(api::SpecRevision {
                generation: unsigned(kept.generation),
                kind_version: kept.kv.version.into(),
                labels: kept.labels.as_map().clone(),
                provider_config_ref: kept.config_ref.as_ref().map(ToString::to_string),
                spec: raw(&kept.spec)?,
                at: rfc3339_ms(kept.at_ms),
                who: kept.who.clone(),
            })
        })
        .collect::<Result<Vec<_>, Problem>>()?;
    Ok(list(items, revision, None))
}

/// A whole kind, page by page; the answer counts.
pub(crate) async fn reconcile_kind(api: &Api, filter: &ResourceFilter) -> Result<u64, Problem> {
    let mut reconciled = 0;
    let mut cursor = None;
    loop {
        let page = api
            .store
            .resource_list(filter, cursor.as_deref(), api::MAX_PAGE, false)
            .await?;
        let commands = page.items.iter().map(|view| {
            Command::ResourceReconcile(command::ResourceReconcile {
                kind: view.row.kv.kind.clone(),
                name: view.row.name.clone(),
                recursive: false,
                who: None,
            })
        });
        for reply in api.store.transact(commands.collect()).await {
            match reply.map_err(Problem::from) {
                Ok(Reply::Accepted { resources }) => reconciled += resources,
                Ok(other) => return Err(unexpected(&other)),
                // Removed since the page was read.
                Err(problem) if problem.status() == StatusCode::NOT_FOUND => {}
                Err(problem) => return Err(problem),
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(reconciled),
        }
    }
}
