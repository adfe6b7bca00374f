//! The store's clock: milliseconds since the epoch that never go back while the store is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use converge_engine::model::Millis;

/// A source of time. Tests drive their own.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the epoch.
    fn now_ms(&self) -> Millis;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> Millis {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
            })
    }
}

/// A clock that goes on at the pace of the monotonic clock where its source goes back, until the source has caught up: what is due
/// in a second is due in a second, whatever was done to the machine's clock.
pub(crate) struct Monotonic {
    source: Arc<dyn Clock>,
    anchor: Mutex<Option<(Millis, Instant)>>,
}

impl Monotonic {
    pub(crate) fn new(source: Arc<dyn Clock>) -> Self {
        Self {
            source,
            anchor: Mutex::default(),
        }
    }

    pub(crate) fn now_ms(&self) -> Millis {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.source.now_ms();
        match *anchor {
            Some((latest, at)) if now < latest => {
                let since = Millis::try_from(at.elapsed().as_millis()).unwrap_or(0);
                latest.saturating_add(since)
            }
            _ => {
                *anchor = Some((now, Instant::now()));
                now
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn time_goes_on_where_the_machines_clock_goes_back() {
        struct Backwards(AtomicI64);
        impl Clock for Backwards {
            fn now_ms(&self) -> Millis {
                self.0.fetch_sub(10, Ordering::Relaxed)
            }
        }
        let started = Instant::now();
        let clock = Monotonic::new(Arc::new(Backwards(AtomicI64::new(1_000))));
        let first = clock.now_ms();
        let mut latest = first;
        while latest < first + 20 {
            let now = clock.now_ms();
            assert!(now >= latest, "{now} after {latest}");
            latest = now;
            assert!(started.elapsed().as_secs() < 60, "time stands still");
            std::thread::yield_now();
        }
        assert!(started.elapsed().as_millis() >= 19);
    }
}
