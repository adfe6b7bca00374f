//! Answers: from the engine's rows to the shapes of `converge-api-types`, and from there to bytes.
//!
//! An answer is made whole before its first byte is sent. Specs and statuses are written as the bytes they are stored as.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use converge_api_types as api;
use converge_engine::command::Applied;
use converge_engine::model::{Due, Millis, Resource};
use converge_engine::store::{ResourceView, StoreError};
use converge_engine::waiting;
use converge_types::ids::{Kind, KindVersion, ResourceName};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use converge_types::phase::{self, rfc3339_ms};
use serde::Serialize;

use crate::Api;
use crate::problem::Problem;

/// How old the list of kinds at capacity may be; it only picks a word in `waiting`.
const CAPACITY_AGE: Duration = Duration::from_millis(250);

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let kind = HeaderValue::from_static("application/json");
            (status, [(header::CONTENT_TYPE, kind)], bytes).into_response()
        }
        Err(error) => {
            Problem::internal(format!("the answer could not be written: {error}")).into_response()
        }
    }
}

/// A list and where its next page starts.
pub(crate) fn list<T: Serialize>(items: Vec<T>, revision: i64, next: Option<String>) -> Response {
    let mut response = json(
        StatusCode::OK,
        &api::List {
            items,
            revision: unsigned(revision),
        },
    );
    if let Some(next) = next {
        set(response.headers_mut(), api::header::NEXT_CURSOR, &next);
    }
    response
}

/// Cuts the first page off items that were read whole; where the next one starts, if there is more.
pub(crate) fn cut<T>(
    items: &mut Vec<T>,
    limit: usize,
    cursor: impl FnOnce(&T) -> String,
) -> Option<String> {
    let is_more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| is_more).map(cursor)
}

/// Sets a header from text of our own.
pub(crate) fn set(headers: &mut HeaderMap, name: &'static str, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Adds the ETag: the revision of the row.
pub(crate) fn with_etag(mut response: Response, revision: i64) -> Response {
    set(response.headers_mut(), "etag", &format!("\"{revision}\""));
    response
}

/// The status of a write and its `X-Apply-Result`.
pub(crate) fn applied(applied: Applied) -> (StatusCode, api::ApplyResult) {
    match applied {
        Applied::Created => (StatusCode::CREATED, api::ApplyResult::Created),
        Applied::Configured => (StatusCode::OK, api::ApplyResult::Configured),
        Applied::Unchanged => (StatusCode::OK, api::ApplyResult::Unchanged),
    }
}

/// Adds `X-Apply-Result`.
pub(crate) fn with_result(mut response: Response, result: api::ApplyResult) -> Response {
    set(
        response.headers_mut(),
        api::header::APPLY_RESULT,
        result.as_str(),
    );
    response
}

/// The answer to an apply: what came of it, and the row at its revision.
pub(crate) fn of_apply(what: Applied, body: &impl Serialize, revision: i64) -> Response {
    let (status, result) = applied(what);
    with_result(with_etag(json(status, body), revision), result)
}

/// Adds where it is, if the answer says that it was created.
pub(crate) fn with_location(mut response: Response, path: &str) -> Response {
    if response.status() == StatusCode::CREATED {
        set(response.headers_mut(), header::LOCATION.as_str(), path);
    }
    response
}

/// Numbers that only grow from zero; one out of range shows as zero.
pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A stored document for a shape that holds it as raw JSON.
pub(crate) fn raw(doc: &Doc) -> Result<api::Json, Problem> {
    // Through a slice and not a string: whether the bytes are UTF-8 is checked on the way.
    let raw = serde_json::from_slice::<api::Json>(doc.as_bytes());
    raw.map_err(|error| Problem::internal(format!("a stored document is damaged: {error}")))
}

/// The same phase in the words of the API.
pub(crate) fn phase(phase: phase::Phase) -> api::Phase {
    match phase {
        phase::Phase::Ready => api::Phase::Ready,
        phase::Phase::Reconciling => api::Phase::Reconciling,
        phase::Phase::Degraded => api::Phase::Degraded,
        phase::Phase::Failed => api::Phase::Failed,
        phase::Phase::Orphaned => api::Phase::Orphaned,
        phase::Phase::Quarantined => api::Phase::Quarantined,
        phase::Phase::Deleting => api::Phase::Deleting,
    }
}

/// `kind/name` as a reference.
pub(crate) fn reference((kind, name): &(Kind, ResourceName)) -> api::ObjectRef {
    api::ObjectRef::new(kind.as_str(), name.as_str())
}

/// A resource answer: the fields of [`api::Resource`] in the same order, documents as they are stored.
#[derive(Debug, Serialize)]
pub(crate) struct ResourceAnswer<'a> {
    kind: &'a Kind,
    kind_version: i32,
    name: &'a ResourceName,
    uid: String,
    generation: i64,
    synced_gen: i64,
    phase: api::Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<String>,
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a Doc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Doc>,
    conditions: Vec<api::Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<api::Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<api::ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<api::ObjectRef>,
    finalizers: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_config_ref: Option<&'a str>,
    quarantined: bool,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion_requested_at: Option<String>,
}

/// What answers about resources need beside the rows: the fleet, the time, the kinds at capacity.
pub(crate) struct Shown<'a> {
    api: &'a Api,
    now_ms: Millis,
    at_capacity: Arc<HashSet<KindVersion>>,
}

impl Api {
    /// What it takes to show these.
    pub(crate) async fn shown(&self, views: &[ResourceView]) -> Result<Shown<'_>, StoreError> {
        let asks = views
            .iter()
            .any(|view| view.row.claim.is_none() && matches!(view.row.due, Due::Ready { .. }));
        let at_capacity = if asks {
            self.at_capacity().await?
        } else {
            Arc::default()
        };
        Ok(Shown {
            api: self,
            now_ms: self.store.now_ms(),
            at_capacity,
        })
    }

    async fn at_capacity(&self) -> Result<Arc<HashSet<KindVersion>>, StoreError> {
        {
            let cached = self
                .capacity
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some((at, pairs)) = &*cached
                && at.elapsed() < CAPACITY_AGE
            {
                return Ok(pairs.clone());
            }
        }
        let manifests = self.store.manifest_list().await?;
        let full = manifests
            .into_iter()
            .filter(|(row, pair)| {
                row.policy.max_inflight > 0 && pair.inflight >= row.policy.max_inflight
            })
            .map(|(row, _)| row.kv.clone())
            .collect();
        let full = Arc::new(full);
        *self
            .capacity
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) =
            Some((Instant::now(), Arc::clone(&full)));
        Ok(full)
    }
}

impl Shown<'_> {
    /// The waiting reason as people read it.
    pub(crate) fn waiting(&self, view: &ResourceView) -> Option<String> {
        let full = || self.at_capacity.contains(&view.row.due_kv());
        let reason = waiting::reason(view, &*self.api.fleet, &full, self.now_ms);
        reason.map(|reason| reason.to_string())
    }

    /// The whole answer.
    pub(crate) fn resource<'v>(&self, view: &'v ResourceView) -> ResourceAnswer<'v> {
        let row: &Resource = &view.row;
        ResourceAnswer {
            kind: &row.kv.kind,
            kind_version: row.kv.version,
            name: &row.name,
            uid: row.uid.to_string(),
            generation: row.generation,
            synced_gen: row.synced_gen,
            phase: phase(row.derived.phase),
            waiting: self.waiting(view),
            labels: &row.labels,
            spec: view.spec.as_ref(),
            status: view.status.as_ref(),
            conditions: row
                .conditions
                .iter()
                .map(|owned| condition(&owned.condition))
                .collect(),
            failure: row.failure.as_ref().map(|failure| api::Failure {
                message: failure.message.clone(),
                terminal: failure.terminal,
                attempts: failure.attempts,
                next_attempt_at: failure.next_ms.map(rfc3339_ms),
            }),
            owner: view.owner.as_ref().map(reference),
            root: view.root.as_ref().map(reference),
            finalizers: row
                .finalizers
                .iter()
                .map(|finalizer| finalizer.name.as_str())
                .collect(),
            provider_config_ref: row.config_ref.as_ref().map(|name| name.as_str()),
            quarantined: row.quarantined,
            created_at: rfc3339_ms(row.created_ms),
            updated_at: rfc3339_ms(row.updated_ms),
            deletion_requested_at: row
                .deletion
                .as_ref()
                .map(|deletion| rfc3339_ms(deletion.requested_ms)),
        }
    }
}

fn condition(found: &phase::Condition) -> api::Condition {
    api::Condition {
        type_: found.type_.clone(),
        status: match found.status {
            phase::ConditionStatus::True => api::ConditionStatus::True,
            phase::ConditionStatus::False => api::ConditionStatus::False,
            phase::ConditionStatus::Unknown => api::ConditionStatus::Unknown,
        },
        reason: found.reason.clone(),
        message: found.message.clone(),
        last_transition_time: rfc3339_ms(found.last_transition_ms),
        observed_generation: unsigned(found.observed_generation),
    }
}
