//! What changes with nearly every commit: the counters of pairs, how many resources are in which phase, the revision and the clock.
//!
//! All of it lies in one small table, so that a commit writes one page for it.

use std::collections::BTreeMap;

use converge_engine::model::{Millis, Pair};
use converge_types::ids::KindVersion;
use converge_types::phase::Phase;
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::sql::{self, Cols};

/// The counters of a pair: those of the engine, and how many of its resources are in which phase.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tally {
    pub(crate) pair: Pair,
    pub(crate) phases: BTreeMap<Phase, u64>,
}

impl Tally {
    /// A pair nothing has happened to.
    pub(crate) fn new(kv: KindVersion) -> Self {
        Self {
            pair: Pair::new(kv),
            phases: BTreeMap::new(),
        }
    }

    /// One resource more is in the phase, or one less.
    pub(crate) fn count(&mut self, phase: Phase, more: bool) {
        let n = self.phases.entry(phase).or_default();
        *n = if more { *n + 1 } else { n.saturating_sub(1) };
        if *n == 0 {
            self.phases.remove(&phase);
        }
    }
}

/// The store-wide revision, and when it was given out.
fn last(conn: &Connection) -> Result<(i64, Millis), Fault> {
    let sql = "SELECT revision, at_ms FROM tally WHERE kind = '' AND version = 0";
    sql::one(conn, sql, [], |cols| Ok((cols.get()?, cols.get()?)))?
        .ok_or_else(|| Fault::corrupt("table tally", "the row of the revision is missing"))
}

/// The store-wide revision.
pub(crate) fn revision(conn: &Connection) -> Result<i64, Fault> {
    last(conn).map(|(revision, _)| revision)
}

/// When the last commit was that gave out a revision.
pub(crate) fn seen_ms(conn: &Connection) -> Result<Millis, Fault> {
    last(conn).map(|(_, at_ms)| at_ms)
}

/// Keeps the last number given out, and the time.
pub(crate) fn committed(conn: &Connection, revision: i64, now: Millis) -> Result<(), Fault> {
    let sql = "UPDATE tally SET revision = ?1, at_ms = ?2 WHERE kind = '' AND version = 0";
    sql::run(conn, sql, [revision, now])?;
    Ok(())
}

fn decode(cols: &mut Cols<'_>) -> Result<Tally, Fault> {
    let kv = cols.kv()?;
    let read = |cols: &mut Cols<'_>| {
        Ok(Tally {
            pair: Pair {
                kv: kv.clone(),
                inflight: cols.get()?,
                turn: cols.json()?,
                since: cols.json()?,
                default_config: cols.digest()?,
                resources: cols.get()?,
            },
            phases: cols.json()?,
        })
    };
    read(cols).map_err(|fault| match fault {
        Fault::Corrupt(what) => Fault::corrupt(format!("the counters of {kv}"), what),
        Fault::Sql(error) => Fault::Sql(error),
    })
}

macro_rules! tallies {
    ($tail:literal) => {
        concat!(
            "SELECT kind, version, inflight, turns, since, default_config, resources, phases FROM tally ",
            $tail
        )
    };
}

/// The counters of a pair, if there are any yet.
pub(crate) fn of(conn: &Connection, kv: &KindVersion) -> Result<Option<Tally>, Fault> {
    let sql = tallies!("WHERE kind = ?1 AND version = ?2");
    sql::one(conn, sql, params![kv.kind.as_str(), kv.version], decode)
}

pub(crate) fn put(conn: &Connection, tally: &Tally) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO tally
        (kind, version, inflight, turns, since, default_config, resources, phases) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let pair = &tally.pair;
    let params = params![
        pair.kv.kind.as_str(),
        pair.kv.version,
        pair.inflight,
        sql::json(&pair.turn)?,
        sql::json(&pair.since)?,
        sql::digest(pair.default_config),
        pair.resources,
        sql::json(&tally.phases)?
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

/// Resources per pair and phase.
pub(crate) fn phases(conn: &Connection) -> Result<Vec<(KindVersion, Phase, u64)>, Fault> {
    let sql = tallies!("WHERE kind <> ''");
    let mut rows = Vec::new();
    for tally in sql::all(conn, sql, [], decode)? {
        let kv = &tally.pair.kv;
        rows.extend(
            tally
                .phases
                .iter()
                .map(|(phase, n)| (kv.clone(), *phase, *n)),
        );
    }
    rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    Ok(rows)
}
