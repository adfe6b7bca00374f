//! The store's clock: milliseconds since the epoch that never go back while the store is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

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

/// A clock that stands still where its source goes back.
pub(crate) struct Monotonic {
    source: Arc<dyn Clock>,
    latest: AtomicI64,
}

impl Monotonic {
    pub(crate) fn new(source: Arc<dyn Clock>) -> Self {
        Self {
            source,
            latest: AtomicI64::new(i64::MIN),
        }
    }

    pub(crate) fn now_ms(&self) -> Millis {
        let now = self.source.now_ms();
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_where_the_machines_clock_goes_back() {
        struct Backwards(AtomicI64);
        impl Clock for Backwards {
            fn now_ms(&self) -> Millis {
                self.0.fetch_sub(10, Ordering::Relaxed)
            }
        }
        let clock = Monotonic::new(Arc::new(Backwards(AtomicI64::new(1_000))));
        assert_eq!([clock.now_ms(), clock.now_ms(), clock.now_ms()], [1_000; 3]);
    }
}
