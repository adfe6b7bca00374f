//! The gate: a due stage goes on when the dependencies of the resource and of all its ancestors are Ready and its flows have values.
//!
//! A blocked row watches one blocker only (the first found, from the last edge backwards, so that a fan-in whose dependencies become
//! Ready in order is looked at once). The blocker's change re-derives it, and it finds the next one or goes on.

use std::sync::Arc;

use crate::model::{Edge, Hold, Resource};
use crate::view::{Decision, View};

/// What holds the stages of a pass of `row`; `None` = the gate is open.
///
/// # Errors
/// As the view's reads.
pub fn hold(view: &mut View<'_>, row: &Resource) -> Decision<Option<Hold>> {
    // Edges join children of one composite, so a row without an owner has none.
    let mut at = row.owner.map(|_| row.uid);
    while let Some(uid) = at {
        let edges = view.edges_from(uid)?;
        if let Some(hold) = unready(view, &edges)? {
            return Ok(Some(hold));
        }
        if uid == row.uid
            && let Some(hold) = missing_value(&edges)
        {
            return Ok(Some(hold));
        }
        at = match view.resource(uid)?.and_then(|node| node.owner) {
            Some(owner) => match view.resource(owner)? {
                Some(node) if node.owner.is_some() => Some(owner),
                _ => None,
            },
            None => None,
        };
    }
    Ok(None)
}

fn unready(view: &mut View<'_>, edges: &[Arc<Edge>]) -> Decision<Option<Hold>> {
    for edge in edges.iter().rev().filter(|edge| !edge.former) {
        match view.resource(edge.to)? {
            Some(dependency) if dependency.derived.is_ready() => {}
            _ => return Ok(Some(Hold::Dependency(edge.to))),
        }
    }
    Ok(None)
}

fn missing_value(edges: &[Arc<Edge>]) -> Option<Hold> {
    for edge in edges.iter().filter(|edge| !edge.former) {
        if let Some(flow) = edge
            .flows
            .iter()
            .find(|flow| flow.gone || flow.value.is_none())
        {
            return Some(Hold::Flow {
                on: edge.to,
                pointer: flow.source.clone(),
            });
        }
    }
    None
}

/// Whether what holds a row is itself settled and will not become Ready by itself: the row then counts as settled.
///
/// # Errors
/// As the view's reads.
pub fn is_settled_block(view: &mut View<'_>, hold: &Hold) -> Decision<bool> {
    match hold {
        Hold::Dependency(uid) => Ok(view
            .resource(*uid)?
            .is_some_and(|on| on.derived.settled && !on.derived.is_ready())),
        _ => Ok(false),
    }
}
