//! Commands nobody asks for: timers, batches of config readers, forgetting.

use converge_types::limits;

use super::{Forget, Reply, SweepBatch, Wake};
use crate::model::ConfigSweep;
use crate::store::{Need, Rows};
use crate::view::{Decision, View};

/// Derives rows whose timer is over, oldest first.
pub(super) fn wake(command: &Wake, view: &mut View<'_>) -> Decision<Reply> {
    let now = view.now_ms();
    let Rows::Uids(uids) = view.fetch_raw(&Need::Wakes(now, command.limit))? else {
        return Ok(Reply::Swept {
            rows: 0,
            more: false,
        });
    };
    for uid in &uids {
        view.touch(*uid);
    }
    let rows = uids.len() as u64;
    Ok(Reply::Swept {
        rows,
        more: rows >= u64::from(command.limit),
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
