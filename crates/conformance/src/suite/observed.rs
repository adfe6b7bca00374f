//! What is looked at again, asked for by hand, or reported beside its status.

use converge_engine::command::{Applied, Command, Landed, Reply};
use converge_engine::model::Class;
use converge_types::labels::Labels;
use converge_types::phase::{ConditionStatus, Phase, Stage, Trigger};

use crate::world::{World, child, composed, done, empty, failed, leaf, ready};

const BOTH: &str = r#"{"kind":"both","kind_version":1,"resync_interval_secs":60,"resync_recomposes":true,"reactions":[
    {"name":"compose","trigger":"specChange","emits":["children","status"]},
    {"name":"work","trigger":"specChange","emits":["status","conditions"]}]}"#;

/// Also of what had synced before, and not one more after the end.
pub async fn a_policy_edit_begins_and_ends_resyncs(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    world.pass(10 * 86_400_000).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
    world
        .policy("demo", r#"{"resync_interval_secs":86400}"#)
        .await;
    world.policy("demo", r#"{"resync_interval_secs":60}"#).await;
    world.pass(60_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.claim.trigger, Trigger::Resync);
    world.report(&task, done("{}")).await;
    world.policy("demo", r#"{"resync_interval_secs":0}"#).await;
    world.pass(10 * 86_400_000).await;
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
}

/// `resync_recomposes`: its composer and its work, once each an interval.
pub async fn a_resync_composes_and_works(world: World) {
    world.manifest(BOTH).await;
    world.apply("both/a", "{}").await;
    world.run(&["both"], |_| done("{}")).await;
    for _ in 0..3 {
        world.pass(60_000).await;
        let mut ran = Vec::new();
        world
            .run(&["both"], |task| {
                ran.push((task.claim.stage, task.claim.trigger));
                done("{}")
            })
            .await;
        assert_eq!(
            ran,
            [
                (Stage::Compose, Trigger::Resync),
                (Stage::Work, Trigger::Resync)
            ]
        );
    }
}

/// What is synced stays so while it is observed.
pub async fn a_resync_under_way_changes_no_phase(world: World) {
    let manifest =
        leaf("demo").replace("\"reactions\"", "\"resync_interval_secs\":60,\"reactions\"");
    world.manifest(&manifest).await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    let before = world.view("demo/a").await.row;
    world.pass(60_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    let row = world.view("demo/a").await.row;
    assert_eq!(row.derived, before.derived);
    world.report(&task, done("{}")).await;
    let row = world.view("demo/a").await.row;
    assert_eq!(
        (row.derived, row.transitions),
        (before.derived, before.transitions)
    );
}

/// The third lost lease of a second look counts like any other, and such a look is a suspect.
pub async fn a_look_that_loses_workers_backs_off(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    let mut unhealthy = done("{}");
    unhealthy.conditions = vec![ready(ConditionStatus::False)];
    world.report(&task, unhealthy).await;
    world.pass(10_000).await;
    for lost in 1..=3 {
        let task = world.claim_one("w", &["demo"]).await;
        assert_eq!(task.suspect, lost == 3, "after {} lost leases", lost - 1);
        world.lose(&task).await;
    }
    assert!(
        world.claim("w", &["demo"], 1).await.is_empty(),
        "it backs off"
    );
    let row = world.view("demo/a").await.row;
    assert_eq!(row.derived.phase, Phase::Reconciling);
    assert_eq!(
        row.failure.as_ref().map(|failure| failure.attempts),
        Some(1)
    );
    world.pass(1_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
}

/// What ran when it was asked for is not the pass that was asked for.
pub async fn a_pass_asked_for_while_one_runs_is_run(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    world.reconcile("demo/a").await;
    assert_eq!(
        world.report(&task, done(r#"{"n":1}"#)).await,
        Landed::Applied
    );
    let view = world.view("demo/a").await;
    assert_eq!(view.row.derived.phase, Phase::Reconciling);
    assert!(view.status.is_some(), "its result lands all the same");
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.claim.class, Class::Urgent);
    // Nor does the failure of what ran before count.
    world.reconcile("demo/a").await;
    world.report(&task, failed("no", true)).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
}

/// A retry in its own class, then what is left of the pass in the first one.
pub async fn a_pass_asked_for_stays_urgent_behind_a_retry(world: World) {
    world.manifest(BOTH).await;
    world.apply("both/a", "{}").await;
    world.run(&["both"], |_| done("{}")).await;
    world.reconcile("both/a").await;
    let task = world.claim_one("w", &["both"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.class),
        (Stage::Compose, Class::Urgent)
    );
    world.report(&task, failed("no", false)).await;
    world.pass(1_000).await;
    let task = world.claim_one("w", &["both"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.class),
        (Stage::Compose, Class::Retry)
    );
    world.report(&task, empty()).await;
    let task = world.claim_one("w", &["both"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.class),
        (Stage::Work, Class::Urgent)
    );
}

/// An event and a condition, which goes with the next report.
pub async fn a_dropped_part_is_told_by_a_condition(world: World) {
    world
        .manifest(&leaf("demo").replace("\"status\",", ""))
        .await;
    world.apply("demo/a", "{}").await;
    let mut stray = composed(vec![child("demo", "b", "{}")], vec![]);
    stray.status = done("{}").status;
    world.run(&["demo"], |_| stray.clone()).await;
    let view = world.view("demo/a").await;
    let told = view.row.condition("PartDropped").expect("a condition");
    assert!(
        told.message.contains("status and children"),
        "{}",
        told.message
    );
    assert_eq!((view.row.derived.phase, view.status), (Phase::Ready, None));
    assert!(world.get("demo/b").await.is_none());
    world.apply("demo/a", r#"{"n":2}"#).await;
    world.run(&["demo"], |_| empty()).await;
    assert!(
        world
            .view("demo/a")
            .await
            .row
            .condition("PartDropped")
            .is_none()
    );
}

/// A reaction the new version does not have cannot report again.
pub async fn conditions_go_with_the_version_that_reported_them(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .manifest(
            &leaf("demo")
                .replace("\"kind_version\":1", "\"kind_version\":2")
                .replace("\"work\"", "\"make\""),
        )
        .await;
    world.apply("demo/a", "{}").await;
    let mut unhealthy = done("{}");
    unhealthy.conditions = vec![ready(ConditionStatus::False)];
    world.run(&["demo"], |_| unhealthy.clone()).await;
    assert_eq!(world.phase("demo/a").await, Phase::Degraded);
    let mut command = world.apply_command("demo/a", "{}");
    command.kind_version = Some(2);
    world.must(Command::ResourceApply(command)).await;
    let task = world.claim_pairs(&[("demo", 2)], 1).await.remove(0);
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
}

/// No generation, no work: one compose.
pub async fn labels_make_the_compose_stage_due(world: World) {
    world.manifest(BOTH).await;
    world.apply("both/a", "{}").await;
    world.run(&["both"], |_| empty()).await;
    let mut command = world.apply_command("both/a", "{}");
    let labels = std::collections::BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    command.labels = Labels::new(labels).expect("labels");
    let Reply::Resource { applied, row, .. } = world.must(Command::ResourceApply(command)).await
    else {
        panic!()
    };
    assert_eq!((applied, row.generation), (Applied::Configured, 1));
    let mut ran = Vec::new();
    world
        .run(&["both"], |task| {
            ran.push((task.claim.stage, task.claim.class));
            empty()
        })
        .await;
    assert_eq!(ran, [(Stage::Compose, Class::Change)]);
}
