//! What ends a failure above, and when a failed composite has settled.

use converge_engine::command::{Command, ConfigDelete, Precondition, RawConfig, Task};
use converge_types::ids::ConfigName;
use converge_types::phase::{Phase, Stage, condition};

use crate::world::{
    World, child, composed, composer, composer_with_rollup, done, edge, empty, failed, leaf,
};

/// The descendants are an input of a rollup.
pub async fn a_failed_rollup_runs_again_when_something_below_changes(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer_with_rollup("group")).await;
    world.apply("group/g", "{}").await;
    let handler = |task: &Task| match task.claim.stage {
        Stage::Compose => composed(vec![child("demo", "a", "{}")], vec![]),
        Stage::Rollup => failed("no url below", true),
        _ => done("{}"),
    };
    world.run(&["group", "demo"], handler).await;
    assert_eq!(world.phase("group/g").await, Phase::Failed);
    world.reconcile("demo/a").await;
    world
        .run(&["demo"], |_| done(r#"{"url":"http://a"}"#))
        .await;
    world.pass(1_000).await;
    let task = world.claim_one("w", &["group"]).await;
    assert_eq!(task.claim.stage, Stage::Rollup);
    world.report(&task, empty()).await;
    assert_eq!(world.phase("group/g").await, Phase::Ready);
}

/// The name of a config, as that of a child.
pub async fn a_config_name_that_is_freed_cures_a_refusal(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world
        .config("mine", "demo", true, "{}")
        .await
        .expect("taken");
    world.apply("app/x", "{}").await;
    let handler = |_: &Task| {
        let mut outcome = composed(vec![], vec![]);
        if let Some(compose) = &mut outcome.compose {
            compose.configs = vec![RawConfig {
                name: "mine".to_owned(),
                kind: "demo".to_owned(),
                kind_version: 1,
                is_default: true,
                spec: "{}".into(),
            }];
        }
        outcome
    };
    world.run(&["app"], handler).await;
    assert_eq!(world.phase("app/x").await, Phase::Failed);
    world
        .must(Command::ConfigDelete(ConfigDelete {
            name: ConfigName::new("mine").expect("a name"),
            precondition: Precondition::None,
            who: None,
        }))
        .await;
    world.run(&["app"], handler).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
}

/// Its own failure is not the end of what moves below it.
pub async fn a_failed_composite_settles_with_what_is_below(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/top", "{}").await;
    let handler = |task: &Task| match task.resource.row.name.as_str() {
        "top" => composed(
            vec![child("app", "mid", "{}"), child("demo", "user", "{}")],
            vec![edge("demo/user", "app/mid", &[])],
        ),
        _ => composed(vec![child("demo", "part", "{}")], vec![]),
    };
    world.run(&["app"], handler).await;
    world.reconcile("app/mid").await;
    world.run(&["app"], |_| failed("no", true)).await;
    let mid = world.view("app/mid").await.row;
    assert_eq!(
        (mid.derived.phase, mid.derived.settled),
        (Phase::Failed, false)
    );
    assert!(!world.view("demo/user").await.row.derived.settled);
    world.run(&["demo"], |_| done("{}")).await;
    assert!(world.view("app/mid").await.row.derived.settled);
    assert!(
        world.view("demo/user").await.row.derived.settled,
        "it is blocked on what is settled and not Ready"
    );
}

/// The message of `ChildrenReady` names what the culprit says now.
pub async fn what_is_said_above_follows_a_lost_lease(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    world
        .run(&["app"], |_| {
            composed(vec![child("demo", "a", "{}")], vec![])
        })
        .await;
    let said = async || {
        let row = world.view("app/x").await.row;
        row.condition(condition::CHILDREN_READY)
            .map(|told| told.message.clone())
            .unwrap_or_default()
    };
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, failed("first", false)).await;
    assert!(said().await.contains("first"), "{}", said().await);
    world.pass(1_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.lose(&task).await;
    assert!(said().await.contains("worker was lost"), "{}", said().await);
}
