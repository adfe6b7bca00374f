//! Resources: the apply body, the answer, list filters, history, roots, summary.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Json, ObjectRef, Timestamp};

/// The body of `POST /resources`: the whole desired state of one resource. What is absent is wanted absent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceApply {
    /// `resource`, when present.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The kind.
    pub kind: String,
    /// The version of the kind, 1…32767. Absent: 1 for a new resource, the stored version for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind_version: Option<i64>,
    /// The name, unique within the kind.
    pub name: String,
    /// Labels, at most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The named providerconfig that overrides the kind's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_config_ref: Option<String>,
    /// What is wanted, in the terms of the kind's schema.
    #[schema(value_type = Object)]
    pub spec: Json,
}

/// A resource as the API answers it. Lists leave out `spec` and `status` unless asked with `view=full`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Resource {
    /// The kind.
    pub kind: String,
    /// The version of the kind that serves it.
    pub kind_version: i64,
    /// The name, unique within the kind.
    pub name: String,
    /// Its identity for life; a resource created again under the same name has another.
    pub uid: String,
    /// Grows with every change of what is wanted.
    pub generation: u64,
    /// The newest generation whose every stage succeeded; 0 before the first.
    pub synced_gen: u64,
    /// The one value that says how it is doing.
    pub phase: Phase,
    /// What it waits for while it is not settled: a reason word and its object, such as `DependencyNotReady a/b`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The resolved spec: as written, with the values that flowed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec: Option<Json>,
    /// What the provider last reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub status: Option<Json>,
    /// Conditions of the provider and of the engine.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The failure that stands at the current inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The resource that composed this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ObjectRef>,
    /// The topmost owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<ObjectRef>,
    /// What must be torn down before it can go.
    #[serde(default)]
    pub finalizers: Vec<String>,
    /// The providerconfig that overrides the kind's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_config_ref: Option<String>,
    /// Whether it is held back from every new claim.
    #[serde(default)]
    pub quarantined: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
    /// When its deletion was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_requested_at: Option<Timestamp>,
}

impl Resource {
    /// `kind/name`.
    pub fn reference(&self) -> ObjectRef {
        ObjectRef::new(&self.kind, &self.name)
    }
}

/// The one value that says how a resource is doing.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub enum Phase {
    /// Synced and healthy.
    Ready,
    /// Not there yet, and being worked on or waited for.
    Reconciling,
    /// Synced, and reported unhealthy.
    Degraded,
    /// Failed in a way that only another spec, config or manifest can cure.
    Failed,
    /// Its composer no longer wants it; its teardown is to come.
    Orphaned,
    /// Held back by hand.
    Quarantined,
    /// Being torn down.
    Deleting,
}

impl Phase {
    /// Every phase, in the order summaries list them.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Reconciling,
        Self::Degraded,
        Self::Failed,
        Self::Orphaned,
        Self::Quarantined,
        Self::Deleting,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Degraded => "Degraded",
            Self::Failed => "Failed",
            Self::Orphaned => "Orphaned",
            Self::Quarantined => "Quarantined",
            Self::Deleting => "Deleting",
        }
    }

    /// Reads a phase as a person writes it: case does not matter.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str().eq_ignore_ascii_case(word))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One observation about a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// What it is about, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word saying why.
    #[serde(default)]
    pub reason: String,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
    /// The generation it was observed at.
    pub observed_generation: u64,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can say yet.
    Unknown,
}

impl ConditionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The failure that stands at the current inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    /// What went wrong, from the handler.
    pub message: String,
    /// Whether only other inputs can help.
    pub terminal: bool,
    /// Attempts made at these inputs.
    pub attempts: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Timestamp>,
}

/// Filters and paging of `GET /resources`, `/resources/roots` and `/watch`.
///
/// `label` and `phase` may be given more than once: every label must match, any phase may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceQuery {
    /// Only this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only this kind at this version: `kind/vN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv: Option<String>,
    /// Only these phases.
    pub phase: Vec<String>,
    /// Only names that contain this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only resources with these labels: `key:value`.
    pub label: Vec<String>,
    /// Only direct children of this resource: `kind/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Only what is below this root, and the root: `kind/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// `full` puts `spec` and `status` into list items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// Items per page, at most 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    #[schema(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
    /// Where the next page starts, from `X-Next-Cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How `DELETE /resources/{kind}/{name}` goes about it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct DeleteQuery {
    /// On a composed resource: tear it down and let its composer make it again.
    pub force: bool,
    /// Give the finalizer up: what it stands for is left behind.
    pub abandon: bool,
}

/// How far `…/reconcile`, `…/quarantine` and `…/unquarantine` reach.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ScopeQuery {
    /// Also everything below the resource.
    pub recursive: bool,
}

/// The body of `POST …/rollback`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The generation whose authored state becomes the wanted one again, as a new generation.
    pub generation: u64,
}

/// One authored state of a resource, from `GET …/spec-history`; newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SpecRevision {
    /// The generation it made.
    pub generation: u64,
    /// The version of the kind it asked for.
    pub kind_version: i64,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its providerconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_config_ref: Option<String>,
    /// The spec as it was written.
    #[schema(value_type = Object)]
    pub spec: Json,
    /// When it was applied.
    pub at: Timestamp,
    /// Who applied it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// One item of `GET /resources/roots`: a resource without an owner, and how what is below it is doing.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Root {
    /// The kind.
    pub kind: String,
    /// The version of the kind.
    pub kind_version: i64,
    /// The name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// How it is doing.
    pub phase: Phase,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// How many resources are below it.
    pub descendants: u64,
    /// How many of them are in each phase; a phase nobody is in is left out.
    #[serde(default)]
    pub phases: BTreeMap<Phase, u64>,
    /// When anything about it last changed.
    pub updated_at: Timestamp,
}

/// The answer of `GET /resources/summary`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// How many resources there are.
    pub total: u64,
    /// How many are in each phase; a phase nobody is in is left out.
    #[serde(default)]
    pub phases: BTreeMap<Phase, u64>,
    /// The same for every kind and version that has resources.
    #[serde(default)]
    pub kinds: Vec<KindCount>,
    /// The store-wide change number this was read at.
    pub revision: u64,
}

/// How the resources of one kind and version are doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KindCount {
    /// The kind.
    pub kind: String,
    /// The version of the kind.
    pub kind_version: i64,
    /// How many there are.
    pub total: u64,
    /// How many are in each phase.
    #[serde(default)]
    pub phases: BTreeMap<Phase, u64>,
}
