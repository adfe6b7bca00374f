//! What becomes of a task: accepted or refused, started, cancelled, answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::convert::{self, Claim};
use super::core::Core;
use super::handler;
use super::tasks::{Arrival, LaneKey, State};
use super::timers::Timer;
use crate::wire::{StageComplete, StageTask};
use crate::{CancelReason, KindVersion, ProviderConfig, Stage, TaskContext};

impl Core {
    pub(super) fn on_task(&mut self, task: Box<StageTask>) {
        if self
            .session
            .as_ref()
            .is_some_and(|session| session.half_closed)
        {
            // It crossed our half-close on the wire, with which the broker takes it back.
            return;
        }
        let now = Instant::now();
        let claim = Claim {
            token: task.lease_token.clone(),
            epoch: task.claim_epoch,
            stage: task.stage,
        };
        let subject = convert::subject(&task);
        let name = subject.map_or("?", |resource| &*resource.name);
        let label = format!("{}/{name}", task.kind);
        let stage = convert::stage(task.stage);
        let lane = <[u8; 16]>::try_from(&task.resource_id[..]).map(LaneKey::Resource);
        let problem = match (stage, subject, &lane) {
            (None, ..) => Some(format!("stage {} is not known to this worker", task.stage)),
            (Some(stage), None, _) => Some(format!("the task lacks the request of stage {stage}")),
            (_, _, Err(_)) => Some("the task's resource_id is not a UUID of 16 bytes".to_owned()),
            _ => None,
        };
        let (Ok(mut lane), None) = (lane, &problem) else {
            let problem = problem.unwrap_or_default();
            tracing::warn!(
                task = label,
                problem,
                "the broker sent a task that cannot be run"
            );
            return self.answer(convert::failed(&claim, true, &problem), label);
        };
        let Some(pair) = self.pairs.find(&task.kind, task.kind_version) else {
            let why = format!(
                "{} is not served here",
                KindVersion::new(&task.kind, u16::try_from(task.kind_version).unwrap_or(0))
            );
            return self.answer(convert::interrupted(&claim, &why), label);
        };
        if self.drain.as_ref().is_some_and(|drain| drain.is_cut) {
            return self.answer(
                convert::interrupted(&claim, "the worker is shutting down"),
                label,
            );
        }
        // The broker keeps to the credit; this bounds what one that does not can do.
        if self.tasks.len() >= self.options.max_parallel.saturating_mul(4).max(1024) {
            return self.answer(
                convert::interrupted(&claim, "the worker holds too many tasks"),
                label,
            );
        }
        if stage == Some(Stage::React) {
            // Deliveries have claims of their own; a repeat of the same one has its token.
            let token = task
                .react_req
                .as_ref()
                .map_or("", |request| &*request.dedup_token);
            lane = LaneKey::Delivery(if token.is_empty() {
                claim.token.clone()
            } else {
                token.to_owned()
            });
        }
        let deadline = u64::try_from(task.task_deadline_ms)
            .ok()
            .filter(|ms| *ms > 0)
            .and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        match self
            .tasks
            .arrive(claim.clone(), pair, label.clone(), deadline, lane, task)
        {
            Arrival::Known => {}
            Arrival::Stale => {
                let why = "a newer claim of this resource is here already";
                self.answer(convert::interrupted(&claim, why), label);
            }
            Arrival::Current(id) => self.accepted(id, deadline, true),
            Arrival::Replaces { waiting, id } => {
                self.overtaken(waiting);
                self.accepted(id, deadline, true);
            }
            Arrival::Behind {
                running,
                overtaken,
                id,
            } => {
                tracing::warn!(
                    task = label,
                    "a newer claim arrived: the running handler has lost its lease"
                );
                self.cancel(running, CancelReason::LeaseLost, now);
                if let Some(overtaken) = overtaken {
                    self.overtaken(overtaken);
                }
                self.accepted(id, deadline, false);
            }
        }
    }

    pub(super) fn accepted(&mut self, id: u64, deadline: Option<Instant>, is_current: bool) {
        if let Some(deadline) = deadline {
            self.timers.set(deadline, Timer::Deadline(id));
        }
        if is_current {
            self.enqueue(id);
        }
    }

    pub(super) fn overtaken(&mut self, id: u64) {
        if let Some(task) = self.tasks.get(id) {
            let complete = convert::interrupted(
                &task.claim,
                "the lease was lost before the task could start",
            );
            self.finish(id, complete);
        }
    }

    /// A task is current in its lane: it starts when a slot is free and its pair takes tasks.
    pub(super) fn enqueue(&mut self, id: u64) {
        let Some(task) = self.tasks.get(id) else {
            return;
        };
        let at = task.pair;
        let pair = &self.pairs.list[at];
        if pair.takes_tasks() {
            self.tasks.runnable.push_back(id);
            return;
        }
        if !pair.is_ready() {
            self.timers.set(
                Instant::now() + self.options.ready_wait,
                Timer::ReadyWait(id),
            );
        }
        self.tasks.hold(id, at);
    }

    pub(super) fn start_tasks(&mut self) {
        while self.tasks.running < self.options.max_parallel {
            let Some(id) = self.tasks.runnable.pop_front() else {
                break;
            };
            // It may have been answered while it waited, or its pair may have stopped taking tasks.
            let Some(task) = self.tasks.get(id) else {
                continue;
            };
            if !matches!(task.state, State::Waiting(_)) {
                continue;
            }
            if self.pairs.list[task.pair].takes_tasks() {
                self.start(id);
            } else {
                self.enqueue(id);
            }
        }
    }

    pub(super) fn start(&mut self, id: u64) {
        let Some(entry) = self.tasks.get_mut(id) else {
            return;
        };
        let State::Waiting(task) = &mut entry.state else {
            return;
        };
        let task = std::mem::take(task);
        let pair = &self.pairs.list[entry.pair];
        let subject = convert::subject(&task);
        let span = tracing::info_span!(
            "task",
            task.stage = convert::stage(task.stage).map_or("?", Stage::as_str),
            task.reaction = task.reaction,
            task.claim_epoch = task.claim_epoch,
            resource.kind = %pair.kind,
            resource.name = subject.map_or("?", |resource| &*resource.name),
            resource.generation = task.generation,
        );
        let provider = Arc::clone(&pair.provider);
        let grace = catch_unwind(AssertUnwindSafe(|| provider.cleanup_grace()))
            .unwrap_or(Duration::from_secs(5));
        let over =
            ProviderConfig::from_wire(task.provider_config.clone(), task.provider_bundle.clone());
        let mut context = TaskContext::builder(pair.kind.clone())
            .claim_epoch(task.claim_epoch)
            .cleanup_grace(grace)
            .default_config(pair.config.clone())
            .override_config(over)
            .uncertain(Arc::clone(&self.uncertain))
            .span(span);
        if let Some(deadline) = entry.deadline {
            context = context.deadline(deadline);
        }
        let (ctx, control) = context.build_with_control();
        let run = handler::run(provider, ctx, entry.claim.clone(), task);
        let abort = self
            .handlers
            .spawn_on(async move { (id, run.await) }, &self.handle);
        // An empty set of handlers has forgotten whom to wake.
        self.news |= self.handlers.len() == 1;
        self.metrics.pairs[entry.pair].running.inc();
        entry.state = State::Running {
            since: Instant::now(),
            control,
            abort,
            cancelled_at: None,
        };
        self.tasks.running += 1;
    }

    /// Asks a running handler to end, and gives it its cleanup grace.
    pub(super) fn cancel(&mut self, id: u64, reason: CancelReason, now: Instant) {
        if let Some(task) = self.tasks.get_mut(id)
            && let State::Running {
                control,
                cancelled_at,
                ..
            } = &mut task.state
        {
            control.cancel(reason);
            if cancelled_at.is_none() {
                *cancelled_at = Some(now);
                self.timers
                    .set(now + control.context().cleanup_grace(), Timer::Grace(id));
            }
        }
    }

    pub(super) fn on_grace(&mut self, id: u64, now: Instant) {
        if let Some(task) = self.tasks.get(id)
            && let State::Running {
                control,
                abort,
                cancelled_at: Some(cancelled_at),
                ..
            } = &task.state
        {
            // The handler may have changed its grace since.
            let end = *cancelled_at + control.context().cleanup_grace();
            if end > now {
                self.timers.set(end, Timer::Grace(id));
            } else {
                abort.abort();
            }
        }
    }

    pub(super) fn on_deadline(&mut self, id: u64, now: Instant) {
        let Some(task) = self.tasks.get(id) else {
            return;
        };
        match &task.state {
            State::Waiting(_) => {
                let complete = convert::interrupted(
                    &task.claim,
                    "the task's deadline was over before it could start",
                );
                self.finish(id, complete);
            }
            State::Running { .. } => self.cancel(id, CancelReason::Deadline, now),
            State::Ended { .. } => {}
        }
    }

    pub(super) fn on_ready_wait(&mut self, id: u64) {
        if let Some(task) = self.tasks.get(id)
            && matches!(task.state, State::Waiting(_))
            && !self.pairs.list[task.pair].is_ready()
        {
            let why = format!(
                "{} is not ready on this worker",
                self.pairs.list[task.pair].kind
            );
            let complete = convert::interrupted(&task.claim, &why);
            self.finish(id, complete);
        }
    }

    /// A handler is no more: it has ended or was dropped.
    pub(super) fn handler_ended(&self, id: u64, took: Duration) {
        if let Some(task) = self.tasks.get(id) {
            let metrics = &self.metrics.pairs[task.pair];
            metrics.running.dec();
            metrics.durations.observe(took);
        }
    }

    /// A task has its result.
    pub(super) fn finish(&mut self, id: u64, complete: StageComplete) {
        if let Some(task) = self.tasks.get(id) {
            self.metrics.pairs[task.pair].ended(&complete);
            self.settle(id, complete);
        }
    }

    /// A task is answered once its result is in the buffer; until then it keeps its slot.
    fn settle(&mut self, id: u64, complete: StageComplete) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        let label = std::mem::take(&mut task.label);
        let outbox = self
            .session
            .as_ref()
            .filter(|session| !session.half_closed)
            .map(|session| &session.outbox);
        match self.results.insert(complete, label, outbox) {
            Ok(()) => {
                if let Some(next) = self.tasks.remove(id) {
                    self.enqueue(next);
                }
            }
            Err(refused) => {
                let (complete, label) = *refused;
                task.label = label;
                task.state = State::Ended {
                    complete: Box::new(complete),
                    slot: matches!(
                        task.state,
                        State::Running { .. } | State::Ended { slot: true, .. }
                    ),
                };
                self.tasks.ended.push_back(id);
            }
        }
    }

    /// Puts results that found no room into the buffer, in order, as far as there is room now.
    pub(super) fn settle_ended(&mut self) {
        for _ in 0..self.tasks.ended.len() {
            let Some(id) = self.tasks.ended.pop_front() else {
                return;
            };
            let Some(task) = self.tasks.get_mut(id) else {
                continue;
            };
            let State::Ended { complete, .. } = &mut task.state else {
                continue;
            };
            let complete = std::mem::take(&mut **complete);
            self.settle(id, complete);
            if self.tasks.get(id).is_some() {
                // Still no room: it went to the back, and belongs to the front.
                self.tasks.ended.rotate_right(1);
                return;
            }
        }
    }

    /// Answers a task that was not taken. If even that finds no room the lease will run out.
    pub(super) fn answer(&mut self, complete: StageComplete, label: String) {
        self.metrics.refused.inc();
        let outbox = self
            .session
            .as_ref()
            .filter(|session| !session.half_closed)
            .map(|session| &session.outbox);
        if let Err(refused) = self.results.insert(complete, label, outbox) {
            self.metrics.results_lost.inc();
            tracing::warn!(
                task = refused.1,
                "no room to answer a task that cannot be taken"
            );
        }
    }
}
