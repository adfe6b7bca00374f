//! Values that flow, where they meet other changes.

use converge_engine::command::Task;
use converge_types::phase::{Phase, Stage};

use crate::world::{
    World, child, composed, composer, composer_with_rollup, composing, doc, done, edge, empty, leaf,
};

const PICKY: &str = r#"{"kind":"picky","kind_version":1,"spec_schema":{"type":"object","properties":{"from":{"type":["integer","null"]}}},
    "reactions":[{"name":"work","trigger":"specChange","emits":["status"]}]}"#;

/// A pin for a flowed value ends by hand or by a config, and the value is looked at again before anything runs.
pub async fn what_does_not_fit_is_never_dispatched(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(PICKY).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let handler = |task: &Task| match task.claim.stage {
        Stage::Compose => composed(
            vec![child("demo", "a", "{}"), child("picky", "b", "{}")],
            vec![edge("picky/b", "demo/a", &[("/from", "/id")])],
        ),
        _ => done(r#"{"id":"text"}"#),
    };
    world.run(&["app", "demo"], handler).await;
    assert_eq!(world.phase("picky/b").await, Phase::Failed);
    world.reconcile("picky/b").await;
    assert!(world.claim("w", &["picky"], 1).await.is_empty());
    let row = world.view("picky/b").await.row;
    assert_eq!(row.derived.phase, Phase::Failed);
    let message = row.failure.as_ref().map(|failure| failure.message.clone());
    assert!(
        message
            .as_deref()
            .is_some_and(|text| text.contains("demo/a /id")),
        "{message:?}"
    );
    world.config("c", "picky", true, "{}").await.expect("taken");
    assert!(world.claim("w", &["picky"], 1).await.is_empty());
    assert_eq!(world.phase("picky/b").await, Phase::Failed);
}

/// Its status comes from its rollup; it is taken when the last thing below makes it Ready.
pub async fn a_composite_is_a_source(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer_with_rollup("group")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let handler = |task: &Task| {
        let name = task.resource.row.name.to_string();
        match (task.claim.stage, name.as_str()) {
            (Stage::Compose, "x") => composed(
                vec![child("group", "g", "{}"), child("demo", "user", "{}")],
                vec![edge("demo/user", "group/g", &[("/url", "/url")])],
            ),
            (Stage::Compose, _) => composed(vec![child("demo", "part", "{}")], vec![]),
            (Stage::Rollup, _) => done(r#"{"url":"http://g"}"#),
            _ => done("{}"),
        }
    };
    world.run(&["app", "group"], handler).await;
    let names: Vec<_> = world
        .claim("w", &["demo"], 9)
        .await
        .into_iter()
        .map(|task| (task.resource.row.name.to_string(), task))
        .collect();
    assert_eq!(names.len(), 1, "its user waits");
    assert_eq!(names[0].0, "part");
    world.report(&names[0].1, done("{}")).await;
    assert!(world.claim("w", &["demo"], 9).await.is_empty());
    let task = world.claim_one("w", &["group"]).await;
    assert_eq!(task.claim.stage, Stage::Rollup);
    world.report(&task, handler(&task)).await;
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.resource.spec, Some(doc(r#"{"url":"http://g"}"#)));
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
}

/// A dependency that is Ready and has not said the value holds what waits for it.
pub async fn a_value_that_is_missing_holds(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "a", "{}"), child("demo", "b", "{}")],
        vec![edge("demo/b", "demo/a", &[("/from", "/id")])],
    );
    let kinds = ["app", "demo"];
    let silent = composing(composition.clone(), |_| done("{}"));
    assert_eq!(world.run(&kinds, silent).await, 2, "b does not run");
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
    assert_eq!(world.phase("demo/b").await, Phase::Reconciling);
    world.reconcile("demo/a").await;
    let says = composing(composition, |_| done(r#"{"id":"x"}"#));
    world.run(&kinds, says).await;
    assert_eq!(world.phase("demo/b").await, Phase::Ready);
    let spec = world.view("demo/b").await.spec;
    assert_eq!(spec, Some(doc(r#"{"from":"x"}"#)));
}

/// A result that respecifies a child and gives it a value: one generation, one run.
pub async fn a_change_and_a_flow_at_once_bump_once(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let handler = |task: &Task| match task.claim.stage {
        Stage::Compose if task.resource.row.generation == 1 => composed(
            vec![child("demo", "a", "{}"), child("demo", "b", "{}")],
            vec![],
        ),
        Stage::Compose => composed(
            vec![child("demo", "a", "{}"), child("demo", "b", r#"{"n":2}"#)],
            vec![edge("demo/b", "demo/a", &[("/from", "/id")])],
        ),
        _ => done(r#"{"id":"x"}"#),
    };
    world.run(&["app", "demo"], handler).await;
    world.apply("app/x", r#"{"v":2}"#).await;
    assert_eq!(
        world.run(&["app", "demo"], handler).await,
        2,
        "the composer and one child"
    );
    let view = world.view("demo/b").await;
    assert_eq!(view.row.generation, 2);
    assert_eq!(view.spec, Some(doc(r#"{"from":"x","n":2}"#)));
}

/// In place: same uid, one generation, its values stay.
pub async fn a_composer_flips_a_child(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .manifest(&leaf("demo").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let compose = |version: i32| {
        let mut flipped = child("demo", "b", "{}");
        flipped.kind_version = version;
        composed(
            vec![child("demo", "a", "{}"), flipped],
            vec![edge("demo/b", "demo/a", &[("/from", "/id")])],
        )
    };
    world
        .run(&["app", "demo"], |task| match task.claim.stage {
            Stage::Compose => compose(1),
            _ => done(r#"{"id":"x"}"#),
        })
        .await;
    let before = world.view("demo/b").await.row;
    world.apply("app/x", r#"{"v":2}"#).await;
    world
        .run(&["app", "demo"], |task| match task.claim.stage {
            Stage::Compose => compose(2),
            _ => empty(),
        })
        .await;
    let row = world.view("demo/b").await.row;
    assert_eq!(
        (row.uid, row.generation, row.kv.version),
        (before.uid, before.generation + 1, 2)
    );
    assert_eq!(row.derived.phase, Phase::Reconciling);
    let task = world.claim_pairs(&[("demo", 2)], 9).await.remove(0);
    assert_eq!(task.resource.spec, Some(doc(r#"{"from":"x"}"#)));
    world.report(&task, empty()).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
}
