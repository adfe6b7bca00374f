//! The view: what a command sees and writes.
//!
//! Reads go to the overlay of this command first, then to a cache of what was fetched, then to the [`Source`]. Writes go to the overlay
//! alone; [`View::finish`] turns it into a [`WriteSet`]. Sets (children, edges, held rows, ready rows) are the source's answer corrected by
//! the overlay, so that a command sees its own writes. Invariant: a row handed out is an `Arc` of the state at that moment; change
//! goes through `*_put`/`update`, never around it.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;

use crate::model::{
    Bundle, Claim, Class, Config, ConfigSweep, DocSlot, Due, Edge, Event, EventKind, History,
    ManifestRow, Millis, Pair, Resource, Tombstone,
};
use crate::refusal::Refusal;
use crate::store::{Change, Need, Rows, Signals, Source, StoreError, WriteSet};

/// Why deciding stopped.
#[derive(Debug, Clone)]
pub enum Halt {
    /// These must be loaded first; decide again afterwards.
    Need(Vec<Need>),
    /// The command is refused.
    Refused(Refusal),
    /// The store failed.
    Store(StoreError),
}

impl From<Refusal> for Halt {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Shorthand of everything in `decide` that reads.
pub type Decision<T> = Result<T, Halt>;

#[derive(Clone)]
struct Slot<T> {
    before: Option<Arc<T>>,
    now: Option<Arc<T>>,
    dirty: bool,
}

impl<T> Slot<T> {
    /// As it was read.
    fn read(row: Option<Arc<T>>) -> Self {
        Self {
            before: row.clone(),
            now: row,
            dirty: false,
        }
    }
}

/// See the module.
pub struct View<'s> {
    source: &'s mut dyn Source,
    now_ms: Millis,
    manifests: BTreeMap<KindVersion, Slot<ManifestRow>>,
    pairs: BTreeMap<KindVersion, (Pair, bool)>,
    resources: HashMap<Uid, Slot<Resource>>,
    names: HashMap<(Kind, ResourceName), Option<Uid>>,
    docs: HashMap<(Uid, DocSlot), (Option<Doc>, bool)>,
    edges: BTreeMap<(Uid, Uid), Slot<Edge>>,
    edges_by_to: HashMap<Uid, BTreeSet<Uid>>,
    edge_sets_from: HashSet<Uid>,
    edge_sets_to: HashSet<Uid>,
    children: HashMap<Uid, BTreeSet<Uid>>,
    held_base: HashMap<Uid, BTreeSet<Uid>>,
    touched_owner: HashMap<Uid, BTreeSet<Uid>>,
    touched_held: HashMap<Uid, BTreeSet<Uid>>,
    configs: BTreeMap<ConfigName, Slot<Config>>,
    bundles: HashMap<ConfigName, (Option<Bundle>, bool)>,
    turns: HashMap<(KindVersion, Class, Uid), i64>,
    last_events: HashMap<Uid, Option<Event>>,
    queue: VecDeque<Uid>,
    queued: HashSet<Uid>,
    by_depth: BinaryHeap<(u16, std::cmp::Reverse<u64>, Uid)>,
    order: u64,
    events: Vec<(Event, bool)>,
    history: Vec<History>,
    tombstones: Vec<Tombstone>,
    sweep_put: Vec<ConfigSweep>,
    sweep_done: Vec<ConfigSweep>,
    forget_before_ms: Option<Millis>,
    signals: Signals,
}

macro_rules! fetch {
    ($self:ident, $need:expr, $variant:ident) => {
        match $self.source.fetch(&$need)? {
            Rows::$variant(rows) => rows,
            other => return Err(wrong_rows(&$need, &other)),
        }
    };
}

mod configs;
mod edges;
mod resources;

fn wrong_rows(need: &Need, rows: &Rows) -> Halt {
    Halt::Store(StoreError::Corrupt(format!(
        "the store answered {need:?} with {rows:?}"
    )))
}

impl<'s> View<'s> {
    /// A view with nothing written, at `now`.
    pub fn new(source: &'s mut dyn Source, now_ms: Millis) -> Self {
        Self {
            source,
            now_ms,
            manifests: BTreeMap::new(),
            pairs: BTreeMap::new(),
            resources: HashMap::new(),
            names: HashMap::new(),
            docs: HashMap::new(),
            edges: BTreeMap::new(),
            edges_by_to: HashMap::new(),
            edge_sets_from: HashSet::new(),
            edge_sets_to: HashSet::new(),
            children: HashMap::new(),
            held_base: HashMap::new(),
            touched_owner: HashMap::new(),
            touched_held: HashMap::new(),
            configs: BTreeMap::new(),
            bundles: HashMap::new(),
            turns: HashMap::new(),
            last_events: HashMap::new(),
            queue: VecDeque::new(),
            queued: HashSet::new(),
            by_depth: BinaryHeap::new(),
            order: 0,
            events: Vec::new(),
            history: Vec::new(),
            tombstones: Vec::new(),
            sweep_put: Vec::new(),
            sweep_done: Vec::new(),
            forget_before_ms: None,
            signals: Signals::default(),
        }
    }

    /// The store's time for this transaction.
    #[must_use]
    pub fn now_ms(&self) -> Millis {
        self.now_ms
    }

    /// Reads several needs into a store that loads ahead; an embedded store does nothing with it.
    ///
    /// # Errors
    /// As [`Source::fetch`].
    pub fn fetch_raw(&mut self, need: &Need) -> Decision<Rows> {
        self.source.fetch(need)
    }

    // --- manifests and pairs ---

    /// The manifest of a pair.
    ///
    /// # Errors
    /// As [`Source::fetch`], like every read below.
    pub fn manifest(&mut self, kv: &KindVersion) -> Decision<Option<Arc<ManifestRow>>> {
        if let Some(slot) = self.manifests.get(kv) {
            return Ok(slot.now.clone());
        }
        let row = fetch!(self, Need::Manifest(kv.clone()), Manifest);
        self.manifests.insert(kv.clone(), Slot::read(row.clone()));
        Ok(row)
    }

    /// Versions of the kind that have a manifest, ascending.
    pub fn versions(&mut self, kind: &Kind) -> Decision<Vec<KindVersion>> {
        let mut versions: BTreeSet<_> = fetch!(self, Need::Versions(kind.clone()), Versions)
            .into_iter()
            .collect();
        for (kv, slot) in self
            .manifests
            .iter()
            .filter(|(kv, slot)| kv.kind == *kind && slot.dirty)
        {
            if slot.now.is_some() {
                versions.insert(kv.clone());
            } else {
                versions.remove(kv);
            }
        }
        Ok(versions.into_iter().collect())
    }

    /// Inserts or replaces a manifest; `None` deletes it.
    pub fn manifest_put(&mut self, kv: &KindVersion, row: Option<ManifestRow>) -> Decision<()> {
        self.manifest(kv)?;
        if let Some(slot) = self.manifests.get_mut(kv) {
            slot.now = row.map(Arc::new);
            slot.dirty = true;
        }
        Ok(())
    }

    /// The counters of a pair.
    pub fn pair(&mut self, kv: &KindVersion) -> Decision<Pair> {
        if let Some((pair, _)) = self.pairs.get(kv) {
            return Ok(pair.clone());
        }
        let pair =
            fetch!(self, Need::Pair(kv.clone()), Pair).unwrap_or_else(|| Pair::new(kv.clone()));
        self.pairs.insert(kv.clone(), (pair.clone(), false));
        Ok(pair)
    }

    /// Changes the counters of a pair.
    pub fn pair_update(
        &mut self,
        kv: &KindVersion,
        change: impl FnOnce(&mut Pair),
    ) -> Decision<()> {
        self.pair(kv)?;
        if let Some((pair, dirty)) = self.pairs.get_mut(kv) {
            change(pair);
            *dirty = true;
        }
        Ok(())
    }

    // --- documents ---

    /// A document of a resource.
    pub fn doc(&mut self, uid: Uid, slot: DocSlot) -> Decision<Option<Doc>> {
        if let Some((doc, _)) = self.docs.get(&(uid, slot)) {
            return Ok(doc.clone());
        }
        let doc = fetch!(self, Need::Doc(uid, slot), Doc);
        self.docs.insert((uid, slot), (doc.clone(), false));
        Ok(doc)
    }

    /// The spec that is dispatched: resolved, or authored where nothing flows.
    pub fn spec(&mut self, uid: Uid) -> Decision<Option<Doc>> {
        match self.doc(uid, DocSlot::Resolved)? {
            Some(doc) => Ok(Some(doc)),
            None => self.doc(uid, DocSlot::Authored),
        }
    }

    /// Writes a document; `None` deletes it.
    pub fn doc_put(&mut self, uid: Uid, slot: DocSlot, doc: Option<Doc>) {
        self.docs.insert((uid, slot), (doc, true));
    }

    // --- what happened ---

    /// Records an event; a repeat of the newest one raises its count.
    pub fn event(
        &mut self,
        row: &Resource,
        kind: EventKind,
        reaction: Option<&str>,
        message: impl Into<String>,
        who: Option<&str>,
    ) -> Decision<()> {
        self.record(Event {
            seq: 0,
            uid: row.uid,
            at_ms: self.now_ms,
            kind,
            generation: row.generation,
            reaction: reaction.map(str::to_owned),
            message: message.into(),
            count: 1,
            who: who.map(str::to_owned),
        })
    }

    fn record(&mut self, mut event: Event) -> Decision<()> {
        let uid = event.uid;
        let last = match self.last_events.get(&uid) {
            Some(last) => last.clone(),
            None => fetch!(self, Need::LastEvent(uid), LastEvent),
        };
        let repeat = last.as_ref().filter(|last| {
            last.kind == event.kind
                && last.generation == event.generation
                && last.reaction == event.reaction
                && last.message == event.message
                && last.who == event.who
        });
        let is_repeat = repeat.is_some();
        if let Some(last) = repeat {
            event.count = last.count.saturating_add(1);
        }
        self.last_events.insert(uid, Some(event.clone()));
        self.events.push((event, is_repeat));
        Ok(())
    }

    /// Records what happened to a claimed task, in the name of its reaction and its worker.
    pub fn task_event(
        &mut self,
        row: &Resource,
        claim: &Claim,
        kind: EventKind,
        message: impl Into<String>,
    ) -> Decision<()> {
        let who = Some(claim.worker.clone());
        self.record(self.event_of(row, claim, kind, message.into(), who))
    }

    /// Records what the result of a claimed task changed, in the name of its reaction.
    pub fn result_event(
        &mut self,
        row: &Resource,
        claim: &Claim,
        kind: EventKind,
        message: impl Into<String>,
    ) -> Decision<()> {
        self.record(self.event_of(row, claim, kind, message.into(), None))
    }

    /// Of the generation the task was claimed at: the resource may have a newer one by now.
    fn event_of(
        &self,
        row: &Resource,
        claim: &Claim,
        kind: EventKind,
        message: String,
        who: Option<String>,
    ) -> Event {
        Event {
            seq: 0,
            uid: row.uid,
            at_ms: self.now_ms,
            kind,
            generation: claim.generation(),
            reaction: Some(claim.reaction.clone()),
            message,
            count: 1,
            who,
        }
    }

    /// Keeps an authored state.
    pub fn history_add(&mut self, history: History) {
        self.history.push(history);
    }

    /// Leaves a tombstone.
    pub fn tombstone_add(&mut self, tombstone: Tombstone) {
        self.tombstones.push(tombstone);
    }

    /// Queues a config sweep.
    pub fn sweep_put(&mut self, sweep: ConfigSweep) {
        self.signals.sweep = true;
        self.sweep_put.push(sweep);
    }

    /// Ends a config sweep.
    pub fn sweep_done(&mut self, sweep: ConfigSweep) {
        self.sweep_done.push(sweep);
    }

    /// Forgets tombstones (with their events) removed before this time.
    pub fn forget_before(&mut self, at_ms: Millis) {
        self.forget_before_ms = Some(at_ms);
    }

    /// What others should know after the commit.
    pub fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    // --- the worklist of `decide::propagate` ---

    /// Asks for a row to be derived again before the command ends.
    pub fn touch(&mut self, uid: Uid) {
        if self.queued.insert(uid) {
            self.queue.push_back(uid);
        }
    }

    /// The next row to derive: the deepest first, so that a composite is looked at after everything below it, and never seems to be at
    /// rest between the landing of its composition and the first look at its children.
    pub fn take_touched(&mut self) -> Decision<Option<Uid>> {
        while let Some(uid) = self.queue.pop_front() {
            let depth = self.resource(uid)?.map_or(0, |row| row.depth);
            self.order += 1;
            self.by_depth
                .push((depth, std::cmp::Reverse(self.order), uid));
        }
        let next = self.by_depth.pop().map(|(_, _, uid)| uid);
        if let Some(uid) = next {
            self.queued.remove(&uid);
        }
        Ok(next)
    }

    /// The overlay as a write set; rows that ended as they began are left out.
    #[must_use]
    pub fn finish(self) -> WriteSet {
        let mut signals = self.signals;
        let mut resources = Vec::new();
        for slot in self.resources.into_values().filter(|slot| slot.dirty) {
            if slot.before == slot.now {
                continue;
            }
            if let Some(row) = &slot.now {
                if matches!(row.due, Due::Ready { .. })
                    && slot
                        .before
                        .as_ref()
                        .is_none_or(|before| before.due != row.due)
                {
                    signals.ready.insert(row.due_kv());
                }
                if let Some(wake) = row.wake_ms {
                    signals.wake_ms = Some(signals.wake_ms.map_or(wake, |known| known.min(wake)));
                }
            }
            resources.push(Change {
                before: slot.before,
                after: slot.now,
            });
        }
        resources.sort_by_key(|change| {
            change
                .after
                .as_ref()
                .or(change.before.as_ref())
                .map(|row| row.uid)
        });
        let mut docs: Vec<_> = self
            .docs
            .into_iter()
            .filter_map(|((uid, slot), (doc, dirty))| dirty.then_some((uid, slot, doc)))
            .collect();
        docs.sort_by_key(|(uid, slot, _)| (*uid, *slot));
        WriteSet {
            manifests: changes(self.manifests.into_values()),
            pairs: self
                .pairs
                .into_values()
                .filter_map(|(pair, dirty)| dirty.then_some(pair))
                .collect(),
            resources,
            docs,
            edges: changes(self.edges.into_values()),
            configs: changes(self.configs.into_values()),
            bundles: self
                .bundles
                .into_iter()
                .filter_map(|(name, (bundle, dirty))| dirty.then_some((name, bundle)))
                .collect(),
            events: self.events,
            history: self.history,
            tombstones: self.tombstones,
            sweep_put: self.sweep_put,
            sweep_done: self.sweep_done,
            forget_before_ms: self.forget_before_ms,
            signals,
        }
    }
}

fn changes<T>(slots: impl Iterator<Item = Slot<T>>) -> Vec<Change<T>> {
    slots
        .filter(|slot| slot.dirty)
        .map(|slot| Change {
            before: slot.before,
            after: slot.now,
        })
        .collect()
}
