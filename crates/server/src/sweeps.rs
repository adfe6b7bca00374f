//! The commands nobody asks for: timers that are over, readers of edited configs, tombstones that are old.
//!
//! Nothing here polls for its work: a commit that sets a timer or leaves a sweep says so, and waking says when the next timer is. The
//! backstop only catches what a defect, or a clock that was set, would otherwise lose.

use std::sync::Arc;
use std::time::Duration;

use converge_engine::command::{Command, Forget, Reply, SweepBatch, Wake};
use converge_engine::model::Millis;
use converge_engine::store::{Store, TransactError};
use converge_types::limits;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Rows one command looks at.
const BATCH: u32 = limits::SWEEP_BATCH as u32;
/// Between two looks at timers: due ones that are closer together are woken together.
const SPACING: Duration = Duration::from_millis(2);
/// How long to leave a store alone that could not do its part.
const PAUSE: Duration = Duration::from_secs(1);

/// Wakes rows at their time and sweeps configs, until `stop`.
pub(crate) async fn timers(store: Arc<dyn Store>, backstop: Duration, stop: CancellationToken) {
    let mut signals = store.subscribe();
    let mut next_ms: Option<Millis> = None;
    let (mut wake, mut sweep) = (true, true);
    let mut backstop_at = Instant::now() + backstop;
    while !stop.is_cancelled() {
        if wake {
            // Timers set from here on are signalled, and so is the next one of those set before.
            next_ms = None;
            wake = !finished(&*store, "timers", Command::Wake(Wake { limit: BATCH })).await;
            tokio::time::sleep(SPACING).await;
        }
        if sweep {
            let batch = SweepBatch { limit: BATCH };
            sweep = !finished(&*store, "config sweep", Command::ConfigSweep(batch)).await;
        }
        let at = if wake || sweep {
            Instant::now()
        } else {
            backstop_at.min(Instant::now() + until(next_ms, store.now_ms()).min(backstop))
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            heard = signals.next() => {
                sweep |= heard.sweep;
                if let Some(at_ms) = heard.wake_ms {
                    next_ms = Some(next_ms.map_or(at_ms, |next| next.min(at_ms)));
                }
            }
            () = sleep_until(at) => {}
        }
        wake |= next_ms.is_some_and(|next| next <= store.now_ms());
        if Instant::now() >= backstop_at {
            (wake, sweep) = (true, true);
            backstop_at = Instant::now() + backstop;
        }
    }
}

/// Forgets what was removed long ago, until `stop`.
pub(crate) async fn forget(store: Arc<dyn Store>, every: Duration, stop: CancellationToken) {
    let keep_ms = Millis::try_from(limits::TOMBSTONE.as_millis()).unwrap_or(Millis::MAX);
    loop {
        let removed_before_ms = store.now_ms().saturating_sub(keep_ms);
        finished(
            &*store,
            "forgetting",
            Command::Forget(Forget { removed_before_ms }),
        )
        .await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// Whether nothing is left of it. A failure has been waited out.
async fn finished(store: &dyn Store, what: &str, command: Command) -> bool {
    match store.transact(vec![command]).await.pop() {
        Some(Ok(Reply::Swept { more, .. })) => !more,
        Some(Ok(_)) | None => true,
        Some(Err(TransactError::Refused(refusal))) => {
            tracing::error!(error = %refusal, "{what} was refused");
            tokio::time::sleep(PAUSE).await;
            true
        }
        Some(Err(TransactError::Store(error))) => {
            tracing::warn!(%error, "{what} could not be written; trying again");
            tokio::time::sleep(PAUSE).await;
            false
        }
    }
}

fn until(at_ms: Option<Millis>, now_ms: Millis) -> Duration {
    at_ms.map_or(Duration::MAX, |at| {
        Duration::from_millis(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0))
    })
}
