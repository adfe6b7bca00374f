//! How a worker behaves, against the in-memory broker and against brokers that misbehave.
#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod configs;
mod draining;
mod frames;
mod health;
mod hostile;
mod leases;
mod running;
mod speed;
mod stages;
mod tls;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::testing::{BrokerOptions, FnProvider, MemoryBroker};
use crate::{KindVersion, Provider, RunOptions, WorkerError, run_worker};

const LIMIT: Duration = Duration::from_secs(20);

fn demo() -> KindVersion {
    KindVersion::new("demo", 1)
}

async fn broker() -> MemoryBroker {
    broker_with(|_| {}).await
}

async fn broker_with(change: impl FnOnce(&mut BrokerOptions)) -> MemoryBroker {
    let mut options = BrokerOptions::default();
    change(&mut options);
    MemoryBroker::start_with(options).await.unwrap()
}

fn options(addr: &str) -> RunOptions {
    let mut options = RunOptions::new(addr.parse().unwrap());
    options.heartbeat_interval = Duration::from_millis(50);
    options.ready_poll_interval = Duration::from_millis(10);
    options.backoff_min = Duration::from_millis(5);
    options.backoff_max = Duration::from_millis(50);
    options.close_wait = Duration::from_secs(2);
    options
}

/// A worker that runs beside a test.
struct Running {
    stop: CancellationToken,
    worker: JoinSet<Result<(), WorkerError>>,
}

fn start(options: RunOptions, providers: Vec<Arc<dyn Provider>>) -> Running {
    let stop = CancellationToken::new();
    let mut worker = JoinSet::new();
    worker.spawn(run_worker(
        providers,
        options,
        stop.clone().cancelled_owned(),
    ));
    Running { stop, worker }
}

fn start_one(addr: &str, provider: FnProvider) -> Running {
    start(options(addr), vec![Arc::new(provider)])
}

impl Running {
    async fn stop(mut self) -> Result<(), WorkerError> {
        self.stop.cancel();
        self.ended().await
    }

    async fn ended(&mut self) -> Result<(), WorkerError> {
        tokio::time::timeout(LIMIT, self.worker.join_next())
            .await
            .expect("the worker ends")
            .expect("there is one")
            .expect("it does not panic")
    }
}

/// What handlers of a test have said, in order.
#[derive(Clone, Default)]
struct Notes(Arc<(Mutex<VecDeque<String>>, tokio::sync::Notify)>);

impl Notes {
    fn add(&self, text: impl Into<String>) {
        self.0.0.lock().unwrap().push_back(text.into());
        self.0.1.notify_one();
    }

    async fn next(&self) -> String {
        let wait = async {
            loop {
                if let Some(text) = self.0.0.lock().unwrap().pop_front() {
                    return text;
                }
                self.0.1.notified().await;
            }
        };
        tokio::time::timeout(LIMIT, wait)
            .await
            .expect("a note comes")
    }

    fn is_empty(&self) -> bool {
        self.0.0.lock().unwrap().is_empty()
    }
}

fn is_synced(broker: &MemoryBroker, name: &str) -> bool {
    broker
        .look(&demo(), name)
        .is_some_and(|look| look.is_synced())
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    while !holds() {
        pause.tick().await;
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
    }
}

fn empty() -> crate::Json {
    json!({}).into()
}
