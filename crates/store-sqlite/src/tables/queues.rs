//! Queues of what may be claimed, as far as they are short: these are known in memory, all others are read from the table.
//!
//! Claims ask for every class of every pair they serve, most of which are empty, and what an idle control plane is given is claimed at
//! once. What must hold: a queue that is known is known whole.

use std::collections::{BTreeSet, HashMap};

use converge_engine::model::{Class, Due, Millis, Resource};
use converge_types::ids::{KindVersion, Uid};

/// A longer queue is read from the table.
pub(super) const SHORT: usize = 16;
/// Queues that are remembered.
const KNOWN: usize = 65_536;

type Queue = (KindVersion, Class);
/// Turn, since when, whose: the order of a queue.
type Place = (i64, Millis, Uid);

#[derive(Default)]
pub(super) struct Queues(HashMap<Queue, BTreeSet<Place>>);

impl Queues {
    /// The first of a queue, if it is known.
    pub(super) fn first(&self, kv: &KindVersion, class: Class, limit: u32) -> Option<Vec<Uid>> {
        let queue = self.0.get(&(kv.clone(), class))?;
        let first = queue.iter().take(limit as usize);
        Some(first.map(|(.., uid)| *uid).collect())
    }

    /// A queue was read whole.
    pub(super) fn know(&mut self, kv: &KindVersion, class: Class, whole: Vec<Place>) {
        if whole.len() > SHORT {
            return;
        }
        if self.0.len() >= KNOWN {
            self.0.clear();
        }
        self.0
            .insert((kv.clone(), class), whole.into_iter().collect());
    }

    /// A row has changed.
    pub(super) fn moved(&mut self, before: Option<&Resource>, after: Option<&Resource>) {
        let (before, after) = (before.and_then(place), after.and_then(place));
        if before == after {
            return;
        }
        if let Some((queue, place)) = before
            && let Some(known) = self.0.get_mut(&queue)
        {
            known.remove(&place);
        }
        if let Some((queue, place)) = after
            && let Some(known) = self.0.get_mut(&queue)
        {
            known.insert(place);
            if known.len() > SHORT {
                self.0.remove(&queue);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Where a row stands, if it may be claimed.
fn place(row: &Resource) -> Option<(Queue, Place)> {
    match row.due {
        Due::Ready {
            class,
            turn,
            since_ms,
        } if row.claim.is_none() => Some(((row.due_kv(), class), (turn, since_ms, row.uid))),
        _ => None,
    }
}
