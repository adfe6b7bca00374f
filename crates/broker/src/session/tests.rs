//! What a session sends, seen in its outbox.

use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::world::{World, leaf};
use futures::StreamExt as _;

use super::*;
use crate::{Broker, Options};

/// A config as `config TEXT`, a task as `task NAME`.
fn sent(outbox: &Outbox) -> Vec<String> {
    let mut stream = outbox.stream();
    let mut words = Vec::new();
    while let Some(Some(Ok(message))) = stream.next().now_or_never() {
        words.push(match message.body {
            Some(Out::Config(config)) => {
                format!("config {}", String::from_utf8_lossy(&config.config))
            }
            Some(Out::Task(task)) => {
                let resource = task.work_req.and_then(|request| request.resource);
                format!("task {}", resource.unwrap_or_default().name)
            }
            None => "nothing".to_owned(),
        });
    }
    words
}

#[tokio::test]
async fn the_config_a_task_was_claimed_under_goes_before_it_although_nobody_has_told_of_the_edit() {
    let clock = ManualClock::at(1_700_000_000_000);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let world = World::on(store.clone(), clock);
    world.manifest(&leaf("demo")).await;
    let broker = Broker::new(store, Options::default());
    let outbox = Outbox::default();
    let subscribe = Subscribe {
        kinds: vec!["demo".to_owned()],
        kind_versions: vec![1],
        max_inflight: 4,
        resumed: Vec::new(),
    };
    let activity = Activity::new();
    let mut session = Session::new(
        broker.shared(),
        1,
        "worker".to_owned(),
        outbox.clone(),
        activity,
        subscribe,
    );
    session.push_configs().await.unwrap();
    assert_eq!(sent(&outbox), ["config "]);
    // The edit is committed while a claim is under way, so the session sees the task before it hears of the edit.
    world.config("c", "demo", true, r#"{"n":1}"#).await.unwrap();
    for name in ["demo/a", "demo/b"] {
        world.apply(name, "{}").await;
    }
    let tasks = world.claim("worker", &["demo"], 2).await;
    session.send(tasks).await.unwrap();
    assert_eq!(
        sent(&outbox),
        [r#"config {"n":1}"#, "task a", "task b"],
        "once, and first"
    );
}
