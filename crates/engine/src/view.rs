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
    Bundle, Class, Config, ConfigSweep, DocSlot, Due, Edge, Event, EventKind, History, ManifestRow,
    Millis, Pair, Resource, Tombstone,
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
        self.manifests.insert(
            kv.clone(),
            Slot {
                before: row.clone(),
                now: row.clone(),
                dirty: false,
            },
        );
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

    // --- resources ---

    /// A resource by uid.
    pub fn resource(&mut self, uid: Uid) -> Decision<Option<Arc<Resource>>> {
        if let Some(slot) = self.resources.get(&uid) {
            return Ok(slot.now.clone());
        }
        let row = fetch!(self, Need::Resource(uid), Resource);
        self.resources.insert(
            uid,
            Slot {
                before: row.clone(),
                now: row.clone(),
                dirty: false,
            },
        );
        Ok(row)
    }

    /// A resource by name.
    pub fn resource_by_name(
        &mut self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Decision<Option<Arc<Resource>>> {
        let key = (kind.clone(), name.clone());
        if let Some(found) = self.names.get(&key).copied() {
            return match found {
                Some(uid) => self.resource(uid),
                None => Ok(None),
            };
        }
        let row = fetch!(
            self,
            Need::ResourceByName(kind.clone(), name.clone()),
            Resource
        );
        self.names.insert(key, row.as_ref().map(|row| row.uid));
        match row {
            // The overlay may know a newer state of the same row.
            Some(row) => {
                let slot = self.resources.entry(row.uid).or_insert_with(|| Slot {
                    before: Some(row.clone()),
                    now: Some(row),
                    dirty: false,
                });
                Ok(slot.now.clone())
            }
            None => Ok(None),
        }
    }

    /// Inserts a resource. Keeps the owner's child count and the pair's count.
    pub fn resource_insert(&mut self, row: Resource) -> Decision<()> {
        let uid = row.uid;
        self.names
            .insert((row.kv.kind.clone(), row.name.clone()), Some(uid));
        self.pair_update(&row.kv.clone(), |pair| pair.resources += 1)?;
        if let Some(owner) = row.owner {
            self.touched_owner.entry(owner).or_default().insert(uid);
            self.update(owner, |owner| owner.children += 1)?;
        }
        self.resources.insert(
            uid,
            Slot {
                before: None,
                now: Some(Arc::new(row)),
                dirty: true,
            },
        );
        Ok(())
    }

    /// Removes a resource row with its documents. The caller has taken its sums off its ancestors and written the tombstone.
    pub fn resource_remove(&mut self, uid: Uid) -> Decision<()> {
        let Some(row) = self.resource(uid)? else {
            return Ok(());
        };
        self.names
            .insert((row.kv.kind.clone(), row.name.clone()), None);
        self.pair_update(&row.kv.clone(), |pair| {
            pair.resources = pair.resources.saturating_sub(1)
        })?;
        if let Some(owner) = row.owner {
            self.touched_owner.entry(owner).or_default().insert(uid);
            self.update(owner, |owner| {
                owner.children = owner.children.saturating_sub(1)
            })?;
        }
        if let Due::Held(hold) = &row.due
            && let Some(on) = hold.on()
        {
            self.touched_held.entry(on).or_default().insert(uid);
        }
        for slot in DocSlot::ALL {
            self.doc_put(uid, slot, None);
        }
        if let Some(slot) = self.resources.get_mut(&uid) {
            slot.now = None;
            slot.dirty = true;
        }
        Ok(())
    }

    /// Changes a resource in place; does nothing when it does not exist. Rows that end as they began are no change, see [`View::finish`].
    pub fn update(&mut self, uid: Uid, change: impl FnOnce(&mut Resource)) -> Decision<()> {
        self.resource(uid)?;
        let Some(slot) = self.resources.get_mut(&uid) else {
            return Ok(());
        };
        let Some(row) = &mut slot.now else {
            return Ok(());
        };
        let (due, kv) = (row.due.clone(), row.kv.clone());
        let failure = row.failure.clone();
        // Copies the row only while somebody holds the state it had.
        let row = Arc::make_mut(row);
        change(row);
        if row.failure != failure {
            // What is said of it above follows.
            row.own_version += 1;
        }
        slot.dirty = true;
        let flipped = (row.kv != kv).then(|| row.kv.clone());
        if row.due != due {
            for due in [&due, &row.due] {
                if let Due::Held(hold) = due
                    && let Some(on) = hold.on()
                {
                    self.touched_held.entry(on).or_default().insert(uid);
                }
            }
        }
        if let Some(next) = flipped {
            self.pair_update(&kv, |pair| {
                pair.resources = pair.resources.saturating_sub(1)
            })?;
            self.pair_update(&next, |pair| pair.resources += 1)?;
        }
        Ok(())
    }

    /// Uids of the rows `owner` owns, in (position, uid) order.
    pub fn children(&mut self, owner: Uid) -> Decision<Vec<Uid>> {
        let known = self.children.get(&owner).cloned();
        let mut uids = match known {
            Some(known) => known,
            None => {
                let base: BTreeSet<Uid> = fetch!(self, Need::Children(owner), Uids)
                    .into_iter()
                    .collect();
                self.children.insert(owner, base.clone());
                base
            }
        };
        uids.extend(
            self.touched_owner
                .get(&owner)
                .into_iter()
                .flatten()
                .copied(),
        );
        let mut found = Vec::with_capacity(uids.len());
        for uid in uids {
            if let Some(row) = self.resource(uid)?
                && row.owner == Some(owner)
            {
                found.push((row.position, uid));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, uid)| uid).collect())
    }

    /// Uids of the rows held on `on`, in uid order.
    pub fn held_on(&mut self, on: Uid) -> Decision<Vec<Uid>> {
        let known = self.held_base.get(&on).cloned();
        let mut uids = match known {
            Some(known) => known,
            None => {
                let base: BTreeSet<Uid> =
                    fetch!(self, Need::HeldOn(on), Uids).into_iter().collect();
                self.held_base.insert(on, base.clone());
                base
            }
        };
        uids.extend(self.touched_held.get(&on).into_iter().flatten().copied());
        let mut found = Vec::new();
        for uid in uids {
            if let Some(row) = self.resource(uid)?
                && matches!(&row.due, Due::Held(hold) if hold.on() == Some(on))
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// Uids of rows whose failure lists `kind` among its cures.
    pub fn curable_by(&mut self, kind: &Kind) -> Decision<Vec<Uid>> {
        let base = fetch!(self, Need::CurableBy(kind.clone()), Uids);
        let mut found = Vec::new();
        for uid in base {
            if let Some(row) = self.resource(uid)?
                && row
                    .failure
                    .as_ref()
                    .is_some_and(|failure| failure.cures.contains(kind))
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// `Due::Ready` rows of (pair, class) in dispatch order, at most `limit`; this command's own changes are taken into account by
    /// leaving out rows that are no longer ready. Rows this command made ready are not added: claims do not make rows ready.
    pub fn ready(&mut self, kv: &KindVersion, class: Class, limit: u32) -> Decision<Vec<Uid>> {
        let base = fetch!(self, Need::Ready(kv.clone(), class, limit), Uids);
        let mut found = Vec::with_capacity(base.len());
        for uid in base {
            if let Some(row) = self.resource(uid)?
                && matches!(row.due, Due::Ready { class: its, .. } if its == class)
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// The largest turn taken by (pair, class, root) so far, this command's own included.
    pub fn root_turn(
        &mut self,
        kv: &KindVersion,
        class: Class,
        root: Uid,
    ) -> Decision<Option<i64>> {
        let key = (kv.clone(), class, root);
        if let Some(turn) = self.turns.get(&key) {
            return Ok(Some(*turn));
        }
        let turn = fetch!(self, Need::RootTurn(kv.clone(), class, root), Turn);
        if let Some(turn) = turn {
            self.turns.insert(key, turn);
        }
        Ok(turn)
    }

    /// Remembers a turn given out by this command.
    pub fn root_turn_put(&mut self, kv: &KindVersion, class: Class, root: Uid, turn: i64) {
        self.turns.insert((kv.clone(), class, root), turn);
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

    // --- edges ---

    fn edge_absorb(&mut self, edges: Vec<Arc<Edge>>) {
        for edge in edges {
            self.edges_by_to
                .entry(edge.to)
                .or_default()
                .insert(edge.from);
            self.edges
                .entry((edge.from, edge.to))
                .or_insert_with(|| Slot {
                    before: Some(edge.clone()),
                    now: Some(edge),
                    dirty: false,
                });
        }
    }

    /// Edges from a resource, in (position, to) order, former ones included.
    pub fn edges_from(&mut self, from: Uid) -> Decision<Vec<Arc<Edge>>> {
        if self.edge_sets_from.insert(from) {
            let rows = match self.source.fetch(&Need::EdgesFrom(from)) {
                Ok(Rows::Edges(rows)) => rows,
                Ok(other) => return Err(wrong_rows(&Need::EdgesFrom(from), &other)),
                Err(halt) => {
                    self.edge_sets_from.remove(&from);
                    return Err(halt);
                }
            };
            self.edge_absorb(rows);
        }
        let range = (from, Uid::from_bytes([0; 16]))..=(from, Uid::from_bytes([0xff; 16]));
        let mut edges: Vec<_> = self
            .edges
            .range(range)
            .filter_map(|(_, slot)| slot.now.clone())
            .collect();
        edges.sort_by_key(|edge| (edge.position, edge.to));
        Ok(edges)
    }

    /// Edges to a resource, in (position, from) order, former ones included.
    pub fn edges_to(&mut self, to: Uid) -> Decision<Vec<Arc<Edge>>> {
        if self.edge_sets_to.insert(to) {
            let rows = match self.source.fetch(&Need::EdgesTo(to)) {
                Ok(Rows::Edges(rows)) => rows,
                Ok(other) => return Err(wrong_rows(&Need::EdgesTo(to), &other)),
                Err(halt) => {
                    self.edge_sets_to.remove(&to);
                    return Err(halt);
                }
            };
            self.edge_absorb(rows);
        }
        let froms = self.edges_by_to.get(&to);
        let mut edges: Vec<_> = froms
            .into_iter()
            .flatten()
            .filter_map(|from| {
                self.edges
                    .get(&(*from, to))
                    .and_then(|slot| slot.now.clone())
            })
            .collect();
        edges.sort_by_key(|edge| (edge.position, edge.from));
        Ok(edges)
    }

    /// Every edge `owner`'s result holds, former ones included; its children's edge sets need no reads of their own afterwards.
    pub fn edges_of(&mut self, owner: Uid, children: &[Uid]) -> Decision<Vec<Arc<Edge>>> {
        let rows = fetch!(self, Need::EdgesOf(owner), Edges);
        self.edge_absorb(rows);
        let mut edges = Vec::new();
        for child in children {
            self.edge_sets_from.insert(*child);
            self.edge_sets_to.insert(*child);
            let range = (*child, Uid::from_bytes([0; 16]))..=(*child, Uid::from_bytes([0xff; 16]));
            edges.extend(
                self.edges
                    .range(range)
                    .filter_map(|(_, slot)| slot.now.clone()),
            );
        }
        Ok(edges)
    }

    /// Inserts or replaces the edge `(from, to)`; `None` deletes it.
    pub fn edge_put(&mut self, from: Uid, to: Uid, edge: Option<Edge>) -> Decision<()> {
        self.edges_from(from)?;
        self.edges_by_to.entry(to).or_default().insert(from);
        let slot = self.edges.entry((from, to)).or_insert(Slot {
            before: None,
            now: None,
            dirty: false,
        });
        slot.now = edge.map(Arc::new);
        slot.dirty = true;
        Ok(())
    }

    // --- configs ---

    /// A config by name.
    pub fn config(&mut self, name: &ConfigName) -> Decision<Option<Arc<Config>>> {
        if let Some(slot) = self.configs.get(name) {
            return Ok(slot.now.clone());
        }
        let row = fetch!(self, Need::Config(name.clone()), Config);
        self.configs.insert(
            name.clone(),
            Slot {
                before: row.clone(),
                now: row.clone(),
                dirty: false,
            },
        );
        Ok(row)
    }

    /// Corrects a set of configs the source answered by the overlay, with `belongs` telling which rows the set holds.
    fn configs_corrected(
        &mut self,
        base: Vec<Arc<Config>>,
        belongs: impl Fn(&Config) -> bool,
    ) -> Vec<Arc<Config>> {
        for row in base {
            self.configs
                .entry(row.name.clone())
                .or_insert_with(|| Slot {
                    before: Some(row.clone()),
                    now: Some(row),
                    dirty: false,
                });
        }
        self.configs
            .values()
            .filter_map(|slot| slot.now.clone())
            .filter(|row| belongs(row))
            .collect()
    }

    /// The default config of a pair.
    pub fn config_default(&mut self, kv: &KindVersion) -> Decision<Option<Arc<Config>>> {
        let base = fetch!(self, Need::DefaultConfig(kv.clone()), Config);
        Ok(self
            .configs_corrected(base.into_iter().collect(), |row| {
                row.kv == *kv && row.is_default
            })
            .pop())
    }

    /// Overrides of a pair, by name.
    pub fn config_overrides(&mut self, kv: &KindVersion) -> Decision<Vec<Arc<Config>>> {
        let base = fetch!(self, Need::Overrides(kv.clone()), Configs);
        Ok(self.configs_corrected(base, |row| row.kv == *kv && !row.is_default))
    }

    /// Configs a composite owns, by name.
    pub fn configs_owned_by(&mut self, owner: Uid) -> Decision<Vec<Arc<Config>>> {
        let base = fetch!(self, Need::ConfigsOwnedBy(owner), Configs);
        Ok(self.configs_corrected(base, |row| row.owner == Some(owner)))
    }

    /// Inserts or replaces a config; `None` deletes it (and its bundle).
    pub fn config_put(&mut self, name: &ConfigName, row: Option<Config>) -> Decision<()> {
        self.config(name)?;
        if row.is_none() {
            self.bundle_put(name, None);
        }
        if let Some(slot) = self.configs.get_mut(name) {
            slot.now = row.map(Arc::new);
            slot.dirty = true;
        }
        Ok(())
    }

    /// The bundle of a config.
    pub fn bundle(&mut self, name: &ConfigName) -> Decision<Option<Bundle>> {
        if let Some((bundle, _)) = self.bundles.get(name) {
            return Ok(bundle.clone());
        }
        let bundle = fetch!(self, Need::Bundle(name.clone()), Bundle);
        self.bundles.insert(name.clone(), (bundle.clone(), false));
        Ok(bundle)
    }

    /// Writes a bundle; `None` deletes it.
    pub fn bundle_put(&mut self, name: &ConfigName, bundle: Option<Bundle>) {
        self.bundles.insert(name.clone(), (bundle, true));
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
        let mut event = Event {
            seq: 0,
            uid: row.uid,
            at_ms: self.now_ms,
            kind,
            generation: row.generation,
            reaction: reaction.map(str::to_owned),
            message: message.into(),
            count: 1,
            who: who.map(str::to_owned),
        };
        let last = match self.last_events.get(&row.uid) {
            Some(last) => last.clone(),
            None => fetch!(self, Need::LastEvent(row.uid), LastEvent),
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
        self.last_events.insert(row.uid, Some(event.clone()));
        self.events.push((event, is_repeat));
        Ok(())
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
