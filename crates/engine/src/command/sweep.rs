//! Commands nobody asks for: timers, batches of config readers, forgetting.

use converge_types::limits;

use super::{Forget, Reply, SweepBatch, Wake};
use crate::model::{ConfigSweep, Millis};
use crate::store::{Need, Rows};
use crate::view::{Decision, View};

/// Derives rows whose timer is over, oldest first, and signals when the next timer is: whoever waits for it need not poll.
pub(super) fn wake(command: &Wake, view: &mut View<'_>) -> Decision<Reply> {
    let now = view.now_ms();
    let limit = command.limit as usize;
    let need = Need::Wakes(Millis::MAX, command.limit.saturating_add(1));
    let mut rows = 0;
    if let Rows::Uids(uids) = view.fetch_raw(&need)? {
        for uid in uids {
            let Some(wake_ms) = view.resource(uid)?.and_then(|row| row.wake_ms) else {
                continue;
            };
            if wake_ms > now || rows >= limit {
                let next = view.signals();
                next.wake_ms = Some(next.wake_ms.map_or(wake_ms, |known| known.min(wake_ms)));
                break;
            }
            view.touch(uid);
            rows += 1;
        }
    }
    Ok(Reply::Swept {
        rows: rows as u64,
        more: rows >= limit,
    })
}

/// Looks at the next batch of readers of an edited config or manifest.
pub(super) fn config(command: &SweepBatch, view: &mut View<'_>) -> Decision<Reply> {
    let Rows::Sweep(Some(sweep)) = view.fetch_raw(&Need::NextSweep)? else {
        return Ok(Reply::Swept {
            rows: 0,
            more: false,
        });
    };
    let limit = command.limit.min(limits::SWEEP_BATCH as u32);
    let need = match &sweep.config_ref {
        Some(name) => Need::ConfigUsers(name.clone(), sweep.after, limit),
        None => Need::PairResources(sweep.kv.clone(), sweep.after, limit),
    };
    let Rows::Uids(uids) = view.fetch_raw(&need)? else {
        return Ok(Reply::Swept {
            rows: 0,
            more: false,
        });
    };
    for uid in &uids {
        view.touch(*uid);
    }
    let after = uids.last().copied();
    view.sweep_done(sweep.clone());
    if uids.len() >= limit as usize {
        view.sweep_put(ConfigSweep { after, ..sweep });
    }
    Ok(Reply::Swept {
        rows: uids.len() as u64,
        more: true,
    })
}

/// Forgets tombstones, with their events.
pub(super) fn forget(command: &Forget, view: &mut View<'_>) -> Decision<Reply> {
    view.forget_before(command.removed_before_ms);
    Ok(Reply::Swept {
        rows: 0,
        more: false,
    })
}
