//! Default configs: primed before the first task, live, in order, by push or by pull.

use super::*;
use crate::wire;
use crate::worker::core::Core;
use crate::worker::pairs::Pairs;
use crate::{Outcome, ProviderConfig};

fn config(n: u32) -> ProviderConfig {
    ProviderConfig::new().with_spec(json!({"n": n}))
}

/// Notes every config it is told of, and the config of every task.
fn noting(notes: &Notes) -> FnProvider {
    let (tasks, configs) = (notes.clone(), notes.clone());
    let text = |config: &ProviderConfig| {
        config
            .spec
            .as_ref()
            .map_or("none".to_owned(), |spec| spec.as_str().unwrap().to_owned())
    };
    FnProvider::new(demo(), move |ctx, _| {
        tasks.add(format!("task {}", text(ctx.default_config())));
        async { Ok(Outcome::new()) }
    })
    .with_on_config(move |config| configs.add(format!("config {}", text(&config))))
}

async fn told_in_order(push_configs: bool) {
    let broker = broker_with(|options| options.push_configs = push_configs).await;
    broker.set_config(&demo(), config(1));
    broker.apply(&demo(), "a", empty());
    let notes = Notes::default();
    let worker = start_one(&broker.addr(), noting(&notes));
    assert_eq!(notes.next().await, r#"config {"n":1}"#);
    assert_eq!(notes.next().await, r#"task {"n":1}"#);
    for n in 2..50 {
        broker.set_config(&demo(), config(n));
        broker.apply(&demo(), "a", empty());
        assert_eq!(notes.next().await, format!(r#"config {{"n":{n}}}"#));
        assert_eq!(notes.next().await, format!(r#"task {{"n":{n}}}"#));
    }
    broker.set_config(&demo(), ProviderConfig::new());
    broker.apply(&demo(), "a", empty());
    assert_eq!(notes.next().await, "config none", "the default was deleted");
    assert_eq!(notes.next().await, "task none");
    worker.stop().await.unwrap();
    assert!(
        notes.is_empty(),
        "a config that is the same is not told again"
    );
}

#[tokio::test]
async fn a_provider_is_told_its_config_before_the_first_task_and_edits_in_order_with_tasks() {
    told_in_order(true).await;
}

#[tokio::test]
async fn against_a_broker_that_pushes_nothing_at_first_tasks_wait_for_the_pull() {
    told_in_order(false).await;

    let broker = broker_with(|options| options.push_configs = false).await;
    broker.set_config(&demo(), config(1));
    broker.hold_pulls(true);
    broker.apply(&demo(), "a", empty());
    let notes = Notes::default();
    let worker = start_one(&broker.addr(), noting(&notes));
    broker
        .until(LIMIT, "the task is out", |broker| {
            broker.job(&demo(), "a").is_some_and(|job| job.is_claimed)
        })
        .await;
    let seen = broker.heartbeats();
    broker
        .until(LIMIT, "a while passes", |broker| {
            broker.heartbeats() > seen + 2
        })
        .await;
    assert!(notes.is_empty(), "the task waits");
    broker.hold_pulls(false);
    assert_eq!(notes.next().await, r#"config {"n":1}"#);
    assert_eq!(notes.next().await, r#"task {"n":1}"#);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn every_new_stream_brings_the_config_up_to_date() {
    for push_configs in [true, false] {
        let broker = broker_with(|options| options.push_configs = push_configs).await;
        let relay = crate::testing::Relay::to(&broker.addr()).await.unwrap();
        broker.set_config(&demo(), config(1));
        let notes = Notes::default();
        let worker = start_one(&relay.addr(), noting(&notes));
        assert_eq!(notes.next().await, r#"config {"n":1}"#);
        relay.down();
        broker
            .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
            .await;
        broker.set_config(&demo(), config(2));
        broker.apply(&demo(), "a", empty());
        relay.up();
        assert_eq!(notes.next().await, r#"config {"n":2}"#);
        assert_eq!(notes.next().await, r#"task {"n":2}"#);
        worker.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_panic_in_on_config_sheds_the_pair_until_the_next_config() {
    let broker = broker().await;
    let provider =
        FnProvider::new(demo(), async |_, _| Ok(Outcome::new())).with_on_config(|config| {
            assert!(config.spec.is_none(), "this config is not usable");
        });
    let worker = start_one(&broker.addr(), provider);
    broker
        .until(LIMIT, "the pair is served", |broker| {
            broker.is_served(&demo())
        })
        .await;
    broker.set_config(&demo(), config(1));
    broker
        .until(LIMIT, "the pair is shed", |broker| {
            !broker.is_served(&demo())
        })
        .await;
    broker.apply(&demo(), "a", empty());
    broker.set_config(&demo(), ProviderConfig::new());
    broker
        .until(LIMIT, "the pair is back", |broker| is_synced(broker, "a"))
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_panic_in_ready_counts_as_not_ready() {
    let broker = broker().await;
    let provider =
        FnProvider::new(demo(), async |_, _| Ok(Outcome::new())).with_ready(|| panic!("no"));
    let other = KindVersion::new("other", 1);
    let good = FnProvider::new(other.clone(), async |_, _| Ok(Outcome::new()));
    let worker = start(
        options(&broker.addr()),
        vec![Arc::new(provider), Arc::new(good)],
    );
    broker
        .until(LIMIT, "one is shed, the other is not", |broker| {
            broker.is_served(&other) && !broker.is_served(&demo())
        })
        .await;
    broker.apply(&other, "a", empty());
    broker
        .until(LIMIT, "the other goes on", |broker| {
            broker
                .look(&other, "a")
                .is_some_and(|look| look.is_synced())
        })
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_push_that_came_after_a_pull_was_sent_beats_its_answer() {
    let notes = Notes::default();
    let options = options("127.0.0.1:1");
    let pairs = Pairs::register(vec![Arc::new(noting(&notes))], &options).unwrap();
    let (stop, abandon) = (CancellationToken::new(), CancellationToken::new());
    let (mut core, _) = Core::new(
        pairs,
        options,
        tokio::runtime::Handle::current(),
        stop,
        abandon,
    );
    let update = |n: u32| wire::ProviderConfigUpdate {
        kind: "demo".to_owned(),
        kind_version: 1,
        config: format!(r#"{{"n":{n}}}"#).into(),
        ..wire::ProviderConfigUpdate::default()
    };
    let answer = |n: u32| {
        Ok(wire::GetProviderConfigResponse {
            entries: vec![wire::ProviderConfigEntry {
                kind: "demo".to_owned(),
                kind_version: 1,
                config: format!(r#"{{"n":{n}}}"#).into(),
                ..wire::ProviderConfigEntry::default()
            }],
        })
    };
    core.on_push(update(2));
    core.on_pull(vec![0], answer(1));
    core.on_pull(vec![1], answer(3));
    core.on_pull(vec![1], Ok(wire::GetProviderConfigResponse::default()));
    for expected in ["2", "3"] {
        assert_eq!(notes.next().await, format!(r#"config {{"n":{expected}}}"#));
    }
    assert_eq!(
        notes.next().await,
        "config none",
        "a pair that is left out has no default"
    );
}
