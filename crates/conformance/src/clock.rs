//! A clock that tells the time it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Shared by a store and the test that drives it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at `now_ms`.
    #[must_use]
    pub fn at(now_ms: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now_ms)))
    }

    /// Its time.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Acquire)
    }

    /// Moves it on (or, with a negative number, back: clocks do that).
    pub fn step(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::AcqRel);
    }
}
