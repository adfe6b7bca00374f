//! `/resources`: apply, read, list, delete, roots, summary.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use converge_api_types as api;
use converge_engine::command::{self, Command, Reply};
use converge_engine::store::{Page, ResourceFilter, ResourceView};
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, ResourceRef, Uid};
use converge_types::labels::Labels;
use converge_types::limits;
use converge_types::phase::{Phase, rfc3339_ms};

use super::{Answer, unexpected};
use crate::Api;
use crate::answer::{self, json, list, unsigned, with_etag, with_result};
use crate::body::{check_type, object, shape};
use crate::check::{Checks, PathArgs, QueryArgs};
use crate::problem::Problem;
use crate::write::Write;

/// The spec, and what else an apply can carry at most.
const BODY_BYTES: usize = limits::SPEC_BYTES + (1 << 20);
const FIELDS: &[(&str, bool)] = &[
    ("type", false),
    ("kind", true),
    ("kind_version", false),
    ("name", true),
    ("labels", false),
    ("provider_config_ref", false),
    ("spec", true),
];
const FILTERS: &[&str] = &[
    "kind", "kv", "name", "owner", "root", "view", "limit", "cursor",
];
const REPEATED_FILTERS: &[&str] = &["phase", "label"];

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/resources", post(apply).get(list_all))
        .route("/resources/roots", get(roots))
        .route("/resources/summary", get(summary))
        .route("/resources/{kind}/{name}", get(read).delete(delete))
}

/// Applies the whole desired state of one resource.
#[utoipa::path(post, path = "/api/v1/resources", tag = "resources", request_body = api::ResourceApply, responses(
    (status = 201, description = "created", body = api::Resource), (status = 200, description = "configured or unchanged, see X-Apply-Result", body = api::Resource),
    (status = 400, description = "malformed, or the spec does not fit its schema", body = api::Problem, content_type = "application/problem+json"),
    (status = 404, description = "unknown kind or version", body = api::Problem, content_type = "application/problem+json"),
    (status = 409, description = "being deleted, or composed", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn apply(State(api): State<Arc<Api>>, query: QueryArgs, write: Write) -> Answer {
    query.none()?;
    let (precondition, doc) = write.conditional(BODY_BYTES).await?;
    let body: api::ResourceApply = shape(&doc, FIELDS)?;
    let mut checks = Checks::default();
    check_type(&mut checks, body.type_.as_deref(), "resource");
    let kind = checks.parse::<Kind>("/kind", &body.kind);
    let kind_version = body
        .kind_version
        .and_then(|version| kind_version(&mut checks, version));
    let name = checks.parse::<ResourceName>("/name", &body.name);
    let config_ref = body.provider_config_ref.as_deref();
    let config_ref =
        config_ref.and_then(|name| checks.parse::<ConfigName>("/provider_config_ref", name));
    let labels = match Labels::new(body.labels) {
        Ok(labels) => labels,
        Err(errors) => {
            errors
                .iter()
                .for_each(|error| checks.add("/labels", error.to_string()));
            Labels::default()
        }
    };
    let spec = object(&mut checks, "/spec", body.spec);
    let (Some(kind), Some(name), Some(spec)) = (kind, name, spec) else {
        return Err(checks.into_problem());
    };
    checks.finish()?;
    let reply = api
        .command(Command::ResourceApply(command::ResourceApply {
            kind: kind.clone(),
            kind_version,
            name: name.clone(),
            labels,
            config_ref,
            spec,
            new_uid: Uid::now(),
            precondition,
            who: None,
        }))
        .await?;
    api.written(reply, &kind, &name).await
}

/// The resources that match.
#[utoipa::path(get, path = "/api/v1/resources", tag = "resources", params(api::ResourceQuery), responses(
    (status = 200, description = "one page; the next one's cursor is in X-Next-Cursor", body = api::List<api::Resource>)))]
pub(crate) async fn list_all(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    let wanted = Wanted::read(&query, FILTERS, REPEATED_FILTERS)?;
    api.resources(wanted).await
}

/// Resources without an owner, and how what is below each is doing.
#[utoipa::path(get, path = "/api/v1/resources/roots", tag = "resources", params(api::ResourceQuery), responses(
    (status = 200, description = "one page", body = api::List<api::Root>)))]
pub(crate) async fn roots(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    let filters = &["kind", "kv", "name", "limit", "cursor"];
    let mut wanted = Wanted::read(&query, filters, REPEATED_FILTERS)?;
    wanted.filter.roots_only = true;
    let page = api.page(&wanted).await?;
    let shown = api.shown(&page.items).await?;
    let items = page.items.iter().map(|view| {
        let row = &view.row;
        let below = row.below.sums;
        let reconciling = below.total - below.ready - below.failed - below.degraded;
        let counts = [
            (api::Phase::Ready, below.ready),
            (api::Phase::Reconciling, reconciling),
            (api::Phase::Degraded, below.degraded),
            (api::Phase::Failed, below.failed),
        ];
        api::Root {
            kind: row.kv.kind.to_string(),
            kind_version: row.kv.version.into(),
            name: row.name.to_string(),
            uid: row.uid.to_string(),
            phase: answer::phase(row.derived.phase),
            waiting: shown.waiting(view),
            labels: row.labels.as_map().clone(),
            descendants: unsigned(below.total),
            phases: counts
                .into_iter()
                .filter(|(_, count)| *count > 0)
                .map(|(phase, count)| (phase, unsigned(count)))
                .collect(),
            updated_at: rfc3339_ms(row.updated_ms),
        }
    });
    Ok(list(items.collect(), page.revision, page.next))
}

/// How many resources there are in each phase.
#[utoipa::path(get, path = "/api/v1/resources/summary", tag = "resources", responses((status = 200, description = "the counts", body = api::Summary)))]
pub(crate) async fn summary(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    query.none()?;
    // The counts may be newer than the number, never older: a watch that resumes from it misses nothing.
    let revision = api.store.revision().await?;
    let counts = api.store.resource_summary().await?;
    let mut phases = BTreeMap::<api::Phase, u64>::new();
    let mut kinds = BTreeMap::<KindVersion, BTreeMap<api::Phase, u64>>::new();
    for (kv, phase, count) in counts {
        *phases.entry(answer::phase(phase)).or_default() += count;
        *kinds
            .entry(kv)
            .or_default()
            .entry(answer::phase(phase))
            .or_default() += count;
    }
    let kinds = kinds.into_iter().map(|(kv, phases)| api::KindCount {
        kind: kv.kind.to_string(),
        kind_version: kv.version.into(),
        total: phases.values().sum(),
        phases,
    });
    let summary = api::Summary {
        total: phases.values().sum(),
        kinds: kinds.collect(),
        phases,
        revision: unsigned(revision),
    };
    Ok(json(StatusCode::OK, &summary))
}

/// One resource.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}", tag = "resources", params(("kind" = String, Path), ("name" = String, Path)), responses(
    (status = 200, description = "the resource", body = api::Resource),
    (status = 404, description = "never there, or gone: the detail says when it went", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(api): State<Arc<Api>>, path: PathArgs, query: QueryArgs) -> Answer {
    query.none()?;
    let (kind, name) = path.resource()?;
    let view = api.existing(&kind, &name).await?;
    api.resource(StatusCode::OK, &view).await
}

/// Marks a resource and what it owns for teardown.
#[utoipa::path(delete, path = "/api/v1/resources/{kind}/{name}", tag = "resources", params(("kind" = String, Path), ("name" = String, Path), api::DeleteQuery), responses(
    (status = 202, description = "its teardown is under way", body = api::Resource), (status = 204, description = "it is gone"),
    (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json"),
    (status = 409, description = "it belongs to a composer", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    let (kind, name) = path.resource()?;
    let (force, abandon) = query.read(&["force", "abandon"], &[], |checks| {
        let force = query.flag(checks, "force");
        (force, query.flag(checks, "abandon"))
    })?;
    let precondition = write.conditional_bare().await?;
    let command = Command::ResourceDelete(command::ResourceDelete {
        kind: kind.clone(),
        name: name.clone(),
        force,
        abandon,
        precondition,
        who: None,
    });
    match api.command(command).await {
        Ok(Reply::Deleting) => api.written(Reply::Deleting, &kind, &name).await,
        Ok(Reply::Deleted) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(other) => Err(unexpected(&other)),
        // The engine knows that it is not there; only the tombstone knows since when.
        Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
            Err(api.gone(&kind, &name).await)
        }
        Err(problem) => Err(problem),
    }
}

/// A kind version of a body.
pub(crate) fn kind_version(checks: &mut Checks, version: i64) -> Option<i32> {
    let found = i32::try_from(version).ok();
    let found = found.filter(|version| KindVersion::VERSIONS.contains(version));
    if found.is_none() {
        checks.add(
            "/kind_version",
            format!("{version} is no kind version: a whole number from 1 to 32767"),
        );
    }
    found
}

/// What a list of resources was asked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) filter: ResourceFilter,
    phases: Vec<Phase>,
    owner: Option<ResourceRef>,
    root: Option<ResourceRef>,
    full: bool,
    limit: u32,
    cursor: Option<String>,
}

impl Wanted {
    /// Of the parameters the route has: those that may be given once, and those that may be repeated.
    pub(crate) fn read(query: &QueryArgs, once: &[&str], many: &[&str]) -> Result<Self, Problem> {
        query.read(once, many, |checks| Self::from(query, checks))
    }

    fn from(query: &QueryArgs, checks: &mut Checks) -> Self {
        let mut phases: Vec<_> = query
            .all("phase")
            .filter_map(|word| phase(checks, word))
            .collect();
        phases.sort_unstable();
        phases.dedup();
        let mut labels = Vec::new();
        for label in query.all("label") {
            match label.split_once(':') {
                Some((key, value)) => labels.push((key.to_owned(), value.to_owned())),
                None => checks.add("label", format!("{label:?} is not key:value")),
            }
        }
        if labels.len() > limits::LABELS {
            checks.add("label", format!("at most {} may be given", limits::LABELS));
        }
        let full = match query.get("view") {
            None | Some("summary") => false,
            Some("full") => true,
            Some(other) => {
                checks.add(
                    "view",
                    format!("{other:?} is no view; there are: summary, full"),
                );
                false
            }
        };
        let cursor = query.get("cursor").map(str::to_owned);
        if let Some(cursor) = &cursor {
            // A cursor is the last item of the page before.
            if cursor.parse::<ResourceRef>().is_err() {
                checks.add("cursor", "is none that X-Next-Cursor gave");
            }
        }
        Self {
            filter: ResourceFilter {
                kind: query.parsed(checks, "kind"),
                kv: query.parsed(checks, "kv"),
                phase: None,
                name_contains: query
                    .get("name")
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned),
                labels,
                owner: None,
                root: None,
                roots_only: false,
            },
            phases,
            owner: query.parsed(checks, "owner"),
            root: query.parsed(checks, "root"),
            full,
            limit: query.limit(checks),
            cursor,
        }
    }
}

/// A phase as people write it.
pub(crate) fn phase(checks: &mut Checks, word: &str) -> Option<Phase> {
    let found = Phase::ALL
        .iter()
        .find(|phase| phase.as_str().eq_ignore_ascii_case(word));
    if found.is_none() {
        let all: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
        checks.add(
            "phase",
            format!("{word:?} is no phase; there are: {}", all.join(", ")),
        );
    }
    found.copied()
}

impl Api {
    /// A resource that must exist.
    pub(crate) async fn existing(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<ResourceView, Problem> {
        match self.store.resource_get(kind, name).await? {
            Some(view) => Ok(view),
            None => Err(self.gone(kind, name).await),
        }
    }

    /// Why there is no such resource.
    pub(crate) async fn gone(&self, kind: &Kind, name: &ResourceName) -> Problem {
        match self.store.tombstone_get(kind, name).await {
            Ok(Some(tombstone)) => Problem::not_found(format!(
                "{kind}/{name} was removed at {}; its events: /api/v1/resources/{kind}/{name}/events?deleted=true",
                rfc3339_ms(tombstone.removed_ms)
            )),
            Ok(None) => Problem::not_found(format!("there is no resource {kind}/{name}")),
            Err(error) => error.into(),
        }
    }

    /// The answer about one resource.
    pub(crate) async fn resource(&self, status: StatusCode, view: &ResourceView) -> Answer {
        let shown = self.shown(std::slice::from_ref(view)).await?;
        Ok(with_etag(
            json(status, &shown.resource(view)),
            view.row.revision,
        ))
    }

    /// The answer to a write: the resource as it is once the write is committed.
    pub(crate) async fn written(&self, reply: Reply, kind: &Kind, name: &ResourceName) -> Answer {
        let (status, result, written) = match reply {
            Reply::Resource {
                applied,
                row,
                spec,
                status: its_status,
            } => {
                let (status, result) = answer::applied(applied);
                // Only a resource without owner is applied: there is nothing above it to name, and no edge that could hold it.
                let view = ResourceView {
                    row,
                    spec,
                    status: its_status,
                    owner: None,
                    root: None,
                    held_on: None,
                };
                (status, Some(result), Some(view))
            }
            Reply::Deleting | Reply::Accepted { .. } => (StatusCode::ACCEPTED, None, None),
            other => return Err(unexpected(&other)),
        };
        let view = match written {
            Some(view) if view.row.children == 0 => view,
            // Which child it waits for is known to a read only.
            written => match (self.store.resource_get(kind, name).await?, written) {
                (Some(view), _) => view,
                // Removed between the commit and the read: what was written is still the right answer.
                (None, Some(view)) => view,
                (None, None) => return Ok(StatusCode::NO_CONTENT.into_response()),
            },
        };
        let mut response = self.resource(status, &view).await?;
        if let Some(result) = result {
            response = with_result(response, result);
        }
        let path = format!("/api/v1/resources/{kind}/{name}");
        Ok(answer::with_location(response, &path))
    }

    /// A list answer.
    pub(crate) async fn resources(&self, mut wanted: Wanted) -> Answer {
        for (reference, slot) in [
            (wanted.owner.take(), &mut wanted.filter.owner),
            (wanted.root.take(), &mut wanted.filter.root),
        ] {
            let Some(reference) = reference else {
                continue;
            };
            match self
                .store
                .resource_get(&reference.kind, &reference.name)
                .await?
            {
                Some(view) => *slot = Some(view.row.uid),
                None => return Ok(list::<()>(Vec::new(), self.store.revision().await?, None)),
            }
        }
        let page = self.page(&wanted).await?;
        let shown = self.shown(&page.items).await?;
        let items = page.items.iter().map(|view| shown.resource(view)).collect();
        Ok(list(items, page.revision, page.next))
    }

    /// One page. Several phases are several reads whose pages are merged: a store narrows by one.
    pub(crate) async fn page(&self, wanted: &Wanted) -> Result<Page<ResourceView>, Problem> {
        let cursor = wanted.cursor.as_deref();
        let read = async |phase: Option<Phase>| {
            let filter = ResourceFilter {
                phase,
                ..wanted.filter.clone()
            };
            self.store
                .resource_list(&filter, cursor, wanted.limit, wanted.full)
                .await
        };
        let (first, rest) = match wanted.phases.as_slice() {
            [] => (None, [].as_slice()),
            [first, rest @ ..] => (Some(*first), rest),
        };
        let mut page = read(first).await?;
        for phase in rest {
            let more = read(Some(*phase)).await?;
            page.revision = page.revision.min(more.revision);
            page.next = page.next.or(more.next);
            page.items.extend(more.items);
        }
        if !rest.is_empty() {
            // A row that changed its phase between the reads may be there twice.
            page.items.sort_by(|left, right| key(left).cmp(&key(right)));
            page.items.dedup_by(|left, right| key(left) == key(right));
            let limit = wanted.limit as usize;
            let is_more = page.next.is_some() || page.items.len() > limit;
            page.items.truncate(limit);
            page.next = page
                .items
                .last()
                .filter(|_| is_more)
                .map(|last| format!("{}/{}", last.row.kv.kind, last.row.name));
        }
        Ok(page)
    }
}

fn key(view: &ResourceView) -> (&Kind, &ResourceName) {
    (&view.row.kv.kind, &view.row.name)
}
