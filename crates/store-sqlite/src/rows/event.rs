//! Events, authored history and tombstones. The first two lie in one table, so that a commit writes one page for both.

use std::str::FromStr;
use std::sync::Arc;

use converge_engine::model::{Event, EventKind, History, Millis, Tombstone};
use converge_types::ids::{Kind, ResourceName, Uid};
use converge_types::limits;
use rusqlite::{Connection, params};

use crate::fault::Fault;
use crate::sql::{self, Cols};

macro_rules! event_words {
    ($($kind:ident = $word:literal,)+) => {
        /// The word an event kind is stored as.
        fn word(kind: EventKind) -> &'static str {
            match kind { $(EventKind::$kind => $word,)+ }
        }

        struct StoredKind(EventKind);

        impl FromStr for StoredKind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self(EventKind::$kind)),)+
                    other => Err(format!("{other:?} is no kind of event")),
                }
            }
        }

        #[cfg(test)]
        const ALL_KINDS: &[EventKind] = &[$(EventKind::$kind,)+];
    };
}

event_words!(
    Applied = "applied",
    Composed = "composed",
    Pruned = "pruned",
    Adopted = "adopted",
    Succeeded = "succeeded",
    Failed = "failed",
    PhaseChanged = "phaseChanged",
    ConditionChanged = "conditionChanged",
    PartDropped = "partDropped",
    LeaseLost = "leaseLost",
    GivenBack = "givenBack",
    FlowChanged = "flowChanged",
    DeletionRequested = "deletionRequested",
    Orphaned = "orphaned",
    Abandoned = "abandoned",
    Deleted = "deleted",
    ReconcileRequested = "reconcileRequested",
    Quarantined = "quarantined",
    Unquarantined = "unquarantined",
    RolledBack = "rolledBack",
    Operation = "operation",
);

/// Rows beyond the limit that may wait before they are trimmed together; no reader sees them.
const SLACK: u32 = 20;
const KEPT: u32 = limits::EVENTS_PER_RESOURCE as u32;

/// A spec that is larger is not kept in the row: a search reads the rows whole that it compares with.
const INLINE: usize = 512;

/// `past.what`.
const EVENT: i64 = 0;
const STATE: i64 = 1;

macro_rules! events {
    ($tail:literal) => {
        concat!(
            "SELECT uid, n, at_ms, event, generation, reaction, message, count, who FROM past WHERE uid = ?1 AND what = 0 ",
            $tail
        )
    };
}

fn decode(cols: &mut Cols<'_>) -> Result<Event, Fault> {
    Ok(Event {
        uid: cols.uid()?,
        seq: cols.get()?,
        at_ms: cols.get()?,
        kind: cols.parsed::<StoredKind>()?.0,
        generation: cols.get()?,
        reaction: cols.get()?,
        message: cols.get()?,
        count: cols.get()?,
        who: cols.get()?,
    })
}

/// Newest first, before `before_seq`, of the newest 200.
pub(crate) fn list(
    conn: &Connection,
    uid: Uid,
    before_seq: Option<i64>,
    limit: u32,
) -> Result<Vec<Event>, Fault> {
    let sql = events!(
        "AND n < ?2
          AND n >= ifnull((SELECT n FROM past WHERE uid = ?1 AND what = 0 ORDER BY n DESC LIMIT 1 OFFSET ?4), 0)
        ORDER BY n DESC LIMIT ?3"
    );
    let before = before_seq.unwrap_or(i64::MAX);
    let params = params![uid.as_bytes(), before, limit, KEPT - 1];
    sql::all(conn, sql, params, decode)
}

/// The newest event of a resource.
pub(crate) fn last(conn: &Connection, uid: Uid) -> Result<Option<Event>, Fault> {
    let sql = events!("ORDER BY n DESC LIMIT 1");
    sql::one(conn, sql, [uid.as_bytes()], decode)
}

/// Stored rows of a resource.
pub(crate) fn count(conn: &Connection, uid: Uid) -> Result<u32, Fault> {
    let sql = "SELECT count(*) FROM past WHERE uid = ?1 AND what = 0";
    Ok(sql::one(conn, sql, [uid.as_bytes()], |cols| cols.get())?.unwrap_or(0))
}

pub(crate) fn insert(conn: &Connection, event: &Event) -> Result<(), Fault> {
    let sql =
        "INSERT INTO past (uid, what, n, at_ms, event, generation, reaction, message, count, who)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let params = params![
        event.uid.as_bytes(),
        EVENT,
        event.seq,
        event.at_ms,
        word(event.kind),
        event.generation,
        event.reaction,
        event.message,
        event.count,
        event.who
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

pub(crate) fn delete(conn: &Connection, uid: Uid, seq: i64) -> Result<(), Fault> {
    let sql = "DELETE FROM past WHERE uid = ?1 AND what = 0 AND n = ?2";
    sql::run(conn, sql, params![uid.as_bytes(), seq])?;
    Ok(())
}

/// Removes what is beyond the limit once enough of it is there; how many rows are left of `count`.
pub(crate) fn trim(conn: &Connection, uid: Uid, count: u32) -> Result<u32, Fault> {
    if count < KEPT + SLACK {
        return Ok(count);
    }
    let sql = "DELETE FROM past WHERE uid = ?1 AND what = 0
        AND n <= (SELECT n FROM past WHERE uid = ?1 AND what = 0 ORDER BY n DESC LIMIT 1 OFFSET ?2)";
    sql::run(conn, sql, params![uid.as_bytes(), KEPT])?;
    Ok(KEPT)
}

/// Authored states, newest first.
pub(crate) fn history(conn: &Connection, uid: Uid) -> Result<Vec<Arc<History>>, Fault> {
    let sql = "SELECT n, ifnull(spec, bytes), labels, kind, version, config_ref, at_ms, who
        FROM past LEFT JOIN big ON id = big WHERE uid = ?1 AND what = 1 ORDER BY n DESC";
    sql::all(conn, sql, [uid.as_bytes()], |cols| {
        Ok(Arc::new(History {
            uid,
            generation: cols.get()?,
            spec: cols.doc()?,
            labels: Arc::new(cols.json()?),
            kv: cols.kv()?,
            config_ref: cols.parsed_or_null()?,
            at_ms: cols.get()?,
            who: cols.get()?,
        }))
    })
}

/// Keeps an authored state, and the newest 20 in all.
pub(crate) fn history_put(conn: &Connection, row: &History) -> Result<(), Fault> {
    let spec = row.spec.as_bytes();
    let is_big = spec.len() > INLINE;
    let big = match is_big {
        true => {
            sql::run(conn, "INSERT INTO big (bytes) VALUES (?1)", [spec])?;
            Some(conn.last_insert_rowid())
        }
        false => None,
    };
    let sql = "INSERT OR IGNORE INTO past
        (uid, what, n, spec, big, labels, kind, version, config_ref, at_ms, who)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let labels = sql::json(&*row.labels)?;
    let put = || {
        let params = params![
            row.uid.as_bytes(),
            STATE,
            row.generation,
            (!is_big).then_some(spec),
            big,
            labels,
            row.kv.kind.as_str(),
            row.kv.version,
            row.config_ref.as_ref().map(|name| name.as_str()),
            row.at_ms,
            row.who
        ];
        sql::run(conn, sql, params)
    };
    if put()? == 0 {
        // The state of this generation is there already.
        forget_states(conn, "n = ?2", row.uid, row.generation)?;
        put()?;
    }
    // Generations start at 1, so with fewer there is nothing to trim.
    let kept = limits::SPEC_HISTORY as i64;
    if row.generation > kept {
        let older = "n <= (SELECT n FROM past WHERE uid = ?1 AND what = 1 ORDER BY n DESC LIMIT 1 OFFSET ?2)";
        forget_states(conn, older, row.uid, kept)?;
    }
    Ok(())
}

/// Removes states of a resource with their specs; `which` says of `past.n` which, and `?2` in it is `number`.
fn forget_states(conn: &Connection, which: &str, uid: Uid, number: i64) -> Result<(), Fault> {
    let of = format!("uid = ?1 AND what = 1 AND {which}");
    let params = params![uid.as_bytes(), number];
    let specs = format!("DELETE FROM big WHERE id IN (SELECT big FROM past WHERE {of})");
    sql::run(conn, &specs, params)?;
    sql::run(conn, &format!("DELETE FROM past WHERE {of}"), params)?;
    Ok(())
}

/// The newest tombstone of a name.
pub(crate) fn tombstone(
    conn: &Connection,
    kind: &Kind,
    name: &ResourceName,
) -> Result<Option<Tombstone>, Fault> {
    let sql = "SELECT uid, kind, name, owner, removed_ms, revision FROM tombstone
        WHERE kind = ?1 AND name = ?2 ORDER BY revision DESC LIMIT 1";
    sql::one(conn, sql, [kind.as_str(), name.as_str()], |cols| {
        Ok(Tombstone {
            uid: cols.uid()?,
            kind: cols.kind()?,
            name: cols.name()?,
            owner: cols.uid_or_null()?,
            removed_ms: cols.get()?,
            revision: cols.get()?,
        })
    })
}

pub(crate) fn tombstone_put(conn: &Connection, row: &Tombstone) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO tombstone (uid, kind, name, owner, removed_ms, revision)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let params = params![
        row.uid.as_bytes(),
        row.kind.as_str(),
        row.name.as_str(),
        row.owner.as_ref().map(|uid| *uid.as_bytes()),
        row.removed_ms,
        row.revision
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

/// Removes tombstones older than this, with the events and authored states that were kept for them.
pub(crate) fn forget(conn: &Connection, before: Millis) -> Result<(), Fault> {
    let specs = "DELETE FROM big WHERE id IN (SELECT big FROM past
        WHERE uid IN (SELECT uid FROM tombstone WHERE removed_ms < ?1) AND what = 1)";
    sql::run(conn, specs, [before])?;
    let past = "DELETE FROM past WHERE uid IN (SELECT uid FROM tombstone WHERE removed_ms < ?1)";
    sql::run(conn, past, [before])?;
    let tombstones = "DELETE FROM tombstone WHERE removed_ms < ?1";
    sql::run(conn, tombstones, [before])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_is_stored_as_the_word_people_see() {
        for kind in ALL_KINDS {
            let word = word(*kind);
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("{word:?}"));
            assert_eq!(word.parse::<StoredKind>().unwrap().0, *kind);
        }
    }
}
