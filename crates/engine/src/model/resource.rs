//! The resource row: identity, desired-state metadata, marks, claim, and what is derived from them.
//!
//! `due`, `wake_ms` and `derived` are functions of the rest of the row and of its neighbours; only `decide::propagate` writes them.
//! `below` and `children` are sums over other rows; only `decide::propagate` and the insert/remove helpers of the view keep them.

use std::sync::Arc;

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::labels::Labels;
use converge_types::phase::{Condition, Phase, Stage};
use serde::{Deserialize, Serialize};

use super::{Claim, Due, Inputs, Look, Marks, Millis};

/// Which document of a resource. Key of a document row: `(uid, slot)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DocSlot {
    /// The spec as authored or as composed, every flowed pointer null.
    Authored,
    /// Authored plus the current value of each flow; absent = same as authored.
    Resolved,
    /// The status; absent = none yet.
    Status,
    /// The resolved spec last dispatched to a kind with a finalizer: teardown runs with it.
    Teardown,
    /// The last accepted compose result of a composite, as it was emitted.
    Composed,
}

impl DocSlot {
    /// Every slot.
    pub const ALL: [Self; 5] = [
        Self::Authored,
        Self::Resolved,
        Self::Status,
        Self::Teardown,
        Self::Composed,
    ];
}

/// A finalizer on a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finalizer {
    /// `finalizer_name` of the manifest that was dispatched.
    pub name: String,
    /// The kind version last dispatched; teardown runs at it.
    pub kind_version: i32,
    /// The config override last dispatched with; teardown reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_ref: Option<ConfigName>,
}

/// A condition and the reaction that reported it; empty reaction = the engine's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnedCondition {
    /// Reaction name; empty for the engine's own.
    pub reaction: String,
    /// The condition.
    pub condition: Condition,
}

/// The failure that stands: the last outcome of a stage was not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The stage that failed.
    pub stage: Stage,
    /// Its reaction.
    pub reaction: String,
    /// The message, cut to the limit.
    pub message: String,
    /// Pinned until an input (or the manifest) changes.
    pub terminal: bool,
    /// Outcomes that counted.
    pub attempts: u32,
    /// Lost leases in a row at these inputs.
    pub lost_leases: u32,
    /// When to try again; `None` when terminal.
    pub next_ms: Option<Millis>,
    /// The inputs of the failed claim; the failure ends when they change.
    pub inputs: Inputs,
    /// The manifest version a terminal pin names besides.
    pub manifest_version: i64,
    /// Kinds whose manifest, or whose freed name, would cure it (a refused composition): tried again when that happens.
    pub cures: Vec<Kind>,
}

/// A deletion under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deletion {
    /// When it was asked for.
    pub requested_ms: Millis,
    /// `?abandon=true`: finalizers are given up.
    pub abandon: bool,
    /// Created again from the owner's last accepted result in the transaction that removes it.
    pub recreate: bool,
    /// A teardown was claimed: an orphan is not taken back any more.
    pub claimed: bool,
}

/// A child that vanished from its composition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// Since when.
    pub since_ms: Millis,
    /// When its grace is over.
    pub until_ms: Millis,
}

/// What the rest of the row and its neighbours imply. `counted`, `healthy`, `settled` and `failed` are what ancestors sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derived {
    /// The phase.
    pub phase: Phase,
    /// Every stage last succeeded with the current inputs.
    pub synced: bool,
    /// Nothing more will happen by itself soon: see the engine's rules on settlement.
    pub settled: bool,
    /// Counts for its ancestors (not orphaned, quarantined or deleting).
    pub counted: bool,
}

impl Derived {
    /// A row nothing has run for yet.
    pub const NEW: Self = Self {
        phase: Phase::Reconciling,
        synced: false,
        settled: false,
        counted: true,
    };

    /// Dependents may go on.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }
}

/// Counts over counted rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Rows.
    pub total: i64,
    /// Of these, phase Ready.
    pub ready: i64,
    /// Of these, not settled.
    pub unsettled: i64,
    /// Of these, Failed.
    pub failed: i64,
    /// Of these, Degraded.
    pub degraded: i64,
}

impl std::ops::Add for Sums {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            total: self.total + other.total,
            ready: self.ready + other.ready,
            unsettled: self.unsettled + other.unsettled,
            failed: self.failed + other.failed,
            degraded: self.degraded + other.degraded,
        }
    }
}

impl std::ops::Sub for Sums {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            total: self.total - other.total,
            ready: self.ready - other.ready,
            unsettled: self.unsettled - other.unsettled,
            failed: self.failed - other.failed,
            degraded: self.degraded - other.degraded,
        }
    }
}

/// What is below a composite, all levels, those behind an uncounted one left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Below {
    /// The counts.
    pub sums: Sums,
    /// Raised whenever membership, phase, status or conditions of anything below change: the descendants' version.
    pub version: i64,
}

/// What a row last told its owner; the difference to what holds now is what `decide::propagate` passes up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contributed {
    /// Itself and what is below it; zero while it does not count.
    pub sums: Sums,
    /// `own_version + below.version` then.
    pub version: i64,
    /// Whether it was itself a cause of its owner not being Ready.
    #[serde(default)]
    pub is_cause: bool,
}

/// A resource. Key: `uid`; unique by (kind, name).
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    /// Identity for life.
    pub uid: Uid,
    /// Its kind and version.
    pub kv: KindVersion,
    /// Unique within its kind.
    pub name: ResourceName,
    /// The composite that created it.
    pub owner: Option<Uid>,
    /// The top of its tree; itself without an owner.
    pub root: Uid,
    /// Levels below its root.
    pub depth: u16,
    /// Position in its owner's compose result.
    pub position: u32,
    /// Labels.
    pub labels: Arc<Labels>,
    /// The config override it reads.
    pub config_ref: Option<ConfigName>,
    /// Bumps at each change of spec, version or ref.
    pub generation: i64,
    /// The generation it last synced at.
    pub synced_gen: i64,
    /// Created at.
    pub created_ms: Millis,
    /// Last changed at, by a person or a result.
    pub updated_ms: Millis,
    /// A deletion under way.
    pub deletion: Option<Deletion>,
    /// Vanished from its composition.
    pub orphan: Option<Orphan>,
    /// Stopped by a person.
    pub quarantined: bool,
    /// Teardown is owed.
    pub finalizers: Vec<Finalizer>,
    /// The last epoch given out.
    pub epoch: i64,
    /// The live claim.
    pub claim: Option<Claim>,
    /// What each stage last succeeded with.
    pub marks: Marks,
    /// The failure that stands.
    pub failure: Option<Failure>,
    /// A failed observation (resync): message, attempts, when next. Pins nothing.
    pub observe_failure: Option<Failure>,
    /// Conditions, by reaction.
    pub conditions: Vec<OwnedCondition>,
    /// A person asked for one full pass; ends with that pass.
    pub by_hand: bool,
    /// Not before this: a task given back (`interrupted`) is dispatched again about a second later.
    pub not_before_ms: Option<Millis>,
    /// Second look.
    pub look: Option<Look>,
    /// When the next resync is due; `None` for kinds that do not ask.
    pub resync_ms: Option<Millis>,
    /// The composer's half of the resync that is due is done; its work follows.
    pub recomposed: bool,
    /// When the last rollup was claimed; at most one a second after the first.
    pub rollup_ms: Option<Millis>,
    /// Flows into it that never had a value.
    pub flows_pending: u32,
    /// Flows into it whose value disappeared, or whose substituted spec is invalid.
    pub flows_gone: u32,
    /// Rows that name it as owner.
    pub children: u32,
    /// Sums over what is below; zero for leaves.
    pub below: Below,
    /// Up to three of the deepest rows below that keep it from being Ready, Failed ones first; never what is merely blocked.
    pub causes: Vec<Uid>,
    /// Raised whenever its own phase, status or conditions change.
    pub own_version: i64,
    /// `own_version` when its values last flowed to dependents.
    pub flowed_version: i64,
    /// What it last told its owner.
    pub contributed: Contributed,
    /// Where its next task stands (derived).
    pub due: Due,
    /// When to derive again (derived); `None` = no timer.
    pub wake_ms: Option<Millis>,
    /// Phase and what ancestors sum (derived).
    pub derived: Derived,
    /// Transitions so far; numbers reactor deliveries.
    pub transitions: i64,
    /// Store-wide revision of its last change; stamped by the store.
    pub revision: i64,
}

impl Resource {
    /// Whether a manifest of this version is what its current state must be read with.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion.is_some()
    }

    /// The pair its next task is dispatched as: teardown runs at the version last dispatched, everything else at its own. `Due::Ready`
    /// rows are indexed by it.
    #[must_use]
    pub fn due_kv(&self) -> KindVersion {
        match self.finalizers.first() {
            Some(finalizer) if self.is_deleting() => KindVersion {
                kind: self.kv.kind.clone(),
                version: finalizer.kind_version,
            },
            _ => self.kv.clone(),
        }
    }

    /// The config override its next task reads: teardown that of the last dispatch, everything else its own.
    #[must_use]
    pub fn due_config(&self) -> Option<&ConfigName> {
        match self.finalizers.first() {
            Some(finalizer) if self.is_deleting() => finalizer.config_ref.as_ref(),
            _ => self.config_ref.as_ref(),
        }
    }

    /// Whether a task of it, or a teardown it owes, reads this config.
    #[must_use]
    pub fn reads(&self, config: &ConfigName) -> bool {
        let owed = self.finalizers.iter().map(|owed| owed.config_ref.as_ref());
        owed.chain([self.config_ref.as_ref()])
            .any(|named| named == Some(config))
    }

    /// The reported condition of this type, any reaction's; first reported first.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .map(|owned| &owned.condition)
            .find(|condition| condition.type_ == kind)
    }
}
