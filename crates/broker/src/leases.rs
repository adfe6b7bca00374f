//! Leases: how long a claim lives without being named.
//!
//! In memory, on the monotonic clock: a wall clock that steps cannot end a lease, and a broker that starts gives every live claim one
//! full lease. A lease is renewed by being named in a heartbeat or in `resumed`, and by nothing else (see `activity` for the one
//! exception); it ends by a result, by being released, or by silence. A broken stream releases nothing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use converge_engine::model::{ClaimRef, LeaseToken};

/// Every lease this broker looks after.
pub(crate) struct Leases {
    length: Duration,
    live: Mutex<HashMap<LeaseToken, Lease>>,
}

#[derive(Clone, Copy)]
struct Lease {
    epoch: i64,
    named: Instant,
}

impl Leases {
    pub(crate) fn new(length: Duration) -> Self {
        Self {
            length,
            live: Mutex::default(),
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<LeaseToken, Lease>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim was made (or found at start).
    pub(crate) fn begin(&self, claims: impl IntoIterator<Item = ClaimRef>) {
        let named = Instant::now();
        self.live().extend(claims.into_iter().map(|claim| {
            (
                claim.token,
                Lease {
                    epoch: claim.epoch,
                    named,
                },
            )
        }));
    }

    /// A claim ended.
    pub(crate) fn end(&self, claim: &ClaimRef) {
        let mut live = self.live();
        if live
            .get(&claim.token)
            .is_some_and(|lease| lease.epoch == claim.epoch)
        {
            live.remove(&claim.token);
        }
    }

    /// A worker named these at `at`; returns whether each is live here.
    pub(crate) fn name(&self, claims: &[ClaimRef], at: Instant) -> Vec<bool> {
        let mut live = self.live();
        claims
            .iter()
            .map(|claim| match live.get_mut(&claim.token) {
                Some(lease) if lease.epoch == claim.epoch => {
                    lease.named = lease.named.max(at);
                    true
                }
                _ => false,
            })
            .collect()
    }

    /// Whether this claim is live here.
    pub(crate) fn is_live(&self, claim: &ClaimRef) -> bool {
        self.live()
            .get(&claim.token)
            .is_some_and(|lease| lease.epoch == claim.epoch)
    }

    /// Takes out, at most `limit` at a time, what nobody named for a lease.
    pub(crate) fn expire(&self, now: Instant, limit: usize) -> Vec<ClaimRef> {
        let mut live = self.live();
        let expired: Vec<_> = live
            .iter()
            .filter(|(_, lease)| now.saturating_duration_since(lease.named) >= self.length)
            .take(limit)
            .map(|(token, lease)| ClaimRef {
                token: *token,
                epoch: lease.epoch,
            })
            .collect();
        for claim in &expired {
            live.remove(&claim.token);
        }
        expired
    }
}
