//! The loop: takes what has happened in batches, then does what has become possible.
//!
//! Everything is state of one value on one thread; there are no locks and no order to get wrong. One turn takes a bounded
//! number of events from each source, so that none can starve another, and what a turn sends goes out in one write.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::WorkerError;
use super::backoff::Backoff;
use super::convert;
use super::drain::Drain;
use super::endpoint::Exposed;
use super::gather::Gathered;
use super::handler;
use super::health::Health;
use super::metrics::{Metrics, count};
use super::pairs::Pairs;
use super::results::Results;
use super::session::Session;
use super::tasks::{State, Tasks};
use super::timers::{Timer, Timers};
use crate::RunOptions;
use crate::error::chain;
use crate::transport::{Connection, DialError, dial};
use crate::wire::work_stream_client_msg::Body;
use crate::wire::{StageComplete, WorkHeartbeat, work_stream_server_msg};

/// Events taken from one source in one turn.
const BATCH: usize = 256;
/// The longest interval between pings that a broker can ask for.
const MAX_KEEPALIVE: Duration = Duration::from_secs(300);

type Dialling = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

pub(crate) struct Core {
    pub(super) options: Arc<RunOptions>,
    pub(super) health: Arc<Health>,
    pub(super) metrics: Metrics,
    pub(super) pairs: Pairs,
    pub(super) tasks: Tasks,
    pub(super) results: Results,
    pub(super) timers: Timers,
    pub(super) session: Option<Session>,
    pub(super) drain: Option<Drain>,
    pub(super) handlers: JoinSet<(u64, StageComplete)>,
    gathered: Gathered,
    pub(super) handle: Handle,
    pub(super) stop: Pin<Box<WaitForCancellationFutureOwned>>,
    pub(super) abandon: Pin<Box<WaitForCancellationFutureOwned>>,
    pub(super) dialling: Option<Dialling>,
    /// Numbers sessions, so that a timer of an old one is told.
    pub(super) sessions: u64,
    pub(super) dial_at: Instant,
    pub(super) backoff: Backoff,
    pub(super) pull_at: Instant,
    pub(super) pull_backoff: Backoff,
    pub(super) keepalive: Duration,
    pub(super) down_since: Instant,
    pub(super) uncertain: Arc<AtomicBool>,
    /// Whether a broker was met.
    pub(super) served: bool,
    /// A future was created that has not been polled yet.
    pub(super) news: bool,
}

impl Core {
    /// The loop, and what it will show to those who ask from outside.
    pub(crate) fn new(
        pairs: Pairs,
        options: RunOptions,
        handle: Handle,
        stop: CancellationToken,
        abandon: CancellationToken,
    ) -> (Self, Exposed) {
        let now = Instant::now();
        let kinds = || pairs.list.iter().map(|pair| &pair.kind);
        let health = Arc::new(Health::new(kinds(), options.heartbeat_interval));
        let (metrics, exposition) = Metrics::new(kinds(), options.max_parallel);
        let exposed = Exposed {
            health: Arc::clone(&health),
            metrics: exposition,
        };
        let core = Self {
            health,
            metrics,
            pairs,
            tasks: Tasks::default(),
            results: Results::new(
                options.result_buffer.max(options.max_parallel),
                options.result_buffer_bytes,
            ),
            timers: Timers::default(),
            session: None,
            drain: None,
            handlers: JoinSet::new(),
            gathered: Gathered::default(),
            handle,
            stop: Box::pin(stop.cancelled_owned()),
            abandon: Box::pin(abandon.cancelled_owned()),
            dialling: None,
            sessions: 0,
            dial_at: now,
            backoff: Backoff::new(options.backoff_min),
            pull_at: now,
            pull_backoff: Backoff::new(options.backoff_min),
            keepalive: options.keepalive_interval,
            down_since: now,
            uncertain: Arc::default(),
            served: false,
            news: false,
            options: Arc::new(options),
        };
        (core, exposed)
    }

    /// Runs until drained or abandoned.
    pub(crate) async fn run(mut self) -> Result<(), WorkerError> {
        let now = Instant::now();
        {
            let _runtime = self.handle.clone();
            let _entered = _runtime.enter();
            self.pairs
                .list
                .iter_mut()
                .for_each(|pair| pair.poll_ready());
        }
        self.timers.set(now, Timer::Dial);
        self.timers
            .set(now + self.options.heartbeat_interval, Timer::Heartbeat);
        self.timers
            .set(now + self.options.ready_poll_interval, Timer::Readiness);
        self.timers.set(now + self.options.lease, Timer::Uncertain);
        std::future::poll_fn(|cx| self.turn(cx)).await
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WorkerError>> {
        if self.abandon.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.drain.is_none() && self.stop.as_mut().poll(cx).is_ready() {
            self.begin_drain(Instant::now());
        }
        let mut again = false;
        if let Some(dialling) = &mut self.dialling
            && let Poll::Ready(result) = dialling.as_mut().poll(cx)
        {
            self.dialling = None;
            match result {
                Ok(connection) => self.open(connection),
                Err(error) => self.session_ended(&chain(&error)),
            }
        }
        again |= self.take_messages(cx);
        again |= self.take_results(cx);
        let now = Instant::now();
        for _ in 0..BATCH {
            match self.timers.due(now) {
                Some(timer) => self.on_timer(timer, now),
                None => break,
            }
        }
        let tasks = &self.tasks;
        self.timers.sweep(|id| tasks.get(id).is_some());
        self.settle_gathered(now);
        self.settle_ended();
        self.start_tasks();
        self.show(now);
        if let Some(end) = self.poll_drain(cx, now) {
            return Poll::Ready(end);
        }
        // What was created in this turn has to be polled once to be heard of.
        again |= std::mem::take(&mut self.news);
        again |= self.timers.poll(cx).is_ready();
        if again {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Shows those who ask from outside how things stand after this turn.
    fn show(&mut self, now: Instant) {
        let (health, metrics) = (&self.health, &self.metrics);
        let up_since = self.session.as_ref().and_then(|session| session.up_since);
        health.turned(now);
        health.stream(up_since.is_some(), up_since.unwrap_or(self.down_since));
        health.draining(self.drain.is_some());
        metrics.stream_up.set(up_since.is_some().into());
        metrics.draining.set(self.drain.is_some().into());
        for (at, pair) in self.pairs.list.iter().enumerate() {
            let state = pair.state();
            health.pair(at, state);
            metrics.pairs[at].stands(state);
        }
        metrics.slots_used.set(count(self.tasks.running));
        metrics.results.set(count(self.results.len()));
        metrics.results_bytes.set(count(self.results.bytes()));
        metrics.results_evicted.inc_by(self.results.take_evicted());
    }

    /// Takes what the session has to say. True if there may be more at once.
    fn take_messages(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        if session.poll_up(cx).is_ready() {
            self.uncertain.store(false, Ordering::Release);
            self.metrics.streams.inc();
        }
        let mut more = true;
        for _ in 0..BATCH {
            let Some(session) = &mut self.session else {
                return false;
            };
            let polled = session.poll_message(cx);
            if session.is_met() {
                self.announce();
            }
            match polled {
                Poll::Pending => {
                    more = false;
                    break;
                }
                Poll::Ready(Ok(Some(message))) => match message.body {
                    Some(work_stream_server_msg::Body::Task(task)) => self.on_task(Box::new(task)),
                    Some(work_stream_server_msg::Body::Config(config)) => self.on_push(config),
                    // A message of a later version of the contract.
                    None => tracing::debug!("the broker sent a message that is not known here"),
                },
                Poll::Ready(Ok(None)) => {
                    let half_closed = self.session.as_ref().is_some_and(|it| it.half_closed);
                    if half_closed {
                        self.on_drained_stream();
                    } else {
                        self.session_ended("the broker closed the stream");
                    }
                    return false;
                }
                Poll::Ready(Err(status)) => {
                    let why = self.session.as_ref().map(|session| session.why(&status));
                    self.session_ended(&why.unwrap_or_default());
                    return false;
                }
            }
        }
        if let Some(session) = &mut self.session
            && let Poll::Ready((pushes, answer)) = session.poll_pull(cx)
        {
            if session.is_met() {
                self.announce();
            }
            self.on_pull(pushes, answer);
        }
        more
    }

    /// What answers is a broker. That it took the connection does not say so: anything that speaks HTTP/2 does.
    fn announce(&mut self) {
        let broker = &self.options.broker;
        if self.served {
            tracing::info!(%broker, "connected again");
            return;
        }
        self.served = true;
        let kinds = self.pairs.list.iter().map(|pair| pair.kind.to_string());
        let kinds: Vec<_> = kinds.collect();
        tracing::info!(%broker, kinds = kinds.join(","), "serving");
    }

    /// The broker finds that we ping too often.
    pub(super) fn calm_down(&mut self) {
        if self.keepalive == self.options.keepalive_interval {
            tracing::warn!(broker = %self.options.broker, "the broker asks for fewer pings: pinging half as often from now on, each time it asks");
        }
        self.keepalive = (self.keepalive * 2).min(MAX_KEEPALIVE.max(self.keepalive));
    }

    /// Takes the results of handlers. True if there may be more at once.
    fn take_results(&mut self, cx: &mut Context<'_>) -> bool {
        for _ in 0..BATCH {
            match self.handlers.poll_join_next_with_id(cx) {
                Poll::Pending | Poll::Ready(None) => return false,
                Poll::Ready(Some(Ok((_, ended)))) => self.gather(ended),
                Poll::Ready(Some(Err(error))) => self.on_dropped(&error),
            }
        }
        true
    }

    fn gather(&mut self, ended: (u64, StageComplete)) {
        let now = Instant::now();
        let took = match self.tasks.get(ended.0).map(|task| &task.state) {
            Some(State::Running { since, .. }) => now.duration_since(*since),
            _ => Duration::ZERO,
        };
        self.handler_ended(ended.0, took);
        if let Some(until) = self.gathered.add(ended, took, now) {
            self.timers.set(until, Timer::Gathered);
        }
    }

    fn settle_gathered(&mut self, now: Instant) {
        let ended = match self.drain {
            None => self.gathered.take(self.tasks.running, now),
            Some(_) => self.gathered.take_all(),
        };
        for (id, complete) in ended {
            self.finish(id, complete);
        }
    }

    /// A handler was dropped, because it was told to or because something of it panicked beyond its future.
    fn on_dropped(&mut self, error: &JoinError) {
        let Some(id) = self.tasks.by_handler(error.id()) else {
            return;
        };
        let Some(task) = self.tasks.get(id) else {
            return;
        };
        if let State::Running { since, .. } = &task.state {
            self.handler_ended(id, since.elapsed());
        }
        let complete = match &task.state {
            State::Running { control, .. } if error.is_cancelled() => {
                tracing::warn!(
                    task = task.label,
                    "the handler did not end within its cleanup grace and was dropped"
                );
                handler::dropped(&task.claim, control.context().cancel_reason())
            }
            _ => convert::failed(
                &task.claim,
                true,
                "the handler panicked while it was dropped",
            ),
        };
        self.finish(id, complete);
    }

    fn on_timer(&mut self, timer: Timer, now: Instant) {
        match timer {
            Timer::Heartbeat => {
                self.timers
                    .set(now + self.options.heartbeat_interval, Timer::Heartbeat);
                self.heartbeat(now);
            }
            Timer::Readiness => {
                self.timers
                    .set(now + self.options.ready_poll_interval, Timer::Readiness);
                let runtime = self.handle.clone();
                let _entered = runtime.enter();
                self.pairs
                    .list
                    .iter_mut()
                    .for_each(|pair| pair.poll_ready());
                self.advertise();
            }
            Timer::Pull => {
                if now >= self.pull_at {
                    self.pull(now);
                }
            }
            Timer::Dial => {
                if self.session.is_none() && self.dialling.is_none() && now >= self.dial_at {
                    self.metrics.dials.inc();
                    let options = Arc::clone(&self.options);
                    let keepalive = self.keepalive;
                    self.dialling = Some(Box::pin(async move { dial(&options, keepalive).await }));
                    self.news = true;
                }
            }
            Timer::Uncertain => {
                let up = self
                    .session
                    .as_ref()
                    .is_some_and(|session| session.up_since.is_some());
                if !up && now.duration_since(self.down_since) >= self.options.lease {
                    self.uncertain.store(true, Ordering::Release);
                }
            }
            Timer::Connect(number) => {
                let hangs = self
                    .session
                    .as_ref()
                    .is_some_and(|session| session.up_since.is_none());
                if hangs && number == self.sessions {
                    self.session_ended("the broker did not answer");
                }
            }
            Timer::Deadline(id) => self.on_deadline(id, now),
            Timer::ReadyWait(id) => self.on_ready_wait(id),
            Timer::Grace(id) => self.on_grace(id, now),
            Timer::Drain => self.cut(now),
            Timer::Close | Timer::Gathered => {}
        }
    }

    fn heartbeat(&mut self, now: Instant) {
        let Some(session) = &self.session else {
            return;
        };
        if session.up_since.is_some() {
            self.results
                .expire(&session.outbox, self.options.lease, now);
        }
        if session.half_closed {
            return;
        }
        let mut beat = WorkHeartbeat::default();
        for (_, task) in self.tasks.iter() {
            beat.lease_token.push(task.claim.token.clone());
            beat.claim_epoch.push(task.claim.epoch);
        }
        let before = session.outbox.pushed();
        let after = session.outbox.push(Body::Heartbeat(beat));
        self.metrics.heartbeats.inc_by(after - before);
    }
}
