//! What every broker must do, seen from the wire.
//!
//! Each scenario is a function over [`BrokerUnderTest`] and panics when the broker does not keep to the contract. They use
//! pairs and resources of their own, so that they can run on one broker, one after another or at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::jobs::Look;
use super::raw::RawWorker;
use super::{FnProvider, MemoryBroker, Relay};
use crate::wire::work_stream_client_msg::Body;
use crate::wire::{StageComplete, work_stream_server_msg};
use crate::{
    Json, KindVersion, Outcome, Provider, ProviderConfig, RunOptions, WorkerError, run_worker,
};

/// How long a scenario waits for what must happen.
const LIMIT: Duration = Duration::from_secs(30);

/// A broker, and the little of its control plane that the scenarios need.
#[async_trait]
pub trait BrokerUnderTest: Send + Sync {
    /// Where workers dial it.
    fn addr(&self) -> String;

    /// How long a claim lives that nothing names. One or two seconds keep the scenarios quick.
    fn lease(&self) -> Duration;

    /// Makes a pair known: a leaf with a reaction `work` for spec changes that emits status and conditions.
    async fn declare(&self, pair: &KindVersion);

    /// Sets the default config of a pair; `None` removes it.
    async fn set_default_config(&self, pair: &KindVersion, spec: Option<Json>);

    /// Applies a resource.
    async fn apply(&self, pair: &KindVersion, name: &str, spec: Json);

    /// Looks at a resource.
    async fn look(&self, pair: &KindVersion, name: &str) -> Option<Look>;
}

#[async_trait]
impl BrokerUnderTest for MemoryBroker {
    fn addr(&self) -> String {
        MemoryBroker::addr(self)
    }

    fn lease(&self) -> Duration {
        self.options().lease
    }

    async fn declare(&self, _pair: &KindVersion) {}

    async fn set_default_config(&self, pair: &KindVersion, spec: Option<Json>) {
        let mut config = ProviderConfig::new();
        config.spec = spec;
        self.set_config(pair, config);
    }

    async fn apply(&self, pair: &KindVersion, name: &str, spec: Json) {
        MemoryBroker::apply(self, pair, name, spec);
    }

    async fn look(&self, pair: &KindVersion, name: &str) -> Option<Look> {
        MemoryBroker::look(self, pair, name)
    }
}

async fn pair_of(broker: &dyn BrokerUnderTest, kind: &str) -> KindVersion {
    let pair = KindVersion::new(kind, 1);
    broker.declare(&pair).await;
    pair
}

async fn until(
    broker: &dyn BrokerUnderTest,
    pair: &KindVersion,
    name: &str,
    what: &str,
    holds: impl Fn(&Look) -> bool,
) -> Look {
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(10));
    loop {
        pause.tick().await;
        let look = broker.look(pair, name).await.unwrap_or_default();
        if holds(&look) {
            return look;
        }
        assert!(
            started.elapsed() < LIMIT,
            "not within {LIMIT:?}: {what}: {look:?}"
        );
    }
}

fn status_is(look: &Look, text: &str) -> bool {
    let same = |status: &Json| {
        status.decode::<serde_json::Value>().ok() == serde_json::from_str(text).ok()
    };
    look.status.as_ref().is_some_and(same)
}

/// A worker that runs beside a scenario.
struct Running {
    stop: CancellationToken,
    worker: tokio::task::JoinSet<Result<(), WorkerError>>,
}

fn start(addr: &str, lease: Duration, provider: impl Provider) -> Running {
    let mut options = RunOptions::new(addr.parse().expect("a broker address"));
    options.lease = lease;
    options.heartbeat_interval = lease / 6;
    options.backoff_max_busy = Duration::from_millis(100);
    options.drain_timeout = Duration::from_millis(100);
    let stop = CancellationToken::new();
    let shutdown = stop.clone().cancelled_owned();
    let mut worker = tokio::task::JoinSet::new();
    worker.spawn(run_worker(vec![Arc::new(provider)], options, shutdown));
    Running { stop, worker }
}

impl Running {
    async fn stop(mut self) {
        self.stop.cancel();
        let ended = tokio::time::timeout(LIMIT, self.worker.join_next()).await;
        let ended = ended
            .expect("the worker ends")
            .expect("there is one")
            .expect("it does not panic");
        ended.expect("it ends in order");
    }
}

/// Configs of all subscribed pairs, empty ones too, come before any task, also when tasks are due already.
pub async fn configs_come_before_tasks(broker: &dyn BrokerUnderTest) {
    let (with, without) = (
        pair_of(broker, "wire-config-a").await,
        pair_of(broker, "wire-config-b").await,
    );
    broker
        .set_default_config(&with, Some(json!({"n": 1}).into()))
        .await;
    broker.apply(&with, "a", json!({}).into()).await;
    broker.apply(&without, "b", json!({}).into()).await;
    let mut worker = RawWorker::subscribe(&broker.addr(), &[&with, &without], 4, &[]).await;
    let mut configs = Vec::new();
    let mut tasks = Vec::new();
    while tasks.len() < 2 {
        match worker.next().await.expect("the stream goes on") {
            work_stream_server_msg::Body::Config(config) => configs.push(config),
            work_stream_server_msg::Body::Task(task) => {
                assert_eq!(configs.len(), 2, "both configs come first");
                tasks.push(task);
            }
        }
    }
    for config in configs {
        let expected: &[u8] = if config.kind == with.kind() {
            br#"{"n":1}"#
        } else {
            b""
        };
        assert_eq!(&config.config[..], expected, "{}", config.kind);
    }
    // An edit comes before what is claimed under it.
    broker
        .set_default_config(&with, Some(json!({"n": 2}).into()))
        .await;
    broker.apply(&with, "later", json!({}).into()).await;
    let mut seen = false;
    while let work_stream_server_msg::Body::Config(config) =
        worker.next().await.expect("the stream goes on")
    {
        seen |= &config.config[..] == br#"{"n":2}"#;
    }
    assert!(seen, "the edit came before the task");
    tasks.iter().for_each(|task| worker.complete(task, "{}"));
}

/// A result lands only on the exact claim, and only once.
pub async fn a_stale_result_changes_nothing(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-fence").await;
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut worker = RawWorker::subscribe(&broker.addr(), &[&pair], 4, &[]).await;
    let task = worker.task().await;
    let stale = |change: fn(&mut crate::wire::StageTask)| {
        let mut other = task.clone();
        change(&mut other);
        other
    };
    worker.complete(
        &stale(|task| task.claim_epoch -= 1),
        r#"{"by":"older epoch"}"#,
    );
    worker.complete(
        &stale(|task| task.claim_epoch += 1),
        r#"{"by":"newer epoch"}"#,
    );
    // Of the same form, so that it is the claim that refuses it and not a parser.
    worker.complete(
        &stale(|task| {
            let last = if task.lease_token.ends_with('1') {
                '2'
            } else {
                '1'
            };
            task.lease_token.pop();
            task.lease_token.push(last);
        }),
        r#"{"by":"other token"}"#,
    );
    worker.complete(&task, r#"{"by":"claim"}"#);
    worker.complete(&task, r#"{"by":"repeat"}"#);
    // What is sent later is handled later: once this one has landed, the repeat has been seen.
    broker.apply(&pair, "b", json!({}).into()).await;
    let next = worker.task().await;
    worker.complete(&next, "{}");
    until(broker, &pair, "b", "the second lands", Look::is_synced).await;
    let look = broker.look(&pair, "a").await.unwrap_or_default();
    assert!(
        look.is_synced() && status_is(&look, r#"{"by":"claim"}"#),
        "{look:?}"
    );
}

/// A claim that `resumed` names goes on on the new stream; a heartbeat keeps it, and its result lands.
pub async fn a_resumed_claim_is_kept(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-resume").await;
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut first = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let task = first.task().await;
    first.cut();
    let mut second = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[&task]).await;
    let started = Instant::now();
    while started.elapsed() < broker.lease() * 2 {
        second.heartbeat(&[&task]);
        assert!(
            second.is_quiet_for(broker.lease() / 6).await,
            "the claim is still ours"
        );
    }
    second.complete(&task, r#"{"ok":true}"#);
    until(broker, &pair, "a", "the result lands", Look::is_synced).await;
}

/// A claim that `resumed` names takes a slot of the new stream until it ends.
pub async fn a_resumed_claim_takes_a_slot(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-slot").await;
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut first = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let task = first.task().await;
    first.cut();
    let mut second = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[&task]).await;
    broker.apply(&pair, "b", json!({}).into()).await;
    assert!(
        second.is_quiet_for(broker.lease() / 4).await,
        "its one slot is taken"
    );
    second.complete(&task, "{}");
    let next = second.task().await;
    second.complete(&next, "{}");
    until(broker, &pair, "b", "the next lands", Look::is_synced).await;
}

/// A claim that nothing names runs out, not early, and the task goes to another worker with a newer epoch.
pub async fn a_silent_claim_runs_out(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-silent").await;
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut first = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let lost = first.task().await;
    let claimed = Instant::now();
    // It is still there; it just takes no more.
    first.interest(&pair, false);
    let mut second = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let task = second.task().await;
    // Both clocks started a little apart.
    let slack = Duration::from_millis(50);
    assert!(
        claimed.elapsed() + slack >= broker.lease(),
        "{:?}",
        claimed.elapsed()
    );
    assert!(task.claim_epoch > lost.claim_epoch);
    assert_ne!(task.lease_token, lost.lease_token);
    first.complete(&lost, r#"{"by":"first"}"#);
    second.complete(&task, r#"{"by":"second"}"#);
    let look = until(
        broker,
        &pair,
        "a",
        "the second result lands",
        Look::is_synced,
    )
    .await;
    assert!(status_is(&look, r#"{"by":"second"}"#), "{look:?}");
}

/// The half-close that ends a drain gives claims back at once.
pub async fn the_end_of_a_drain_releases_claims(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-drain").await;
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut first = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let lost = first.task().await;
    let claimed = Instant::now();
    first.interest(&pair, false);
    first.half_close().await;
    let mut second = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let task = second.task().await;
    assert!(
        claimed.elapsed() < broker.lease(),
        "it was released at once"
    );
    assert!(task.claim_epoch > lost.claim_epoch);
    second.complete(&task, "{}");
    until(broker, &pair, "a", "the result lands", Look::is_synced).await;
}

/// A half-close of a worker that has not said that it drains, and a broken connection, release nothing.
pub async fn a_broken_stream_releases_nothing(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-broken").await;
    for (name, in_order) in [("a", true), ("b", false)] {
        broker.apply(&pair, name, json!({}).into()).await;
        let mut first = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
        first.task().await;
        let claimed = Instant::now();
        if in_order {
            first.half_close().await;
        } else {
            first.cut();
        }
        let mut second = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
        let task = second.task().await;
        let slack = Duration::from_millis(50);
        assert!(
            claimed.elapsed() + slack >= broker.lease(),
            "{name}: {:?}",
            claimed.elapsed()
        );
        second.complete(&task, "{}");
        until(broker, &pair, name, "the result lands", Look::is_synced).await;
    }
}

/// A half-close is the end of a drain only when every pair had said that it takes no more.
pub async fn a_half_close_with_a_pair_in_use_releases_nothing(broker: &dyn BrokerUnderTest) {
    let (shed, used) = (
        pair_of(broker, "wire-half-a").await,
        pair_of(broker, "wire-half-b").await,
    );
    broker.apply(&shed, "a", json!({}).into()).await;
    let mut first = RawWorker::subscribe(&broker.addr(), &[&shed, &used], 2, &[]).await;
    first.task().await;
    let claimed = Instant::now();
    first.interest(&shed, false);
    first.half_close().await;
    let mut second = RawWorker::subscribe(&broker.addr(), &[&shed], 1, &[]).await;
    let task = second.task().await;
    let slack = Duration::from_millis(50);
    assert!(
        claimed.elapsed() + slack >= broker.lease(),
        "{:?}",
        claimed.elapsed()
    );
    second.complete(&task, "{}");
    until(broker, &shed, "a", "the result lands", Look::is_synced).await;
}

/// An edit of a default config, and its removal, reach a worker at once, also one that has no task.
pub async fn an_edit_reaches_a_worker_without_a_task(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-edit").await;
    let mut worker = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;
    let edits: [(Option<Json>, &[u8]); 2] =
        [(Some(json!({"n": 1}).into()), br#"{"n":1}"#), (None, b"")];
    for (spec, expected) in edits {
        broker.set_default_config(&pair, spec).await;
        // Before it comes what was said at the start.
        loop {
            match worker.next().await.expect("the stream goes on") {
                work_stream_server_msg::Body::Config(config) if config.config == expected => break,
                work_stream_server_msg::Body::Config(_) => {}
                work_stream_server_msg::Body::Task(task) => panic!("nobody applied {task:?}"),
            }
        }
    }
}

/// A pair that says it is not ready gets no tasks; once it says that it is, it does. Credit bounds what is in flight.
pub async fn interest_and_credit_are_kept_to(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-credit").await;
    let mut worker = RawWorker::subscribe(&broker.addr(), &[&pair], 2, &[]).await;
    worker.interest(&pair, false);
    // Messages are handled in order: when the config of this edit comes, the interest has been seen too.
    assert!(worker.is_quiet_for(Duration::from_millis(100)).await);
    for name in ["a", "b", "c"] {
        broker.apply(&pair, name, json!({}).into()).await;
    }
    assert!(
        worker.is_quiet_for(Duration::from_millis(200)).await,
        "it said that it is not ready"
    );
    worker.interest(&pair, true);
    let first = worker.task().await;
    let second = worker.task().await;
    assert!(
        worker.is_quiet_for(Duration::from_millis(200)).await,
        "two are in flight"
    );
    worker.complete(&first, "{}");
    let third = worker.task().await;
    worker.complete(&second, "{}");
    worker.complete(&third, "{}");
    for name in ["a", "b", "c"] {
        until(broker, &pair, name, "it lands", Look::is_synced).await;
    }
}

/// Bytes that are no HTTP/2, a stream that does not begin with Subscribe, an empty message and a result of an unknown stage
/// hurt nobody else.
pub async fn garbage_hurts_nobody_else(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-garbage").await;
    let mut good = RawWorker::subscribe(&broker.addr(), &[&pair], 1, &[]).await;

    let addr = broker.addr();
    let mut socket = tokio::net::TcpStream::connect(addr.trim_start_matches("http://"))
        .await
        .expect("the broker is reachable");
    // The peer may hang up while we still write.
    let _ = socket.write_all(&[0xff; 4096]).await;

    let mut rude = RawWorker::begin(&broker.addr(), Body::Heartbeat(Default::default())).await;
    assert!(
        rude.next().await.is_none(),
        "a stream that does not begin with Subscribe ends"
    );

    good.send(Body::Complete(StageComplete {
        lease_token: "no such lease".to_owned(),
        stage: 77,
        failed_stage: 77,
        error_message: "?".to_owned(),
        ..StageComplete::default()
    }));
    broker.apply(&pair, "a", json!({}).into()).await;
    let task = good.task().await;
    good.complete(&task, "{}");
    until(broker, &pair, "a", "the result lands", Look::is_synced).await;
}

/// A status of 60 MiB arrives whole.
pub async fn a_status_of_60_mib_arrives(broker: &dyn BrokerUnderTest) {
    const SIZE: usize = 60 << 20;
    let pair = pair_of(broker, "wire-large").await;
    let provider = FnProvider::new(pair.clone(), async |_, _| {
        let text = format!("{{\"text\":\"{}\"}}", "x".repeat(SIZE));
        Ok(Outcome::new().with_status(Json::from_bytes_unchecked(text)))
    });
    let worker = start(&broker.addr(), broker.lease(), provider);
    broker.apply(&pair, "a", json!({}).into()).await;
    let look = until(broker, &pair, "a", "the status lands", Look::is_synced).await;
    assert_eq!(look.status.map(|status| status.len()), Some(SIZE + 11));
    worker.stop().await;
}

/// A connection that is cut in the middle of a task costs no second run, however often it happens.
pub async fn a_cut_connection_costs_no_second_run(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-cut").await;
    let runs = Arc::new(AtomicU32::new(0));
    let release = CancellationToken::new();
    let provider = {
        let (runs, release) = (Arc::clone(&runs), release.clone());
        FnProvider::new(pair.clone(), move |ctx, _| {
            runs.fetch_add(1, Ordering::Relaxed);
            let release = release.clone();
            async move {
                release.cancelled().await;
                match ctx.cancel_reason() {
                    None => Ok(Outcome::new().with_status(json!({"done": true}))),
                    Some(reason) => Err(crate::TaskError::transient(format!("{reason:?}"))),
                }
            }
        })
    };
    let relay = Relay::to(&broker.addr()).await.expect("a port is free");
    let worker = start(&relay.addr(), broker.lease(), provider);
    broker.apply(&pair, "a", json!({}).into()).await;
    let mut pause = tokio::time::interval(Duration::from_millis(5));
    let started = Instant::now();
    while runs.load(Ordering::Relaxed) == 0 {
        pause.tick().await;
        assert!(started.elapsed() < LIMIT, "the task starts");
    }
    for cuts in 1..=3 {
        relay.cut();
        while relay.connections() <= cuts {
            pause.tick().await;
            assert!(started.elapsed() < LIMIT, "the worker comes back");
        }
    }
    // The result is made while there is no connection at all.
    relay.down();
    release.cancel();
    relay.up();
    let look = until(broker, &pair, "a", "the result lands", Look::is_synced).await;
    assert!(status_is(&look, r#"{"done":true}"#), "{look:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    worker.stop().await;
}

/// A worker that drains gives back what it could not finish; nothing is counted as an attempt, and another worker finishes it.
pub async fn a_drain_counts_no_attempt(broker: &dyn BrokerUnderTest) {
    let pair = pair_of(broker, "wire-drained").await;
    let started = CancellationToken::new();
    let never = {
        let started = started.clone();
        FnProvider::new(pair.clone(), move |ctx, _| {
            let started = started.clone();
            async move {
                started.cancel();
                let reason = ctx.cancelled().await;
                Err(crate::TaskError::terminal(format!("cut: {reason:?}")))
            }
        })
    };
    let first = start(&broker.addr(), broker.lease(), never);
    broker.apply(&pair, "a", json!({}).into()).await;
    tokio::time::timeout(LIMIT, started.cancelled())
        .await
        .expect("the task starts");
    first.stop().await;
    // Seen before a success would hide it.
    let look = broker.look(&pair, "a").await.unwrap_or_default();
    assert_eq!((look.attempts, look.is_failed), (0, false), "{look:?}");
    let second = start(
        &broker.addr(),
        broker.lease(),
        FnProvider::new(pair.clone(), async |_, _| Ok(Outcome::new())),
    );
    let look = until(
        broker,
        &pair,
        "a",
        "the other worker finishes it",
        Look::is_synced,
    )
    .await;
    assert_eq!((look.attempts, look.is_failed), (0, false));
    second.stop().await;
}

/// Runs every scenario, one after another.
pub async fn all(broker: &dyn BrokerUnderTest) {
    configs_come_before_tasks(broker).await;
    a_stale_result_changes_nothing(broker).await;
    a_resumed_claim_is_kept(broker).await;
    a_resumed_claim_takes_a_slot(broker).await;
    a_silent_claim_runs_out(broker).await;
    the_end_of_a_drain_releases_claims(broker).await;
    a_broken_stream_releases_nothing(broker).await;
    a_half_close_with_a_pair_in_use_releases_nothing(broker).await;
    an_edit_reaches_a_worker_without_a_task(broker).await;
    interest_and_credit_are_kept_to(broker).await;
    garbage_hurts_nobody_else(broker).await;
    a_status_of_60_mib_arrives(broker).await;
    a_cut_connection_costs_no_second_run(broker).await;
    a_drain_counts_no_attempt(broker).await;
}
