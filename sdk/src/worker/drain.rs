//! How a worker ends: it says that it takes no more tasks, lets running ones finish within the drain budget, cuts the rest,
//! delivers every result, half-closes, and waits a little for the broker to close its side.
//!
//! While results are undelivered it keeps dialling until the budget is spent.

use std::task::Context;
use std::time::{Duration, Instant};

use super::WorkerError;
use super::convert;
use super::core::Core;
use super::tasks::State;
use super::timers::Timer;
use crate::CancelReason;

/// The state of a drain.
pub(crate) struct Drain {
    /// When the budget is spent.
    until: Instant,
    /// The budget is spent: what ran was cut.
    pub(crate) is_cut: bool,
    /// Until when what is left may be flushed and the broker may close its side.
    close_until: Option<Instant>,
    /// The broker has closed its side after our half-close: everything has arrived.
    is_closed: bool,
}

impl Core {
    pub(super) fn begin_drain(&mut self, now: Instant) {
        let grace = self
            .tasks
            .iter()
            .filter_map(|(_, task)| match &task.state {
                State::Running { control, .. } => Some(control.context().cleanup_grace()),
                _ => None,
            })
            .max()
            .unwrap_or(Duration::ZERO);
        let budget = self.options.drain_timeout;
        tracing::info!(
            tasks = self.tasks.len(),
            longest_wait_s = (budget + grace + self.options.close_wait).as_secs(),
            "shutting down: taking no more tasks"
        );
        self.drain = Some(Drain {
            until: now + budget,
            is_cut: false,
            close_until: None,
            is_closed: false,
        });
        self.timers.set(now + budget, Timer::Drain);
        self.advertise();
    }

    /// The budget is spent: running handlers are cancelled, what waits is given back.
    pub(super) fn cut(&mut self, now: Instant) {
        let Some(drain) = &mut self.drain else {
            return;
        };
        drain.is_cut = true;
        let ids: Vec<u64> = self.tasks.iter().map(|(id, _)| id).collect();
        if !ids.is_empty() {
            tracing::warn!(
                tasks = ids.len(),
                "the drain budget is spent: cancelling what still runs"
            );
        }
        for id in ids {
            let Some(task) = self.tasks.get(id) else {
                continue;
            };
            match &task.state {
                State::Waiting(_) => {
                    let complete = convert::interrupted(&task.claim, "the worker is shutting down");
                    self.finish(id, complete);
                }
                State::Running { .. } => self.cancel(id, CancelReason::Drain, now),
                State::Ended { .. } => {}
            }
        }
    }

    /// The broker has closed its side after our half-close.
    pub(super) fn on_drained_stream(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.is_closed = true;
        }
    }

    /// How the worker ends, once it does.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
    ) -> Option<Result<(), WorkerError>> {
        let drain = self.drain.as_mut()?;
        if drain.is_closed {
            return Some(Ok(()));
        }
        if !self.tasks.is_empty() {
            return None;
        }
        let spent = now >= drain.until;
        let late = drain.close_until.is_some_and(|until| now >= until);
        let Some(session) = &mut self.session else {
            return if self.results.is_empty() {
                Some(Ok(()))
            } else if spent {
                Some(self.undelivered())
            } else {
                // Dialling goes on.
                None
            };
        };
        if session.half_closed {
            if late {
                tracing::warn!("the broker did not close its side in time");
                return Some(Ok(()));
            }
            return None;
        }
        let is_up = session.up_since.is_some();
        if self.results.is_empty() && !is_up {
            return Some(Ok(()));
        }
        if is_up && self.results.all_sent(Some(&session.outbox)) {
            session.half_close();
            let until = now + self.options.close_wait;
            drain.close_until = Some(until);
            self.timers.set(until, Timer::Close);
            return None;
        }
        // Told when the transport has taken the rest.
        let _ = session.outbox.poll_taken(None, cx);
        if late {
            return Some(self.undelivered());
        }
        if spent && drain.close_until.is_none() {
            let until = now + self.options.close_wait;
            drain.close_until = Some(until);
            self.timers.set(until, Timer::Close);
        }
        None
    }

    fn undelivered(&self) -> Result<(), WorkerError> {
        let unsent: Vec<String> = self
            .results
            .unsent(self.outbox())
            .into_iter()
            .map(|result| format!("{} (epoch {})", result.label, result.epoch))
            .collect();
        for result in &unsent {
            tracing::error!(
                result,
                "the broker went away and may not have this result; if it has not, the task runs again"
            );
        }
        if unsent.is_empty() {
            Ok(())
        } else {
            Err(WorkerError::Unsent { unsent })
        }
    }
}
