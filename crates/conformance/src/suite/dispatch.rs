//! Who goes first.

use std::time::Duration;

use converge_engine::command::{ClaimTasks, Command, Reply, Task};
use converge_engine::store::Standing;
use converge_types::ids::KindVersion;
use converge_types::phase::Stage;

use crate::world::{World, child, composed, composer, done, failed, leaf};

/// `max_inflight` is counted in the transaction of the claim.
pub async fn caps_hold_across_workers(world: World) {
    world
        .manifest(&leaf("demo").replace("\"reactions\"", "\"max_inflight\":3,\"reactions\""))
        .await;
    for at in 0..6 {
        world.apply(&format!("demo/r{at}"), "{}").await;
    }
    let first = world.claim("w1", &["demo"], 2).await;
    let second = world.claim("w2", &["demo"], 9).await;
    assert_eq!((first.len(), second.len()), (2, 1));
    world.report(&first[0], done("{}")).await;
    assert_eq!(world.claim("w1", &["demo"], 9).await.len(), 1);
}

/// Changes before retries; but of any ten claims in a row each class with something waiting gets one.
pub async fn higher_classes_go_first_and_none_starves(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/retry", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, failed("no", false)).await;
    for at in 0..30 {
        world.apply(&format!("demo/r{at:02}"), "{}").await;
    }
    world.pass(2_000).await;
    let mut order = Vec::new();
    for _ in 0..20 {
        let task = world.claim_one("w", &["demo"]).await;
        order.push(task.resource.row.name.to_string());
    }
    let at = order
        .iter()
        .position(|name| name == "retry")
        .expect("the retry is not starved");
    assert!(
        at > 0 && at < 10,
        "a change goes first and the retry is among the first ten: {order:?}"
    );
    let changes: Vec<_> = order
        .iter()
        .filter(|name| *name != "retry")
        .cloned()
        .collect();
    let mut sorted = changes.clone();
    sorted.sort();
    assert_eq!(changes, sorted, "oldest first");
}

/// A root with many due rows lets others through.
pub async fn roots_take_turns(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    for (app, count) in [("big", 50), ("small", 3)] {
        world.apply(&format!("app/{app}"), "{}").await;
        let task = world.claim_one("w", &["app"]).await;
        let children = (0..count)
            .map(|at| child("demo", &format!("{app}-{at}"), "{}"))
            .collect();
        world.report(&task, composed(children, vec![])).await;
    }
    let tasks = world.claim("w", &["demo"], 8).await;
    let small = tasks
        .iter()
        .filter(|task| task.resource.row.name.as_str().starts_with("small"))
        .count();
    assert_eq!(
        small, 3,
        "the small root's children are not behind the fifty"
    );
}

/// A mixed stream keeps one slot for compose and rollup.
pub async fn a_slot_is_kept_for_composers(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    for at in 0..5 {
        world.apply(&format!("demo/r{at}"), "{}").await;
    }
    let claim = |limit: u32, base: u128| {
        Command::Claim(ClaimTasks {
            worker: "w".to_owned(),
            broker: "b".to_owned(),
            pairs: ["demo", "app"]
                .iter()
                .map(|kind| KindVersion::parse(kind, 1).expect("a pair"))
                .collect(),
            limit,
            reserved_for_composers: 1,
            suspects_on_stream: Vec::new(),
            busy_on_stream: Vec::new(),
            seed: (base..base + u128::from(limit)).collect(),
        })
    };
    let tasks = |reply| -> Vec<Task> {
        match reply {
            Reply::Claimed { tasks } => tasks,
            other => panic!("{other:?}"),
        }
    };
    let leaves = tasks(world.must(claim(3, 1_000)).await);
    assert_eq!(leaves.len(), 2, "one of three slots is kept");
    world.apply("app/x", "{}").await;
    let last = tasks(world.must(claim(1, 2_000)).await);
    assert_eq!(last.len(), 1);
    assert_eq!(last[0].claim.stage, Stage::Compose);
}

async fn answered(standing: Standing) -> Vec<Task> {
    let answer = tokio::time::timeout(Duration::from_secs(10), standing.answer).await;
    match answer.expect("the claim is answered") {
        Ok(Reply::Claimed { tasks }) => tasks,
        other => panic!("{other:?}"),
    }
}

/// The oldest standing claim has what becomes claimable; what it has no room for goes to the next, and the rest is told.
pub async fn a_standing_claim_has_what_becomes_claimable_first(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&leaf("other")).await;
    let mut signals = world.store.subscribe();
    let elsewhere = world.stand("w0", &["other"], 4);
    let first = world.stand("w1", &["demo"], 4);
    let second = world.stand("w2", &["other", "demo"], 4);
    world.apply("demo/a", "{}").await;
    let tasks = answered(first).await;
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].claim.worker, "w1");
    assert!(
        world.claim("w3", &["demo"], 1).await.is_empty(),
        "it is claimed already"
    );
    let told = tokio::time::timeout(Duration::from_millis(20), signals.next()).await;
    assert!(
        told.is_err(),
        "nothing is left to claim, so nobody needs to hear of it"
    );
    let batch =
        (0..6).map(|at| Command::ResourceApply(world.apply_command(&format!("demo/b{at}"), "{}")));
    for answer in world.store.transact(batch.collect()).await {
        answer.expect("it is applied");
    }
    assert_eq!(answered(second).await.len(), 4);
    let demo = KindVersion::parse("demo", 1).expect("a pair");
    let told = tokio::time::timeout(Duration::from_secs(10), signals.next()).await;
    assert!(told.is_ok_and(|told| told.ready.contains(&demo)));
    assert_eq!(world.claim("w3", &["demo"], 9).await.len(), 2);
    assert!((elsewhere.withdraw)(), "nothing came for that one");
}

/// Taken back or dropped it claims nothing; carried out it can no longer be taken back.
pub async fn a_standing_claim_that_was_taken_back_claims_nothing(world: World) {
    world.manifest(&leaf("demo")).await;
    let withdrawn = world.stand("w1", &["demo"], 4);
    assert!((withdrawn.withdraw)());
    assert!(!(withdrawn.withdraw)(), "once");
    drop(world.stand("w2", &["demo"], 4));
    world.apply("demo/a", "{}").await;
    assert_eq!(world.claim("w3", &["demo"], 4).await.len(), 1);
    let standing = world.stand("w1", &["demo"], 4);
    world.apply("demo/b", "{}").await;
    assert!(!(standing.withdraw)());
    assert_eq!(answered(standing).await.len(), 1);
}
