//! Whether anything that became due was missed: every row is derived again, and nothing may differ.
//!
//! For tests, and for a person who doubts a store. Two kinds of difference are no fault, because whoever acts on the row derives it
//! again first: a row that is queued, backs off or is held on one dependency while another one turned bad, or
//! a replaced one that is queued for its teardown while a dependent is marked too; and timers read with a clock
//! that shows less than it did, or that did so when the row was queued. Nor is it one when a deletion that waits for several names
//! another of them: each must go before it. A timer that is early (it was set while the clock showed less) costs a look.

use std::collections::BTreeSet;

use converge_types::ids::Uid;

use crate::decide::propagate;
use crate::model::{Due, Hold, Millis, Resource};
use crate::store::{Change, Source};
use crate::view::{Halt, View};

/// Derives these rows again and describes what changes.
///
/// # Errors
/// As the source.
pub fn audit(
    uids: &[Uid],
    source: &mut dyn Source,
    now_ms: Millis,
    went_back: bool,
) -> Result<Vec<String>, Halt> {
    let mut view = View::new(source, now_ms);
    let mut deleting = BTreeSet::new();
    for uid in uids {
        view.touch(*uid);
        if view.resource(*uid)?.is_some_and(|row| row.is_deleting()) {
            deleting.insert(*uid);
        }
    }
    propagate::run(&mut view)?;
    let (overtaken, missed): (Vec<_>, Vec<_>) = view
        .finish()
        .resources
        .into_iter()
        .filter(|change| !is_same_in_effect(change, &deleting))
        .partition(|change| is_overtaken(change, went_back));
    let moves_others = |change: &Change<Resource>| {
        change.before.as_ref().map(|row| row.derived)
            != change.after.as_ref().map(|row| row.derived)
    };
    if overtaken.iter().any(moves_others) {
        // What is above or behind such a row differs because it does.
        return Ok(Vec::new());
    }
    Ok(missed.iter().map(describe).collect())
}

/// The row waits for another of several that must all go, or is looked at sooner than it has to be.
fn is_same_in_effect(change: &Change<Resource>, deleting: &BTreeSet<Uid>) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    let mut same = Resource::clone(before);
    if let (Due::Held(Hold::Gone(one)), Due::Held(Hold::Gone(_))) = (&before.due, &after.due)
        && deleting.contains(one)
    {
        same.due = after.due.clone();
    }
    if before.wake_ms.is_some() && before.wake_ms < after.wake_ms {
        same.wake_ms = after.wake_ms;
    }
    same == **after
}

fn is_overtaken(change: &Change<Resource>, went_back: bool) -> bool {
    let (Some(before), Some(after)) = (&change.before, &change.after) else {
        return false;
    };
    let may_lag = matches!(
        before.due,
        Due::Ready { .. } | Due::Held(Hold::Dependency(_) | Hold::Flow { .. })
    ) || before.wake_ms.is_some();
    let turned_bad = matches!(
        after.due,
        Due::Held(Hold::Dependency(_) | Hold::Flow { .. } | Hold::Gone(_))
    );
    let queued_early = matches!(before.due, Due::Ready { .. }) && after.wake_ms.is_some();
    queued_early
        || (went_back
            && (before.wake_ms.is_some()
                || after.wake_ms.is_some()
                || before.orphan != after.orphan))
        || (may_lag && turned_bad)
}

fn describe(change: &Change<Resource>) -> String {
    let state = |row: &Resource| {
        let own: Vec<_> = row
            .conditions
            .iter()
            .filter(|owned| owned.reaction.is_empty())
            .collect();
        let own: Vec<_> = own
            .iter()
            .map(|owned| {
                format!(
                    "{}={} {}",
                    owned.condition.type_, owned.condition.status, owned.condition.message
                )
            })
            .collect();
        format!(
            "{:?} wake {:?} {:?} {:?} {:?} {own:?}",
            row.due, row.wake_ms, row.derived, row.below, row.causes
        )
    };
    match (&change.before, &change.after) {
        (Some(before), Some(after)) => {
            format!(
                "{}/{}: {} -> {}",
                after.kv.kind,
                after.name,
                state(before),
                state(after)
            )
        }
        (Some(before), None) => format!("{}/{} would be removed", before.kv.kind, before.name),
        (None, Some(after)) => format!("{}/{} would be created", after.kv.kind, after.name),
        (None, None) => String::new(),
    }
}
