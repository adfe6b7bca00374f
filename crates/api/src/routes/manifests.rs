//! `/kinds/{kind}/manifest` and `/kinds/{kind}/versions/{v}/…`: kind manifests and their live policy.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use converge_api_types as api;
use converge_engine::command::{self, Command, Reply};
use converge_engine::model::ManifestRow;
use converge_types::ids::KindVersion;
use converge_types::json::Doc;
use converge_types::limits;
use converge_types::manifest::{self, OnConfigChange};
use converge_types::phase::rfc3339_ms;
use serde::{Deserialize, Serialize};

use super::{Answer, unexpected};
use crate::Api;
use crate::answer::{self, json, raw, unsigned, with_etag};
use crate::body::{check_type, shape};
use crate::check::{Checks, PathArgs, QueryArgs};
use crate::problem::Problem;
use crate::write::Write;

const POLICY_BYTES: usize = 64 << 10;
const POLICY_FIELDS: &[(&str, bool)] = &[
    ("max_inflight", false),
    ("task_deadline_secs", false),
    ("resync_interval_secs", false),
    ("resync_recomposes", false),
    ("orphan_grace_secs", false),
    ("max_transient_attempts", false),
    ("on_config_change", false),
];

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/kinds/{kind}/manifest", put(apply))
        .route(
            "/kinds/{kind}/versions/{v}/manifest",
            get(read).delete(delete),
        )
        .route("/kinds/{kind}/versions/{v}/config", put(policy))
}

/// What of a manifest says where it goes; the engine reads the rest.
#[derive(Debug, Deserialize)]
struct Head {
    #[serde(rename = "type")]
    type_: Option<String>,
    kind: Option<String>,
}

/// Teaches the control plane a kind.
#[utoipa::path(put, path = "/api/v1/kinds/{kind}/manifest", tag = "kinds", request_body = api::ManifestApply, params(("kind" = String, Path)), responses(
    (status = 201, description = "created", body = api::Manifest), (status = 200, description = "configured or unchanged, see X-Apply-Result", body = api::Manifest),
    (status = 409, description = "the edit could break what exists", body = api::Problem, content_type = "application/problem+json"),
    (status = 422, description = "the manifest is not legal", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn apply(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    query.none()?;
    let kind = path.kind()?;
    let (precondition, doc) = write.conditional(limits::MANIFEST_BYTES).await?;
    if let Ok(head) = serde_json::from_slice::<Head>(doc.as_bytes()) {
        let mut checks = Checks::default();
        check_type(&mut checks, head.type_.as_deref(), "manifest");
        if head
            .kind
            .as_deref()
            .is_some_and(|found| found != kind.as_str())
        {
            checks.add(
                "/kind",
                format!(
                    "must be {kind:?} as in the path, got {:?}",
                    head.kind.unwrap_or_default()
                ),
            );
        }
        checks.finish()?;
    }
    let command = Command::ManifestApply(command::ManifestApply {
        doc,
        precondition,
        who: None,
    });
    api.manifest_written(command, shown).await
}

/// One manifest, with the policy in force.
#[utoipa::path(get, path = "/api/v1/kinds/{kind}/versions/{v}/manifest", tag = "kinds", params(("kind" = String, Path), ("v" = i64, Path)), responses(
    (status = 200, description = "the manifest", body = api::Manifest), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(api): State<Arc<Api>>, path: PathArgs, query: QueryArgs) -> Answer {
    query.none()?;
    let kv = path.pair()?;
    let row = api.manifest(&kv).await?;
    Ok(with_etag(
        json(StatusCode::OK, &shown(&row, Vec::new())?),
        row.revision,
    ))
}

/// Forgets a kind version that nothing uses.
#[utoipa::path(delete, path = "/api/v1/kinds/{kind}/versions/{v}/manifest", tag = "kinds", params(("kind" = String, Path), ("v" = i64, Path)), responses(
    (status = 204, description = "gone"), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json"),
    (status = 409, description = "in use", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    query.none()?;
    let kv = path.pair()?;
    let precondition = write.conditional_bare().await?;
    let command = Command::ManifestDelete(command::ManifestDelete {
        kv,
        precondition,
        who: None,
    });
    api.removed(command).await
}

/// Edits the policy in force; what is absent stays.
#[utoipa::path(put, path = "/api/v1/kinds/{kind}/versions/{v}/config", tag = "kinds", request_body = api::PolicyApply, params(("kind" = String, Path), ("v" = i64, Path)), responses(
    (status = 200, description = "configured or unchanged, see X-Apply-Result", body = api::Policy),
    (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn policy(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    query.none()?;
    let kv = path.pair()?;
    let (precondition, doc) = write.conditional(POLICY_BYTES).await?;
    let edit: api::PolicyApply = shape(&doc, POLICY_FIELDS)?;
    check_policy(&edit)?;
    // Written again without its nulls: here null means absent, in a merge it would mean removed.
    let doc = serde_json::to_vec(&edit)
        .ok()
        .and_then(|bytes| Doc::parse(bytes).ok());
    let doc = doc.ok_or_else(|| Problem::internal("a policy could not be written"))?;
    let command = Command::PolicySet(command::PolicySet {
        kv,
        doc,
        precondition,
        who: None,
    });
    let show = |row: &ManifestRow, _| Ok(shown_policy(&row.policy));
    api.manifest_written(command, show).await
}

fn check_policy(edit: &api::PolicyApply) -> Result<(), Problem> {
    let mut checks = Checks::default();
    let numbers = [
        ("max_inflight", edit.max_inflight),
        ("task_deadline_secs", edit.task_deadline_secs),
        ("resync_interval_secs", edit.resync_interval_secs),
        ("orphan_grace_secs", edit.orphan_grace_secs),
        ("max_transient_attempts", edit.max_transient_attempts),
    ];
    for (name, number) in numbers {
        if number.is_some_and(|number| u32::try_from(number).is_err()) {
            checks.add(format!("/{name}"), format!("must be at most {}", u32::MAX));
        }
    }
    if let Some(word) = edit
        .on_config_change
        .as_deref()
        .filter(|word| !["reconcile", "next"].contains(word))
    {
        checks.add(
            "/on_config_change",
            format!("must be reconcile or next, got {word:?}"),
        );
    }
    checks.finish()
}

impl Api {
    /// A manifest that must exist.
    pub(crate) async fn manifest(&self, kv: &KindVersion) -> Result<Arc<ManifestRow>, Problem> {
        let row = self.store.manifest_get(kv).await?;
        row.ok_or_else(|| {
            Problem::not_found(format!(
                "kind {kv} is not known here: apply its manifest first"
            ))
        })
    }

    /// Carries out a command on a manifest; `show` makes the answer of the row and the notes.
    async fn manifest_written<T: Serialize>(
        &self,
        command: Command,
        show: impl FnOnce(&ManifestRow, Vec<String>) -> Result<T, Problem>,
    ) -> Answer {
        match self.command(command).await? {
            Reply::Manifest {
                applied,
                row,
                notes,
            } => {
                // The row as committed: the store has stamped its revision.
                let row = self.store.manifest_get(&row.kv).await?.unwrap_or(row);
                let body = show(&row, notes)?;
                Ok(answer::of_apply(applied, &body, row.revision))
            }
            other => Err(unexpected(&other)),
        }
    }
}

pub(crate) fn shown_policy(policy: &manifest::Policy) -> api::Policy {
    api::Policy {
        max_inflight: policy.max_inflight.into(),
        task_deadline_secs: policy.task_deadline_secs.into(),
        resync_interval_secs: policy.resync_interval_secs.into(),
        resync_recomposes: policy.resync_recomposes,
        orphan_grace_secs: policy.orphan_grace_secs.into(),
        max_transient_attempts: policy.max_transient_attempts.into(),
        on_config_change: match policy.on_config_change {
            OnConfigChange::Reconcile => "reconcile",
            OnConfigChange::Next => "next",
        }
        .to_owned(),
    }
}

pub(crate) fn shown_reactions(manifest: &manifest::Manifest) -> Vec<api::Reaction> {
    let reactions = manifest.reactions.iter().map(|reaction| api::Reaction {
        name: reaction.name.to_string(),
        trigger: reaction.trigger.as_str().to_owned(),
        emits: reaction
            .emits
            .iter()
            .map(|emit| emit.as_str().to_owned())
            .collect(),
        verb: reaction.verb.as_ref().map(ToString::to_string),
        finalizer: reaction.finalizer.as_ref().map(ToString::to_string),
    });
    reactions.collect()
}

fn shown(row: &ManifestRow, warnings: Vec<String>) -> Result<api::Manifest, Problem> {
    let manifest = row.manifest();
    let policy = shown_policy(&row.policy);
    Ok(api::Manifest {
        type_: "manifest".to_owned(),
        kind: row.kv.kind.to_string(),
        kind_version: row.kv.version.into(),
        description: manifest.description.clone(),
        spec_schema: manifest.spec_schema.as_ref().map(raw).transpose()?,
        status_schema: manifest.status_schema.as_ref().map(raw).transpose()?,
        config_schema: manifest.config_schema.as_ref().map(raw).transpose()?,
        reactions: shown_reactions(manifest),
        finalizer_name: manifest.finalizer_name.as_ref().map(ToString::to_string),
        max_inflight: policy.max_inflight,
        task_deadline_secs: policy.task_deadline_secs,
        resync_interval_secs: policy.resync_interval_secs,
        resync_recomposes: policy.resync_recomposes,
        orphan_grace_secs: policy.orphan_grace_secs,
        max_transient_attempts: policy.max_transient_attempts,
        on_config_change: policy.on_config_change,
        manifest_version: unsigned(row.version),
        created_at: rfc3339_ms(row.created_ms),
        updated_at: rfc3339_ms(row.updated_ms),
        warnings,
    })
}
