//! All the times the worker waits for, in one heap behind one runtime timer.
//!
//! Entries are not taken out when they lose their meaning: whoever handles one looks whether it still has one. Deadlines of
//! tasks that ended long before would pile up, so the heap is swept when it has grown well beyond what is alive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// What a time is for. A number is that of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// Results have waited for others long enough.
    Gathered,
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

/// The heap is not swept while it is smaller than this.
const SMALL: usize = 1024;

/// The heap.
#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
    /// The length at which it is swept next.
    sweep_at: usize,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// Drops the timers of tasks that are gone, now and then.
    pub(crate) fn sweep(&mut self, is_held: impl Fn(u64) -> bool) {
        if self.heap.len() < self.sweep_at.max(SMALL) {
            return;
        }
        self.heap.retain(|Reverse((_, timer))| match timer {
            Timer::Deadline(task) | Timer::ReadyWait(task) | Timer::Grace(task) => is_held(*task),
            _ => true,
        });
        // Doubling keeps the cost of sweeping a constant per timer.
        self.sweep_at = self.heap.len() * 2;
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
    fn timers_of_tasks_that_ended_do_not_pile_up() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(now, Timer::Heartbeat);
        for task in 0..100_000 {
            timers.set(now + Duration::from_secs(3600), Timer::Deadline(task));
            timers.sweep(|held| held == task || held == 7);
        }
        assert!(timers.heap.len() <= SMALL, "{}", timers.heap.len());
        let later = now + Duration::from_secs(3600);
        assert_eq!(timers.due(later), Some(Timer::Heartbeat));
        assert_eq!(timers.due(later), Some(Timer::Deadline(7)));
    }

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
