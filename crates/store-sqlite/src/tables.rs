//! The writer's tables: answers what commands ask, and writes what they decided.
//!
//! Everything here runs inside the writer's transaction. Pair counters and phase counts change with nearly every command; they are
//! summed up in memory and written once, by [`Tables::flush`], before COMMIT or a savepoint. So are rows that changed in nothing any
//! statement searches by: what such a statement finds is right before they are written too, and their content comes from memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use converge_engine::model::{Class, DocSlot, Due, Edge, Event, Resource};
use converge_engine::store::{Change, Need, Rows, Source, WriteSet};
use converge_engine::view::Halt;
use converge_types::ids::{KindVersion, Uid};
use converge_types::json::Doc;
use converge_types::phase::Phase;
use rusqlite::{Connection, Params, params};

use crate::cache::{Cache, EDGES};
use crate::fault::Fault;
use crate::rows::manifest::Compiled;
use crate::rows::{config, event, graph, manifest, resource};
use crate::sql;

/// Empty queues that are remembered.
const EMPTY: usize = 65_536;

pub(crate) struct Tables {
    pub(crate) conn: Connection,
    cache: Cache,
    compiled: Arc<Compiled>,
    /// The last number given out; the table has what was last flushed.
    pub(crate) revision: i64,
    flushed: i64,
    phases: BTreeMap<(KindVersion, Phase), i64>,
    /// Queues that were found empty and that nothing has entered since: claims ask for every class of every pair they serve.
    empty: HashSet<(KindVersion, Class)>,
    /// Rows of which nothing changed that is searched by: a composite changes with everything below it, and is written once.
    late: HashMap<Uid, (i64, Arc<Resource>)>,
}

impl Tables {
    pub(crate) fn new(
        conn: Connection,
        cache: Cache,
        compiled: Arc<Compiled>,
    ) -> Result<Self, Fault> {
        let mut tables = Self {
            conn,
            cache,
            compiled,
            revision: 0,
            flushed: 0,
            phases: BTreeMap::new(),
            empty: HashSet::new(),
            late: HashMap::new(),
        };
        tables.reload()?;
        Ok(tables)
    }

    /// Forgets what is not in the tables: after a rollback, or when somebody else wrote to the file.
    pub(crate) fn reload(&mut self) -> Result<(), Fault> {
        self.cache.clear();
        self.phases.clear();
        self.empty.clear();
        self.late.clear();
        self.revision = revision(&self.conn)?;
        self.flushed = self.revision;
        Ok(())
    }

    /// Writes what is summed up in memory; whether there was anything.
    pub(crate) fn flush(&mut self, now: i64) -> Result<bool, Fault> {
        let pairs = self.cache.pairs_to_write();
        let phases = std::mem::take(&mut self.phases);
        let wrote = !pairs.is_empty() || !phases.is_empty() || self.revision != self.flushed;
        for (id, row) in std::mem::take(&mut self.late).into_values() {
            resource::update(&self.conn, id, &row, &row)?;
        }
        for pair in &pairs {
            manifest::pair_put(&self.conn, pair)?;
        }
        for ((kv, phase), n) in phases.iter().filter(|(_, n)| **n != 0) {
            let sql = "INSERT INTO phase_count (kind, version, phase, n) VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT DO UPDATE SET n = n + ?4";
            let params = params![kv.kind.as_str(), kv.version, phase.as_str(), n];
            sql::run(&self.conn, sql, params)?;
        }
        if self.revision != self.flushed {
            let sql = "UPDATE meta SET revision = ?1, seen_ms = ?2";
            sql::run(&self.conn, sql, [self.revision, now])?;
            self.flushed = self.revision;
        }
        Ok(wrote)
    }

    /// After the clock was set back while nobody ran: everything that waits for a time is to be looked at again, because no time may be
    /// waited for longer than it could have been set to now. Returns whether that was so.
    pub(crate) fn notice_clock(&self, now: i64) -> Result<bool, Fault> {
        let sql = "SELECT seen_ms FROM meta WHERE one = 1";
        let seen: Option<i64> = sql::one(&self.conn, sql, [], |cols| cols.get())?;
        if seen.is_none_or(|seen| seen <= now) {
            return Ok(false);
        }
        let sql = "INSERT OR IGNORE INTO sweep (kind, version, config_ref, after)
            SELECT kind, version, '', x'' FROM manifest";
        sql::run(&self.conn, sql, [])?;
        Ok(true)
    }

    fn uids(&self, sql: &str, params: impl Params) -> Result<Rows, Fault> {
        sql::all(&self.conn, sql, params, |cols| cols.uid()).map(Rows::Uids)
    }

    /// The id of a resource, remembered or looked up.
    fn id(&mut self, uid: Uid) -> Result<Option<i64>, Fault> {
        match self.cache.get(uid) {
            Some(cached) => Ok(Some(cached.id)),
            None => resource::id_of(&self.conn, uid),
        }
    }

    fn resource(&mut self, uid: Uid) -> Result<Option<Arc<Resource>>, Fault> {
        if let Some(cached) = self.cache.get(uid) {
            return Ok(Some(cached.row.clone()));
        }
        if let Some((id, row)) = self.late.get(&uid).cloned() {
            self.cache.loaded(id, row.clone());
            return Ok(Some(row));
        }
        let found = resource::by_uid(&self.conn, uid)?;
        Ok(found.map(|(id, row)| self.loaded(id, row)))
    }

    fn loaded(&mut self, id: i64, row: Resource) -> Arc<Resource> {
        let row = Arc::new(row);
        self.cache.loaded(id, row.clone());
        row
    }

    fn doc(&mut self, uid: Uid, slot: DocSlot) -> Result<Option<Doc>, Fault> {
        if let Some(doc) = self.cache.doc(uid, slot) {
            return Ok(doc);
        }
        let Some(id) = self.id(uid)? else {
            return Ok(None);
        };
        let doc = resource::doc(&self.conn, id, slot)?;
        self.cache.doc_put(uid, slot, doc.as_ref());
        Ok(doc)
    }

    /// Whether the resource is its own root: edges join children of one result, so none ends at it.
    fn is_top(&mut self, uid: Uid) -> bool {
        let cached = self.cache.get(uid);
        cached.is_some_and(|cached| cached.row.owner.is_none())
    }

    fn last_event(&mut self, uid: Uid) -> Result<Option<Event>, Fault> {
        if let Some(cached) = self.cache.get(uid)
            && let Some(known) = &cached.last_event
        {
            return Ok(known.clone());
        }
        let last = event::last(&self.conn, uid)?;
        if let Some(cached) = self.cache.get(uid) {
            cached.last_event = Some(last.clone());
        }
        Ok(last)
    }

    fn answer(&mut self, need: &Need) -> Result<Rows, Fault> {
        let from = |after: &Option<Uid>| after.map_or_else(Vec::new, |uid| uid.as_bytes().to_vec());
        Ok(match need {
            Need::Manifest(kv) => {
                if let Some(row) = self.cache.manifests.get(kv) {
                    return Ok(Rows::Manifest(Some(row.clone())));
                }
                let row = self.compiled.one(&self.conn, kv)?;
                if let Some(row) = &row {
                    self.cache.manifests.insert(kv.clone(), row.clone());
                }
                Rows::Manifest(row)
            }
            Need::Versions(kind) => Rows::Versions(manifest::versions(&self.conn, kind)?),
            Need::Pair(kv) => {
                if let Some(pair) = self.cache.pair(kv) {
                    return Ok(Rows::Pair(Some(pair.clone())));
                }
                let pair = manifest::pair(&self.conn, kv)?;
                if let Some(pair) = &pair {
                    self.cache.pair_loaded(pair.clone());
                }
                Rows::Pair(pair)
            }
            Need::Resource(uid) => Rows::Resource(self.resource(*uid)?),
            Need::ResourceByName(kind, name) => {
                if let Some(row) = self.cache.by_name(kind, name) {
                    return Ok(Rows::Resource(Some(row)));
                }
                let found = resource::by_name(&self.conn, kind, name)?;
                Rows::Resource(found.map(|(id, row)| {
                    let late = self.late.get(&row.uid).map(|(_, row)| row.clone());
                    let row = late.unwrap_or_else(|| Arc::new(row));
                    self.cache.loaded(id, row.clone());
                    row
                }))
            }
            Need::Doc(uid, slot) => Rows::Doc(self.doc(*uid, *slot)?),
            Need::Children(owner) => {
                if let Some(cached) = self.cache.get(*owner)
                    && cached.row.children == 0
                {
                    return Ok(Rows::Uids(Vec::new()));
                }
                let sql = "SELECT uid FROM resource WHERE owner = ?1 ORDER BY position, uid";
                self.uids(sql, [owner.as_bytes()])?
            }
            Need::EdgesFrom(uid) if self.is_top(*uid) => Rows::Edges(Vec::new()),
            Need::EdgesTo(uid) if self.is_top(*uid) => Rows::Edges(Vec::new()),
            Need::EdgesFrom(uid) => {
                if let Some(known) = self.cache.get(*uid).and_then(|it| it.from.clone()) {
                    return Ok(Rows::Edges(known));
                }
                let edges = graph::from(&self.conn, *uid)?;
                if let Some(cached) = self.cache.get(*uid) {
                    cached.from = few(&edges);
                }
                Rows::Edges(edges)
            }
            Need::EdgesTo(uid) => {
                if let Some(known) = self.cache.get(*uid).and_then(|it| it.to.clone()) {
                    return Ok(Rows::Edges(known));
                }
                let edges = graph::to(&self.conn, *uid)?;
                if let Some(cached) = self.cache.get(*uid) {
                    cached.to = few(&edges);
                }
                Rows::Edges(edges)
            }
            Need::EdgesOf(owner) => Rows::Edges(graph::of(&self.conn, *owner)?),
            Need::HeldOn(uid) => {
                if self.cache.get(*uid).is_some_and(|it| it.held == Some(0)) {
                    return Ok(Rows::Uids(Vec::new()));
                }
                let sql = "SELECT uid FROM resource WHERE held_on = ?1 ORDER BY uid";
                let held = sql::all(&self.conn, sql, [uid.as_bytes()], |cols| cols.uid())?;
                if let Some(cached) = self.cache.get(*uid) {
                    cached.held = u32::try_from(held.len()).ok();
                }
                Rows::Uids(held)
            }
            Need::CurableBy(kind) => {
                let sql = "SELECT uid FROM cure WHERE kind = ?1 ORDER BY uid";
                self.uids(sql, [kind.as_str()])?
            }
            Need::Config(name) => {
                if let Some(row) = self.cache.config(name) {
                    return Ok(Rows::Config(Some(row)));
                }
                let row = config::by_name(&self.conn, name)?;
                if let Some(row) = &row {
                    self.cache.config_put(row.clone());
                }
                Rows::Config(row)
            }
            Need::DefaultConfig(kv) => Rows::Config(config::default(&self.conn, kv)?),
            Need::ConfigsOwnedBy(uid) => {
                let tail = "WHERE owner = ?1 ORDER BY name";
                Rows::Configs(config::all(&self.conn, tail, [uid.as_bytes()])?)
            }
            Need::Overrides(kv) => {
                let tail = "WHERE kind = ?1 AND version = ?2 AND is_default = 0 ORDER BY name";
                let params = params![kv.kind.as_str(), kv.version];
                Rows::Configs(config::all(&self.conn, tail, params)?)
            }
            Need::Bundle(name) => Rows::Bundle(config::bundle(&self.conn, name)?),
            Need::ConfigUsers(name, after, limit) => {
                let sql = "SELECT uid FROM resource WHERE config_ref = ?1 AND uid > ?2 ORDER BY uid LIMIT ?3";
                self.uids(sql, params![name.as_str(), from(after), limit])?
            }
            Need::PairResources(kv, after, limit) => {
                // Two searches, each of them by its index: an OR would sort all rows of the pair for each page.
                let sql = "SELECT uid FROM (SELECT uid FROM resource WHERE kind = ?1 AND version = ?2 AND uid > ?3 ORDER BY uid LIMIT ?4)
                    UNION SELECT uid FROM resource WHERE phase = 'Deleting' AND kind = ?1 AND finalizer_version = ?2 AND uid > ?3
                    ORDER BY uid LIMIT ?4";
                let params = params![kv.kind.as_str(), kv.version, from(after), limit];
                self.uids(sql, params)?
            }
            Need::Ready(kv, class, limit) => {
                let queue = (kv.clone(), *class);
                if self.empty.contains(&queue) {
                    return Ok(Rows::Uids(Vec::new()));
                }
                let sql = "SELECT uid FROM resource WHERE ready_kind = ?1 AND ready_version = ?2 AND ready_class = ?3
                    ORDER BY ready_turn, ready_since_ms, uid LIMIT ?4";
                let params = params![kv.kind.as_str(), kv.version, *class as u8, limit];
                let ready = sql::all(&self.conn, sql, params, |cols| cols.uid())?;
                if ready.is_empty() && *limit > 0 {
                    if self.empty.len() >= EMPTY {
                        self.empty.clear();
                    }
                    self.empty.insert(queue);
                }
                Rows::Uids(ready)
            }
            Need::RootTurn(kv, class, root) => {
                let sql = "SELECT max(ready_turn) FROM resource WHERE ready_kind = ?1 AND ready_version = ?2
                    AND ready_class = ?3 AND root = ?4 AND root <> uid";
                let params = params![kv.kind.as_str(), kv.version, *class as u8, root.as_bytes()];
                let below = sql::one(&self.conn, sql, params, |cols| cols.get())?.flatten();
                // The root itself is not in that index, so that rows without owner need no entry in it.
                let its = match self.resource(*root)?.as_deref() {
                    Some(row) if row.due_kv() == *kv => match row.due {
                        Due::Ready {
                            class: its, turn, ..
                        } if its == *class => Some(turn),
                        _ => None,
                    },
                    _ => None,
                };
                Rows::Turn(below.max(its))
            }
            Need::Wakes(until, limit) => {
                let sql =
                    "SELECT uid FROM resource WHERE wake_ms <= ?1 ORDER BY wake_ms, uid LIMIT ?2";
                self.uids(sql, params![until, limit])?
            }
            Need::NextSweep => Rows::Sweep(config::sweep_next(&self.conn)?),
            Need::History(uid) => Rows::History(event::history(&self.conn, *uid)?),
            Need::LastEvent(uid) => Rows::LastEvent(self.last_event(*uid)?),
            Need::Claimed(after, limit) => {
                let sql =
                    "SELECT uid FROM resource WHERE claimed = 1 AND uid > ?1 ORDER BY uid LIMIT ?2";
                self.uids(sql, params![from(after), limit])?
            }
            Need::FinalizersOf(kv) => {
                let sql =
                    "SELECT count(*) FROM resource WHERE kind = ?1 AND finalizer_version = ?2";
                let params = params![kv.kind.as_str(), kv.version];
                Rows::Count(sql::one(&self.conn, sql, params, |cols| cols.get())?.unwrap_or(0))
            }
        })
    }

    /// Writes what a command decided, numbers already on it.
    pub(crate) fn apply(&mut self, set: &WriteSet) -> Result<(), Fault> {
        for change in &set.manifests {
            self.manifest_write(change)?;
        }
        for pair in &set.pairs {
            self.cache.pair_changed(pair.clone());
        }
        // Removals first: a row may take the name of one that goes in the same command.
        let removed: HashSet<Uid> = self.resources_remove(set)?;
        for change in &set.resources {
            match (&change.before, &change.after) {
                (Some(before), Some(after)) => self.resource_update(before, after)?,
                (None, Some(after)) => self.resource_insert(after)?,
                (_, None) => {}
            }
        }
        for change in &set.resources {
            self.scheduled(change.before.as_deref(), change.after.as_deref());
        }
        for (uid, slot, doc) in &set.docs {
            if !removed.contains(uid) {
                self.doc_write(*uid, *slot, doc.as_ref())?;
            }
        }
        for edge in &set.edges {
            if let Some(row) = edge.after.as_ref().or(edge.before.as_ref()) {
                self.cache.edge_changed(row.from, row.to);
            }
            match (&edge.before, &edge.after) {
                (_, Some(after)) => graph::put(&self.conn, after)?,
                (Some(before), None) => graph::delete(&self.conn, before.from, before.to)?,
                (None, None) => {}
            }
        }
        for change in &set.configs {
            match (&change.before, &change.after) {
                (_, Some(after)) => {
                    config::put(&self.conn, after)?;
                    self.cache.config_put(after.clone());
                }
                (Some(before), None) => {
                    config::delete(&self.conn, &before.name)?;
                    self.cache.config_remove(&before.name);
                }
                (None, None) => {}
            }
        }
        for (name, bundle) in &set.bundles {
            config::bundle_put(&self.conn, name, bundle.as_ref())?;
        }
        for (event, is_repeat) in &set.events {
            self.event_write(event, *is_repeat)?;
        }
        for row in &set.history {
            event::history_put(&self.conn, row)?;
        }
        for row in &set.tombstones {
            event::tombstone_put(&self.conn, row)?;
        }
        for sweep in &set.sweep_done {
            config::sweep_done(&self.conn, sweep)?;
        }
        for sweep in &set.sweep_put {
            config::sweep_put(&self.conn, sweep)?;
        }
        if let Some(before) = set.forget_before_ms {
            event::forget(&self.conn, before)?;
        }
        Ok(())
    }

    fn manifest_write(
        &mut self,
        change: &Change<converge_engine::model::ManifestRow>,
    ) -> Result<(), Fault> {
        match (&change.before, &change.after) {
            (_, Some(after)) => {
                manifest::put(&self.conn, after)?;
                self.cache.manifests.insert(after.kv.clone(), after.clone());
            }
            (Some(before), None) => {
                manifest::delete(&self.conn, &before.kv)?;
                self.cache.manifests.remove(&before.kv);
            }
            (None, None) => {}
        }
        Ok(())
    }

    fn resources_remove(&mut self, set: &WriteSet) -> Result<HashSet<Uid>, Fault> {
        let mut removed = HashSet::new();
        for change in &set.resources {
            let (Some(row), None) = (&change.before, &change.after) else {
                continue;
            };
            removed.insert(row.uid);
            self.late.remove(&row.uid);
            self.count(row, -1);
            self.searchable(row.uid, Some(row), None)?;
            if let Some(id) = self.id(row.uid)? {
                let docs = "DELETE FROM doc WHERE key BETWEEN ?1 AND ?2";
                let last = resource::doc_key(id, DocSlot::Authored) + 7;
                sql::run(&self.conn, docs, [last - 7, last])?;
                sql::run(&self.conn, "DELETE FROM resource WHERE id = ?1", [id])?;
            }
            self.cache.remove(row.uid);
        }
        Ok(removed)
    }

    fn resource_insert(&mut self, row: &Arc<Resource>) -> Result<(), Fault> {
        let id = resource::insert(&self.conn, row)?;
        self.searchable(row.uid, None, Some(row))?;
        self.count(row, 1);
        self.cache.inserted(id, row.clone());
        Ok(())
    }

    fn resource_update(&mut self, before: &Resource, row: &Arc<Resource>) -> Result<(), Fault> {
        let id = self.id(row.uid)?.ok_or_else(|| no_row(row.uid))?;
        if resource::is_searched_alike(before, row) {
            self.late.insert(row.uid, (id, row.clone()));
        } else {
            // Writes the rest as well, whatever was late of it.
            self.late.remove(&row.uid);
            resource::update(&self.conn, id, before, row)?;
        }
        self.searchable(row.uid, Some(before), Some(row))?;
        if before.kv != row.kv || before.derived.phase != row.derived.phase {
            self.count(before, -1);
            self.count(row, 1);
        }
        match self.cache.get(row.uid) {
            Some(cached) => cached.row = row.clone(),
            None => self.cache.loaded(id, row.clone()),
        }
        Ok(())
    }

    fn count(&mut self, row: &Resource, by: i64) {
        let key = (row.kv.clone(), row.derived.phase);
        *self.phases.entry(key).or_default() += by;
    }

    /// Keeps what is remembered of the queues and of who is held on whom. Once every row of a command is in: one may be held on another
    /// that is as new as itself.
    fn scheduled(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        self.cache.held_moved(
            before.and_then(resource::held_on),
            after.and_then(resource::held_on),
        );
        if let Some(row) = after
            && let Due::Ready { class, .. } = row.due
        {
            self.empty.remove(&(row.due_kv(), class));
        }
    }

    /// Keeps the side tables of labels and cures.
    fn searchable(
        &self,
        uid: Uid,
        before: Option<&Resource>,
        after: Option<&Resource>,
    ) -> Result<(), Fault> {
        let had = before.map(|row| &*row.labels);
        let has = after.map(|row| &*row.labels);
        if had != has {
            for (key, value) in had.into_iter().flat_map(|labels| labels.iter()) {
                let sql = "DELETE FROM label WHERE key = ?1 AND value = ?2 AND uid = ?3";
                sql::run(&self.conn, sql, params![key, value, uid.as_bytes()])?;
            }
            for (key, value) in has.into_iter().flat_map(|labels| labels.iter()) {
                let sql = "INSERT INTO label (key, value, uid) VALUES (?1, ?2, ?3)";
                sql::run(&self.conn, sql, params![key, value, uid.as_bytes()])?;
            }
        }
        let had = cures(before);
        let has = cures(after);
        if had != has {
            for kind in had {
                let sql = "DELETE FROM cure WHERE kind = ?1 AND uid = ?2";
                sql::run(&self.conn, sql, params![kind.as_str(), uid.as_bytes()])?;
            }
            for kind in has {
                let sql = "INSERT OR IGNORE INTO cure (kind, uid) VALUES (?1, ?2)";
                sql::run(&self.conn, sql, params![kind.as_str(), uid.as_bytes()])?;
            }
        }
        Ok(())
    }

    fn doc_write(&mut self, uid: Uid, slot: DocSlot, doc: Option<&Doc>) -> Result<(), Fault> {
        let Some(id) = self.id(uid)? else {
            return if doc.is_some() {
                Err(no_row(uid))
            } else {
                Ok(())
            };
        };
        let key = resource::doc_key(id, slot);
        match doc {
            Some(doc) => {
                let sql = "INSERT OR REPLACE INTO doc (key, bytes) VALUES (?1, ?2)";
                sql::run(&self.conn, sql, params![key, doc.as_bytes()])?;
            }
            None if self.cache.doc(uid, slot) == Some(None) => {}
            None => {
                sql::run(&self.conn, "DELETE FROM doc WHERE key = ?1", [key])?;
            }
        }
        self.cache.doc_put(uid, slot, doc);
        Ok(())
    }

    fn event_write(&mut self, row: &Event, is_repeat: bool) -> Result<(), Fault> {
        let last = if is_repeat {
            self.last_event(row.uid)?
        } else {
            None
        };
        if let Some(last) = &last {
            event::delete(&self.conn, row.uid, last.seq)?;
        }
        event::insert(&self.conn, row)?;
        let known = self.cache.get(row.uid).and_then(|cached| cached.events);
        let stored = match known {
            Some(count) => count + u32::from(last.is_none()),
            // Counts the row just inserted.
            None => event::count(&self.conn, row.uid)?,
        };
        let stored = event::trim(&self.conn, row.uid, stored)?;
        if let Some(cached) = self.cache.get(row.uid) {
            cached.events = Some(stored);
            cached.last_event = Some(Some(row.clone()));
        }
        Ok(())
    }
}

/// Edges as they are remembered: only of rows with few.
fn few(edges: &[Arc<Edge>]) -> Option<Vec<Arc<Edge>>> {
    (edges.len() <= EDGES).then(|| edges.to_vec())
}

impl Source for Tables {
    fn fetch(&mut self, need: &Need) -> Result<Rows, Halt> {
        self.answer(need)
            .map_err(|fault| Halt::Store(fault.on_read()))
    }
}

fn cures(row: Option<&Resource>) -> &[converge_types::ids::Kind] {
    row.and_then(|row| row.failure.as_ref())
        .map_or(&[], |failure| &failure.cures)
}

fn no_row(uid: Uid) -> Fault {
    Fault::corrupt(
        format!("resource {uid}"),
        "a command changes it and it has no row",
    )
}

/// The store-wide revision.
pub(crate) fn revision(conn: &Connection) -> Result<i64, Fault> {
    let sql = "SELECT revision FROM meta WHERE one = 1";
    sql::one(conn, sql, [], |cols| cols.get())?
        .ok_or_else(|| Fault::corrupt("table meta", "its one row is missing"))
}
