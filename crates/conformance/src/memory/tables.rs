//! The maps behind the reference store, how a need is read from them and how a write set changes them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use converge_engine::model::{
    Bundle, Config, ConfigSweep, DocSlot, Due, Edge, Event, History, ManifestRow, Millis, Pair,
    Resource, Tombstone,
};
use converge_engine::store::{Change, Need, Rows, Source, WriteSet};
use converge_engine::view::Halt;
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::limits;

/// Everything.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) revision: i64,
    /// Rows read and written by commands so far.
    pub(super) work: u64,
    pub(super) manifests: BTreeMap<KindVersion, Arc<ManifestRow>>,
    pub(super) pairs: BTreeMap<KindVersion, Pair>,
    pub(super) resources: BTreeMap<Uid, Arc<Resource>>,
    pub(super) names: BTreeMap<(Kind, ResourceName), Uid>,
    children: HashMap<Uid, BTreeSet<(u32, Uid)>>,
    held: HashMap<Uid, BTreeSet<Uid>>,
    ready: BTreeSet<(KindVersion, u8, i64, Millis, Uid)>,
    ready_roots: BTreeSet<(KindVersion, u8, Uid, i64, Uid)>,
    wakes: BTreeSet<(Millis, Uid)>,
    cures: BTreeSet<(Kind, Uid)>,
    pub(super) docs: HashMap<(Uid, DocSlot), Doc>,
    pub(super) edges: BTreeMap<(Uid, Uid), Arc<Edge>>,
    edges_to: BTreeSet<(Uid, Uid)>,
    edges_of: BTreeSet<(Uid, Uid, Uid)>,
    pub(super) configs: BTreeMap<ConfigName, Arc<Config>>,
    pub(super) bundles: HashMap<ConfigName, Bundle>,
    pub(super) events: HashMap<Uid, Vec<Event>>,
    pub(super) history: HashMap<Uid, Vec<Arc<History>>>,
    pub(super) tombstones: Vec<Tombstone>,
    sweeps: VecDeque<ConfigSweep>,
}

impl Source for Tables {
    fn fetch(&mut self, need: &Need) -> Result<Rows, Halt> {
        let rows = self.read(need);
        self.work += match &rows {
            Rows::Uids(rows) => rows.len() as u64,
            Rows::Edges(rows) => rows.len() as u64,
            Rows::Configs(rows) => rows.len() as u64,
            _ => 1,
        };
        Ok(rows)
    }
}

impl Tables {
    fn read(&mut self, need: &Need) -> Rows {
        match need {
            Need::Manifest(kv) => Rows::Manifest(self.manifests.get(kv).cloned()),
            Need::Versions(kind) => Rows::Versions(
                self.manifests
                    .keys()
                    .filter(|kv| kv.kind == *kind)
                    .cloned()
                    .collect(),
            ),
            Need::Pair(kv) => Rows::Pair(self.pairs.get(kv).cloned()),
            Need::Resource(uid) => Rows::Resource(self.resources.get(uid).cloned()),
            Need::ResourceByName(kind, name) => {
                let uid = self.names.get(&(kind.clone(), name.clone()));
                Rows::Resource(uid.and_then(|uid| self.resources.get(uid)).cloned())
            }
            Need::Doc(uid, slot) => Rows::Doc(self.docs.get(&(*uid, *slot)).cloned()),
            Need::Children(uid) => Rows::Uids(
                self.children
                    .get(uid)
                    .into_iter()
                    .flatten()
                    .map(|(_, child)| *child)
                    .collect(),
            ),
            Need::EdgesFrom(uid) => {
                let mut edges = self.edges_from(*uid);
                edges.sort_by_key(|edge| (edge.position, edge.to));
                Rows::Edges(edges)
            }
            Need::EdgesTo(uid) => {
                let range = (*uid, MIN)..=(*uid, MAX);
                let froms = self.edges_to.range(range);
                let mut edges: Vec<_> = froms
                    .filter_map(|(to, from)| self.edges.get(&(*from, *to)).cloned())
                    .collect();
                edges.sort_by_key(|edge| (edge.position, edge.from));
                Rows::Edges(edges)
            }
            Need::EdgesOf(owner) => {
                let range = (*owner, MIN, MIN)..=(*owner, MAX, MAX);
                let ends = self.edges_of.range(range);
                Rows::Edges(
                    ends.filter_map(|(_, from, to)| self.edges.get(&(*from, *to)).cloned())
                        .collect(),
                )
            }
            Need::HeldOn(uid) => {
                Rows::Uids(self.held.get(uid).into_iter().flatten().copied().collect())
            }
            Need::CurableBy(kind) => Rows::Uids(
                self.cures
                    .iter()
                    .filter(|(its, _)| its == kind)
                    .map(|(_, uid)| *uid)
                    .collect(),
            ),
            Need::Config(name) => Rows::Config(self.configs.get(name).cloned()),
            Need::DefaultConfig(kv) => Rows::Config(
                self.configs
                    .values()
                    .find(|config| config.is_default && config.kv == *kv)
                    .cloned(),
            ),
            Need::ConfigsOwnedBy(uid) => Rows::Configs(
                self.configs
                    .values()
                    .filter(|config| config.owner == Some(*uid))
                    .cloned()
                    .collect(),
            ),
            Need::Overrides(kv) => {
                let of_pair = |config: &&Arc<Config>| !config.is_default && config.kv == *kv;
                Rows::Configs(self.configs.values().filter(of_pair).cloned().collect())
            }
            Need::Bundle(name) => Rows::Bundle(self.bundles.get(name).cloned()),
            Need::ConfigUsers(name, after, limit) => {
                self.page(*after, *limit, |row| row.reads(name))
            }
            Need::PairResources(kv, after, limit) => self.page(*after, *limit, |row| {
                row.kv == *kv || (row.is_deleting() && row.due_kv() == *kv)
            }),
            Need::Ready(kv, class, limit) => {
                let from = (kv.clone(), *class as u8, i64::MIN, Millis::MIN, MIN);
                let to = (kv.clone(), *class as u8, i64::MAX, Millis::MAX, MAX);
                Rows::Uids(
                    self.ready
                        .range(from..=to)
                        .take(*limit as usize)
                        .map(|entry| entry.4)
                        .collect(),
                )
            }
            Need::RootTurn(kv, class, root) => {
                let from = (kv.clone(), *class as u8, *root, i64::MIN, MIN);
                let to = (kv.clone(), *class as u8, *root, i64::MAX, MAX);
                Rows::Turn(
                    self.ready_roots
                        .range(from..=to)
                        .next_back()
                        .map(|entry| entry.3),
                )
            }
            Need::Wakes(now, limit) => {
                let due = self.wakes.range(..=(*now, MAX));
                Rows::Uids(due.take(*limit as usize).map(|(_, uid)| *uid).collect())
            }
            Need::NextSweep => Rows::Sweep(self.sweeps.front().cloned()),
            Need::History(uid) => Rows::History(self.history(*uid)),
            Need::LastEvent(uid) => Rows::LastEvent(
                self.events
                    .get(uid)
                    .and_then(|events| events.last())
                    .cloned(),
            ),
            Need::FinalizersOf(kv) => Rows::Count(
                self.resources
                    .values()
                    .filter(|row| {
                        row.kv.kind == kv.kind
                            && row
                                .finalizers
                                .iter()
                                .any(|finalizer| finalizer.kind_version == kv.version)
                    })
                    .count() as u64,
            ),
        }
    }
}

const MIN: Uid = Uid::from_bytes([0; 16]);
const MAX: Uid = Uid::from_bytes([0xff; 16]);

impl Tables {
    pub(super) fn edges_from(&self, uid: Uid) -> Vec<Arc<Edge>> {
        self.edges
            .range((uid, MIN)..=(uid, MAX))
            .map(|(_, edge)| edge.clone())
            .collect()
    }

    pub(super) fn edges_to(&self, uid: Uid) -> Vec<Arc<Edge>> {
        let froms = self.edges_to.range((uid, MIN)..=(uid, MAX));
        froms
            .filter_map(|(to, from)| self.edges.get(&(*from, *to)).cloned())
            .collect()
    }

    pub(super) fn children_of(&self, uid: Uid) -> Vec<Uid> {
        self.children
            .get(&uid)
            .into_iter()
            .flatten()
            .map(|(_, child)| *child)
            .collect()
    }

    pub(super) fn history(&self, uid: Uid) -> Vec<Arc<History>> {
        self.history
            .get(&uid)
            .map(|kept| kept.iter().rev().cloned().collect())
            .unwrap_or_default()
    }

    fn page(&self, after: Option<Uid>, limit: u32, matches: impl Fn(&Resource) -> bool) -> Rows {
        let rows = self
            .resources
            .iter()
            .filter(|(uid, row)| after.is_none_or(|after| **uid > after) && matches(row));
        Rows::Uids(rows.take(limit as usize).map(|(uid, _)| *uid).collect())
    }

    pub(super) fn apply(&mut self, writes: WriteSet) {
        let rows = writes.resources.len() + writes.docs.len() + writes.edges.len();
        self.work += (rows + writes.events.len()) as u64;
        for change in writes.manifests {
            match (change.before, change.after) {
                (_, Some(row)) => {
                    self.manifests.insert(row.kv.clone(), row);
                }
                (Some(row), None) => {
                    self.manifests.remove(&row.kv);
                }
                (None, None) => {}
            }
        }
        for pair in writes.pairs {
            self.pairs.insert(pair.kv.clone(), pair);
        }
        for change in writes.resources {
            self.apply_resource(change);
        }
        for (uid, slot, doc) in writes.docs {
            match doc {
                Some(doc) => self.docs.insert((uid, slot), doc),
                None => self.docs.remove(&(uid, slot)),
            };
        }
        for change in writes.edges {
            self.apply_edge(change);
        }
        for change in writes.configs {
            match (change.before, change.after) {
                (_, Some(row)) => {
                    self.configs.insert(row.name.clone(), row);
                }
                (Some(row), None) => {
                    self.configs.remove(&row.name);
                }
                (None, None) => {}
            }
        }
        for (name, bundle) in writes.bundles {
            match bundle {
                Some(bundle) => self.bundles.insert(name, bundle),
                None => self.bundles.remove(&name),
            };
        }
        for (event, is_repeat) in writes.events {
            let events = self.events.entry(event.uid).or_default();
            if is_repeat {
                events.pop();
            }
            events.push(event);
            let surplus = events.len().saturating_sub(limits::EVENTS_PER_RESOURCE);
            events.drain(..surplus);
        }
        for kept in writes.history {
            let history = self.history.entry(kept.uid).or_default();
            history.retain(|old| old.generation != kept.generation);
            history.push(Arc::new(kept));
            let surplus = history.len().saturating_sub(limits::SPEC_HISTORY);
            history.drain(..surplus);
        }
        self.tombstones.extend(writes.tombstones);
        self.sweeps
            .retain(|sweep| !writes.sweep_done.contains(sweep));
        for sweep in writes.sweep_put {
            if !self.sweeps.contains(&sweep) {
                self.sweeps.push_back(sweep);
            }
        }
        if let Some(before) = writes.forget_before_ms {
            let (forgotten, kept) = std::mem::take(&mut self.tombstones)
                .into_iter()
                .partition::<Vec<_>, _>(|tombstone| tombstone.removed_ms < before);
            self.tombstones = kept;
            for tombstone in forgotten {
                self.events.remove(&tombstone.uid);
                self.history.remove(&tombstone.uid);
            }
        }
    }

    fn apply_resource(&mut self, change: Change<Resource>) {
        if let Some(row) = &change.before {
            self.unindex(row);
            self.resources.remove(&row.uid);
            let key = (row.kv.kind.clone(), row.name.clone());
            if self.names.get(&key) == Some(&row.uid) {
                self.names.remove(&key);
            }
        }
        if let Some(row) = change.after {
            self.index(&row);
            self.names
                .insert((row.kv.kind.clone(), row.name.clone()), row.uid);
            self.resources.insert(row.uid, row);
        }
    }

    fn index(&mut self, row: &Resource) {
        if let Some(owner) = row.owner {
            self.children
                .entry(owner)
                .or_default()
                .insert((row.position, row.uid));
        }
        match &row.due {
            Due::Held(hold) => {
                if let Some(on) = hold.on() {
                    self.held.entry(on).or_default().insert(row.uid);
                }
            }
            Due::Ready {
                class,
                turn,
                since_ms,
            } => {
                let kv = row.due_kv();
                self.ready
                    .insert((kv.clone(), *class as u8, *turn, *since_ms, row.uid));
                self.ready_roots
                    .insert((kv, *class as u8, row.root, *turn, row.uid));
            }
            Due::Idle => {}
        }
        if let Some(wake) = row.wake_ms {
            self.wakes.insert((wake, row.uid));
        }
        for kind in row.failure.iter().flat_map(|failure| &failure.cures) {
            self.cures.insert((kind.clone(), row.uid));
        }
    }

    fn unindex(&mut self, row: &Resource) {
        if let Some(owner) = row.owner
            && let Some(children) = self.children.get_mut(&owner)
        {
            children.remove(&(row.position, row.uid));
        }
        match &row.due {
            Due::Held(hold) => {
                if let Some(held) = hold.on().and_then(|on| self.held.get_mut(&on)) {
                    held.remove(&row.uid);
                }
            }
            Due::Ready {
                class,
                turn,
                since_ms,
            } => {
                let kv = row.due_kv();
                self.ready
                    .remove(&(kv.clone(), *class as u8, *turn, *since_ms, row.uid));
                self.ready_roots
                    .remove(&(kv, *class as u8, row.root, *turn, row.uid));
            }
            Due::Idle => {}
        }
        if let Some(wake) = row.wake_ms {
            self.wakes.remove(&(wake, row.uid));
        }
        for kind in row.failure.iter().flat_map(|failure| &failure.cures) {
            self.cures.remove(&(kind.clone(), row.uid));
        }
    }

    fn apply_edge(&mut self, change: Change<Edge>) {
        if let Some(edge) = &change.before {
            self.edges.remove(&(edge.from, edge.to));
            self.edges_to.remove(&(edge.to, edge.from));
            self.edges_of.remove(&(edge.owner, edge.from, edge.to));
        }
        if let Some(edge) = change.after {
            self.edges_to.insert((edge.to, edge.from));
            self.edges_of.insert((edge.owner, edge.from, edge.to));
            self.edges.insert((edge.from, edge.to), edge);
        }
    }
}

impl Tables {
    /// Counters that differ from a count of the rows.
    pub(super) fn wrong_sums(&self) -> Vec<String> {
        let mut found = Vec::new();
        for row in self.resources.values() {
            let children = self.children_of(row.uid);
            if children.len() != row.children as usize {
                found.push(format!(
                    "{}/{} counts {} children, has {}",
                    row.kv.kind,
                    row.name,
                    row.children,
                    children.len()
                ));
            }
            let mut sums = converge_engine::model::Sums::default();
            for child in children
                .iter()
                .filter_map(|child| self.resources.get(child))
            {
                sums = sums + converge_engine::decide::propagate::sums(child);
            }
            if sums != row.below.sums {
                found.push(format!(
                    "{}/{} sums {:?}, has {sums:?}",
                    row.kv.kind, row.name, row.below.sums
                ));
            }
        }
        for (kv, pair) in &self.pairs {
            let claims = self
                .resources
                .values()
                .filter_map(|row| row.claim.as_ref())
                .filter(|claim| claim.kv == *kv);
            let claims = claims.count();
            if claims != pair.inflight as usize {
                found.push(format!(
                    "{kv} counts {} claims, has {claims}",
                    pair.inflight
                ));
            }
            let rows = self.resources.values().filter(|row| row.kv == *kv).count();
            if rows as u64 != pair.resources {
                found.push(format!(
                    "{kv} counts {} resources, has {rows}",
                    pair.resources
                ));
            }
        }
        found
    }
}
