//! Writes what commands decided, and keeps what is remembered of it.

use std::collections::HashSet;
use std::sync::Arc;

use converge_engine::model::{DocSlot, Event, ManifestRow, Resource};
use converge_engine::store::{Change, WriteSet};
use converge_types::ids::{Kind, KindVersion, Uid};
use converge_types::json::Doc;
use rusqlite::params;

use super::Tables;
use crate::fault::Fault;
use crate::rows::tally::{self, Tally};
use crate::rows::{config, event, graph, manifest, resource};
use crate::sql;

impl Tables {
    /// Writes what a command decided, numbers already on it.
    pub(crate) fn apply(&mut self, set: &WriteSet) -> Result<(), Fault> {
        for change in &set.manifests {
            self.manifest_write(change)?;
        }
        for pair in &set.pairs {
            self.tally(&pair.kv)?.pair = pair.clone();
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

    fn manifest_write(&mut self, change: &Change<ManifestRow>) -> Result<(), Fault> {
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
            let id = self.id(row.uid)?;
            self.late.remove(row.uid);
            self.tally(&row.kv)?.count(row.derived.phase, false);
            self.searchable(row.uid, Some(row), None)?;
            if let Some(id) = id {
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
        let id = self.next_id;
        self.next_id += 1;
        self.late.insert(id, row.clone())?;
        self.searchable(row.uid, None, Some(row))?;
        self.tally(&row.kv)?.count(row.derived.phase, true);
        self.cache.inserted(id, row.clone());
        Ok(())
    }

    fn resource_update(
        &mut self,
        before: &Arc<Resource>,
        row: &Arc<Resource>,
    ) -> Result<(), Fault> {
        let id = self.id(row.uid)?.ok_or_else(|| no_row(row.uid))?;
        self.late.update(id, before, row);
        self.searchable(row.uid, Some(before), Some(row))?;
        if before.kv != row.kv || before.derived.phase != row.derived.phase {
            self.tally(&before.kv)?.count(before.derived.phase, false);
            self.tally(&row.kv)?.count(row.derived.phase, true);
        }
        match self.cache.get(row.uid) {
            Some(cached) => cached.row = row.clone(),
            None => self.cache.loaded(id, row.clone()),
        }
        Ok(())
    }

    /// The counters of a pair, to be changed.
    fn tally(&mut self, kv: &KindVersion) -> Result<&mut Tally, Fault> {
        if self.cache.tally(kv).is_none() {
            let stored = tally::of(&self.conn, kv)?;
            self.cache
                .tally_loaded(stored.unwrap_or_else(|| Tally::new(kv.clone())));
        }
        Ok(self.cache.tally_to_change(kv))
    }

    /// Keeps what is remembered of the queues and of who is held on whom. Once every row of a command is in: one may be held on another
    /// that is as new as itself.
    fn scheduled(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        self.cache.held_moved(
            before.and_then(resource::held_on),
            after.and_then(resource::held_on),
        );
        self.queues.moved(before, after);
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

fn cures(row: Option<&Resource>) -> &[Kind] {
    row.and_then(|row| row.failure.as_ref())
        .map_or(&[], |failure| &failure.cures)
}

fn no_row(uid: Uid) -> Fault {
    Fault::corrupt(
        format!("resource {uid}"),
        "a command changes it and it has no row",
    )
}
