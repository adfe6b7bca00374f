//! Why something is not settled: one reason, the first that holds.

use converge_types::ids::{Kind, ResourceName, ResourceRef};
use converge_types::phase::{Phase, WaitingReason};

use crate::fleet::{Fleet, Service};
use crate::model::{Due, Hold, Millis};
use crate::store::ResourceView;

/// Whether the cap of the pair is reached; asked for only when it matters.
pub type AtCapacity<'a> = &'a dyn Fn() -> bool;

/// The waiting reason of a resource; `None` when nothing is waited for.
#[must_use]
pub fn reason(
    view: &ResourceView,
    fleet: &dyn Fleet,
    at_capacity: AtCapacity<'_>,
    now_ms: Millis,
) -> Option<WaitingReason> {
    let row = &view.row;
    if let Some(claim) = &row.claim {
        return Some(WaitingReason::Running {
            worker: claim.worker.clone(),
            since_ms: claim.since_ms,
        });
    }
    if row.quarantined {
        return Some(WaitingReason::Quarantined);
    }
    let on = || {
        let (kind, name): (Kind, ResourceName) = view.held_on.clone()?;
        Some(ResourceRef::new(kind, name))
    };
    match &row.due {
        Due::Held(Hold::Gone(_) | Hold::Released(_)) => on().map(WaitingReason::HeldBy),
        Due::Held(Hold::Children(_)) if row.is_deleting() => on().map(WaitingReason::HeldBy),
        Due::Held(Hold::Children(_)) => on().map(WaitingReason::ChildrenNotSettled),
        Due::Held(Hold::Config) => Some(WaitingReason::ConfigMissing),
        Due::Held(Hold::Dependency(_)) => on().map(WaitingReason::DependencyNotReady),
        Due::Held(Hold::Flow { pointer, .. }) => {
            on().map(|on| WaitingReason::FlowMissing(on, pointer.clone()))
        }
        Due::Held(Hold::Quarantine) => Some(WaitingReason::Quarantined),
        Due::Ready { .. } => Some(match fleet.service(&row.due_kv()) {
            Service::None => WaitingReason::NoWorker,
            Service::NotReady => WaitingReason::WorkerNotReady,
            Service::Ready if at_capacity() => WaitingReason::KindAtCapacity,
            Service::Ready => WaitingReason::Queued,
        }),
        Due::Idle => idle(view, now_ms, on),
    }
}

fn idle(
    view: &ResourceView,
    now_ms: Millis,
    on: impl Fn() -> Option<ResourceRef>,
) -> Option<WaitingReason> {
    let row = &view.row;
    let settled = row.derived.settled && !row.is_deleting();
    match row.wake_ms {
        Some(until_ms)
            if until_ms > now_ms && (!settled || row.derived.phase == Phase::Orphaned) =>
        {
            Some(WaitingReason::Backoff { until_ms })
        }
        _ if !settled && row.below.sums.unsettled > 0 => {
            on().map(WaitingReason::ChildrenNotSettled)
        }
        _ => None,
    }
}
