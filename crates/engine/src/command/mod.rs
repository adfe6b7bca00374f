//! The commands: every way the state of the control plane changes. One file per command (or family), each with its load and its decide.
//!
//! A command is a value. [`run`] decides it over a view and returns its reply and its writes; running it again over the same rows
//! gives the same result, except for the random parts it carries itself (`seed`).

mod apply;
mod by_hand;
mod claim;
mod complete;
mod config;
mod delete;
mod lease;
mod manifest;
mod sweep;

use std::collections::BTreeMap;
use std::sync::Arc;

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use converge_types::phase::{Condition, Stage};
use serde::{Deserialize, Serialize};

use crate::model::{
    Bundle, Claim, ClaimRef, Config, Digest, DocSlot, LeaseToken, ManifestRow, Millis, Resource,
};
use crate::store::{Source, TransactError, WriteSet};
use crate::view::{Decision, Halt, View};

/// See the module.
#[derive(Debug, Clone)]
pub enum Command {
    /// Apply a kind manifest.
    ManifestApply(ManifestApply),
    /// Delete a kind manifest.
    ManifestDelete(ManifestDelete),
    /// Edit the live policy of a kind.
    PolicySet(PolicySet),
    /// Apply a resource.
    ResourceApply(ResourceApply),
    /// Delete a resource.
    ResourceDelete(ResourceDelete),
    /// Ask for one full pass.
    ResourceReconcile(ResourceReconcile),
    /// Stop or let go again.
    ResourceQuarantine(ResourceQuarantine),
    /// Apply an earlier authored state as a new generation.
    ResourceRollback(ResourceRollback),
    /// Apply a provider config.
    ConfigApply(ConfigApply),
    /// Delete a provider config.
    ConfigDelete(ConfigDelete),
    /// Claim tasks for a worker.
    Claim(ClaimTasks),
    /// Land a result.
    Complete(Complete),
    /// Give claims back that were never handed over, or that a drained worker will not run.
    Release(Release),
    /// Leases that ran out.
    LeaseLost(LeaseLost),
    /// Derive rows whose timer is over.
    Wake(Wake),
    /// Look at the next batch of readers of an edited config or manifest.
    ConfigSweep(SweepBatch),
    /// Forget old tombstones.
    Forget(Forget),
}

/// What a write must find. `If-Match` / `If-None-Match: *`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Anything.
    #[default]
    None,
    /// It exists at this store-wide revision of the row (the ETag).
    Revision(i64),
    /// It exists.
    Exists,
    /// It does not exist.
    Absent,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the body of PUT …/manifest, verbatim")]
pub struct ManifestApply {
    pub doc: Doc,
    pub precondition: Precondition,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the path of DELETE …/manifest")]
pub struct ManifestDelete {
    pub kv: KindVersion,
    pub precondition: Precondition,
    pub who: Option<String>,
}

/// Policy fields to change; absent ones stay.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the body of PUT …/config, verbatim")]
pub struct PolicySet {
    pub kv: KindVersion,
    pub doc: Doc,
    pub precondition: Precondition,
    pub who: Option<String>,
}

/// The whole desired state of a resource.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the body of POST /resources")]
pub struct ResourceApply {
    pub kind: Kind,
    pub kind_version: Option<i32>,
    pub name: ResourceName,
    pub labels: Labels,
    pub config_ref: Option<ConfigName>,
    pub spec: Doc,
    /// The uid it gets if it is new.
    pub new_uid: Uid,
    pub precondition: Precondition,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the query of DELETE /resources/…")]
pub struct ResourceDelete {
    pub kind: Kind,
    pub name: ResourceName,
    pub force: bool,
    pub abandon: bool,
    pub precondition: Precondition,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the query of POST …/reconcile")]
pub struct ResourceReconcile {
    pub kind: Kind,
    pub name: ResourceName,
    pub recursive: bool,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(
    missing_docs,
    reason = "the query of POST …/quarantine and …/unquarantine"
)]
pub struct ResourceQuarantine {
    pub kind: Kind,
    pub name: ResourceName,
    pub recursive: bool,
    pub on: bool,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the body of POST …/rollback")]
pub struct ResourceRollback {
    pub kind: Kind,
    pub name: ResourceName,
    pub generation: i64,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the body of POST /providerconfigs")]
pub struct ConfigApply {
    pub name: ConfigName,
    pub kv: KindVersion,
    /// Absent keeps its value (false on create).
    pub is_default: Option<bool>,
    /// Absent means `{}`.
    pub spec: Option<Doc>,
    /// Absent keeps the stored bundle, empty removes it.
    pub data: Option<Arc<[u8]>>,
    pub replace_default: bool,
    pub precondition: Precondition,
    pub who: Option<String>,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the path of DELETE /providerconfigs/…")]
pub struct ConfigDelete {
    pub name: ConfigName,
    pub precondition: Precondition,
    pub who: Option<String>,
}

/// Claims tasks for one stream. The broker asks for no more than the stream has free slots.
#[derive(Debug, Clone)]
pub struct ClaimTasks {
    /// Identity of the worker.
    pub worker: String,
    /// The broker's own identity.
    pub broker: String,
    /// Pairs the stream serves and is ready for, in the order they take turns.
    pub pairs: Vec<KindVersion>,
    /// At most this many.
    pub limit: u32,
    /// Of these, slots that only compose and rollup may take. Meant for a stream that serves composers and leaves: without a composer
    /// among `pairs` it is ignored.
    pub reserved_for_composers: u32,
    /// Pairs a suspect (a task whose worker was lost before) of which already runs on this stream: give no more of that kind, of no version.
    pub suspects_on_stream: Vec<KindVersion>,
    /// Pairs of which anything runs on this stream: give no suspect of that kind.
    pub busy_on_stream: Vec<KindVersion>,
    /// Secrets for the tokens, one for each claim.
    pub seed: Vec<u128>,
}

/// One claimed task: all a broker needs to send it.
#[derive(Debug, Clone)]
pub struct Task {
    /// The token.
    pub token: LeaseToken,
    /// The claim as stored.
    pub claim: Claim,
    /// The row at the claim.
    pub resource: TaskResource,
    /// `task_deadline_secs` in milliseconds; 0 = none.
    pub deadline_ms: u64,
    /// The override the resource points to, as stored and unmerged.
    pub config_override: Option<(Doc, Option<Bundle>)>,
    /// Digest of the pair's default config when it was claimed: the stream must have been sent that one, or a later one, before.
    pub default_config: Digest,
    /// Whether the worker was lost while running this before.
    pub suspect: bool,
    /// What the stage gets besides.
    pub input: TaskInput,
}

/// A resource as a task shows it.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors `Resource` of the wire")]
pub struct TaskResource {
    pub row: Arc<Resource>,
    pub spec: Option<Doc>,
    pub status: Option<Doc>,
}

/// What a stage gets besides its resource.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors the requests of the wire")]
pub enum TaskInput {
    Compose {
        observed: Vec<TaskResource>,
        desired: Vec<ChildSpec>,
        edges: Vec<EdgeSpec>,
        configs: Vec<ConfigSpec>,
    },
    Work,
    Rollup {
        descendants: Vec<TaskResource>,
    },
    Delete,
}

/// A child as a composer emits it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "mirrors `ChildSpec` of the wire")]
pub struct ChildSpec {
    pub kind: String,
    pub kind_version: i32,
    pub name: String,
    pub spec: Doc,
    pub labels: BTreeMap<String, String>,
}

/// An edge as a composer emits it: `from` needs `to`, ends as (kind, name).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "mirrors `DepEdge` of the wire")]
pub struct EdgeSpec {
    pub from: (String, String),
    pub to: (String, String),
    /// (dependent, source) pointers as text.
    pub values: Vec<(String, String)>,
}

/// A config as a composer emits it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "mirrors `ProviderConfigSpec` of the wire")]
pub struct ConfigSpec {
    pub name: String,
    pub kind: String,
    pub kind_version: i32,
    pub is_default: bool,
    pub spec: Doc,
}

/// A result, as the broker read it off the wire. Documents are unparsed: damage is a terminal failure of the task, not of the stream.
#[derive(Debug, Clone)]
pub struct Complete {
    /// Which claim.
    pub claim: ClaimRef,
    /// The stage the worker says it ran.
    pub stage: Stage,
    /// Its outcome.
    pub outcome: Outcome,
    /// For jitter; a random number.
    pub seed: u64,
}

/// What a task ended with.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors `StageComplete` of the wire")]
pub struct Outcome {
    /// Raw JSON; `None` = none carried. Empty bytes count as none.
    pub status: Option<bytes::Bytes>,
    pub conditions: Vec<Condition>,
    /// Compose only.
    pub compose: Option<ComposeOutcome>,
    /// Operate only.
    pub output: Option<bytes::Bytes>,
    /// `Some` = failed.
    pub failure: Option<TaskFailure>,
}

/// A failed outcome.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors `StageComplete` of the wire")]
pub struct TaskFailure {
    pub message: String,
    pub terminal: bool,
}

/// What a composer returned, unparsed where it is a document.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "mirrors `ComposeResult` of the wire")]
pub struct ComposeOutcome {
    pub children: Vec<RawChild>,
    pub edges: Vec<EdgeSpec>,
    pub configs: Vec<RawConfig>,
}

/// A child, its spec unparsed.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors `ChildSpec` of the wire")]
pub struct RawChild {
    pub kind: String,
    pub kind_version: i32,
    pub name: String,
    pub spec: bytes::Bytes,
    pub labels: BTreeMap<String, String>,
}

/// A config, its spec unparsed.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "mirrors `ProviderConfigSpec` of the wire")]
pub struct RawConfig {
    pub name: String,
    pub kind: String,
    pub kind_version: i32,
    pub is_default: bool,
    pub spec: bytes::Bytes,
}

/// What became of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landed {
    /// It changed the resource.
    Applied,
    /// A compose result whose inputs had moved: dropped, and composed again.
    Discarded,
    /// `interrupted: …`: the task was given back.
    GivenBack,
    /// Not the live claim: nothing changed.
    Fenced,
}

/// Why claims are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseReason {
    /// The worker drained and closed its side.
    Drained,
    /// The stream ended before the task was handed to the transport.
    Undelivered,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "two fields that say it")]
pub struct Release {
    pub claims: Vec<ClaimRef>,
    pub reason: ReleaseReason,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one field that says it")]
pub struct LeaseLost {
    pub claims: Vec<ClaimRef>,
    pub seed: u64,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one field that says it")]
pub struct Wake {
    pub limit: u32,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one field that says it")]
pub struct SweepBatch {
    /// At most 1,000.
    pub limit: u32,
}

#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "one field that says it")]
pub struct Forget {
    pub removed_before_ms: Millis,
}

/// How an apply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is new.
    Created,
    /// It changed.
    Configured,
    /// Equal by value: nothing was written.
    Unchanged,
}

/// The answer to a command.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each variant answers the command of that name")]
pub enum Reply {
    Manifest {
        applied: Applied,
        row: Arc<ManifestRow>,
        notes: Vec<String>,
    },
    Resource {
        applied: Applied,
        /// As it is once the command is carried out.
        row: Arc<Resource>,
        /// The resolved spec.
        spec: Option<Doc>,
        status: Option<Doc>,
    },
    Config {
        applied: Applied,
        row: Arc<Config>,
    },
    Deleted,
    /// 202: under way.
    Deleting,
    Accepted {
        resources: u64,
    },
    Claimed {
        tasks: Vec<Task>,
    },
    Landed(Landed),
    Released {
        claims: u64,
    },
    /// Rows looked at, and whether more wait.
    Swept {
        rows: u64,
        more: bool,
    },
}

pub(crate) use apply::new_resource;

impl Reply {
    /// The answer to an apply; [`run`] completes it.
    fn resource(applied: Applied, row: Arc<Resource>) -> Self {
        Self::Resource {
            applied,
            row,
            spec: None,
            status: None,
        }
    }
}

impl Command {
    fn decide(&self, view: &mut View<'_>) -> Decision<Reply> {
        match self {
            Self::ManifestApply(command) => manifest::apply(command, view),
            Self::ManifestDelete(command) => manifest::delete(command, view),
            Self::PolicySet(command) => manifest::policy_set(command, view),
            Self::ResourceApply(command) => apply::decide(command, view),
            Self::ResourceDelete(command) => delete::decide(command, view),
            Self::ResourceReconcile(command) => by_hand::reconcile(command, view),
            Self::ResourceQuarantine(command) => by_hand::quarantine(command, view),
            Self::ResourceRollback(command) => by_hand::rollback(command, view),
            Self::ConfigApply(command) => config::apply(command, view),
            Self::ConfigDelete(command) => config::delete(command, view),
            Self::Claim(command) => claim::decide(command, view),
            Self::Complete(command) => complete::decide(command, view),
            Self::Release(command) => lease::release(command, view),
            Self::LeaseLost(command) => lease::lost(command, view),
            Self::Wake(command) => sweep::wake(command, view),
            Self::ConfigSweep(command) => sweep::config(command, view),
            Self::Forget(command) => sweep::forget(command, view),
        }
    }
}

/// Decides one command over `source`.
///
/// # Errors
/// [`Halt::Need`] from a source that loads ahead; otherwise what the caller is told.
pub fn run(
    command: &Command,
    source: &mut dyn Source,
    now_ms: Millis,
) -> Result<(Reply, WriteSet), Halt> {
    let mut view = View::new(source, now_ms);
    let mut reply = command.decide(&mut view)?;
    crate::decide::propagate::run(&mut view)?;
    if let Reply::Resource {
        applied,
        row,
        spec,
        status,
    } = &mut reply
    {
        // What was derived since is part of the answer.
        if let Some(now) = view.resource(row.uid)? {
            *row = now;
        }
        *spec = view.spec(row.uid)?;
        if *applied != Applied::Created {
            *status = view.doc(row.uid, DocSlot::Status)?;
        }
    }
    Ok((reply, view.finish()))
}

/// [`run`] for a source that always answers at once.
///
/// # Errors
/// The refusal, or the store's failure.
pub fn run_embedded(
    command: &Command,
    source: &mut dyn Source,
    now_ms: Millis,
) -> Result<(Reply, WriteSet), TransactError> {
    run(command, source, now_ms).map_err(|halt| match halt {
        Halt::Refused(refusal) => TransactError::Refused(refusal),
        Halt::Store(error) => TransactError::Store(error),
        Halt::Need(needs) => TransactError::Store(crate::store::StoreError::Corrupt(format!(
            "an embedded store asked to load {needs:?} first"
        ))),
    })
}
