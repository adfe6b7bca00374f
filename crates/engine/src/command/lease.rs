//! Claims that end without a result: given back, or lost.

use converge_types::phase::Trigger;

use super::complete::{end_claim, is_current, unmark};
use super::{LeaseLost, Release, ReleaseReason, Reply};
use crate::decide::failure::Failed;
use crate::model::{Claim, ClaimRef, EventKind, Resource};
use crate::view::{Decision, View};

/// Ends claims nobody will answer, counting nothing: the tasks are claimable again at once.
pub(super) fn release(command: &Release, view: &mut View<'_>) -> Decision<Reply> {
    let mut released = 0;
    for reference in &command.claims {
        let Some((row, claim)) = live(view, reference)? else {
            continue;
        };
        end_claim(view, &row, &claim)?;
        if command.reason == ReleaseReason::Drained {
            let message = "the worker drained before it finished";
            view.task_event(&row, &claim, EventKind::GivenBack, message)?;
        }
        view.touch(row.uid);
        released += 1;
    }
    Ok(Reply::Released { claims: released })
}

/// Ends claims no heartbeat named for a lease.
pub(super) fn lost(command: &LeaseLost, view: &mut View<'_>) -> Decision<Reply> {
    let mut released = 0;
    for reference in &command.claims {
        let Some((row, claim)) = live(view, reference)? else {
            continue;
        };
        end_claim(view, &row, &claim)?;
        let message = format!(
            "lease lost: {} did not name epoch {} for a whole lease",
            claim.worker, claim.epoch
        );
        view.task_event(&row, &claim, EventKind::LeaseLost, message)?;
        // An observation pins nothing and counts for nothing.
        if claim.trigger != Trigger::Resync && is_current(view, &row, &claim)? {
            let manifest = view.manifest(&claim.kv)?;
            let after = Failed {
                row: &row,
                claim: &claim,
                manifest: manifest.as_deref(),
                now_ms: view.now_ms(),
                seed: command.seed,
            }
            .lost_lease();
            view.update(row.uid, |row| {
                if after.attempts > 0 {
                    unmark(row, &claim);
                }
                row.by_hand &= !after.terminal;
                row.failure = Some(after);
            })?;
        }
        view.touch(row.uid);
        released += 1;
    }
    Ok(Reply::Released { claims: released })
}

fn live(
    view: &mut View<'_>,
    reference: &ClaimRef,
) -> Decision<Option<(std::sync::Arc<Resource>, Claim)>> {
    let Some(row) = view.resource(reference.token.uid)? else {
        return Ok(None);
    };
    let claim = row
        .claim
        .clone()
        .filter(|claim| claim.secret == reference.token.secret && claim.epoch == reference.epoch);
    Ok(claim.map(|claim| (row, claim)))
}
