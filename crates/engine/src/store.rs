//! What a store promises.
//!
//! All writes enter by [`Store::transact`], but for claims left with [`Store::stand`]. For each command, in order, the store opens nothing of its own: inside one transaction it
//! calls [`crate::command::run`] with a [`Source`] over its tables, applies the [`WriteSet`] that comes back, and goes on with the next
//! command, which therefore sees those writes. A refused command has no write set. No reply leaves before COMMIT returned; when COMMIT
//! fails, every command of the batch is answered [`StoreError`]. Reads outside of commands are snapshot reads, noun first.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::phase::Phase;

use crate::command::{ClaimTasks, Command, Reply};
use crate::model::{
    Bundle, Class, Config, ConfigSweep, DocSlot, Edge, Event, History, ManifestRow, Millis, Pair,
    Resource, Tombstone,
};
use crate::refusal::Refusal;
use crate::view::Halt;

/// One read a command may ask for. Closed: a store can know every shape of question.
///
/// Sets come back in the stated order. A store answers from what is committed plus the write sets applied before in the same
/// transaction; the view adds what the running command itself wrote.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// [`Rows::Manifest`].
    Manifest(KindVersion),
    /// [`Rows::Versions`]: versions of a kind that have a manifest, ascending.
    Versions(Kind),
    /// [`Rows::Pair`].
    Pair(KindVersion),
    /// [`Rows::Resource`].
    Resource(Uid),
    /// [`Rows::Resource`].
    ResourceByName(Kind, ResourceName),
    /// [`Rows::Doc`].
    Doc(Uid, DocSlot),
    /// [`Rows::Uids`]: rows whose owner is this, by (position, uid).
    Children(Uid),
    /// [`Rows::Edges`]: edges from this resource, by (position, to); former ones included.
    EdgesFrom(Uid),
    /// [`Rows::Edges`]: edges to this resource, by (position, from); former ones included.
    EdgesTo(Uid),
    /// [`Rows::Edges`]: edges this composite's result holds, by (from, to); former ones included.
    EdgesOf(Uid),
    /// [`Rows::Uids`]: rows whose `due` is held on this one, by uid.
    HeldOn(Uid),
    /// [`Rows::Uids`]: rows whose failure lists this kind in `cures`, by uid.
    CurableBy(Kind),
    /// [`Rows::Config`].
    Config(ConfigName),
    /// [`Rows::Config`].
    DefaultConfig(KindVersion),
    /// [`Rows::Configs`]: by name.
    ConfigsOwnedBy(Uid),
    /// [`Rows::Configs`]: overrides (not the default) of the pair, by name.
    Overrides(KindVersion),
    /// [`Rows::Bundle`].
    Bundle(ConfigName),
    /// [`Rows::Uids`]: resources that read this config ([`Resource::reads`]), by uid, after the given one, at most `limit`.
    ConfigUsers(ConfigName, Option<Uid>, u32),
    /// [`Rows::Uids`]: resources of the pair, and deleting ones whose teardown runs at it, by uid, after the given one, at most `limit`.
    PairResources(KindVersion, Option<Uid>, u32),
    /// [`Rows::Uids`]: `Due::Ready` rows of ([`Resource::due_kv`], class), by (turn, since, uid), at most `limit`.
    Ready(KindVersion, Class, u32),
    /// [`Rows::Turn`]: the largest turn among `Due::Ready` rows of (pair, class, root), and the last turn claimed for that root if kept.
    RootTurn(KindVersion, Class, Uid),
    /// [`Rows::Uids`]: rows whose `wake_ms` is at or before this, by (wake, uid), at most `limit`.
    Wakes(Millis, u32),
    /// [`Rows::Sweep`]: the oldest config sweep.
    NextSweep,
    /// [`Rows::History`]: newest first.
    History(Uid),
    /// [`Rows::LastEvent`]: the newest event of the resource.
    LastEvent(Uid),
    /// [`Rows::Count`]: resources of the kind that owe a teardown at this version.
    FinalizersOf(KindVersion),
}

/// The answer to a [`Need`].
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each variant is named by the needs it answers")]
pub enum Rows {
    Manifest(Option<Arc<ManifestRow>>),
    Versions(Vec<KindVersion>),
    Pair(Option<Pair>),
    Resource(Option<Arc<Resource>>),
    Doc(Option<Doc>),
    Uids(Vec<Uid>),
    Edges(Vec<Arc<Edge>>),
    Config(Option<Arc<Config>>),
    Configs(Vec<Arc<Config>>),
    Bundle(Option<Bundle>),
    Turn(Option<i64>),
    Sweep(Option<ConfigSweep>),
    History(Vec<Arc<History>>),
    LastEvent(Option<Event>),
    Count(u64),
}

/// Where a view reads what it does not hold.
///
/// An embedded store answers at once. A store across a network may answer [`Halt::Need`] for what it has not loaded yet, load it, and
/// run the command again from the start.
pub trait Source {
    /// Reads one need.
    ///
    /// # Errors
    /// [`Halt::Need`] when it must be loaded first, [`Halt::Store`] when the store failed.
    fn fetch(&mut self, need: &Need) -> Result<Rows, Halt>;
}

/// A row before and after; `before: None` inserts, `after: None` deletes.
#[derive(Debug, Clone)]
pub struct Change<T> {
    /// As it was before the command.
    pub before: Option<Arc<T>>,
    /// As it is now.
    pub after: Option<Arc<T>>,
}

/// Everything one command writes. A store applies it whole or not at all, stamping `revision` and event `seq` from one counter.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "fields are the tables")]
pub struct WriteSet {
    pub manifests: Vec<Change<ManifestRow>>,
    pub pairs: Vec<Pair>,
    pub resources: Vec<Change<Resource>>,
    /// `None` deletes the document.
    pub docs: Vec<(Uid, DocSlot, Option<Doc>)>,
    pub edges: Vec<Change<Edge>>,
    pub configs: Vec<Change<Config>>,
    pub bundles: Vec<(ConfigName, Option<Bundle>)>,
    /// `true` replaces the newest event row of that resource by this one (a repeat, `count` already raised).
    pub events: Vec<(Event, bool)>,
    /// The store keeps the newest 20 per resource.
    pub history: Vec<History>,
    pub tombstones: Vec<Tombstone>,
    pub sweep_put: Vec<ConfigSweep>,
    pub sweep_done: Vec<ConfigSweep>,
    /// Remove events and documents of tombstones older than this.
    pub forget_before_ms: Option<Millis>,
    /// What others should know after the commit.
    pub signals: Signals,
}

impl WriteSet {
    /// Nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifests.is_empty()
            && self.pairs.is_empty()
            && self.resources.is_empty()
            && self.docs.is_empty()
            && self.edges.is_empty()
            && self.configs.is_empty()
            && self.bundles.is_empty()
            && self.events.is_empty()
            && self.history.is_empty()
            && self.tombstones.is_empty()
            && self.sweep_put.is_empty()
            && self.sweep_done.is_empty()
            && self.forget_before_ms.is_none()
    }
}

/// What a commit made happen, for those who wait: brokers (claimable pairs, config pushes), sweeps, watchers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signals {
    /// Pairs with a row that became claimable, or whose cap freed a slot. A store may tell these before the commit they come of, if a
    /// command that is sent then is carried out after it.
    pub ready: BTreeSet<KindVersion>,
    /// Pairs whose default config changed.
    pub configs: BTreeSet<KindVersion>,
    /// Earliest new timer.
    pub wake_ms: Option<Millis>,
    /// A config sweep is waiting.
    pub sweep: bool,
}

impl Signals {
    /// Adds what another commit signals.
    pub fn merge(&mut self, other: Signals) {
        self.ready.extend(other.ready);
        self.configs.extend(other.configs);
        self.sweep |= other.sweep;
        self.wake_ms = match (self.wake_ms, other.wake_ms) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// Nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The store could not do its part. The same call may be repeated.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Could not write: disk full, read-only, database gone. Reads may still work.
    #[error("the store cannot write: {0}")]
    Unwritable(String),
    /// Could not read.
    #[error("the store cannot read: {0}")]
    Unreadable(String),
    /// A row does not decode: damage, or written by a newer version.
    #[error("a stored row does not decode: {0}")]
    Corrupt(String),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a command was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TransactError {
    /// The command itself was refused; nothing was written for it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed; nothing of the batch was written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What lists can be narrowed by. All given parts must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "the fields are the query parameters of GET /resources"
)]
pub struct ResourceFilter {
    pub kind: Option<Kind>,
    pub kv: Option<KindVersion>,
    pub phase: Option<Phase>,
    pub name_contains: Option<String>,
    pub labels: Vec<(String, String)>,
    pub owner: Option<Uid>,
    pub root: Option<Uid>,
    pub roots_only: bool,
}

/// One page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<String>,
    /// The store-wide revision the page was read at.
    pub revision: i64,
}

/// A resource with what an answer shows beside the row.
#[derive(Debug, Clone)]
pub struct ResourceView {
    /// The row.
    pub row: Arc<Resource>,
    /// The resolved spec; `None` when not asked for.
    pub spec: Option<Doc>,
    /// The status, if any and asked for.
    pub status: Option<Doc>,
    /// (kind, name) of the owner.
    pub owner: Option<(Kind, ResourceName)>,
    /// (kind, name) of the root, when it is not itself.
    pub root: Option<(Kind, ResourceName)>,
    /// (kind, name) of what `due` is held on.
    pub held_on: Option<(Kind, ResourceName)>,
}

/// A claim that was left with a store.
pub struct Standing {
    /// The answer, once the claim was carried out and committed; [`Reply::Claimed`] without tasks when nothing suited it or nothing could
    /// be written. Dropping it takes the claim back, or loses the answer.
    pub answer: Pin<Box<dyn Future<Output = Result<Reply, TransactError>> + Send>>,
    /// Takes the claim back. `false`: it is being carried out, and its answer comes.
    pub withdraw: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A store of everything the control plane keeps.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Carries out commands in order, in one commit with whatever else is waiting. One answer per command, same order.
    async fn transact(&self, commands: Vec<Command>) -> Vec<Result<Reply, TransactError>>;

    /// Leaves a claim with the store, to be carried out once, in the first transaction that makes something of its pairs claimable: for a
    /// worker that has nothing to do, a commit less until it has. What became claimable before is not looked at.
    ///
    /// `None`: this store does not do that. Signals come all the same, but for pairs of which nothing is left to claim.
    fn stand(&self, claim: ClaimTasks) -> Option<Standing> {
        let _ = claim;
        None
    }

    /// Completes when a commit after the last call on this handle signalled something; coalesces.
    fn subscribe(&self) -> Box<dyn SignalStream>;

    /// The store's clock.
    fn now_ms(&self) -> Millis;

    /// The store-wide revision.
    async fn revision(&self) -> Result<i64, StoreError>;

    /// One resource by name, with its documents.
    async fn resource_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<ResourceView>, StoreError>;

    /// One resource by uid, with its documents.
    async fn resource_get_by_uid(&self, uid: Uid) -> Result<Option<ResourceView>, StoreError>;

    /// Resources by (kind, name), a page at a time. `full` loads documents.
    async fn resource_list(
        &self,
        filter: &ResourceFilter,
        cursor: Option<&str>,
        limit: u32,
        full: bool,
    ) -> Result<Page<ResourceView>, StoreError>;

    /// How many resources are in each phase, per kind.
    async fn resource_summary(&self) -> Result<Vec<(KindVersion, Phase, u64)>, StoreError>;

    /// Edges from and to a resource, former ones left out.
    async fn edge_list(&self, uid: Uid) -> Result<(Vec<Arc<Edge>>, Vec<Arc<Edge>>), StoreError>;

    /// Every resource and edge below (and with) this root or composite, in one snapshot; at most `limit` nodes.
    async fn graph_get(
        &self,
        uid: Uid,
        limit: u32,
    ) -> Result<(Vec<ResourceView>, Vec<Arc<Edge>>), StoreError>;

    /// Authored history, newest first.
    async fn history_list(&self, uid: Uid) -> Result<Vec<Arc<History>>, StoreError>;

    /// Events of a resource, newest first, after `before_seq` downwards.
    async fn event_list(
        &self,
        uid: Uid,
        before_seq: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError>;

    /// The newest tombstone of a name.
    async fn tombstone_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<Tombstone>, StoreError>;

    /// One manifest.
    async fn manifest_get(&self, kv: &KindVersion) -> Result<Option<Arc<ManifestRow>>, StoreError>;

    /// All manifests with their pair counters, by pair.
    async fn manifest_list(&self) -> Result<Vec<(Arc<ManifestRow>, Pair)>, StoreError>;

    /// One config with its bundle.
    async fn config_get(
        &self,
        name: &ConfigName,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError>;

    /// The default config of each pair that has one, with its bundle.
    async fn config_default(
        &self,
        kv: &KindVersion,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError>;

    /// Configs by name, a page at a time, bundles left out.
    async fn config_list(
        &self,
        kind: Option<&Kind>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<Arc<Config>>, StoreError>;

    /// Every live claim, for a broker that starts.
    async fn claim_list(&self) -> Result<Vec<Arc<Resource>>, StoreError>;

    /// Whether writes go through; the reason when not.
    fn writable(&self) -> Result<(), StoreError>;

    /// Finishes what is queued, checkpoints and closes; later calls answer [`StoreError::Closed`].
    async fn close(&self);
}

/// A handle that hears of commits.
#[async_trait]
pub trait SignalStream: Send {
    /// What was signalled since the last call; waits for the first.
    async fn next(&mut self) -> Signals;
}
