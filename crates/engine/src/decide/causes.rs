//! Causes: what keeps a composite from being Ready, for the message of `ChildrenReady`.
//!
//! Each composite keeps up to three of the deepest culprits below it, passed up with the sums, one step per level. A culprit failed,
//! is retrying, or is unhealthy by itself; what is merely blocked, or degraded by something below it, is none. When all that are kept
//! were cured and others are left, the direct children are looked through once.

use converge_types::ids::Uid;
use converge_types::limits;
use converge_types::phase::Phase;

use super::flows::name_of;
use crate::model::Resource;
use crate::view::{Decision, View};

/// Whether a row keeps those above it from being Ready by itself.
#[must_use]
pub fn is_cause(row: &Resource) -> bool {
    let degraded_itself =
        row.derived.phase == Phase::Degraded && row.below.sums.ready == row.below.sums.total;
    row.derived.counted
        && !row.is_deleting()
        && (row.derived.phase == Phase::Failed || row.failure.is_some() || degraded_itself)
}

/// The culprits a row passes to its owner.
fn passed(row: &Resource) -> Vec<Uid> {
    if !row.derived.counted {
        Vec::new()
    } else if is_cause(row) {
        vec![row.uid]
    } else {
        row.causes.clone()
    }
}

/// Brings the culprits of `owner` up to date after `child` changed (`None`: was removed).
///
/// # Errors
/// As the view's reads.
pub fn keep(view: &mut View<'_>, owner: Uid, child: Option<&Resource>) -> Decision<()> {
    let Some(row) = view.resource(owner)? else {
        return Ok(());
    };
    let causes = after(view, &row, child)?;
    if causes != row.causes {
        view.update(owner, |row| row.causes = causes)?;
    }
    Ok(())
}

fn after(view: &mut View<'_>, owner: &Resource, child: Option<&Resource>) -> Decision<Vec<Uid>> {
    let sums = owner.below.sums;
    if sums.ready == sums.total {
        return Ok(Vec::new());
    }
    let mut causes = Vec::new();
    for uid in owner
        .causes
        .iter()
        .copied()
        .chain(child.map(passed).unwrap_or_default())
    {
        if !causes.contains(&uid) && view.resource(uid)?.is_some_and(|row| is_cause(&row)) {
            causes.push(uid);
        }
    }
    if causes.is_empty() && sums.failed + sums.degraded > 0 {
        for uid in view.children(owner.uid)? {
            let Some(row) = view.resource(uid)? else {
                continue;
            };
            causes.extend(passed(&row));
            if causes.len() >= limits::CHILDREN_READY_CAUSES {
                break;
            }
        }
    }
    let mut failed_first = Vec::with_capacity(causes.len());
    for uid in causes {
        let failed = view
            .resource(uid)?
            .is_some_and(|row| row.derived.phase == Phase::Failed);
        failed_first.push((!failed, uid));
    }
    // Stable: the order they came in, except that Failed ones lead.
    failed_first.sort_by_key(|(later, _)| *later);
    failed_first.truncate(limits::CHILDREN_READY_CAUSES);
    Ok(failed_first.into_iter().map(|(_, uid)| uid).collect())
}

/// What the message says of them, each with its own reason.
///
/// # Errors
/// As the view's reads.
pub fn text(view: &mut View<'_>, row: &Resource) -> Decision<String> {
    let mut parts = Vec::new();
    for uid in row.causes.clone() {
        let name = name_of(view, uid)?;
        let Some(cause) = view.resource(uid)? else {
            continue;
        };
        let why = cause
            .failure
            .as_ref()
            .map(|failure| first_line(&failure.message))
            .unwrap_or_default();
        let word = if cause.derived.phase == Phase::Reconciling {
            "retrying".to_owned()
        } else {
            cause.derived.phase.to_string()
        };
        parts.push(if why.is_empty() {
            format!("{name} {word}")
        } else {
            format!("{name} {word}: {why}")
        });
    }
    Ok(parts.join("; "))
}

/// The first line, short enough to stand three times in one message.
fn first_line(message: &str) -> String {
    message
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(160)
        .collect()
}
