//! Compositions: landing, flows, the gate, rollups.

use converge_engine::command::{Command, Outcome, ResourceDelete, Task, TaskInput};
use converge_engine::model::{Due, EventKind, Hold};
use converge_engine::refusal::Refusal;
use converge_engine::store::TransactError;
use converge_types::phase::{ConditionStatus, Phase, Stage, condition};

use crate::world::{
    World, child, composed, composer, composer_with_rollup, composing, doc, done, edge, empty,
    failed, leaf, ready,
};

async fn kinds(world: &World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
}

fn answer(composition: &Outcome) -> impl FnMut(&Task) -> Outcome + '_ {
    |task| match task.claim.stage {
        Stage::Compose => composition.clone(),
        Stage::Work => done(r#"{"id":"one"}"#),
        _ => empty(),
    }
}

/// All problems together; the last good graph is untouched.
pub async fn a_refused_composition_lists_everything_and_changes_nothing(world: World) {
    let schema = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
    world
        .manifest(&leaf("demo").replace(
            "\"reactions\"",
            &format!("\"spec_schema\":{schema},\"reactions\""),
        ))
        .await;
    world.manifest(&composer("app")).await;
    world.apply("demo/by-hand", "{}").await;
    world.apply("app/x", "{}").await;
    let good = composed(
        vec![child("demo", "a", "{}"), child("demo", "b", "{}")],
        vec![edge("demo/b", "demo/a", &[])],
    );
    world.run(&["app", "demo"], answer(&good)).await;
    world.apply("app/x", r#"{"v":2}"#).await;
    let bad = composed(
        vec![
            child("nothing", "a", "{}"),
            child("demo", "", "{}"),
            child("demo", "c", r#"{"n":"text"}"#),
            child("demo", "c", "{}"),
            child("demo", "by-hand", "{}"),
            child("demo", "d", "{}"),
            child("demo", "e", "{}"),
        ],
        vec![
            edge("demo/d", "demo/e", &[("", "/id")]),
            edge("demo/e", "demo/d", &[]),
            edge("demo/d", "demo/nowhere", &[]),
        ],
    );
    let task = world.claim_one("w", &["app"]).await;
    world.report(&task, bad).await;
    let row = world.view("app/x").await.row;
    assert_eq!(row.derived.phase, Phase::Failed);
    let message = row
        .failure
        .as_ref()
        .map(|failure| failure.message.clone())
        .unwrap_or_default();
    for part in [
        "nothing/v1",
        "emitted twice",
        "by-hand",
        "nowhere",
        "cycle",
        "whole spec",
        "/spec/n",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }
    assert_eq!(
        row.condition(condition::COMPOSED).map(|it| it.status),
        Some(ConditionStatus::False)
    );
    assert_eq!(
        world.phase("demo/b").await,
        Phase::Ready,
        "the last good graph stays"
    );
    assert!(world.get("demo/d").await.is_none());
}

/// A kind applied later, a name freed later.
pub async fn a_refusal_ends_when_its_cure_comes(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    world.apply("app/y", "{}").await;
    world.apply("demo/taken", "{}").await;
    let by_name = |task: &Task| match (task.claim.stage, task.resource.row.name.as_str()) {
        (Stage::Compose, "x") => composed(vec![child("late", "a", "{}")], vec![]),
        (Stage::Compose, _) => composed(vec![child("demo", "taken", "{}")], vec![]),
        _ => empty(),
    };
    world.run(&["app", "demo"], by_name).await;
    assert_eq!(
        (world.phase("app/x").await, world.phase("app/y").await),
        (Phase::Failed, Phase::Failed)
    );
    world.manifest(&leaf("late")).await;
    world.run(&["app", "demo", "late"], by_name).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
    world.delete("demo/taken").await;
    world.run(&["app", "demo", "late"], by_name).await;
    assert_eq!(world.phase("app/y").await, Phase::Ready);
}

/// No bump, no event, no run.
pub async fn unchanged_children_are_untouched(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "a", r#"{"n":1}"#), child("demo", "b", "{}")],
        vec![edge("demo/b", "demo/a", &[("/from", "/id")])],
    );
    world.run(&["app", "demo"], answer(&composition)).await;
    let before = (world.view("demo/a").await, world.view("demo/b").await);
    let events = (world.events("demo/a").await, world.events("demo/b").await);
    world.apply("app/x", r#"{"v":2}"#).await;
    assert_eq!(
        world.run(&["app", "demo"], answer(&composition)).await,
        1,
        "only the compose runs"
    );
    assert_eq!(world.view("demo/a").await.row, before.0.row);
    assert_eq!(world.view("demo/b").await.row, before.1.row);
    assert_eq!(
        (world.events("demo/a").await, world.events("demo/b").await),
        events
    );
}

/// Delivered; the source switched; the value gone.
pub async fn flows_deliver_switch_and_go(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let children = || {
        vec![
            child("demo", "one", "{}"),
            child("demo", "two", "{}"),
            child("demo", "user", r#"{"deep":{"list":[{"k":0}]}}"#),
        ]
    };
    let from = |source: &str| {
        composed(
            children(),
            vec![edge("demo/user", source, &[("/deep/list/0/id", "/ids/1")])],
        )
    };
    let work = |task: &Task| done(&format!(r#"{{"ids":["no","{}"]}}"#, task.resource.row.name));
    let first = from("demo/one");
    world.run(&["app", "demo"], composing(first, work)).await;
    assert_eq!(
        world.view("demo/user").await.spec,
        Some(doc(r#"{"deep":{"list":[{"k":0,"id":"one"}]}}"#))
    );
    world.apply("app/x", r#"{"v":2}"#).await;
    let second = from("demo/two");
    world.run(&["app", "demo"], composing(second, work)).await;
    assert_eq!(
        world.view("demo/user").await.spec,
        Some(doc(r#"{"deep":{"list":[{"k":0,"id":"two"}]}}"#))
    );
    assert_eq!(world.phase("demo/user").await, Phase::Ready);

    let reconcile = converge_engine::command::ResourceReconcile {
        kind: converge_types::ids::Kind::new("demo").expect("a kind"),
        name: converge_types::ids::ResourceName::new("two").expect("a name"),
        recursive: false,
        who: None,
    };
    world.must(Command::ResourceReconcile(reconcile)).await;
    world
        .run(&["app", "demo"], |_| done(r#"{"ids":["no",null]}"#))
        .await;
    let row = world.view("demo/user").await.row;
    assert_eq!(
        world.view("demo/user").await.spec,
        Some(doc(r#"{"deep":{"list":[{"k":0,"id":"two"}]}}"#)),
        "the last stays in place"
    );
    assert_eq!(
        row.condition(condition::FLOWS_RESOLVED).map(|it| it.status),
        Some(ConditionStatus::False)
    );
    assert_eq!((row.derived.phase, row.flows_gone), (Phase::Ready, 1));
}

/// Pending pointers are exempt from the schema; the delivered spec is not.
pub async fn a_flowed_spec_is_checked_whole(world: World) {
    let schema =
        r#"{"type":"object","required":["port"],"properties":{"port":{"type":"integer"}}}"#;
    world
        .manifest(&leaf("typed").replace(
            "\"reactions\"",
            &format!("\"spec_schema\":{schema},\"reactions\""),
        ))
        .await;
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "source", "{}"), child("typed", "user", "{}")],
        vec![edge("typed/user", "demo/source", &[("/port", "/port")])],
    );
    world
        .run(&["app", "demo", "typed"], |task| match task.claim.stage {
            Stage::Compose => composition.clone(),
            _ => done(r#"{"port":"not a number"}"#),
        })
        .await;
    let row = world.view("typed/user").await.row;
    assert_eq!(row.derived.phase, Phase::Failed);
    let message = row
        .failure
        .as_ref()
        .map(|failure| failure.message.clone())
        .unwrap_or_default();
    assert!(
        message.contains("/spec/port") && message.contains("demo/source /port"),
        "{message}"
    );
    assert_eq!(world.phase("app/x").await, Phase::Degraded);
}

/// From and to a composite.
pub async fn an_edge_to_a_composite_holds_for_all_below(world: World) {
    kinds(&world).await;
    world.apply("app/top", "{}").await;
    let mut order = Vec::new();
    world
        .run(&["app", "demo"], |task| {
            let name = task.resource.row.name.to_string();
            order.push(format!("{} {name}", task.claim.stage));
            match (task.claim.stage, name.as_str()) {
                (Stage::Compose, "top") => composed(
                    vec![child("app", "second", "{}"), child("app", "first", "{}")],
                    vec![edge("app/second", "app/first", &[])],
                ),
                (Stage::Compose, name) => {
                    composed(vec![child("demo", &format!("{name}-leaf"), "{}")], vec![])
                }
                _ => empty(),
            }
        })
        .await;
    assert_eq!(
        order,
        [
            "compose top",
            "compose first",
            "work first-leaf",
            "compose second",
            "work second-leaf"
        ]
    );
}

/// Also once it has been composed: what is below it waits with it.
pub async fn what_a_composite_depends_on_holds_what_it_owns(world: World) {
    kinds(&world).await;
    world.apply("app/top", "{}").await;
    let compose = |task: &Task| match (task.claim.stage, task.resource.row.name.as_str()) {
        (Stage::Compose, "top") => composed(
            vec![child("app", "second", "{}"), child("app", "first", "{}")],
            vec![edge("app/second", "app/first", &[])],
        ),
        (Stage::Compose, name) => {
            composed(vec![child("demo", &format!("{name}-leaf"), "{}")], vec![])
        }
        _ => done("{}"),
    };
    world.run(&["app", "demo"], compose).await;
    assert_eq!(world.phase("app/top").await, Phase::Ready);
    // The first is no longer well; then the leaf of the second has something to do.
    world.reconcile("demo/first-leaf").await;
    let task = world.claim_one("w", &["demo"]).await;
    let mut unwell = done("{}");
    unwell.conditions = vec![ready(ConditionStatus::False)];
    world.report(&task, unwell).await;
    assert_eq!(world.phase("app/first").await, Phase::Degraded);
    world.reconcile("demo/second-leaf").await;
    let tasks = world.claim("w", &["demo"], 9).await;
    let names: Vec<_> = tasks
        .iter()
        .map(|task| task.resource.row.name.to_string())
        .collect();
    assert!(!names.contains(&"second-leaf".to_owned()), "{names:?}");
    for task in &tasks {
        world.report(task, done("{}")).await;
    }
    world.reconcile("demo/first-leaf").await;
    world.run(&["app", "demo"], compose).await;
    assert_eq!(world.phase("app/top").await, Phase::Ready);
    assert_eq!(world.phase("demo/second-leaf").await, Phase::Ready);
}

/// Counts follow each transition; a failed leaf degrades what is above.
pub async fn causes_roll_up(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "good", "{}"), child("demo", "bad", "{}")],
        vec![],
    );
    world
        .run(&["app", "demo"], |task| {
            match (task.claim.stage, task.resource.row.name.as_str()) {
                (Stage::Compose, _) => composition.clone(),
                (_, "bad") => failed("broken", true),
                _ => empty(),
            }
        })
        .await;
    let row = world.view("app/x").await.row;
    assert_eq!(row.derived.phase, Phase::Degraded);
    assert_eq!(
        (
            row.below.sums.total,
            row.below.sums.ready,
            row.below.sums.failed
        ),
        (2, 1, 1)
    );
    assert_eq!(
        row.condition(condition::CHILDREN_READY).map(|it| it.status),
        Some(ConditionStatus::False)
    );
    let message = row
        .condition(condition::CHILDREN_READY)
        .map(|it| it.message.clone())
        .unwrap_or_default();
    assert!(
        message.contains("1 of 2") && message.contains("demo/bad"),
        "counts and causes: {message}"
    );
}

/// The request carries the last accepted result, which the SDK echoes for a composer without an opinion.
pub async fn absent_children_are_the_last_result(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "a", r#"{"n":1}"#), child("demo", "b", "{}")],
        vec![edge("demo/b", "demo/a", &[("/from", "/id")])],
    );
    world.run(&["app", "demo"], answer(&composition)).await;
    world.apply("app/x", r#"{"v":2}"#).await;
    let task = world.claim_one("w", &["app"]).await;
    let TaskInput::Compose {
        observed,
        desired,
        edges,
        ..
    } = &task.input
    else {
        panic!()
    };
    assert_eq!(
        desired
            .iter()
            .map(|child| child.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    assert_eq!(desired[0].spec, doc(r#"{"n":1}"#));
    assert_eq!(edges[0].values, [("/from".to_owned(), "/id".to_owned())]);
    assert_eq!(observed.len(), 2);
    assert_eq!(observed[0].status, Some(doc(r#"{"id":"one"}"#)));
}

/// Apply, rollback and DELETE answer 409 and name the owner.
pub async fn a_composed_resource_belongs_to_its_composer(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let composition = composed(vec![child("demo", "a", "{}")], vec![]);
    world.run(&["app", "demo"], answer(&composition)).await;
    let apply = Command::ResourceApply(world.apply_command("demo/a", r#"{"mine":1}"#));
    let delete = Command::ResourceDelete(ResourceDelete {
        kind: converge_types::ids::Kind::new("demo").expect("a kind"),
        name: converge_types::ids::ResourceName::new("a").expect("a name"),
        force: false,
        abandon: false,
        precondition: converge_engine::command::Precondition::None,
        who: None,
    });
    for command in [apply, delete] {
        let refused = world.try_do(command).await;
        let Err(TransactError::Refused(Refusal::Conflict { summary, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert!(summary.contains("app/x"), "{summary}");
    }
    assert!(matches!(world.view("demo/a").await.row.due, Due::Idle));
}

/// Once the descendants have settled, and again when something below changed; its `Ready` counts.
pub async fn a_rollup_runs_once_settled(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer_with_rollup("app")).await;
    world.apply("app/x", "{}").await;
    let composition = composed(
        vec![child("demo", "a", "{}"), child("demo", "b", "{}")],
        vec![],
    );
    let mut order = Vec::new();
    let mut handler = |task: &Task| {
        order.push(task.claim.stage);
        match task.claim.stage {
            Stage::Compose => composition.clone(),
            Stage::Rollup => {
                let TaskInput::Rollup { descendants } = &task.input else {
                    panic!()
                };
                let mut outcome = done(&format!("{{\"seen\":{}}}", descendants.len()));
                outcome.conditions = vec![ready(ConditionStatus::False)];
                outcome
            }
            _ => empty(),
        }
    };
    world.run(&["app", "demo"], &mut handler).await;
    assert_eq!(
        order,
        [Stage::Compose, Stage::Work, Stage::Work, Stage::Rollup]
    );
    let view = world.view("app/x").await;
    assert_eq!(view.status, Some(doc(r#"{"seen":2}"#)));
    assert_eq!(
        view.row.derived.phase,
        Phase::Degraded,
        "the rollup's Ready is one of them"
    );
    assert!(!matches!(view.row.due, Due::Held(Hold::Children(_))));
    assert!(
        world
            .events("app/x")
            .await
            .iter()
            .any(|event| event.kind == EventKind::Composed)
    );
}

/// A composition of old inputs, or under a deletion, is discarded whole and composed again.
pub async fn a_composition_of_old_inputs_is_discarded(world: World) {
    use converge_engine::command::Landed;
    kinds(&world).await;
    world.apply("app/x", r#"{"v":1}"#).await;
    let task = world.claim_one("w", &["app"]).await;
    world.apply("app/x", r#"{"v":2}"#).await;
    let old = composed(vec![child("demo", "old", "{}")], vec![]);
    assert_eq!(world.report(&task, old.clone()).await, Landed::Discarded);
    assert!(world.get("demo/old").await.is_none());
    let task = world.claim_one("w", &["app"]).await;
    assert_eq!(task.resource.spec, Some(doc(r#"{"v":2}"#)));
    world.delete("app/x").await;
    assert_eq!(world.report(&task, old).await, Landed::Discarded);
    assert!(world.get("demo/old").await.is_none());
    assert!(
        world.get("app/x").await.is_none(),
        "nothing keeps it any more"
    );
}

/// What is queued or backs off says at once that its dependency is not Ready; its backoff goes on meanwhile.
pub async fn a_dependency_that_turns_bad_is_what_is_waited_for(world: World) {
    kinds(&world).await;
    world.apply("app/x", "{}").await;
    let children = ["source", "queued", "failing", "synced"];
    let composition = composed(
        children.map(|name| child("demo", name, "{}")).into(),
        children[1..]
            .iter()
            .map(|name| edge(&format!("demo/{name}"), "demo/source", &[]))
            .collect(),
    );
    world.run(&["app", "demo"], answer(&composition)).await;
    let due = async |name: &str| world.view(&format!("demo/{name}")).await.row.due.clone();
    let wake = async |name: &str| world.view(&format!("demo/{name}")).await.row.wake_ms;
    world.reconcile("demo/failing").await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, failed("not yet", false)).await;
    let retry = wake("failing").await.expect("it backs off");
    world.reconcile("demo/queued").await;
    assert!(matches!(due("queued").await, Due::Ready { .. }));
    let synced = world.view("demo/synced").await.row;
    world.reconcile("demo/source").await;
    let held = Due::Held(Hold::Dependency(world.view("demo/source").await.row.uid));
    assert_eq!(due("queued").await, held);
    assert_eq!(due("failing").await, held);
    assert_eq!(
        world.view("demo/synced").await.row,
        synced,
        "what waits for nothing is not written"
    );
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.resource.row.name, "source");
    world.report(&task, done(r#"{"id":"two"}"#)).await;
    assert!(matches!(due("queued").await, Due::Ready { .. }));
    assert_eq!(wake("failing").await, Some(retry));
}
