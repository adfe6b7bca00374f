//! The reference store, first steps.
use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::world::*;
use converge_engine::command::*;
use converge_types::phase::{Phase, Stage};
use std::sync::Arc;

fn world() -> World {
    let clock = ManualClock::at(1_700_000_000_000);
    World::on(Arc::new(MemoryStore::new(clock.clone())), clock)
}

#[tokio::test]
async fn a_leaf_becomes_ready() {
    let world = world();
    world.manifest(&leaf("demo")).await;
    assert_eq!(world.apply("demo/a", "{}").await, Applied::Created);
    assert_eq!(world.apply("demo/a", "{}").await, Applied::Unchanged);
    assert_eq!(world.phase("demo/a").await, Phase::Reconciling);
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.claim.stage, Stage::Work);
    assert_eq!(
        world.report(&task, done(r#"{"x":1}"#)).await,
        Landed::Applied
    );
    assert_eq!(
        world.report(&task, done(r#"{"x":2}"#)).await,
        Landed::Fenced
    );
    let view = world.view("demo/a").await;
    assert_eq!(view.row.derived.phase, Phase::Ready, "{view:#?}");
    assert_eq!(view.row.synced_gen, 1);
    assert_eq!(
        world.apply("demo/a", r#"{"n":1}"#).await,
        Applied::Configured
    );
    assert_eq!(world.phase("demo/a").await, Phase::Reconciling);
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, failed("no", false)).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
    world.pass(1_001).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, failed("never", true)).await;
    assert_eq!(world.phase("demo/a").await, Phase::Failed);
    for event in world.events("demo/a").await {
        println!("{:?} {} {}", event.kind, event.message, event.count);
    }
    assert!(matches!(world.delete("demo/a").await, Reply::Deleted));
    assert!(world.get("demo/a").await.is_none());
}

#[tokio::test]
async fn a_graph_flows_and_goes() {
    let world = world();
    world.manifest(&leaf_with_teardown("demo")).await;
    world.manifest(&composer_with_rollup("app")).await;
    world.apply("app/x", "{}").await;
    let compose = || {
        composed(
            vec![
                child("demo", "net", "{}"),
                child("demo", "db", r#"{"keep":1}"#),
                child("demo", "web", "{}"),
            ],
            vec![
                edge("demo/db", "demo/net", &[("/net", "/id")]),
                edge("demo/web", "demo/db", &[]),
            ],
        )
    };
    let mut order = Vec::new();
    world
        .run(&["app", "demo"], |task| {
            order.push(format!("{} {}", task.claim.stage, task.resource.row.name));
            match task.claim.stage {
                Stage::Compose => compose(),
                Stage::Rollup => done(r#"{"all":true}"#),
                _ => done(r#"{"id":"n1"}"#),
            }
        })
        .await;
    println!("{order:?}");
    for key in ["demo/net", "demo/db", "demo/web", "app/x"] {
        assert_eq!(
            world.phase(key).await,
            Phase::Ready,
            "{key}: {:#?}",
            world.view(key).await
        );
    }
    assert_eq!(
        world.view("demo/db").await.spec.unwrap(),
        doc(r#"{"keep":1,"net":"n1"}"#)
    );
    assert_eq!(
        order,
        ["compose x", "work net", "work db", "work web", "rollup x"]
    );
    order.clear();
    assert!(matches!(world.delete("app/x").await, Reply::Deleting));
    world
        .run(&["app", "demo"], |task| {
            order.push(format!("{} {}", task.claim.stage, task.resource.row.name));
            empty()
        })
        .await;
    assert_eq!(order, ["delete web", "delete db", "delete net"]);
    assert!(world.get("app/x").await.is_none());
}

#[tokio::test]
async fn waking_says_when_the_next_timer_is() {
    let world = world();
    world.manifest(&leaf("demo")).await;
    for name in ["demo/a", "demo/b"] {
        world.apply(name, "{}").await;
        let task = world.claim_one("w", &["demo"]).await;
        world.report(&task, failed("no", false)).await;
        world.clock.step(100);
    }
    let first = world.view("demo/a").await.row.wake_ms.expect("a retry");
    let second = world.view("demo/b").await.row.wake_ms.expect("a retry");
    assert!(first < second, "{first} {second}");
    let mut signals = world.store.subscribe();
    // Only the first is over; nobody else will say when the second is.
    world.clock.step(first - world.clock.now_ms());
    let wake = Command::Wake(Wake { limit: 1_000 });
    assert!(matches!(
        world.must(wake).await,
        converge_engine::Reply::Swept {
            rows: 1,
            more: false
        }
    ));
    assert_eq!(signals.next().await.wake_ms, Some(second));
}
