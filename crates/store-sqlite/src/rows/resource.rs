//! The resource row. Columns are what is searched, sorted or counted by; the rest is one JSON value.
//!
//! An update names only the column groups that changed: SQLite rewrites an index entry as soon as one of its columns is named, whether
//! or not its value differs.

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use converge_engine::model::{
    Below, Claim, Class, Contributed, Deletion, Derived, DocSlot, Due, Failure, Finalizer, Hold,
    Look, Marks, Orphan, OwnedCondition, Resource,
};
use converge_types::ids::{Kind, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use rusqlite::{Connection, ToSql};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::sql::{self, Cols};

/// A column and the group it is updated with; parameters are in this order.
const COLUMNS: [(&str, Group); 41] = [
    ("uid", Group::Key),
    ("kind", Group::Key),
    ("name", Group::Key),
    ("version", Group::Place),
    ("owner", Group::Place),
    ("root", Group::Place),
    ("depth", Group::Place),
    ("position", Group::Place),
    ("config_ref", Group::Place),
    ("created_ms", Group::Place),
    ("finalizer_version", Group::Finalizer),
    ("finalizer_config", Group::Finalizer),
    ("phase", Group::Phase),
    ("claimed", Group::Claimed),
    ("ready_kind", Group::Ready),
    ("ready_version", Group::Ready),
    ("ready_class", Group::Ready),
    ("ready_turn", Group::Ready),
    ("ready_since_ms", Group::Ready),
    ("held_on", Group::Held),
    ("wake_ms", Group::Wake),
    ("generation", Group::Rest),
    ("synced_gen", Group::Rest),
    ("updated_ms", Group::Rest),
    ("quarantined", Group::Rest),
    ("by_hand", Group::Rest),
    ("epoch", Group::Rest),
    ("not_before_ms", Group::Rest),
    ("resync_ms", Group::Rest),
    ("rollup_ms", Group::Rest),
    ("flows_pending", Group::Rest),
    ("flows_gone", Group::Rest),
    ("children", Group::Rest),
    ("own_version", Group::Rest),
    ("flowed_version", Group::Rest),
    ("transitions", Group::Rest),
    ("synced", Group::Rest),
    ("settled", Group::Rest),
    ("counted", Group::Rest),
    ("revision", Group::Rest),
    ("body", Group::Rest),
];

/// Bits of the groups an update names; keys never change and the rest always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Key = 0,
    Rest = 128,
    Place = 1,
    Finalizer = 2,
    Phase = 4,
    Claimed = 8,
    Ready = 16,
    Held = 32,
    Wake = 64,
}

/// The select list that [`decode`] reads; `id` first.
pub(crate) fn select(tail: &str) -> String {
    let columns: Vec<&str> = COLUMNS.iter().map(|(column, _)| *column).collect();
    format!("SELECT id, {} FROM resource {tail}", columns.join(", "))
}

#[derive(Serialize)]
struct BodyRef<'r> {
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'r Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion: &'r Option<Deletion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    orphan: &'r Option<Orphan>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    finalizers: &'r [Finalizer],
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: &'r Option<Claim>,
    marks: &'r Marks,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: &'r Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observe_failure: &'r Option<Failure>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    recomposed: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    conditions: &'r [OwnedCondition],
    #[serde(skip_serializing_if = "Option::is_none")]
    look: &'r Option<Look>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold: Option<&'r Hold>,
    #[serde(skip_serializing_if = "Option::is_none")]
    below: Option<&'r Below>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    causes: &'r [Uid],
    #[serde(skip_serializing_if = "Option::is_none")]
    contributed: Option<&'r Contributed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    labels: Labels,
    deletion: Option<Deletion>,
    orphan: Option<Orphan>,
    #[serde(default)]
    finalizers: Vec<Finalizer>,
    claim: Option<Claim>,
    marks: Marks,
    failure: Option<Failure>,
    observe_failure: Option<Failure>,
    #[serde(default)]
    recomposed: bool,
    #[serde(default)]
    conditions: Vec<OwnedCondition>,
    look: Option<Look>,
    hold: Option<Hold>,
    #[serde(default)]
    below: Below,
    #[serde(default)]
    causes: Vec<Uid>,
    #[serde(default)]
    contributed: Contributed,
}

fn body(row: &Resource) -> Result<String, Fault> {
    let hold = match &row.due {
        Due::Held(hold) => Some(hold),
        Due::Idle | Due::Ready { .. } => None,
    };
    sql::json(&BodyRef {
        labels: &row.labels,
        deletion: &row.deletion,
        orphan: &row.orphan,
        finalizers: &row.finalizers,
        claim: &row.claim,
        marks: &row.marks,
        failure: &row.failure,
        observe_failure: &row.observe_failure,
        recomposed: row.recomposed,
        conditions: &row.conditions,
        look: &row.look,
        hold,
        below: (row.below != Below::default()).then_some(&row.below),
        causes: &row.causes,
        contributed: (row.contributed != Contributed::default()).then_some(&row.contributed),
    })
}

/// What the row is held on, as its column says.
pub(crate) fn held_on(row: &Resource) -> Option<Uid> {
    match &row.due {
        Due::Held(hold) => hold.on(),
        Due::Idle | Due::Ready { .. } => None,
    }
}

fn finalizer_version(row: &Resource) -> Option<i32> {
    row.finalizers.first().map(|owed| owed.kind_version)
}

fn finalizer_config(row: &Resource) -> Option<&str> {
    let owed = row.finalizers.first()?;
    owed.config_ref.as_ref().map(|name| name.as_str())
}

/// Binds the columns of `named` groups, in their order, and then the id to `statement`.
fn execute(
    conn: &Connection,
    statement: &str,
    named: impl Fn(Group) -> bool,
    id: i64,
    row: &Resource,
) -> Result<(), Fault> {
    let ready = match row.due {
        Due::Ready {
            class,
            turn,
            since_ms,
        } => Some((row.due_kv(), class as u8, turn, since_ms)),
        Due::Idle | Due::Held(_) => None,
    };
    let (ready_kind, ready_version) = match &ready {
        Some((kv, ..)) => (Some(kv.kind.as_str()), Some(kv.version)),
        None => (None, None),
    };
    let held_on = held_on(row);
    let body = body(row)?;
    let values: [&dyn ToSql; COLUMNS.len()] = [
        row.uid.as_bytes(),
        &row.kv.kind.as_str(),
        &row.name.as_str(),
        &row.kv.version,
        &row.owner.as_ref().map(|uid| *uid.as_bytes()),
        row.root.as_bytes(),
        &row.depth,
        &row.position,
        &row.config_ref.as_ref().map(|name| name.as_str()),
        &row.created_ms,
        &finalizer_version(row),
        &finalizer_config(row),
        &row.derived.phase.as_str(),
        &row.claim.is_some(),
        &ready_kind,
        &ready_version,
        &ready.as_ref().map(|ready| ready.1),
        &ready.as_ref().map(|ready| ready.2),
        &ready.as_ref().map(|ready| ready.3),
        &held_on.as_ref().map(|uid| *uid.as_bytes()),
        &row.wake_ms,
        &row.generation,
        &row.synced_gen,
        &row.updated_ms,
        &row.quarantined,
        &row.by_hand,
        &row.epoch,
        &row.not_before_ms,
        &row.resync_ms,
        &row.rollup_ms,
        &row.flows_pending,
        &row.flows_gone,
        &row.children,
        &row.own_version,
        &row.flowed_version,
        &row.transitions,
        &row.derived.synced,
        &row.derived.settled,
        &row.derived.counted,
        &row.revision,
        &body,
    ];
    let mut params: Vec<&dyn ToSql> = Vec::with_capacity(COLUMNS.len() + 1);
    for ((_, group), value) in COLUMNS.iter().zip(values) {
        if named(*group) {
            params.push(value);
        }
    }
    params.push(&id);
    sql::run(conn, statement, params.as_slice())?;
    Ok(())
}

/// Adds a row.
pub(crate) fn insert(conn: &Connection, id: i64, row: &Resource) -> Result<(), Fault> {
    static SQL: OnceLock<String> = OnceLock::new();
    let sql = SQL.get_or_init(|| {
        let columns: Vec<&str> = COLUMNS.iter().map(|(column, _)| *column).collect();
        let values = "?, ".repeat(columns.len());
        format!(
            "INSERT INTO resource ({}, id) VALUES ({values}?)",
            columns.join(", ")
        )
    });
    // The index refuses two of one name in its one half, this in both.
    let other = "SELECT 1 FROM resource WHERE (owner IS NULL) = ?1 AND kind = ?2 AND name = ?3";
    let params = rusqlite::params![row.owner.is_some(), row.kv.kind.as_str(), row.name.as_str()];
    if sql::one(conn, other, params, |_| Ok(()))?.is_some() {
        let what = format!("resource {}/{}", row.kv.kind, row.name);
        return Err(Fault::corrupt(what, "another one has this name"));
    }
    execute(conn, sql, |_| true, id, row)
}

/// Rewrites the row `id`, which is `before` in the table.
pub(crate) fn update(
    conn: &Connection,
    id: i64,
    before: &Resource,
    row: &Resource,
) -> Result<(), Fault> {
    static SQL: [OnceLock<String>; 128] = [const { OnceLock::new() }; 128];
    let groups = changed(before, row);
    let named = |group: Group| match group {
        Group::Key => false,
        Group::Rest => true,
        group => groups & group as u8 != 0,
    };
    let sql = SQL[usize::from(groups)].get_or_init(|| {
        let mut sql = String::from("UPDATE resource SET ");
        let columns = COLUMNS.iter().filter(|(_, group)| named(*group));
        for (column, _) in columns {
            let _ = write!(sql, "{column} = ?, ");
        }
        sql.truncate(sql.len() - 2);
        sql.push_str(" WHERE id = ?");
        sql
    });
    execute(conn, sql, named, id, row)
}

/// Whether a statement that searches rows finds both alike: no column outside the last group differs.
pub(crate) fn is_searched_alike(before: &Resource, row: &Resource) -> bool {
    changed(before, row) == 0
}

/// The groups whose columns differ, as bits.
fn changed(before: &Resource, row: &Resource) -> u8 {
    let place = before.kv.version != row.kv.version
        || before.owner != row.owner
        || before.root != row.root
        || before.depth != row.depth
        || before.position != row.position
        || before.config_ref != row.config_ref
        || before.created_ms != row.created_ms;
    // The ready columns hold a pair that follows from other fields.
    let ready = before.due != row.due
        || (matches!(row.due, Due::Ready { .. }) && before.due_kv() != row.due_kv());
    let bit = |differs: bool, group: Group| if differs { group as u8 } else { 0 };
    bit(place, Group::Place)
        | bit(
            finalizer_version(before) != finalizer_version(row)
                || finalizer_config(before) != finalizer_config(row),
            Group::Finalizer,
        )
        | bit(before.derived.phase != row.derived.phase, Group::Phase)
        | bit(
            before.claim.is_some() != row.claim.is_some(),
            Group::Claimed,
        )
        | bit(ready, Group::Ready)
        | bit(held_on(before) != held_on(row), Group::Held)
        | bit(before.wake_ms != row.wake_ms, Group::Wake)
}

/// Reads what [`select`] lists.
pub(crate) fn decode(cols: &mut Cols<'_>) -> Result<(i64, Resource), Fault> {
    let id = cols.get()?;
    let uid = cols.uid()?;
    let kind = cols.kind()?;
    read(cols, uid, kind)
        .map(|row| (id, row))
        .map_err(|fault| match fault {
            Fault::Corrupt(what) => Fault::corrupt(format!("resource {uid}"), what),
            Fault::Sql(error) => Fault::Sql(error),
        })
}

fn read(cols: &mut Cols<'_>, uid: Uid, kind: Kind) -> Result<Resource, Fault> {
    let name = cols.name()?;
    let version = cols.get()?;
    let kv = converge_types::ids::KindVersion::new(kind, version)
        .map_err(|error| Fault::corrupt("column version", error))?;
    let owner = cols.uid_or_null()?;
    let root = cols.uid()?;
    let depth = cols.get()?;
    let position = cols.get()?;
    let config_ref = cols.parsed_or_null()?;
    let created_ms = cols.get()?;
    let _finalizer_version: Option<i32> = cols.get()?;
    let _finalizer_config: Option<String> = cols.get()?;
    let phase = cols.parsed()?;
    let _claimed: bool = cols.get()?;
    let _ready_kind: Option<Kind> = cols.parsed_or_null()?;
    let _ready_version: Option<i32> = cols.get()?;
    let class: Option<u8> = cols.get()?;
    let turn: Option<i64> = cols.get()?;
    let since_ms: Option<i64> = cols.get()?;
    let _held_on = cols.uid_or_null()?;
    let wake_ms = cols.get()?;
    let generation = cols.get()?;
    let synced_gen = cols.get()?;
    let updated_ms = cols.get()?;
    let quarantined = cols.get()?;
    let by_hand = cols.get()?;
    let epoch = cols.get()?;
    let not_before_ms = cols.get()?;
    let resync_ms = cols.get()?;
    let rollup_ms = cols.get()?;
    let flows_pending = cols.get()?;
    let flows_gone = cols.get()?;
    let children = cols.get()?;
    let own_version = cols.get()?;
    let flowed_version = cols.get()?;
    let transitions = cols.get()?;
    let derived = Derived {
        phase,
        synced: cols.get()?,
        settled: cols.get()?,
        counted: cols.get()?,
    };
    let revision = cols.get()?;
    let body: Body = cols.json()?;
    let due = match (class, turn, since_ms, body.hold) {
        (Some(class), Some(turn), Some(since_ms), _) => Due::Ready {
            class: Class::from_index(class)
                .ok_or_else(|| Fault::corrupt("column ready_class", class))?,
            turn,
            since_ms,
        },
        (.., Some(hold)) => Due::Held(hold),
        _ => Due::Idle,
    };
    Ok(Resource {
        uid,
        kv,
        name,
        owner,
        root,
        depth,
        position,
        labels: Arc::new(body.labels),
        config_ref,
        generation,
        synced_gen,
        created_ms,
        updated_ms,
        deletion: body.deletion,
        orphan: body.orphan,
        quarantined,
        finalizers: body.finalizers,
        epoch,
        claim: body.claim,
        marks: body.marks,
        failure: body.failure,
        observe_failure: body.observe_failure,
        conditions: body.conditions,
        by_hand,
        not_before_ms,
        look: body.look,
        recomposed: body.recomposed,
        resync_ms,
        rollup_ms,
        flows_pending,
        flows_gone,
        children,
        below: body.below,
        causes: body.causes,
        own_version,
        flowed_version,
        contributed: body.contributed,
        due,
        wake_ms,
        derived,
        transitions,
        revision,
    })
}

/// One resource with its id.
pub(crate) fn by_uid(conn: &Connection, uid: Uid) -> Result<Option<(i64, Resource)>, Fault> {
    static SQL: OnceLock<String> = OnceLock::new();
    let sql = SQL.get_or_init(|| select("WHERE uid = ?1"));
    sql::one(conn, sql, [uid.as_bytes()], decode)
}

/// One resource with its id.
pub(crate) fn by_name(
    conn: &Connection,
    kind: &Kind,
    name: &ResourceName,
) -> Result<Option<(i64, Resource)>, Fault> {
    static SQL: OnceLock<String> = OnceLock::new();
    // One half of the index, then the other. `IN (0, 1)` would make a table of the two numbers each time.
    let sql = SQL.get_or_init(|| {
        let half = |owned: u8| {
            select(&format!(
                "WHERE (owner IS NULL) = {owned} AND kind = ?1 AND name = ?2"
            ))
        };
        format!("{} UNION ALL {}", half(1), half(0))
    });
    sql::one(conn, sql, [kind.as_str(), name.as_str()], decode)
}

/// What may be claimed of a pair and class, in the order of its queue. The last line is what the index says of itself.
pub(crate) const READY: &str = "SELECT ready_turn, ready_since_ms, uid FROM resource
    WHERE claimed = 0 AND ready_kind = ?1 AND ready_version = ?2 AND ready_class = ?3
      AND (claimed = 1 OR ready_class IS NOT NULL)
    ORDER BY ready_turn, ready_since_ms, uid LIMIT ?4";

/// The largest id there is; 0 = none.
pub(crate) fn last_id(conn: &Connection) -> Result<i64, Fault> {
    let sql = "SELECT max(id) FROM resource";
    Ok(sql::one(conn, sql, [], |cols| cols.get())?
        .flatten()
        .unwrap_or(0))
}

/// The id of a resource.
pub(crate) fn id_of(conn: &Connection, uid: Uid) -> Result<Option<i64>, Fault> {
    let sql = "SELECT id FROM resource WHERE uid = ?1";
    sql::one(conn, sql, [uid.as_bytes()], |cols| cols.get())
}

/// The key of a document.
pub(crate) fn doc_key(id: i64, slot: DocSlot) -> i64 {
    id * 8 + slot_number(slot)
}

/// A slot as stored; never renumbered.
fn slot_number(slot: DocSlot) -> i64 {
    match slot {
        DocSlot::Authored => 0,
        DocSlot::Resolved => 1,
        DocSlot::Status => 2,
        DocSlot::Teardown => 3,
        DocSlot::Composed => 4,
    }
}

/// A document of the resource with this id.
pub(crate) fn doc(conn: &Connection, id: i64, slot: DocSlot) -> Result<Option<Doc>, Fault> {
    let sql = "SELECT bytes FROM doc WHERE key = ?1";
    sql::one(conn, sql, [doc_key(id, slot)], |cols| cols.doc())
}
