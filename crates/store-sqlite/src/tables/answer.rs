//! Answers what commands ask: from memory where it is known, else from the tables.

use std::sync::Arc;

use converge_engine::model::{DocSlot, Due, Edge, Event, Resource};
use converge_engine::store::{Need, Rows, Source, StoreError};
use converge_engine::view::Halt;
use converge_types::ids::Uid;
use converge_types::json::Doc;
use rusqlite::{Params, params};

use super::Tables;
use super::queues::SHORT;
use crate::cache::EDGES;
use crate::fault::Fault;
use crate::rows::{config, event, graph, manifest, resource, tally};
use crate::sql;

impl Source for Tables {
    fn fetch(&mut self, need: &Need) -> Result<Rows, Halt> {
        self.answer(need).map_err(|fault| {
            // SQLite ends the transaction when a statement runs out of memory or the disk fails it, even one that only reads.
            if !self.is_broken && !self.conn.is_autocommit() {
                return Halt::Store(fault.on_read());
            }
            // What was written for the whole batch is at stake, so none of its commands may be answered.
            self.broken = Some(fault);
            Halt::Store(StoreError::Unwritable("the batch is undone".to_owned()))
        })
    }
}

impl Tables {
    pub(crate) fn answer(&mut self, need: &Need) -> Result<Rows, Fault> {
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
                if let Some(tally) = self.cache.tally(kv) {
                    return Ok(Rows::Pair(Some(tally.pair.clone())));
                }
                let tally = tally::of(&self.conn, kv)?;
                Rows::Pair(tally.map(|tally| self.cache.tally_loaded(tally).pair.clone()))
            }
            Need::Resource(uid) => Rows::Resource(self.resource(*uid)?),
            Need::ResourceByName(kind, name) => {
                if let Some(row) = self.cache.by_name(kind, name) {
                    return Ok(Rows::Resource(Some(row)));
                }
                self.settle()?;
                let found = resource::by_name(&self.conn, kind, name)?;
                Rows::Resource(found.map(|(id, row)| {
                    let late = self.late.get(row.uid).map(|(_, row)| row.clone());
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
                let held = self.search(sql, [uid.as_bytes()])?;
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
                // Two searches, each of them by its index.
                let sql = "SELECT uid FROM (SELECT uid FROM resource WHERE config_ref = ?1 AND uid > ?2 ORDER BY uid LIMIT ?3)
                    UNION SELECT uid FROM (SELECT uid FROM resource WHERE finalizer_config = ?1 AND uid > ?2 ORDER BY uid LIMIT ?3)
                    ORDER BY uid LIMIT ?3";
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
                if let Some(first) = self.queues.first(kv, *class, *limit) {
                    return Ok(Rows::Uids(first));
                }
                self.settle()?;
                // At least so many that a short queue is seen to be one.
                let most = (*limit).max(SHORT as u32 + 1);
                let params = params![kv.kind.as_str(), kv.version, *class as u8, most];
                let mut ready = sql::all(&self.conn, resource::READY, params, |cols| {
                    Ok((cols.get()?, cols.get()?, cols.uid()?))
                })?;
                if ready.len() < most as usize {
                    self.queues.know(kv, *class, ready.clone());
                }
                ready.truncate(*limit as usize);
                Rows::Uids(ready.into_iter().map(|(.., uid)| uid).collect())
            }
            Need::RootTurn(kv, class, root) => {
                let sql = "SELECT max(ready_turn) FROM resource WHERE ready_kind = ?1 AND ready_version = ?2
                    AND ready_class = ?3 AND root = ?4 AND root <> uid";
                let params = params![kv.kind.as_str(), kv.version, *class as u8, root.as_bytes()];
                self.settle()?;
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
            Need::FinalizersOf(kv) => {
                let sql =
                    "SELECT count(*) FROM resource WHERE kind = ?1 AND finalizer_version = ?2";
                let params = params![kv.kind.as_str(), kv.version];
                self.settle()?;
                Rows::Count(sql::one(&self.conn, sql, params, |cols| cols.get())?.unwrap_or(0))
            }
        })
    }

    /// Before a search: writes what it could find or miss.
    fn settle(&mut self) -> Result<(), Fault> {
        let settled = self.late.write_searched(&self.conn);
        self.is_broken |= settled.is_err();
        settled
    }

    /// What a statement finds that searches rows.
    fn search(&mut self, sql: &str, params: impl Params) -> Result<Vec<Uid>, Fault> {
        self.settle()?;
        sql::all(&self.conn, sql, params, |cols| cols.uid())
    }

    fn uids(&mut self, sql: &str, params: impl Params) -> Result<Rows, Fault> {
        self.search(sql, params).map(Rows::Uids)
    }

    fn resource(&mut self, uid: Uid) -> Result<Option<Arc<Resource>>, Fault> {
        if let Some(cached) = self.cache.get(uid) {
            return Ok(Some(cached.row.clone()));
        }
        if let Some((id, row)) = self.late.get(uid) {
            let row = row.clone();
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

    pub(super) fn last_event(&mut self, uid: Uid) -> Result<Option<Event>, Fault> {
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
}

/// Edges as they are remembered: only of rows with few.
fn few(edges: &[Arc<Edge>]) -> Option<Vec<Arc<Edge>>> {
    (edges.len() <= EDGES).then(|| edges.to_vec())
}
