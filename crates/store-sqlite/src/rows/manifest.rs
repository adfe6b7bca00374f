//! Manifests. One is kept as it was applied and compiled again when it is read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use converge_engine::model::ManifestRow;
use converge_types::ids::{Kind, KindVersion};
use converge_types::manifest::Manifest;
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::sql::{self, Cols};

const COLUMNS: &str = "kind, version, revision, policy, doc, edits, created_ms, updated_ms";

/// Compiled manifests by pair and revision, shared by all connections: compiling costs far more than reading.
#[derive(Default)]
pub(crate) struct Compiled(Mutex<HashMap<KindVersion, Arc<ManifestRow>>>);

/// More are not kept.
const KEPT: usize = 4_096;

impl Compiled {
    fn get(&self, kv: &KindVersion, revision: i64) -> Option<Arc<ManifestRow>> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(kv)
            .filter(|row| row.revision == revision)
            .map(Arc::clone)
    }

    fn put(&self, row: Arc<ManifestRow>) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.len() >= KEPT {
            rows.clear();
        }
        rows.insert(row.kv.clone(), row);
    }

    fn decode(&self, cols: &mut Cols<'_>) -> Result<Arc<ManifestRow>, Fault> {
        let kv = cols.kv()?;
        let revision = cols.get()?;
        if let Some(row) = self.get(&kv, revision) {
            return Ok(row);
        }
        let policy = cols.json()?;
        let doc = cols.doc()?;
        let compiled = Manifest::parse(doc.bytes().clone())
            .map_err(|error| Fault::corrupt(format!("manifest {kv}"), error))?;
        let row = Arc::new(ManifestRow {
            kv,
            compiled,
            policy,
            doc,
            version: cols.get()?,
            created_ms: cols.get()?,
            updated_ms: cols.get()?,
            revision,
        });
        self.put(row.clone());
        Ok(row)
    }

    pub(crate) fn one(
        &self,
        conn: &Connection,
        kv: &KindVersion,
    ) -> Result<Option<Arc<ManifestRow>>, Fault> {
        let sql = select("WHERE kind = ?1 AND version = ?2");
        sql::one(conn, &sql, params![kv.kind.as_str(), kv.version], |cols| {
            self.decode(cols)
        })
    }

    pub(crate) fn all(&self, conn: &Connection) -> Result<Vec<Arc<ManifestRow>>, Fault> {
        let sql = select("ORDER BY kind, version");
        sql::all(conn, &sql, [], |cols| self.decode(cols))
    }
}

fn select(tail: &str) -> String {
    format!("SELECT {COLUMNS} FROM manifest {tail}")
}

/// Versions of a kind, ascending.
pub(crate) fn versions(conn: &Connection, kind: &Kind) -> Result<Vec<KindVersion>, Fault> {
    let sql = "SELECT kind, version FROM manifest WHERE kind = ?1 ORDER BY version";
    sql::all(conn, sql, [kind.as_str()], |cols| cols.kv())
}

pub(crate) fn put(conn: &Connection, row: &ManifestRow) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO manifest
        (kind, version, policy, doc, edits, created_ms, updated_ms, revision) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let params = params![
        row.kv.kind.as_str(),
        row.kv.version,
        sql::json(&row.policy)?,
        row.doc.as_bytes(),
        row.version,
        row.created_ms,
        row.updated_ms,
        row.revision
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

pub(crate) fn delete(conn: &Connection, kv: &KindVersion) -> Result<(), Fault> {
    let sql = "DELETE FROM manifest WHERE kind = ?1 AND version = ?2";
    sql::run(conn, sql, params![kv.kind.as_str(), kv.version])?;
    Ok(())
}
