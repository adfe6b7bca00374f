//! `/cluster-members`: brokers and the workers connected to them.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use converge_api_types as api;
use converge_engine::fleet::Member;
use converge_types::phase::rfc3339_ms;

use super::Answer;
use crate::Api;
use crate::answer::list;
use crate::check::QueryArgs;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new().route("/cluster-members", get(members))
}

/// Brokers and their connected workers.
#[utoipa::path(get, path = "/api/v1/cluster-members", tag = "cluster", responses((status = 200, description = "the fleet of the moment", body = api::List<api::ClusterMember>)))]
pub(crate) async fn members(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    query.none()?;
    let revision = api.store.revision().await?;
    let now = rfc3339_ms(api.store.now_ms());
    let items = api
        .fleet
        .members()
        .into_iter()
        .map(|broker| api::ClusterMember {
            id: broker.broker,
            role: api.options.role.clone(),
            address: api.options.broker_address.clone(),
            version: api.options.version.clone(),
            started_at: rfc3339_ms(api.options.started_ms),
            // The broker of this process lives as long as it answers.
            last_heartbeat: now.clone(),
            workers: broker.workers.iter().map(worker).collect(),
        });
    Ok(list(items.collect(), revision, None))
}

fn worker(member: &Member) -> api::WorkerInfo {
    api::WorkerInfo {
        id: member.identity.clone(),
        identity: None,
        kinds: member
            .pairs
            .iter()
            .map(|(kv, ready)| api::WorkerKind {
                kind: kv.kind.to_string(),
                kind_version: kv.version.into(),
                ready: *ready,
                message: None,
            })
            .collect(),
        credit: member.credit.saturating_sub(member.inflight),
        in_flight: member.inflight,
        draining: false,
        connected_at: rfc3339_ms(member.connected_ms),
        last_heartbeat: rfc3339_ms(member.heartbeat_ms),
    }
}
