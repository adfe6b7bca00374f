//! The writer's tables: what it knows of them, and what it writes once a commit.
//!
//! Everything here runs inside the writer's transaction. Counters of pairs and rows change with nearly every command; they are kept
//! in memory (rows in `late`, what may be claimed in `queues`) and written once, by [`Tables::flush`], before COMMIT or a savepoint.
//! What a command asks is in `answer`, what it decided in `write`.

mod answer;
mod late;
mod queues;
mod write;

use std::sync::Arc;

use converge_types::ids::Uid;
use rusqlite::Connection;

use late::Late;
use queues::Queues;

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
    queues: Queues,
    late: Late,
    /// Of the next resource that is new.
    next_id: i64,
    /// Rows could not be written while a command asked.
    is_broken: bool,
    /// Why the transaction is to be undone, found while a command asked.
    pub(crate) broken: Option<Fault>,
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
            queues: Queues::default(),
            late: Late::default(),
            next_id: 0,
            is_broken: false,
            broken: None,
        };
        tables.reload()?;
        Ok(tables)
    }

    /// Forgets what is not in the tables: after a rollback, or when somebody else wrote to the file.
    pub(crate) fn reload(&mut self) -> Result<(), Fault> {
        self.cache.clear();
        self.queues.clear();
        self.late.clear();
        (self.is_broken, self.broken) = (false, None);
        self.revision = tally::revision(&self.conn)?;
        self.flushed = self.revision;
        self.next_id = resource::last_id(&self.conn)? + 1;
        Ok(())
    }

    /// Writes what is summed up in memory; whether there was anything.
    pub(crate) fn flush(&mut self, now: i64) -> Result<bool, Fault> {
        let tallies = self.cache.tallies_to_write();
        let wrote = !tallies.is_empty() || self.revision != self.flushed;
        self.late.write_all(&self.conn)?;
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
        if let Some(cached) = self.cache.get(uid) {
            return Ok(Some(cached.id));
        }
        match self.late.get(uid) {
            Some((id, _)) => Ok(Some(id)),
            None => resource::id_of(&self.conn, uid),
        }
    }
}
