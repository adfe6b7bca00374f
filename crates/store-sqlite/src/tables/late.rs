//! Rows that are not written yet: each is written once a commit, however many commands change it.
//!
//! What must hold: whoever reads a row by its uid asks here first, and before a statement searches rows, those it might find or miss
//! by what changed are written ([`Late::write_searched`]). The rest waits for the commit.

use std::collections::HashMap;
use std::sync::Arc;

use converge_engine::model::Resource;
use converge_types::ids::Uid;
use rusqlite::Connection;

use crate::fault::Fault;
use crate::rows::resource;

/// A row as it is now, and as the table has it.
struct Row {
    id: i64,
    stored: Option<Arc<Resource>>,
    now: Arc<Resource>,
}

impl Row {
    /// Whether a search might go wrong while the table has what it has.
    fn is_searched(&self) -> bool {
        let alike = |stored: &Arc<Resource>| resource::is_searched_alike(stored, &self.now);
        !self.stored.as_ref().is_some_and(alike)
    }

    fn write(&self, conn: &Connection) -> Result<(), Fault> {
        match &self.stored {
            None => resource::insert(conn, self.id, &self.now),
            Some(stored) => resource::update(conn, self.id, stored, &self.now),
        }
    }
}

#[derive(Default)]
pub(super) struct Late {
    rows: HashMap<Uid, Row>,
    /// Whether one of them may be searched for.
    searched: bool,
}

impl Late {
    pub(super) fn get(&self, uid: Uid) -> Option<(i64, &Arc<Resource>)> {
        self.rows.get(&uid).map(|row| (row.id, &row.now))
    }

    /// A row that is new.
    ///
    /// # Errors
    /// Another new one has its uid.
    pub(super) fn insert(&mut self, id: i64, now: Arc<Resource>) -> Result<(), Fault> {
        self.searched = true;
        let (uid, stored) = (now.uid, None);
        match self.rows.insert(uid, Row { id, stored, now }) {
            None => Ok(()),
            Some(_) => Err(Fault::corrupt(
                format!("resource {uid}"),
                "it is there already",
            )),
        }
    }

    /// A row that changed from `before`.
    pub(super) fn update(&mut self, id: i64, before: &Arc<Resource>, now: &Arc<Resource>) {
        let row = self.rows.entry(now.uid).or_insert_with(|| Row {
            id,
            stored: Some(before.clone()),
            now: now.clone(),
        });
        row.now = now.clone();
        self.searched |= row.is_searched();
    }

    /// A row that is no more.
    pub(super) fn remove(&mut self, uid: Uid) {
        self.rows.remove(&uid);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes what a search could find or miss.
    pub(super) fn write_searched(&mut self, conn: &Connection) -> Result<(), Fault> {
        if !std::mem::take(&mut self.searched) {
            return Ok(());
        }
        let rows = self.rows.extract_if(|_, row| row.is_searched());
        write(conn, rows.map(|(_, row)| row).collect())
    }

    /// Writes everything.
    pub(super) fn write_all(&mut self, conn: &Connection) -> Result<(), Fault> {
        self.searched = false;
        write(conn, std::mem::take(&mut self.rows).into_values().collect())
    }
}

/// In the order of the table, so that neighbours are written together.
fn write(conn: &Connection, mut rows: Vec<Row>) -> Result<(), Fault> {
    rows.sort_unstable_by_key(|row| row.id);
    rows.iter().try_for_each(|row| row.write(conn))
}
