//! What a worker counts, for Prometheus. `METRICS.md` lists it.
//!
//! Labels are those of the pairs that are registered, so that nothing that comes from outside makes a new series. Every handle
//! is resolved at the start: counting is an addition to an atomic and takes no lock.

mod durations;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::durations::Durations;
use super::convert;
use super::health::PairState;
use crate::KindVersion;
use crate::wire::StageComplete;

/// The media type of [`Exposition::text`].
pub(crate) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// The handles with which the loop counts.
pub(crate) struct Metrics {
    /// By the places of the pairs.
    pub(crate) pairs: Vec<PairMetrics>,
    pub(crate) slots_used: Gauge,
    pub(crate) refused: Counter,
    pub(crate) results: Gauge,
    pub(crate) results_bytes: Gauge,
    pub(crate) results_resent: Counter,
    /// Sent ones that were forgotten early.
    pub(crate) results_evicted: Counter,
    /// Those that found no room.
    pub(crate) results_lost: Counter,
    pub(crate) dials: Counter,
    pub(crate) streams: Counter,
    pub(crate) streams_lost: Counter,
    pub(crate) stream_up: Gauge,
    pub(crate) heartbeats: Counter,
    pub(crate) pull_failures: Counter,
    pub(crate) draining: Gauge,
}

/// What is counted for each pair.
pub(crate) struct PairMetrics {
    succeeded: Counter,
    transient: Counter,
    terminal: Counter,
    interrupted: Counter,
    pub(crate) running: Gauge,
    pub(crate) durations: Durations,
    pub(crate) pushes: Counter,
    ready: Gauge,
    shed: Gauge,
}

/// What is read, on any thread.
pub(crate) struct Exposition(Registry);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PairLabels {
    kind: String,
    version: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    kind: String,
    version: u16,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

impl Metrics {
    /// Everything at zero, for these pairs and so many slots.
    pub(crate) fn new<'a>(
        kinds: impl Iterator<Item = &'a KindVersion>,
        slots: usize,
    ) -> (Self, Exposition) {
        let mut registry = Registry::with_prefix("converge_worker");
        registry.register(
            "build",
            "The version of converge-sdk, as a label",
            Info::new([("sdk_version", env!("CARGO_PKG_VERSION"))]),
        );
        let mut of = Families::register(&mut registry);
        let pairs = kinds.map(|kind| of.pair(kind)).collect();
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let all_slots: Gauge = gauge("slots", "Tasks that may run at once");
        all_slots.set(count(slots));
        let slots_used = gauge(
            "slots_used",
            "Tasks that run, or have run and wait for room for their result",
        );
        let results = gauge(
            "results_buffered",
            "Results kept until they have certainly arrived",
        );
        let results_bytes = gauge("results_buffered_bytes", "The size of these results");
        let stream_up = gauge("stream_up", "1 while the stream to the broker is up");
        let draining = gauge("draining", "1 once the worker is shutting down");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let metrics = Self {
            pairs,
            slots_used,
            refused: counter(
                "tasks_refused",
                "Tasks that were answered without being taken: malformed, stale, not served here, too many",
            ),
            results,
            results_bytes,
            results_resent: counter("results_resent", "Results sent again on another stream"),
            results_evicted: of.dropped("evicted"),
            results_lost: of.dropped("no_room"),
            dials: counter("dials", "Attempts to connect to the broker"),
            streams: counter("streams", "Streams that came up"),
            streams_lost: counter("streams_lost", "Streams that were up and broke"),
            stream_up,
            heartbeats: counter("heartbeats", "Heartbeats sent"),
            pull_failures: counter(
                "config_pull_failures",
                "Pulls of the default configs that failed",
            ),
            draining,
        };
        (metrics, Exposition(registry))
    }
}

/// The families, while the pairs take their handles.
struct Families {
    tasks: Family<OutcomeLabels, Counter>,
    running: Family<PairLabels, Gauge>,
    durations: Family<PairLabels, Durations>,
    pushes: Family<PairLabels, Counter>,
    ready: Family<PairLabels, Gauge>,
    shed: Family<PairLabels, Gauge>,
    dropped: Family<ReasonLabels, Counter>,
}

impl Families {
    fn register(registry: &mut Registry) -> Self {
        let of = Self {
            tasks: Family::default(),
            running: Family::default(),
            durations: Family::default(),
            pushes: Family::default(),
            ready: Family::default(),
            shed: Family::default(),
            dropped: Family::default(),
        };
        registry.register(
            "tasks",
            "Tasks that ended, by what was reported",
            of.tasks.clone(),
        );
        registry.register("tasks_running", "Handlers that run", of.running.clone());
        registry.register(
            "task_duration_seconds",
            "How long handlers ran, whatever came of it",
            of.durations.clone(),
        );
        registry.register(
            "config_pushes",
            "Default configs that the broker pushed and the pair took",
            of.pushes.clone(),
        );
        registry.register(
            "pair_ready",
            "1 while the pair takes tasks",
            of.ready.clone(),
        );
        registry.register(
            "pair_shed",
            "1 while the pair takes none because its provider is not ready or panicked over its config",
            of.shed.clone(),
        );
        registry.register(
            "results_dropped",
            "Results not kept until they had certainly arrived: evicted were sent and made room for others, no_room answered tasks that were refused",
            of.dropped.clone(),
        );
        of
    }

    fn pair(&mut self, kind: &KindVersion) -> PairMetrics {
        let labels = PairLabels {
            kind: kind.kind().to_owned(),
            version: kind.version(),
        };
        let outcome = |outcome| {
            let labels = OutcomeLabels {
                kind: kind.kind().to_owned(),
                version: kind.version(),
                outcome,
            };
            self.tasks.get_or_create_owned(&labels)
        };
        PairMetrics {
            succeeded: outcome("success"),
            transient: outcome("transient"),
            terminal: outcome("terminal"),
            interrupted: outcome("interrupted"),
            running: self.running.get_or_create_owned(&labels),
            durations: self.durations.get_or_create_owned(&labels),
            pushes: self.pushes.get_or_create_owned(&labels),
            ready: self.ready.get_or_create_owned(&labels),
            shed: self.shed.get_or_create_owned(&labels),
        }
    }

    fn dropped(&mut self, reason: &'static str) -> Counter {
        self.dropped.get_or_create_owned(&ReasonLabels { reason })
    }
}

impl PairMetrics {
    /// A task has its result.
    pub(crate) fn ended(&self, complete: &StageComplete) {
        let counter = if !convert::is_failure(complete) {
            &self.succeeded
        } else if convert::is_interrupted(complete) {
            &self.interrupted
        } else if complete.terminal {
            &self.terminal
        } else {
            &self.transient
        };
        counter.inc();
    }

    pub(crate) fn stands(&self, state: PairState) {
        self.ready.set((state == PairState::Ready).into());
        self.shed.set(state.is_shed().into());
    }
}

impl Exposition {
    /// The text format of Prometheus, version 0.0.4, which every collector reads.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text cannot fail.
        let _ = prometheus_text::encode(&mut text, &self.0);
        text
    }
}

/// A number as a gauge takes it.
pub(crate) fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
