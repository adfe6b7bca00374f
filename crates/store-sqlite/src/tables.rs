//! The writer's tables: what it knows of them, and what it writes once a commit.
//!
//! Everything here runs inside the writer's transaction. Counters of pairs change with nearly every command; they are
//! summed up in memory and written once, by [`Tables::flush`], before COMMIT or a savepoint. So are rows that changed in nothing any
//! statement searches by: what such a statement finds is right before they are written too, and their content comes from memory.
//! What a command asks is in `answer`, what it decided in `write`.

mod answer;
mod write;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use converge_engine::model::{Class, Resource};
use converge_types::ids::{KindVersion, Uid};
use rusqlite::Connection;

use crate::cache::Cache;
use crate::fault::Fault;
use crate::rows::manifest::Compiled;
use crate::rows::{resource, tally};
use crate::sql;

pub(crate) struct Tables {
    pub(crate) conn: Connection,
    cache: Cache,
    compiled: Arc<Compiled>,
    /// The last number given out; the table has what was last flushed.
    pub(crate) revision: i64,
    flushed: i64,
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
            empty: HashSet::new(),
            late: HashMap::new(),
        };
        tables.reload()?;
        Ok(tables)
    }

    /// Forgets what is not in the tables: after a rollback, or when somebody else wrote to the file.
    pub(crate) fn reload(&mut self) -> Result<(), Fault> {
        self.cache.clear();
        self.empty.clear();
        self.late.clear();
        self.revision = tally::revision(&self.conn)?;
        self.flushed = self.revision;
        Ok(())
    }

    /// Writes what is summed up in memory; whether there was anything.
    pub(crate) fn flush(&mut self, now: i64) -> Result<bool, Fault> {
        let tallies = self.cache.tallies_to_write();
        let wrote = !tallies.is_empty() || self.revision != self.flushed;
        for (id, row) in std::mem::take(&mut self.late).into_values() {
            resource::update(&self.conn, id, &row, &row)?;
        }
        for tally in &tallies {
            tally::put(&self.conn, tally)?;
        }
        if self.revision != self.flushed {
            tally::committed(&self.conn, self.revision, now)?;
            self.flushed = self.revision;
        }
        Ok(wrote)
    }

    /// After the clock was set back while nobody ran: everything that waits for a time is to be looked at again, because no time may be
    /// waited for longer than it could have been set to now. Returns whether that was so.
    pub(crate) fn notice_clock(&self, now: i64) -> Result<bool, Fault> {
        if tally::seen_ms(&self.conn)? <= now {
            return Ok(false);
        }
        let sql = "INSERT OR IGNORE INTO sweep (kind, version, config_ref, after)
            SELECT kind, version, '', x'' FROM manifest";
        sql::run(&self.conn, sql, [])?;
        Ok(true)
    }

    /// The id of a resource, remembered or looked up.
    fn id(&mut self, uid: Uid) -> Result<Option<i64>, Fault> {
        match self.cache.get(uid) {
            Some(cached) => Ok(Some(cached.id)),
            None => resource::id_of(&self.conn, uid),
        }
    }
}
