//! The snapshot reads that put more than one row together: resources as answers show them, lists, graphs.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use converge_engine::model::{DocSlot, Due, Edge, Hold, Resource};
use converge_engine::store::{Page, ResourceFilter, ResourceView};
use converge_types::ids::{Kind, ResourceName, Uid};
use converge_types::phase::Phase;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::fault::Fault;
use crate::rows::{graph, resource, tally};
use crate::sql::{self, Cols};

/// Names of resources already looked up for one answer.
#[derive(Default)]
struct Names(HashMap<Uid, Option<(Kind, ResourceName)>>);

impl Names {
    fn of(&mut self, conn: &Connection, uid: Uid) -> Result<Option<(Kind, ResourceName)>, Fault> {
        if let Some(known) = self.0.get(&uid) {
            return Ok(known.clone());
        }
        let sql = "SELECT kind, name FROM resource WHERE uid = ?1";
        let found = sql::one(conn, sql, [uid.as_bytes()], |cols| {
            Ok((cols.kind()?, cols.name()?))
        })?;
        self.0.insert(uid, found.clone());
        Ok(found)
    }
}

fn view(
    conn: &Connection,
    names: &mut Names,
    id: i64,
    row: Resource,
    full: bool,
) -> Result<ResourceView, Fault> {
    let (mut spec, mut status) = (None, None);
    if full {
        spec = match resource::doc(conn, id, DocSlot::Resolved)? {
            Some(doc) => Some(doc),
            None => resource::doc(conn, id, DocSlot::Authored)?,
        };
        status = resource::doc(conn, id, DocSlot::Status)?;
    }
    let held_on = match &row.due {
        Due::Held(Hold::Children(Some(child))) => Some(*child),
        Due::Held(Hold::Children(None)) => first_child(conn, &row)?,
        Due::Held(hold) => hold.on(),
        Due::Idle if row.below.sums.unsettled > 0 => first_child(conn, &row)?,
        Due::Idle | Due::Ready { .. } => None,
    };
    let mut name = |uid: Option<Uid>| match uid {
        Some(uid) => names.of(conn, uid),
        None => Ok(None),
    };
    Ok(ResourceView {
        owner: name(row.owner)?,
        root: name((row.root != row.uid).then_some(row.root))?,
        held_on: name(held_on)?,
        row: Arc::new(row),
        spec,
        status,
    })
}

/// What a row that waits for its children waits for: while it is deleted any child, else one that has not settled.
fn first_child(conn: &Connection, row: &Resource) -> Result<Option<Uid>, Fault> {
    let sql = "SELECT uid FROM resource WHERE owner = ?1 AND (?2 OR settled = 0) ORDER BY position, uid LIMIT 1";
    let params = rusqlite::params![row.uid.as_bytes(), row.is_deleting()];
    sql::one(conn, sql, params, |cols| cols.uid())
}

pub(crate) fn by_uid(conn: &Connection, uid: Uid) -> Result<Option<ResourceView>, Fault> {
    let found = resource::by_uid(conn, uid)?;
    found
        .map(|(id, row)| view(conn, &mut Names::default(), id, row, true))
        .transpose()
}

pub(crate) fn by_name(
    conn: &Connection,
    kind: &Kind,
    name: &ResourceName,
) -> Result<Option<ResourceView>, Fault> {
    let found = resource::by_name(conn, kind, name)?;
    found
        .map(|(id, row)| view(conn, &mut Names::default(), id, row, true))
        .transpose()
}

/// A page by (kind, name). A cursor is `kind/name` of the last item before it.
pub(crate) fn list(
    conn: &Connection,
    filter: &ResourceFilter,
    cursor: Option<&str>,
    limit: u32,
    full: bool,
) -> Result<Page<ResourceView>, Fault> {
    let limit = limit.max(1);
    let (sql, params) = list_query(filter, cursor, i64::from(limit) + 1);
    let mut rows = sql::all(
        conn,
        &sql,
        params_from_iter(params.iter()),
        resource::decode,
    )?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let mut names = Names::default();
    let items = rows
        .into_iter()
        .map(|(id, row)| view(conn, &mut names, id, row, full))
        .collect::<Result<Vec<_>, _>>()?;
    let last = items.last().filter(|_| more);
    Ok(Page {
        next: last.map(|item| format!("{}/{}", item.row.kv.kind, item.row.name)),
        items,
        revision: tally::revision(conn)?,
    })
}

/// The two halves of the index of names, in no order that matters.
const HALVES: [&str; 2] = ["(owner IS NULL) = 0", "(owner IS NULL) = 1"];

fn list_query(filter: &ResourceFilter, cursor: Option<&str>, limit: i64) -> (String, Vec<Value>) {
    let mut wheres: Vec<String> = Vec::new();
    let mut params: Vec<Value> = Vec::new();
    // Each value has a number, so that both halves of a statement share it.
    let mut must = |text: &str, values: Vec<Value>| {
        let mut wanted = String::new();
        for (nth, part) in text.split('?').enumerate() {
            if nth > 0 {
                let _ = write!(wanted, "?{}", params.len() + nth);
            }
            wanted.push_str(part);
        }
        wheres.push(wanted);
        params.extend(values);
    };
    let text = |text: &str| Value::Text(text.to_owned());
    let blob = |uid: &Uid| Value::Blob(uid.as_bytes().to_vec());
    let mut halves = &HALVES[..];
    if let Some(kind) = &filter.kind {
        must("kind = ?", vec![text(kind.as_str())]);
    }
    if let Some(kv) = &filter.kv {
        let version = Value::Integer(kv.version.into());
        must(
            "kind = ? AND version = ?",
            vec![text(kv.kind.as_str()), version],
        );
    }
    match filter.phase {
        Some(phase @ (Phase::Reconciling | Phase::Ready)) => {
            must("phase = ?", vec![text(phase.as_str())]);
        }
        Some(phase) => {
            // The second half is what the index of rare phases says of itself.
            must(
                "phase = ? AND phase NOT IN ('Reconciling', 'Ready')",
                vec![text(phase.as_str())],
            );
            halves = &["true"];
        }
        None => {}
    }
    if let Some(part) = &filter.name_contains {
        must("instr(name, ?) > 0", vec![text(part)]);
    }
    for (key, value) in &filter.labels {
        must(
            "uid IN (SELECT uid FROM label WHERE key = ? AND value = ?)",
            vec![text(key), text(value)],
        );
    }
    if let Some(root) = &filter.root {
        // A root is not in the index by root.
        must(
            "(root = ? AND root <> uid OR uid = ? AND root = uid)",
            vec![blob(root), blob(root)],
        );
        halves = &["true"];
    }
    if let Some(owner) = &filter.owner {
        must("owner = ?", vec![blob(owner)]);
        halves = &["true"];
    }
    if filter.roots_only {
        must("owner IS NULL", Vec::new());
        halves = &HALVES[1..];
    }
    if let Some(cursor) = cursor {
        let (kind, name) = cursor.split_once('/').unwrap_or((cursor, ""));
        must("(kind, name) > (?, ?)", vec![text(kind), text(name)]);
    }
    params.push(Value::Integer(limit));
    let selects: Vec<String> = halves
        .iter()
        .map(|half| {
            let mut tail = format!("WHERE {half}");
            for wanted in &wheres {
                let _ = write!(tail, " AND {wanted}");
            }
            resource::select(&tail)
        })
        .collect();
    let last = params.len();
    let sql = format!(
        "{} ORDER BY kind, name LIMIT ?{last}",
        selects.join(" UNION ALL ")
    );
    (sql, params)
}

type Edges = Vec<Arc<Edge>>;

/// Edges from and to a resource, former ones left out.
pub(crate) fn edges(conn: &Connection, uid: Uid) -> Result<(Edges, Edges), Fault> {
    let mut from = graph::from(conn, uid)?;
    let mut to = graph::to(conn, uid)?;
    from.retain(|edge| !edge.former);
    to.retain(|edge| !edge.former);
    Ok((from, to))
}

/// Everything below and with a resource, level by level, documents and former edges left out.
pub(crate) fn below(
    conn: &Connection,
    uid: Uid,
    limit: u32,
) -> Result<(Vec<ResourceView>, Vec<Arc<Edge>>), Fault> {
    static CHILDREN: OnceLock<String> = OnceLock::new();
    let children = CHILDREN
        .get_or_init(|| resource::select("WHERE owner = ?1 ORDER BY position, uid LIMIT ?2"));
    let mut names = Names::default();
    let mut nodes: Vec<ResourceView> = Vec::new();
    let mut edges = Vec::new();
    let limit = limit as usize;
    if let Some((id, row)) = resource::by_uid(conn, uid)?
        && limit > 0
    {
        nodes.push(view(conn, &mut names, id, row, false)?);
    }
    let mut at = 0;
    while let Some(node) = nodes.get(at) {
        at += 1;
        if node.row.children == 0 {
            continue;
        }
        let owner = node.row.uid;
        let left = limit - nodes.len();
        let params = rusqlite::params![owner.as_bytes(), left as i64];
        for (id, row) in sql::all(conn, children, params, resource::decode)? {
            nodes.push(view(conn, &mut names, id, row, false)?);
        }
        edges.extend(
            graph::of(conn, owner)?
                .into_iter()
                .filter(|edge| !edge.former),
        );
    }
    // Where the limit cut the nodes, an edge must not lead to one that is not shown.
    let shown: std::collections::HashSet<Uid> = nodes.iter().map(|node| node.row.uid).collect();
    edges.retain(|edge| shown.contains(&edge.from) && shown.contains(&edge.to));
    Ok((nodes, edges))
}

/// Every resource with a live claim, by uid.
pub(crate) fn claims(conn: &Connection) -> Result<Vec<Arc<Resource>>, Fault> {
    // The second half is what the index says of itself.
    let sql = resource::select(
        "WHERE claimed = 1 AND (claimed = 1 OR ready_class IS NOT NULL) ORDER BY uid",
    );
    let decode = |cols: &mut Cols<'_>| resource::decode(cols).map(|(_, row)| Arc::new(row));
    sql::all(conn, &sql, [], decode)
}

#[cfg(test)]
mod tests;
