//! The same story told to this store, to this store with next to no memory, and to the reference store ends in the same state.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::state::state;
use converge_conformance::world::{
    World, child, composed, composer_with_rollup, done, edge, failed, leaf, leaf_with_teardown,
};
use converge_engine::command::{Command, Outcome, Task};
use converge_engine::model::Millis;
use converge_engine::store::Store;
use converge_store_sqlite::{Clock, Options, SqliteStore};
use converge_types::ids::{ConfigName, Uid};
use converge_types::phase::{Phase, Stage};

const START: Millis = 1_700_000_000_000;

struct Hand(ManualClock);

impl Clock for Hand {
    fn now_ms(&self) -> Millis {
        self.0.now_ms()
    }
}

async fn story(store: Arc<dyn Store>, clock: ManualClock) -> Vec<String> {
    let world = World::on(store.clone(), clock);
    let kinds = ["app", "demo", "plain"];
    let mut states = Vec::new();
    let compose = |task: &Task, all: bool| -> Outcome {
        match task.claim.stage {
            Stage::Compose => {
                let mut children = vec![
                    child("demo", "net", "{}"),
                    child("demo", "db", r#"{"keep": 1.0}"#),
                ];
                let mut edges = vec![edge("demo/db", "demo/net", &[("/net", "/id")])];
                if all {
                    children.push(child("demo", "web", "{}"));
                    edges.push(edge("demo/web", "demo/db", &[]));
                }
                composed(children, edges)
            }
            Stage::Rollup => done(r#"{"all": true}"#),
            _ => done(r#"{"id": "n1"}"#),
        }
    };
    world.manifest(&leaf_with_teardown("demo")).await;
    world.manifest(&leaf("plain")).await;
    world.manifest(&composer_with_rollup("app")).await;
    world
        .config("prod", "demo", true, r#"{"region": "x"}"#)
        .await
        .unwrap();
    // Children are named after their owner's uid, and their order counts: it is the same in every telling.
    for (key, at) in [("app/x", 1), ("plain/solo", 2)] {
        let mut command = world.apply_command(key, r#"{"n": 1}"#);
        command.new_uid = Uid::from_parts(START as u64, [at; 10]);
        world.must(Command::ResourceApply(command)).await;
    }
    // Stops half way: something is claimed, something is held.
    let tasks = world.claim("w", &["app"], 1).await;
    world.report(&tasks[0], compose(&tasks[0], true)).await;
    let running = world.claim("w", &["demo"], 8).await;
    assert_eq!(running.len(), 1, "the others are held");
    states.push(state(&*store).await.unwrap());
    world.report(&running[0], compose(&running[0], true)).await;
    world.run(&kinds, |task| compose(task, true)).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
    states.push(state(&*store).await.unwrap());
    // An edit of what everything reads, by sweep; one is never well again.
    world
        .config("prod", "demo", true, r#"{"region": "y"}"#)
        .await
        .unwrap();
    world
        .run(&kinds, |task| match task.resource.row.name.as_str() {
            "web" => failed("never", true),
            _ => compose(task, true),
        })
        .await;
    states.push(state(&*store).await.unwrap());
    // One child less: orphaned, torn down.
    world.apply("app/x", r#"{"small": true}"#).await;
    world.run(&kinds, |task| compose(task, false)).await;
    world.pass(1_001).await;
    world.run(&kinds, |task| compose(task, false)).await;
    states.push(state(&*store).await.unwrap());
    world.delete("app/x").await;
    world.run(&kinds, |task| compose(task, false)).await;
    assert!(world.get("app/x").await.is_none());
    let kind = "app".parse().unwrap();
    let gone = store
        .tombstone_get(&kind, &"x".parse().unwrap())
        .await
        .unwrap();
    let events = store.event_list(gone.unwrap().uid, None, 3).await.unwrap();
    states.push(format!(
        "{}{:?}",
        state(&*store).await.unwrap(),
        events[0].kind
    ));
    let name = ConfigName::new("prod").unwrap();
    let (config, _) = store.config_get(&name).await.unwrap().unwrap();
    states.push(format!(
        "{:?} {:?} {:?}",
        config.spec, config.effective, config.is_default
    ));
    states
}

#[tokio::test]
async fn the_same_story_ends_the_same_in_every_store() {
    let clock = ManualClock::at(START);
    let expected = story(Arc::new(MemoryStore::new(clock.clone())), clock).await;
    for cache_rows in [100_000, 1] {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(START);
        let options = Options {
            clock: Arc::new(Hand(clock.clone())),
            cache_rows,
            ..Options::default()
        };
        let store = SqliteStore::open(dir.path().join("store.db"), options).unwrap();
        let found = story(Arc::new(store), clock).await;
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for (found, expected) in found.lines().zip(expected.lines()) {
                assert_eq!(found, expected, "at {at} with {cache_rows} rows remembered");
            }
            assert_eq!(found.lines().count(), expected.lines().count());
        }
        assert_eq!(found.len(), expected.len());
    }
}
