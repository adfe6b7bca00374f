//! Kind manifests, their policy, and what the API says about kinds.
//!
//! Triggers and emits are plain words here, not enums, so that the server can report every illegal one of a manifest at
//! once instead of failing at the first.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Json, Timestamp};

/// The body of `PUT /kinds/{kind}/manifest`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ManifestApply {
    /// `manifest`, when present.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The kind it teaches.
    pub kind: String,
    /// Its version, 1…32767.
    pub kind_version: i64,
    /// What the kind is for, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema (2020-12) of specs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec_schema: Option<Json>,
    /// JSON Schema of statuses; advisory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub status_schema: Option<Json>,
    /// JSON Schema of the effective providerconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config_schema: Option<Json>,
    /// What the kind reacts to, and with what.
    #[serde(default)]
    pub reactions: Vec<Reaction>,
    /// The finalizer that a `deleteRequested` reaction removes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer_name: Option<String>,
    /// Claims at a time in the whole cluster; 0 = no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u64>,
    /// Longest run of one task; 0 = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_deadline_secs: Option<u64>,
    /// How often what is synced is observed again; 0 = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_interval_secs: Option<u64>,
    /// Whether a resync composes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_recomposes: Option<bool>,
    /// How long a child that vanished from a composition is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan_grace_secs: Option<u64>,
    /// Transient failures in a row that make it terminal; 0 = try for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_transient_attempts: Option<u64>,
    /// What an edit of its config does: `reconcile` or `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_config_change: Option<String>,
}

/// One reaction of a kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reaction {
    /// Its name.
    pub name: String,
    /// `specChange`, `childrenSettled`, `deleteRequested`, `operation`, `reactor` or `resync`.
    pub trigger: String,
    /// The parts of an outcome that are taken: `children`, `edges`, `configs`, `status`, `conditions`, `finalizer`,
    /// `operationOutput`, `sideEffect`.
    #[serde(default)]
    pub emits: Vec<String>,
    /// The verb of an `operation`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Accepted where it equals the manifest's `finalizer_name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<String>,
}

/// A manifest as the API answers it, with the policy in force now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Manifest {
    /// Always `manifest`, so that the answer can be applied again.
    #[serde(rename = "type")]
    pub type_: String,
    /// The kind.
    pub kind: String,
    /// Its version.
    pub kind_version: i64,
    /// What the kind is for.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of specs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec_schema: Option<Json>,
    /// JSON Schema of statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub status_schema: Option<Json>,
    /// JSON Schema of the effective providerconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config_schema: Option<Json>,
    /// Its reactions.
    #[serde(default)]
    pub reactions: Vec<Reaction>,
    /// Its finalizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer_name: Option<String>,
    /// Claims at a time in the whole cluster; 0 = no cap.
    pub max_inflight: u64,
    /// Longest run of one task; 0 = none.
    pub task_deadline_secs: u64,
    /// How often what is synced is observed again; 0 = never.
    pub resync_interval_secs: u64,
    /// Whether a resync composes again.
    pub resync_recomposes: bool,
    /// How long a child that vanished from a composition is kept.
    pub orphan_grace_secs: u64,
    /// Transient failures in a row that make it terminal; 0 = try for ever.
    pub max_transient_attempts: u64,
    /// What an edit of its config does: `reconcile` or `next`.
    pub on_config_change: String,
    /// Grows with every accepted edit of the manifest.
    pub manifest_version: u64,
    /// When it was first applied.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// What the caller should know about this apply, such as a policy that differs from the one in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The body of `PUT /kinds/{kind}/versions/{v}/config`; what is absent keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyApply {
    /// Claims at a time in the whole cluster; 0 = no cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_inflight: Option<u64>,
    /// Longest run of one task; 0 = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_deadline_secs: Option<u64>,
    /// How often what is synced is observed again; 0 = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_interval_secs: Option<u64>,
    /// Whether a resync composes again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resync_recomposes: Option<bool>,
    /// How long a child that vanished from a composition is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphan_grace_secs: Option<u64>,
    /// Transient failures in a row that make it terminal; 0 = try for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_transient_attempts: Option<u64>,
    /// `reconcile` or `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_config_change: Option<String>,
}

/// The policy of a kind in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// Claims at a time in the whole cluster; 0 = no cap.
    pub max_inflight: u64,
    /// Longest run of one task; 0 = none.
    pub task_deadline_secs: u64,
    /// How often what is synced is observed again; 0 = never.
    pub resync_interval_secs: u64,
    /// Whether a resync composes again.
    pub resync_recomposes: bool,
    /// How long a child that vanished from a composition is kept.
    pub orphan_grace_secs: u64,
    /// Transient failures in a row that make it terminal; 0 = try for ever.
    pub max_transient_attempts: u64,
    /// `reconcile` or `next`.
    pub on_config_change: String,
}

/// One item of `GET /kinds`: a kind at one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Kind {
    /// The kind.
    pub kind: String,
    /// Its version.
    pub kind_version: i64,
    /// What the kind is for.
    #[serde(default)]
    pub description: String,
    /// Whether it composes children.
    pub composer: bool,
    /// Its reactions.
    #[serde(default)]
    pub reactions: Vec<Reaction>,
    /// Its finalizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer_name: Option<String>,
    /// Its policy.
    pub policy: Policy,
    /// Grows with every accepted edit of the manifest.
    pub manifest_version: u64,
    /// How many resources there are.
    pub resources: u64,
    /// How many connected workers serve exactly this pair and are ready for it.
    pub workers: u64,
    /// When it was first applied.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// The answer of `GET /kinds/{kind}/schema` (`?version=`; the newest version when absent).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct KindSchema {
    /// The kind.
    pub kind: String,
    /// Its version.
    pub kind_version: i64,
    /// JSON Schema of specs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec_schema: Option<Json>,
    /// JSON Schema of statuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub status_schema: Option<Json>,
    /// JSON Schema of the effective providerconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config_schema: Option<Json>,
}

/// Parameters of `GET /kinds/{kind}/schema` and `POST /kinds/{kind}/reconcile`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct KindQuery {
    /// The version of the kind; for a schema the newest when absent, for a reconcile all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// Only resources in this phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// The answer of `POST /kinds/{kind}/reconcile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KindReconciled {
    /// How many resources were made due.
    pub reconciled: u64,
}
