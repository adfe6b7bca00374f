//! Turns: roots take turns within a class by start-time fair queueing.
//!
//! A row that becomes claimable takes the later of the class's virtual time (the turn of its last claim) and the turn after its root's
//! newest one. A root with ten thousand due rows thus spreads over ten thousand turns, and a newcomer starts at the current one.

use crate::model::{Class, Due, Resource};
use crate::view::{Decision, View};

/// Where a row enters the queue of `class`; a row that is in it already keeps its place.
///
/// # Errors
/// As the view's reads.
pub fn enter(view: &mut View<'_>, row: &Resource, class: Class) -> Decision<Due> {
    if let Due::Ready { class: current, .. } = &row.due
        && *current == class
    {
        return Ok(row.due.clone());
    }
    let kv = row.due_kv();
    let mut turn = view.pair(&kv)?.turn[class as usize];
    if row.root != row.uid {
        if let Some(last) = view.root_turn(&kv, class, row.root)? {
            turn = turn.max(last + 1);
        }
        view.root_turn_put(&kv, class, row.root, turn);
    }
    Ok(Due::Ready {
        class,
        turn,
        since_ms: view.now_ms(),
    })
}
