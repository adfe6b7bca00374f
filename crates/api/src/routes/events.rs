//! `…/events`: what happened to a resource, also after it went.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use converge_api_types as api;
use converge_engine::model::{Event, EventKind};
use converge_types::limits;
use converge_types::phase::rfc3339_ms;

use super::Answer;
use crate::Api;
use crate::answer::{cut, list, unsigned};
use crate::check::{PathArgs, QueryArgs};
use crate::problem::Problem;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new().route("/resources/{kind}/{name}/events", get(events))
}

/// The events of a resource, oldest first.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}/events", tag = "resources", params(("kind" = String, Path), ("name" = String, Path), api::EventQuery),
    responses((status = 200, description = "one page", body = api::List<api::Event>),
    (status = 404, description = "not there, or gone: then ?deleted=true", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn events(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
) -> Answer {
    let (kind, name) = path.resource()?;
    let (deleted, limit, after) = query.read(&["deleted", "limit", "cursor"], &[], |checks| {
        let deleted = query.flag(checks, "deleted");
        let limit = query.limit(checks) as usize;
        let after = match query.get("cursor").map(str::parse::<i64>) {
            None => i64::MIN,
            Some(Ok(after)) => after,
            Some(Err(_)) => {
                checks.add("cursor", "is none that X-Next-Cursor gave");
                i64::MIN
            }
        };
        (deleted, limit, after)
    })?;
    let revision = api.store.revision().await?;
    let uid = if deleted {
        let tombstone = api.store.tombstone_get(&kind, &name).await?;
        let tombstone = tombstone.ok_or_else(|| {
            Problem::not_found(format!("no removed resource {kind}/{name} is remembered"))
        })?;
        tombstone.uid
    } else {
        api.existing(&kind, &name).await?.row.uid
    };
    // A resource keeps so few that all of them are read and the page is cut here.
    let mut events = api
        .store
        .event_list(uid, None, limits::EVENTS_PER_RESOURCE as u32)
        .await?;
    events.reverse();
    events.retain(|event| event.seq > after);
    let next = cut(&mut events, limit, |event| event.seq.to_string());
    Ok(list(
        events.into_iter().map(shown).collect(),
        revision,
        next,
    ))
}

fn shown(event: Event) -> api::Event {
    api::Event {
        seq: unsigned(event.seq),
        at: rfc3339_ms(event.at_ms),
        type_: word(event.kind).to_owned(),
        generation: unsigned(event.generation),
        reaction: event.reaction,
        message: event.message,
        count: event.count.into(),
        who: event.who,
    }
}

/// The word clients see; as the store spells it, so that what is filtered for in one place is found in the other.
fn word(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Applied => "applied",
        EventKind::Composed => "composed",
        EventKind::Pruned => "pruned",
        EventKind::Adopted => "adopted",
        EventKind::Succeeded => "succeeded",
        EventKind::Failed => "failed",
        EventKind::PhaseChanged => "phaseChanged",
        EventKind::ConditionChanged => "conditionChanged",
        EventKind::PartDropped => "partDropped",
        EventKind::LeaseLost => "leaseLost",
        EventKind::GivenBack => "givenBack",
        EventKind::FlowChanged => "flowChanged",
        EventKind::DeletionRequested => "deletionRequested",
        EventKind::Orphaned => "orphaned",
        EventKind::Abandoned => "abandoned",
        EventKind::Deleted => "deleted",
        EventKind::ReconcileRequested => "reconcileRequested",
        EventKind::Quarantined => "quarantined",
        EventKind::Unquarantined => "unquarantined",
        EventKind::RolledBack => "rolledBack",
        EventKind::Operation => "operation",
    }
}
