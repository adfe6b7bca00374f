//! Remembers when the machine runs out of processes, memory, descriptors or disk.
//!
//! After three starts in a row that failed for that, the kinds that run programs say unready for a while, so that their work
//! goes to another worker instead of failing here.

use std::sync::Mutex;
use std::time::{Duration, Instant};

const FAILURES_IN_A_ROW: u32 = 3;
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Pressure {
    state: Mutex<(u32, Option<Instant>)>,
}

/// One for the process: it is the machine that is short of something, not a kind.
pub(super) static PRESSURE: Pressure = Pressure::new();

impl Pressure {
    const fn new() -> Self {
        Pressure {
            state: Mutex::new((0, None)),
        }
    }

    pub(super) fn note(&self, exhausted: bool, now: Instant) {
        let mut state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !exhausted {
            state.0 = 0;
            return;
        }
        state.0 += 1;
        if state.0 >= FAILURES_IN_A_ROW {
            if state.1.is_none_or(|until| until <= now) {
                tracing::warn!(
                    pause_seconds = PAUSE.as_secs(),
                    "{FAILURES_IN_A_ROW} programs in a row could not start because this machine is out of resources; taking no more for a while"
                );
            }
            *state = (0, Some(now + PAUSE));
        }
    }

    pub(super) fn ready(&self, now: Instant) -> bool {
        let state = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        state.1.is_none_or(|until| until <= now)
    }
}

/// Whether programs can be expected to start. `false` for 30 s after three in a row could not for want of processes, memory,
/// descriptors or disk: what a provider that runs programs answers as its readiness.
#[must_use]
pub fn ready() -> bool {
    PRESSURE.ready(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_in_a_row_pause_and_a_start_between_them_does_not() {
        let pressure = Pressure::new();
        let start = Instant::now();
        for exhausted in [true, true, false, true, true] {
            pressure.note(exhausted, start);
            assert!(pressure.ready(start));
        }
        pressure.note(true, start);
        assert!(!pressure.ready(start));
        assert!(!pressure.ready(start + Duration::from_secs(29)));
        assert!(pressure.ready(start + Duration::from_secs(30)));
    }
}
