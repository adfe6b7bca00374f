//! The worker's side of a session: how one begins and ends, default configs, and who is told what is ready.

use std::collections::HashMap;
use std::time::Instant;

use super::core::Core;
use super::outbox::Outbox;
use super::session::Session;
use super::timers::Timer;
use crate::ProviderConfig;
use crate::transport::Connection;
use crate::wire::work_stream_client_msg::Body;
use crate::wire::{
    GetProviderConfigRequest, GetProviderConfigResponse, Interest, ProviderConfigUpdate,
    ResumedTask, Subscribe,
};

impl Core {
    pub(super) fn open(&mut self, connection: Connection) {
        let now = Instant::now();
        self.sessions += 1;
        let outbox = Outbox::default();
        let running = self.tasks.iter().map(|(_, task)| ResumedTask {
            lease_token: task.claim.token.clone(),
            claim_epoch: task.claim.epoch,
        });
        outbox.push(Body::Subscribe(Subscribe {
            kinds: self
                .pairs
                .list
                .iter()
                .map(|pair| pair.kind.kind().to_owned())
                .collect(),
            kind_versions: self
                .pairs
                .list
                .iter()
                .map(|pair| pair.kind.version().into())
                .collect(),
            max_inflight: u32::try_from(self.options.max_parallel).unwrap_or(u32::MAX),
            resumed: running.chain(self.results.claims()).collect(),
        }));
        for pair in &mut self.pairs.list {
            pair.fresh = false;
            pair.advertised = true;
        }
        let began = connection.began;
        self.session = Some(Session::open(connection, outbox));
        self.advertise();
        if let Some(session) = &self.session {
            let again = self.results.resend(&session.outbox);
            self.metrics.results_resent.inc_by(again);
        }
        self.pull(now);
        // What was spent on TCP and TLS is gone.
        self.timers.set(
            began + self.options.connect_timeout,
            Timer::Connect(self.sessions),
        );
    }

    /// The session is over, or none came about: dial again after a pause.
    pub(super) fn session_ended(&mut self, why: &str) {
        let now = Instant::now();
        let session = self.session.take();
        if session.as_ref().is_some_and(Session::asks_for_calm) {
            self.calm_down();
        }
        if let Some(up_since) = session.and_then(|session| session.up_since) {
            self.down_since = now;
            self.metrics.streams_lost.inc();
            self.timers.set(now + self.options.lease, Timer::Uncertain);
            if now.duration_since(up_since) >= self.options.healthy_after {
                self.backoff.reset();
            }
        }
        self.health.no_stream(why);
        self.results.unsend();
        let busy = !self.tasks.is_empty() || !self.results.is_empty();
        let max = if busy {
            self.options.backoff_max_busy
        } else {
            self.options.backoff_max
        };
        let pause = self.backoff.next(max.min(self.options.backoff_max));
        tracing::warn!(broker = %self.options.broker, error = why, pause_ms = pause.as_millis(), "no connection to the broker; dialling again");
        self.dial_at = now + pause;
        self.timers.set(self.dial_at, Timer::Dial);
    }

    pub(super) fn outbox(&self) -> Option<&Outbox> {
        self.session
            .as_ref()
            .filter(|session| !session.half_closed)
            .map(|session| &session.outbox)
    }

    pub(super) fn on_push(&mut self, update: ProviderConfigUpdate) {
        let Some(at) = self.pairs.find(&update.kind, update.kind_version) else {
            tracing::debug!(
                kind = update.kind,
                version = update.kind_version,
                "a config of a pair that is not served here"
            );
            return;
        };
        let runtime = self.handle.clone();
        let _entered = runtime.enter();
        let pair = &mut self.pairs.list[at];
        pair.pushes += 1;
        self.metrics.pairs[at].pushes.inc();
        pair.set_config(ProviderConfig::from_wire(update.config, update.bundle));
        self.advertise();
    }

    pub(super) fn pull(&mut self, now: Instant) {
        let pushes = self.pairs.list.iter().map(|pair| pair.pushes).collect();
        let request = GetProviderConfigRequest {
            kinds: self
                .pairs
                .list
                .iter()
                .map(|pair| pair.kind.kind().to_owned())
                .collect(),
            kind_versions: self
                .pairs
                .list
                .iter()
                .map(|pair| pair.kind.version().into())
                .collect(),
        };
        let limit = self.options.lease;
        if let Some(session) = &mut self.session
            && session.pull.is_none()
            && !session.half_closed
        {
            session.pull(request, pushes, limit);
            self.news = true;
            self.pull_at = now + self.options.config_pull_interval;
            self.timers.set(self.pull_at, Timer::Pull);
        }
    }

    pub(super) fn on_pull(
        &mut self,
        pushes: Vec<u64>,
        answer: Result<GetProviderConfigResponse, tonic::Status>,
    ) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(status) => {
                self.metrics.pull_failures.inc();
                let why = self.session.as_ref().map(|session| session.why(&status));
                let pause = self.pull_backoff.next(self.options.backoff_max);
                tracing::warn!(
                    error = why,
                    pause_ms = pause.as_millis(),
                    "could not pull the default configs; asking again"
                );
                self.pull_at = Instant::now() + pause;
                self.timers.set(self.pull_at, Timer::Pull);
                return;
            }
        };
        self.pull_backoff.reset();
        let mut entries = HashMap::new();
        for entry in answer.entries {
            if let Some(at) = self.pairs.find(&entry.kind, entry.kind_version) {
                entries.insert(at, ProviderConfig::from_wire(entry.config, entry.bundle));
            }
        }
        let runtime = self.handle.clone();
        let _entered = runtime.enter();
        for (at, pair) in self.pairs.list.iter_mut().enumerate() {
            // A push that arrived after the pull was sent is newer than its answer.
            if pushes.get(at) == Some(&pair.pushes) {
                pair.set_config(entries.remove(&at).unwrap_or_default());
            }
        }
        self.advertise();
    }

    /// Tells the broker of every pair that became ready or stopped being so, and lets go of tasks that were put aside.
    pub(super) fn advertise(&mut self) {
        let draining = self.drain.is_some();
        let outbox = self
            .session
            .as_ref()
            .filter(|session| !session.half_closed)
            .map(|session| session.outbox.clone());
        for (at, pair) in self.pairs.list.iter_mut().enumerate() {
            let wanted = pair.is_ready() && !draining;
            if let Some(outbox) = &outbox
                && wanted != pair.advertised
            {
                pair.advertised = wanted;
                outbox.push(Body::Interest(Interest {
                    kind: pair.kind.kind().to_owned(),
                    kind_version: pair.kind.version().into(),
                    has_worker: wanted,
                    credit: 0,
                }));
            }
            if pair.takes_tasks() {
                self.tasks.release(at);
            }
        }
    }
}
