//! Propagation: applies what [`derive()`] says to every touched row, and touches what that changes for others, until nothing is left.
//!
//! Per row that changed: its owner's sums and version (one step per level, by difference to what it contributed before), rows held on
//! it when its readiness or settlement moved, and the values that flow from it while it is Ready. Work is proportional to what changed.
//! Terminates: a row is derived again only after a neighbour changed, and edges and ownership have no cycles.

use converge_types::phase::{ConditionStatus, Phase, condition};

use super::derive::{Derivation, Next, derive};
use super::{causes, conditions, flows, teardown, turns};
use crate::model::{Contributed, Due, EventKind, Resource, Sums};
use crate::view::{Decision, View};

/// Derives every touched row and what follows from it.
///
/// # Errors
/// As the view's reads.
pub fn run(view: &mut View<'_>) -> Decision<()> {
    while let Some(uid) = view.take_touched()? {
        let Some(row) = view.resource(uid)? else {
            continue;
        };
        let derivation = derive(view, &row)?;
        match derivation.next {
            Next::Remove => teardown::remove(view, &row)?,
            Next::BeginDeletion => teardown::begin(view, uid)?,
            _ => settle(view, &row, derivation)?,
        }
    }
    Ok(())
}

fn settle(view: &mut View<'_>, row: &Resource, derivation: Derivation) -> Decision<()> {
    let now = view.now_ms();
    let Derivation {
        next,
        derived,
        failure_over,
        config_broken,
        pass_done,
        timers,
    } = derivation;
    let (due, wake_ms) = match next {
        Next::Run(run) => (turns::enter(view, row, run.class)?, None),
        Next::Held(hold) => (Due::Held(hold), None),
        Next::At(at) => (Due::Idle, Some(at)),
        Next::Nothing | Next::Remove | Next::BeginDeletion => (Due::Idle, None),
    };
    let culprits = causes::text(view, row)?;
    let became = (row.derived.phase != derived.phase).then_some(derived.phase);
    view.update(row.uid, |row| {
        row.due = due;
        row.wake_ms = wake_ms;
        row.look = timers.look;
        row.resync_ms = timers.resync_ms;
        row.orphan = timers.orphan;
        if failure_over {
            row.own_version += 1;
            row.failure = None;
        }
        if pass_done && !row.is_deleting() {
            row.synced_gen = row.generation;
            row.by_hand = false;
        }
        row.derived = derived;
        own_conditions(row, config_broken.as_deref(), &culprits, now);
        if became.is_some() {
            row.own_version += 1;
            row.transitions += 1;
        }
    })?;
    if let Some(phase) = became {
        view.event(
            row,
            EventKind::PhaseChanged,
            None,
            format!("{} → {phase}", row.derived.phase),
            None,
        )?;
    }
    if pass_done {
        teardown::release_former(view, row.uid)?;
    }
    pass_up(view, row.uid)?;
    if (row.derived.is_ready(), row.derived.settled) != (derived.is_ready(), derived.settled) {
        for held in view.held_on(row.uid)? {
            view.touch(held);
        }
        if !derived.is_ready() && row.owner.is_some() {
            for edge in view.edges_to(row.uid)? {
                // It will not become Ready by itself: what is queued behind it is blocked, and counts as settled for those above. Else
                // only what was about to run waits for something else now.
                if derived.settled || is_about_to_run(view, edge.from)? {
                    view.touch(edge.from);
                }
            }
        }
    }
    if derived.phase == Phase::Ready
        && row.owner.is_some()
        && let Some(now_row) = view.resource(row.uid)?
        && now_row.flowed_version != now_row.own_version
    {
        flows::deliver(view, row.uid)?;
        view.update(row.uid, |row| row.flowed_version = row.own_version)?;
    }
    Ok(())
}

/// Whether a row is queued, or runs again after a backoff: its gate was open when that was decided.
fn is_about_to_run(view: &mut View<'_>, uid: converge_types::ids::Uid) -> Decision<bool> {
    Ok(view.resource(uid)?.is_some_and(|row| {
        let backs_off = row.due == Due::Idle && row.wake_ms.is_some() && !row.derived.synced;
        row.claim.is_none() && (backs_off || matches!(row.due, Due::Ready { .. }))
    }))
}

/// The engine's own conditions that follow from the row alone.
fn own_conditions(row: &mut Resource, config_broken: Option<&str>, culprits: &str, now: i64) {
    let synced = match (row.derived.synced, config_broken, &row.failure) {
        (true, ..) => (ConditionStatus::True, "Synced", String::new()),
        (false, Some(why), _) => (ConditionStatus::False, "ConfigInvalid", why.to_owned()),
        (false, None, Some(failure)) if failure.terminal => {
            (ConditionStatus::False, "Failed", failure.message.clone())
        }
        (false, None, Some(failure)) => {
            (ConditionStatus::False, "Retrying", failure.message.clone())
        }
        (false, None, None) => (ConditionStatus::False, "Pending", String::new()),
    };
    if !row.is_deleting() {
        conditions::set_own(row, condition::SYNCED, Some(synced), now);
    }
    let Sums {
        total,
        ready,
        failed,
        degraded,
        unsettled,
    } = row.below.sums;
    let children = (row.children > 0 || total > 0).then(|| {
        let mut message = format!("{ready} of {total} ready, {failed} failed, {degraded} degraded, {unsettled} not settled");
        if !culprits.is_empty() {
            message.push_str("; ");
            message.push_str(culprits);
        }
        if ready == total {
            (ConditionStatus::True, "ChildrenReady", message)
        } else {
            (ConditionStatus::False, "ChildrenNotReady", message)
        }
    });
    conditions::set_own(row, condition::CHILDREN_READY, children, now);
}

/// Tells the owner what changed, by difference.
fn pass_up(view: &mut View<'_>, uid: converge_types::ids::Uid) -> Decision<()> {
    let Some(row) = view.resource(uid)? else {
        return Ok(());
    };
    let Some(owner) = row.owner else {
        return Ok(());
    };
    let contributed = Contributed {
        sums: sums(&row),
        version: row.own_version + row.below.version,
        is_cause: causes::is_cause(&row),
    };
    let delta = contributed.sums - row.contributed.sums;
    let moved = contributed.version - row.contributed.version;
    if contributed == row.contributed {
        return Ok(());
    }
    view.update(uid, |row| row.contributed = contributed)?;
    view.update(owner, |owner| {
        owner.below.sums = owner.below.sums + delta;
        // Grows by at least one for every change, so that a rollup that ran before it is seen to be old.
        owner.below.version += moved.max(1);
    })?;
    let child = view.resource(uid)?;
    causes::keep(view, owner, child.as_deref())?;
    view.touch(owner);
    Ok(())
}

/// What a row and its descendants add to its ancestors.
#[must_use]
pub fn sums(row: &Resource) -> Sums {
    if !row.derived.counted {
        return Sums::default();
    }
    let own = Sums {
        total: 1,
        ready: i64::from(row.derived.phase == Phase::Ready),
        unsettled: i64::from(!row.derived.settled),
        failed: i64::from(row.derived.phase == Phase::Failed),
        degraded: i64::from(row.derived.phase == Phase::Degraded),
    };
    own + row.below.sums
}
