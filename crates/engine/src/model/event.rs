//! Events, authored history and tombstones: what a person reads afterwards.

use std::sync::Arc;

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use serde::{Deserialize, Serialize};

use super::Millis;

/// What happened, one per outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(
    missing_docs,
    reason = "the names are the documentation; they are what `conctl events` prints"
)]
pub enum EventKind {
    Applied,
    Composed,
    Pruned,
    Adopted,
    Succeeded,
    Failed,
    PhaseChanged,
    ConditionChanged,
    PartDropped,
    LeaseLost,
    GivenBack,
    FlowChanged,
    DeletionRequested,
    Orphaned,
    Abandoned,
    Deleted,
    ReconcileRequested,
    Quarantined,
    Unquarantined,
    RolledBack,
    Operation,
}

/// One event row. Equal repeats (same resource, kind, generation, reaction, message) raise `count` instead of adding a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Store-wide, grows; stamped by the store. A repeat gets a new one.
    pub seq: i64,
    /// Whose event.
    pub uid: Uid,
    /// When it last happened.
    pub at_ms: Millis,
    /// What happened.
    pub kind: EventKind,
    /// The generation it is about.
    pub generation: i64,
    /// The reaction, where one was running.
    pub reaction: Option<String>,
    /// For the person who reads it; never a secret.
    pub message: String,
    /// How often in a row.
    pub count: u32,
    /// Who did it, where known.
    pub who: Option<String>,
}

/// One authored state, kept for rollback; the newest 20 per resource. Key: `(uid, generation)`.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Whose.
    pub uid: Uid,
    /// The generation it became.
    pub generation: i64,
    /// The spec as authored.
    pub spec: Doc,
    /// The labels.
    pub labels: Arc<Labels>,
    /// The kind version.
    pub kv: KindVersion,
    /// The config ref.
    pub config_ref: Option<ConfigName>,
    /// When.
    pub at_ms: Millis,
    /// By whom, where known.
    pub who: Option<String>,
}

/// What is left of a removed resource for 30 days. Key: `uid`; found by (kind, name), newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The removed resource.
    pub uid: Uid,
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: ResourceName,
    /// Its owner.
    pub owner: Option<Uid>,
    /// When it went.
    pub removed_ms: Millis,
    /// Store-wide revision of the removal; stamped by the store.
    pub revision: i64,
}
