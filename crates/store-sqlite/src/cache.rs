//! What the writer remembers of its tables, so that the reads of a command are mostly hits.
//!
//! Written through: an entry always says what the current transaction would read. The writer is the only one who writes, so between
//! transactions that is what is committed; after a rollback the whole cache is dropped. Bounded by rows and by bytes, the least recently
//! used going first.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use converge_engine::model::{Config, DocSlot, Edge, Event, ManifestRow, Resource};
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use hashlink::LruCache;

use crate::rows::tally::Tally;

/// Larger documents are read from the table each time.
const DOC_BYTES: usize = 16 << 10;
/// Rows with more edges than this are read from the table each time.
pub(crate) const EDGES: usize = 16;
/// What a row is taken to weigh besides its documents.
const ROW_BYTES: usize = 2 << 10;
const CONFIGS: usize = 1_024;
/// Larger configs are read from the table each time.
const CONFIG_BYTES: usize = 64 << 10;
const PAIRS: usize = 16_384;

/// Nothing known, or what the table holds (perhaps nothing).
type Known<T> = Option<Option<T>>;

/// A resource and what hangs on it.
pub(crate) struct Cached {
    pub(crate) id: i64,
    pub(crate) row: Arc<Resource>,
    docs: [Known<Doc>; 5],
    pub(crate) last_event: Known<Event>,
    pub(crate) events: Option<u32>,
    /// Edges from it and to it, as the tables hold them.
    pub(crate) from: Option<Vec<Arc<Edge>>>,
    pub(crate) to: Option<Vec<Arc<Edge>>>,
    /// How many rows are held on it.
    pub(crate) held: Option<u32>,
}

impl Cached {
    fn weight(&self) -> usize {
        let docs = self.docs.iter().flatten().flatten();
        ROW_BYTES + docs.map(Doc::size).sum::<usize>()
    }
}

pub(crate) struct Cache {
    resources: LruCache<Uid, Cached>,
    names: HashMap<(Kind, ResourceName), Uid>,
    bytes: usize,
    max_rows: usize,
    max_bytes: usize,
    pub(crate) manifests: HashMap<KindVersion, Arc<ManifestRow>>,
    /// With whether they are still to be written.
    tallies: HashMap<KindVersion, (Tally, bool)>,
    configs: LruCache<ConfigName, Arc<Config>>,
}

impl Cache {
    pub(crate) fn new(max_rows: usize, max_bytes: usize) -> Self {
        Self {
            resources: LruCache::new_unbounded(),
            names: HashMap::new(),
            bytes: 0,
            max_rows,
            max_bytes,
            manifests: HashMap::new(),
            tallies: HashMap::new(),
            configs: LruCache::new(CONFIGS),
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.max_rows, self.max_bytes);
    }

    // --- resources ---

    pub(crate) fn get(&mut self, uid: Uid) -> Option<&mut Cached> {
        self.resources.get_mut(&uid)
    }

    pub(crate) fn by_name(&mut self, kind: &Kind, name: &ResourceName) -> Option<Arc<Resource>> {
        let uid = *self.names.get(&(kind.clone(), name.clone()))?;
        self.get(uid).map(|cached| cached.row.clone())
    }

    /// Remembers a row that was read.
    pub(crate) fn loaded(&mut self, id: i64, row: Arc<Resource>) {
        self.put(Cached {
            id,
            row,
            docs: [const { None }; 5],
            last_event: None,
            events: None,
            from: None,
            to: None,
            held: None,
        });
    }

    /// Remembers a row that was inserted: nothing hangs on it yet.
    pub(crate) fn inserted(&mut self, id: i64, row: Arc<Resource>) {
        self.put(Cached {
            id,
            row,
            docs: [const { Some(None) }; 5],
            last_event: Some(None),
            events: Some(0),
            from: Some(Vec::new()),
            to: Some(Vec::new()),
            held: Some(0),
        });
    }

    fn put(&mut self, cached: Cached) {
        let row = &cached.row;
        let uid = row.uid;
        self.names
            .insert((row.kv.kind.clone(), row.name.clone()), uid);
        self.bytes += cached.weight();
        if let Some(old) = self.resources.insert(uid, cached) {
            self.bytes = self.bytes.saturating_sub(old.weight());
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.resources.len() > self.max_rows || self.bytes > self.max_bytes {
            match self.resources.remove_lru() {
                Some((uid, cached)) => self.forgotten(uid, &cached),
                None => break,
            }
        }
    }

    pub(crate) fn remove(&mut self, uid: Uid) {
        if let Some(cached) = self.resources.remove(&uid) {
            self.forgotten(uid, &cached);
        }
    }

    fn forgotten(&mut self, uid: Uid, cached: &Cached) {
        self.bytes = self.bytes.saturating_sub(cached.weight());
        let name = (cached.row.kv.kind.clone(), cached.row.name.clone());
        if self.names.get(&name) == Some(&uid) {
            self.names.remove(&name);
        }
    }

    // --- what hangs on a resource ---

    /// The edges of these two have changed.
    pub(crate) fn edge_changed(&mut self, from: Uid, to: Uid) {
        if let Some(cached) = self.get(from) {
            cached.from = None;
        }
        if let Some(cached) = self.get(to) {
            cached.to = None;
        }
    }

    /// A row that was held on `before` is held on `after`.
    pub(crate) fn held_moved(&mut self, before: Option<Uid>, after: Option<Uid>) {
        if before == after {
            return;
        }
        if let Some(held) = before.and_then(|on| self.get(on)?.held.as_mut()) {
            *held = held.saturating_sub(1);
        }
        if let Some(held) = after.and_then(|on| self.get(on)?.held.as_mut()) {
            *held += 1;
        }
    }

    // --- documents ---

    pub(crate) fn doc(&mut self, uid: Uid, slot: DocSlot) -> Known<Doc> {
        self.get(uid)?.docs[slot as usize].clone()
    }

    /// Remembers what the table holds for a document of a remembered resource.
    pub(crate) fn doc_put(&mut self, uid: Uid, slot: DocSlot, doc: Option<&Doc>) {
        let Some(cached) = self.resources.get_mut(&uid) else {
            return;
        };
        let before = cached.weight();
        cached.docs[slot as usize] = match doc {
            Some(doc) if doc.size() > DOC_BYTES => None,
            // A copy: a slice would keep the whole message alive that it came in with.
            Some(doc) => Some(Some(Doc::from_stored(Bytes::copy_from_slice(
                doc.as_bytes(),
            )))),
            None => Some(None),
        };
        self.bytes = self.bytes.saturating_sub(before) + cached.weight();
        self.shrink();
    }

    // --- counters and configs ---

    pub(crate) fn tally(&self, kv: &KindVersion) -> Option<&Tally> {
        self.tallies.get(kv).map(|(tally, _)| tally)
    }

    /// Remembers counters that were read.
    pub(crate) fn tally_loaded(&mut self, tally: Tally) -> &Tally {
        let entry = self.tallies.entry(tally.pair.kv.clone());
        &entry.insert_entry((tally, false)).into_mut().0
    }

    /// Counters that are still to be written before COMMIT; new ones where none are remembered.
    pub(crate) fn tally_to_change(&mut self, kv: &KindVersion) -> &mut Tally {
        let new = || (Tally::new(kv.clone()), true);
        let (tally, dirty) = self.tallies.entry(kv.clone()).or_insert_with(new);
        *dirty = true;
        tally
    }

    /// Counters to be written now.
    pub(crate) fn tallies_to_write(&mut self) -> Vec<Tally> {
        let dirty: Vec<Tally> = self
            .tallies
            .values_mut()
            .filter_map(|(tally, dirty)| std::mem::take(dirty).then(|| tally.clone()))
            .collect();
        if self.tallies.len() > PAIRS {
            self.tallies.clear();
        }
        dirty
    }

    pub(crate) fn config(&mut self, name: &ConfigName) -> Option<Arc<Config>> {
        self.configs.get(name).cloned()
    }

    pub(crate) fn config_put(&mut self, row: Arc<Config>) {
        if row.spec.size() <= CONFIG_BYTES {
            self.configs.insert(row.name.clone(), row);
        } else {
            self.configs.remove(&row.name);
        }
    }

    pub(crate) fn config_remove(&mut self, name: &ConfigName) {
        self.configs.remove(name);
    }
}
