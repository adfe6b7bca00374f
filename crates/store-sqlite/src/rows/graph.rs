//! Edges.

use std::sync::Arc;

use converge_engine::model::{Edge, Flow};
use converge_types::ids::Uid;
use converge_types::json::Doc;
use converge_types::pointer::Pointer;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::sql::{self, Cols};

/// A flow as stored. The value is a list of none or one, so that a stored `null` is a value.
#[derive(Serialize, Deserialize)]
struct StoredFlow {
    dependent: Pointer,
    source: Pointer,
    value: Vec<Doc>,
    gone: bool,
}

fn decode(cols: &mut Cols<'_>) -> Result<Arc<Edge>, Fault> {
    let from = cols.uid()?;
    let to = cols.uid()?;
    Ok(Arc::new(Edge {
        from,
        to,
        owner: cols.uid()?,
        position: cols.get()?,
        former: cols.get()?,
        flows: cols
            .json::<Vec<StoredFlow>>()?
            .into_iter()
            .map(|flow| Flow {
                dependent: flow.dependent,
                source: flow.source,
                value: flow.value.into_iter().next(),
                gone: flow.gone,
            })
            .collect(),
    }))
}

macro_rules! edges {
    ($tail:literal) => {
        concat!(
            "SELECT from_uid, to_uid, owner, position, former, flows FROM edge ",
            $tail
        )
    };
}

/// By (position, to), former ones included.
pub(crate) fn from(conn: &Connection, from: Uid) -> Result<Vec<Arc<Edge>>, Fault> {
    let sql = edges!("WHERE from_uid = ?1 ORDER BY position, to_uid");
    sql::all(conn, sql, [from.as_bytes()], decode)
}

/// By (position, from), former ones included.
pub(crate) fn to(conn: &Connection, to: Uid) -> Result<Vec<Arc<Edge>>, Fault> {
    let sql = edges!("WHERE to_uid = ?1 ORDER BY position, from_uid");
    sql::all(conn, sql, [to.as_bytes()], decode)
}

/// By (from, to), former ones included.
pub(crate) fn of(conn: &Connection, owner: Uid) -> Result<Vec<Arc<Edge>>, Fault> {
    let sql = edges!("WHERE owner = ?1 ORDER BY from_uid, to_uid");
    sql::all(conn, sql, [owner.as_bytes()], decode)
}

pub(crate) fn put(conn: &Connection, edge: &Edge) -> Result<(), Fault> {
    let flows: Vec<StoredFlow> = edge
        .flows
        .iter()
        .map(|flow| StoredFlow {
            dependent: flow.dependent.clone(),
            source: flow.source.clone(),
            value: flow.value.iter().cloned().collect(),
            gone: flow.gone,
        })
        .collect();
    let sql = "INSERT OR REPLACE INTO edge (from_uid, to_uid, owner, position, former, flows)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let params = params![
        edge.from.as_bytes(),
        edge.to.as_bytes(),
        edge.owner.as_bytes(),
        edge.position,
        edge.former,
        sql::json(&flows)?
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

pub(crate) fn delete(conn: &Connection, from: Uid, to: Uid) -> Result<(), Fault> {
    let sql = "DELETE FROM edge WHERE from_uid = ?1 AND to_uid = ?2";
    sql::run(conn, sql, [from.as_bytes(), to.as_bytes()])?;
    Ok(())
}
