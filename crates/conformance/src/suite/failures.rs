//! Failures: attempts, backoff, pins, lost leases.

use converge_engine::command::{
    ClaimTasks, Command, Landed, Reply, ResourceQuarantine, ResourceReconcile,
};
use converge_types::ids::{Kind, KindVersion, ResourceName};
use converge_types::phase::Phase;

use crate::world::{World, done, failed, leaf};

/// 1 s doubling with jitter, terminal at `max_transient_attempts`.
pub async fn transient_failures_back_off_and_give_up_at_the_limit(world: World) {
    world
        .manifest(&leaf("demo").replace(
            "\"reactions\"",
            "\"max_transient_attempts\":3,\"reactions\"",
        ))
        .await;
    world.apply("demo/a", "{}").await;
    for attempt in 1..=3_u32 {
        let task = world.claim_one("w", &["demo"]).await;
        world.report(&task, failed("no luck", false)).await;
        let failure = world
            .view("demo/a")
            .await
            .row
            .failure
            .clone()
            .expect("a failure");
        assert_eq!(failure.attempts, attempt);
        if attempt < 3 {
            assert_eq!(world.phase("demo/a").await, Phase::Reconciling);
            let wait = failure.next_ms.expect("a time") - world.clock.now_ms();
            let step = 1_000 << (attempt - 1);
            assert!(
                (step / 2..=step).contains(&wait),
                "{wait} ms after attempt {attempt}"
            );
            assert!(world.claim("w", &["demo"], 1).await.is_empty());
            world.pass(wait).await;
        }
    }
    assert_eq!(world.phase("demo/a").await, Phase::Failed);
    world.pass(3_600_000).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
}

/// Failed until the spec changes.
pub async fn a_terminal_failure_is_pinned_to_its_inputs(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| failed("bad spec", true)).await;
    assert_eq!(world.phase("demo/a").await, Phase::Failed);
    world.pass(3_600_000).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
    world.apply("demo/a", r#"{"better":true}"#).await;
    assert_eq!(world.phase("demo/a").await, Phase::Reconciling);
    world.run(&["demo"], |_| done("{}")).await;
    let row = world.view("demo/a").await.row;
    assert_eq!(
        (row.derived.phase, row.failure.clone()),
        (Phase::Ready, None)
    );
}

/// Given back: no attempt, again after about a second.
pub async fn interrupted_is_no_attempt(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(
        world
            .report(&task, failed("interrupted: drain", false))
            .await,
        Landed::GivenBack
    );
    assert!(world.view("demo/a").await.row.failure.is_none());
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
    world.pass(1_300).await;
    assert_eq!(world.claim("w", &["demo"], 1).await.len(), 1);
}

/// Two lost leases are nobody's fault; from the third in a row each is an attempt.
pub async fn the_third_lost_lease_counts(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    for lost in 1..=4_u32 {
        world.pass(600_000).await;
        let task = world.claim_one("w", &["demo"]).await;
        assert_eq!(task.suspect, lost > 2, "lost {} times before", lost - 1);
        assert_eq!(world.lose(&task).await, 1);
        assert_eq!(world.lose(&task).await, 0, "it is lost once");
        let failure = world
            .view("demo/a")
            .await
            .row
            .failure
            .clone()
            .expect("a record");
        assert_eq!(
            (failure.lost_leases, failure.attempts),
            (lost, lost.saturating_sub(2))
        );
    }
}

/// A suspect is the only one of its kind on a stream.
pub async fn a_suspect_runs_alone(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    for _ in 0..2 {
        let task = world.claim_one("w", &["demo"]).await;
        world.lose(&task).await;
    }
    world.apply("demo/b", "{}").await;
    // Another version is of the same kind.
    let second = leaf("demo").replace("\"kind_version\":1", "\"kind_version\":2");
    world.manifest(&second).await;
    let mut other = world.apply_command("demo/c", "{}");
    other.kind_version = Some(2);
    let pair = |version| KindVersion::parse("demo", version).expect("a pair");
    let claim = async |suspects: Vec<KindVersion>, busy: Vec<KindVersion>| {
        let command = ClaimTasks {
            worker: "w".to_owned(),
            broker: "b".to_owned(),
            pairs: vec![pair(1), pair(2)],
            limit: 5,
            reserved_for_composers: 0,
            suspects_on_stream: suspects,
            busy_on_stream: busy,
            seed: (100..105).collect(),
        };
        match world.must(Command::Claim(command)).await {
            Reply::Claimed { tasks } => tasks,
            other => panic!("{other:?}"),
        }
    };
    let tasks = claim(Vec::new(), vec![pair(2)]).await;
    assert_eq!(tasks.len(), 1, "a busy stream gets no suspect");
    assert_eq!(tasks[0].resource.row.name, "b");
    world.report(&tasks[0], done("{}")).await;
    world.must(Command::ResourceApply(other)).await;
    let tasks = claim(Vec::new(), Vec::new()).await;
    assert_eq!(tasks.len(), 1, "nothing of its kind goes out beside it");
    assert!(tasks[0].suspect);
    let beside = claim(vec![pair(1)], vec![pair(1)]).await;
    assert_eq!(beside.len(), 0, "nor after it");
}

fn reconcile(name: &str) -> Command {
    Command::ResourceReconcile(ResourceReconcile {
        kind: Kind::new("demo").expect("a kind"),
        name: ResourceName::new(name).expect("a name"),
        recursive: false,
        who: None,
    })
}

/// By hand: one full pass, whatever was pinned or backing off.
pub async fn reconcile_ends_pin_and_backoff(world: World) {
    world.manifest(&leaf("demo")).await;
    for (name, terminal) in [("a", true), ("b", false)] {
        world.apply(&format!("demo/{name}"), "{}").await;
        let task = world.claim_one("w", &["demo"]).await;
        world.report(&task, failed("no", terminal)).await;
        assert!(world.claim("w", &["demo"], 1).await.is_empty());
        world.must(reconcile(name)).await;
        let task = world.claim_one("w", &["demo"]).await;
        world.report(&task, done("{}")).await;
        assert_eq!(world.phase(&format!("demo/{name}")).await, Phase::Ready);
    }
    world.must(reconcile("a")).await;
    assert_eq!(
        world.claim("w", &["demo"], 1).await.len(),
        1,
        "also what is Ready runs once more"
    );
}

/// No stage is claimed, teardown included; desired state still changes.
pub async fn quarantine_stops_claims(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let quarantine = |on| {
        Command::ResourceQuarantine(ResourceQuarantine {
            kind: Kind::new("demo").expect("a kind"),
            name: ResourceName::new("a").expect("a name"),
            recursive: false,
            on,
            who: None,
        })
    };
    world.must(quarantine(true)).await;
    assert_eq!(world.phase("demo/a").await, Phase::Quarantined);
    world.apply("demo/a", r#"{"n":1}"#).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
    world.must(quarantine(false)).await;
    world.run(&["demo"], |_| done("{}")).await;
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
}

/// Waking some rows says when the next timer is over: nobody else would.
pub async fn waking_says_when_the_next_timer_is(world: World) {
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
    world.clock.step(first - world.clock.now_ms());
    let wake = Command::Wake(converge_engine::command::Wake { limit: 1_000 });
    let reply = world.store.transact(vec![wake]).await.remove(0);
    assert!(
        matches!(
            reply,
            Ok(Reply::Swept {
                rows: 1,
                more: false
            })
        ),
        "{reply:?}"
    );
    assert_eq!(signals.next().await.wake_ms, Some(second));
}
