//! Deletion: finalizers, order, orphans, replacement.

use converge_engine::command::{Applied, Command, Precondition, Reply, ResourceDelete, Task};
use converge_engine::model::EventKind;
use converge_engine::refusal::Refusal;
use converge_engine::store::TransactError;
use converge_types::ids::{Kind, ResourceName};
use converge_types::phase::{Phase, Stage};

use crate::world::{
    World, child, composed, composer, doc, done, edge, empty, failed, leaf, leaf_with_teardown,
};

fn delete(key: &str, force: bool, abandon: bool) -> Command {
    let (kind, name) = key.split_once('/').expect("kind/name");
    Command::ResourceDelete(ResourceDelete {
        kind: Kind::new(kind).expect("a kind"),
        name: ResourceName::new(name).expect("a name"),
        force,
        abandon,
        precondition: Precondition::None,
        who: None,
    })
}

fn log<'l>(
    order: &'l mut Vec<String>,
    mut compose: impl FnMut() -> converge_engine::command::Outcome + 'l,
) -> impl FnMut(&Task) -> converge_engine::command::Outcome + 'l {
    move |task| {
        order.push(format!("{} {}", task.claim.stage, task.resource.row.name));
        match task.claim.stage {
            Stage::Compose => compose(),
            _ => empty(),
        }
    }
}

/// No teardown, or never run: removed without one.
pub async fn a_leaf_without_finalizer_goes_at_once(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&leaf_with_teardown("torn")).await;
    world.apply("demo/a", "{}").await;
    world.apply("torn/never-run", "{}").await;
    assert!(matches!(world.delete("demo/a").await, Reply::Deleted));
    assert!(matches!(
        world.delete("torn/never-run").await,
        Reply::Deleted
    ));
}

/// The finalizer remembers version and spec; later edits do not reach the teardown.
pub async fn teardown_runs_with_what_was_dispatched_last(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world
        .manifest(&leaf_with_teardown("torn").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    world.apply("torn/a", r#"{"n":1}"#).await;
    world.run(&["torn"], |_| done("{}")).await;
    assert_eq!(world.view("torn/a").await.row.finalizers.len(), 1);
    let mut command = world.apply_command("torn/a", r#"{"n":2}"#);
    command.kind_version = Some(2);
    world.must(Command::ResourceApply(command)).await;
    assert!(matches!(world.delete("torn/a").await, Reply::Deleting));
    let refused = world
        .try_do(Command::ResourceApply(world.apply_command("torn/a", "{}")))
        .await;
    let Err(TransactError::Refused(Refusal::Conflict { summary, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(summary.contains("being deleted"), "{summary}");
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.kv.version),
        (Stage::Delete, 1)
    );
    assert_eq!(task.resource.spec, Some(doc(r#"{"n":1}"#)));
    assert!(
        matches!(world.delete("torn/a").await, Reply::Deleting),
        "again is 202"
    );
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
    assert_eq!(world.apply("torn/a", "{}").await, Applied::Created);
}

/// The root last, dependents before what they depend on, across composites.
pub async fn dependents_go_first(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/top", "{}").await;
    let mut order = Vec::new();
    let handler = |order: &mut Vec<String>, task: &Task| {
        let name = task.resource.row.name.to_string();
        order.push(format!("{} {name}", task.claim.stage));
        match (task.claim.stage, name.as_str()) {
            (Stage::Compose, "top") => composed(
                vec![child("app", "base", "{}"), child("torn", "user", "{}")],
                vec![edge("torn/user", "app/base", &[])],
            ),
            (Stage::Compose, _) => composed(
                vec![child("torn", "net", "{}"), child("torn", "disk", "{}")],
                vec![edge("torn/disk", "torn/net", &[])],
            ),
            _ => empty(),
        }
    };
    world
        .run(&["app", "torn"], |task| handler(&mut order, task))
        .await;
    order.clear();
    assert!(matches!(world.delete("app/top").await, Reply::Deleting));
    assert_eq!(
        world.phase("torn/net").await,
        Phase::Deleting,
        "what it owns is marked"
    );
    world
        .run(&["app", "torn"], |task| handler(&mut order, task))
        .await;
    assert_eq!(order, ["delete user", "delete disk", "delete net"]);
    assert!(world.get("app/top").await.is_none());
}

/// Terminal: stays with its message, tried again hourly and by hand.
pub async fn a_failing_teardown_holds_what_is_above(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let mut order = Vec::new();
    world
        .run(
            &["app", "torn"],
            log(&mut order, || {
                composed(vec![child("torn", "a", "{}")], vec![])
            }),
        )
        .await;
    world.delete("app/x").await;
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, failed("the cloud says no", true)).await;
    let row = world.view("torn/a").await.row;
    assert_eq!(row.derived.phase, Phase::Deleting);
    assert_eq!(
        row.failure.as_ref().map(|failure| failure.message.as_str()),
        Some("the cloud says no")
    );
    assert!(world.get("app/x").await.is_some());
    world.pass(3_599_000).await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
    world.pass(1_000).await;
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("app/x").await.is_none());
}

/// Whatever the policy says of attempts: giving up would leave behind what it made.
pub async fn a_teardown_is_tried_for_ever(world: World) {
    world
        .manifest(&leaf_with_teardown("torn").replace(
            "\"reactions\"",
            "\"max_transient_attempts\":2,\"reactions\"",
        ))
        .await;
    world.apply("torn/a", "{}").await;
    world.run(&["torn"], |_| done("{}")).await;
    world.delete("torn/a").await;
    for attempt in 1..=4_u32 {
        let task = world.claim_one("w", &["torn"]).await;
        world.report(&task, failed("not yet", false)).await;
        let row = world.view("torn/a").await.row;
        let failure = row.failure.clone().expect("a failure");
        assert_eq!((failure.terminal, failure.attempts), (false, attempt));
        world.pass(60_000).await;
    }
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
}

/// `?abandon=true`.
pub async fn abandon_gives_up_with_an_event(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.apply("torn/a", "{}").await;
    world.run(&["torn"], |_| done("{}")).await;
    let uid = world.view("torn/a").await.row.uid;
    world.must(delete("torn/a", false, true)).await;
    assert!(world.get("torn/a").await.is_none());
    let events = world
        .store
        .event_list(uid, None, 50)
        .await
        .expect("reads work");
    assert!(
        events.iter().any(
            |event| event.kind == EventKind::Abandoned && event.message.contains("left behind")
        ),
        "{events:?}"
    );
}

/// Grace, then dependents first.
pub async fn orphans_wait_for_grace_and_dependents(world: World) {
    world
        .manifest(
            &leaf_with_teardown("torn")
                .replace("\"reactions\"", "\"orphan_grace_secs\":30,\"reactions\""),
        )
        .await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let mut order = Vec::new();
    let full = || {
        composed(
            vec![
                child("torn", "a", "{}"),
                child("torn", "b", "{}"),
                child("torn", "keep", "{}"),
            ],
            vec![
                edge("torn/b", "torn/a", &[]),
                edge("torn/keep", "torn/a", &[]),
            ],
        )
    };
    world.run(&["app", "torn"], log(&mut order, full)).await;
    world.apply("app/x", r#"{"v":2}"#).await;
    let mut order = Vec::new();
    // What stays changes too, and must sync without the edge before what it needed may go.
    world
        .run(
            &["app"],
            log(&mut order, || {
                composed(vec![child("torn", "keep", r#"{"n":2}"#)], vec![])
            }),
        )
        .await;
    assert_eq!(
        (world.phase("torn/a").await, world.phase("torn/b").await),
        (Phase::Orphaned, Phase::Orphaned)
    );
    world.pass(29_000).await;
    assert_eq!(world.phase("torn/b").await, Phase::Orphaned);
    world.pass(1_000).await;
    let tasks = world.claim("w", &["torn"], 9).await;
    let mut names: Vec<_> = tasks
        .iter()
        .map(|task| format!("{} {}", task.claim.stage, task.resource.row.name))
        .collect();
    names.sort();
    assert_eq!(names, ["delete b", "work keep"]);
    // What stays counts like what goes: one of the two is not enough.
    for task in &tasks {
        assert!(world.claim("w", &["torn"], 9).await.is_empty());
        world.report(task, empty()).await;
    }
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(
        format!("{} {}", task.claim.stage, task.resource.row.name),
        "delete a"
    );
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
    assert_eq!(world.phase("app/x").await, Phase::Ready);
}

/// Same uid, as if nothing had happened.
pub async fn an_orphan_emitted_again_is_taken_back(world: World) {
    world
        .manifest(
            &leaf_with_teardown("torn")
                .replace("\"reactions\"", "\"orphan_grace_secs\":30,\"reactions\""),
        )
        .await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let mut order = Vec::new();
    world
        .run(
            &["app", "torn"],
            log(&mut order, || {
                composed(vec![child("torn", "a", "{}")], vec![])
            }),
        )
        .await;
    let uid = world.view("torn/a").await.row.uid;
    world.apply("app/x", r#"{"v":2}"#).await;
    world
        .run(
            &["app", "torn"],
            log(&mut Vec::new(), || composed(vec![], vec![])),
        )
        .await;
    assert_eq!(world.phase("torn/a").await, Phase::Orphaned);
    world.apply("app/x", r#"{"v":3}"#).await;
    world
        .run(
            &["app", "torn"],
            log(&mut Vec::new(), || {
                composed(vec![child("torn", "a", "{}")], vec![])
            }),
        )
        .await;
    let row = world.view("torn/a").await.row;
    assert_eq!((row.uid, row.derived.phase), (uid, Phase::Ready));
    world.pass(60_000).await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
}

/// Torn down, then created again in the transaction that removes it.
pub async fn force_replaces_a_child(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let full = || {
        composed(
            vec![child("torn", "a", r#"{"n":1}"#), child("torn", "b", "{}")],
            vec![edge("torn/b", "torn/a", &[("/from", "/id")])],
        )
    };
    let run = |task: &Task| match task.claim.stage {
        Stage::Compose => full(),
        Stage::Work => done(r#"{"id":"x"}"#),
        _ => empty(),
    };
    world.run(&["app", "torn"], run).await;
    let uid = world.view("torn/a").await.row.uid;
    world.must(delete("torn/a", true, false)).await;
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(task.claim.stage, Stage::Delete);
    world.report(&task, empty()).await;
    let again = world.view("torn/a").await;
    assert_ne!(again.row.uid, uid);
    assert_eq!(again.spec, Some(doc(r#"{"n":1}"#)));
    world.run(&["app", "torn"], run).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
    assert_eq!(
        world.view("torn/b").await.spec,
        Some(doc(r#"{"from":"x"}"#))
    );
}

/// Nothing recalls a running task; the teardown waits for it.
pub async fn a_running_claim_is_waited_for(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.apply("torn/a", "{}").await;
    let task = world.claim_one("w", &["torn"]).await;
    world.delete("torn/a").await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
    assert!(
        world.get("torn/a").await.is_some(),
        "no row is removed while a claim on it is live"
    );
    world.report(&task, done(r#"{"made":true}"#)).await;
    let teardown = world.claim_one("w", &["torn"]).await;
    assert_eq!(teardown.claim.stage, Stage::Delete);
    world.report(&teardown, empty()).await;
    assert!(world.get("torn/a").await.is_none());
    // Of a kind without a teardown nothing else would hold the row.
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    world.delete("demo/a").await;
    assert!(world.get("demo/a").await.is_some());
    world.report(&task, done("{}")).await;
    assert!(world.get("demo/a").await.is_none());
}
