//! All the times the worker waits for, in one heap behind one runtime timer.
//!
//! Entries are never taken out early: whoever handles one looks whether it still means anything. Each task adds at most one
//! entry per kind of timer, so the heap is bounded by the tasks that are held plus what has not yet run out.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// What a time is for. A number is that of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Send a heartbeat, and see which results have been kept long enough.
    Heartbeat,
    /// Ask every provider whether it is ready.
    Readiness,
    /// Pull the default configs.
    Pull,
    /// Dial again.
    Dial,
    /// No stream was up for one lease.
    Uncertain,
    /// The session of this number should have come up by now.
    Connect(u64),
    /// A task's deadline.
    Deadline(u64),
    /// A task's pair was given time to become ready.
    ReadyWait(u64),
    /// A cancelled task's cleanup grace.
    Grace(u64),
    /// The drain budget is spent.
    Drain,
    /// The broker had time to take what was flushed and to close its side.
    Close,
}

/// The heap.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// The next timer that is due at `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Timer> {
        let Reverse((at, timer)) = *self.heap.peek()?;
        (at <= now).then(|| {
            self.heap.pop();
            timer
        })
    }

    /// Ready once the earliest timer is due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(Reverse((at, _))) = self.heap.peek() else {
            return Poll::Pending;
        };
        let at = tokio::time::Instant::from_std(*at);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_come_in_order_and_not_early() {
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.set(later(30), Timer::Deadline(7));
        timers.set(later(10), Timer::Heartbeat);
        timers.set(later(20), Timer::Readiness);
        assert_eq!(timers.due(now), None);
        assert_eq!(timers.due(later(20)), Some(Timer::Heartbeat));
        assert_eq!(timers.due(later(20)), Some(Timer::Readiness));
        assert_eq!(timers.due(later(20)), None);
        assert_eq!(timers.due(later(30)), Some(Timer::Deadline(7)));
    }
}
