//! A clock that tells the time it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Shared by a store and the test that drives it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Times>);

#[derive(Debug)]
struct Times {
    now: AtomicI64,
    latest: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self(Arc::new(Times {
            now: AtomicI64::new(now_ms),
            latest: AtomicI64::new(now_ms),
        }))
    }

    /// Its time.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.0.now.load(Ordering::Acquire)
    }

    /// Moves it on (or, with a negative number, back: clocks do that).
    pub fn step(&self, by_ms: i64) {
        let now = self.0.now.fetch_add(by_ms, Ordering::AcqRel) + by_ms;
        self.0.latest.fetch_max(now, Ordering::AcqRel);
    }

    /// Whether it has shown a later time than now.
    #[must_use]
    pub fn went_back(&self) -> bool {
        self.now_ms() < self.0.latest.load(Ordering::Acquire)
    }
}
