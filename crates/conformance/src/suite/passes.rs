//! What a result does.

use converge_engine::command::Landed;
use converge_engine::model::EventKind;
use converge_types::phase::{ConditionStatus, Phase, Trigger, condition};

use crate::world::{World, doc, done, empty, failed, leaf, ready};

/// The live claim lands, once; any other changes nothing.
pub async fn a_result_lands_once(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    assert!(
        world.claim("w", &["demo"], 9).await.is_empty(),
        "one claim at a time"
    );
    assert_eq!(
        world.report(&task, done(r#"{"n":1}"#)).await,
        Landed::Applied
    );
    let before = world.view("demo/a").await;
    let events = world.events("demo/a").await;
    assert_eq!(
        world.report(&task, done(r#"{"n":2}"#)).await,
        Landed::Fenced
    );
    assert_eq!(world.view("demo/a").await.row, before.row);
    assert_eq!(world.view("demo/a").await.status, Some(doc(r#"{"n":1}"#)));
    assert_eq!(world.events("demo/a").await, events);
}

/// A success under old inputs lands, and the resource stays due for the new ones.
pub async fn what_moved_while_it_ran_stays_due(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", r#"{"n":1}"#).await;
    let task = world.claim_one("w", &["demo"]).await;
    // Asked for by hand meanwhile: what runs is still of the first generation.
    world.reconcile("demo/a").await;
    world.apply("demo/a", r#"{"n":2}"#).await;
    let mut outcome = done(r#"{"was":1}"#);
    outcome.conditions = vec![ready(ConditionStatus::True)];
    assert_eq!(world.report(&task, outcome).await, Landed::Applied);
    let view = world.view("demo/a").await;
    let observed = view
        .row
        .conditions
        .iter()
        .find(|owned| !owned.reaction.is_empty())
        .map(|owned| owned.condition.observed_generation);
    assert_eq!(observed, Some(1), "nobody has looked at the second one");
    for event in world.events("demo/a").await {
        let is_of_the_task =
            event.kind == EventKind::Succeeded || event.kind == EventKind::ConditionChanged;
        assert!(!is_of_the_task || event.generation == 1, "{event:?}");
    }
    assert_eq!(
        (view.row.synced_gen, view.row.derived.phase),
        (0, Phase::Reconciling)
    );
    assert_eq!(view.status, Some(doc(r#"{"was":1}"#)));
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.resource.spec, Some(doc(r#"{"n":2}"#)));
    world.apply("demo/a", r#"{"n":3}"#).await;
    world.report(&task, failed("old", true)).await;
    assert_eq!(
        world.phase("demo/a").await,
        Phase::Reconciling,
        "a failure under old inputs pins nothing"
    );
    world.run(&["demo"], |_| done("{}")).await;
    assert_eq!(world.view("demo/a").await.row.synced_gen, 3);
}

/// A part the mask does not hold is dropped, with an event.
pub async fn status_outside_the_mask_is_dropped(world: World) {
    world
        .manifest(&leaf("demo").replace("[\"status\",\"conditions\"]", "[\"conditions\"]"))
        .await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    assert_eq!(world.view("demo/a").await.status, None);
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
    assert!(
        world
            .events("demo/a")
            .await
            .iter()
            .any(|event| event.kind == EventKind::PartDropped)
    );
}

/// The mask is that of the claim: an edit meanwhile is for the next task.
pub async fn the_mask_is_that_of_the_claim(world: World) {
    let narrow = leaf("demo").replace("[\"status\",\"conditions\"]", "[\"conditions\"]");
    world.manifest(&narrow).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    world.manifest(&leaf("demo")).await;
    world.report(&task, done("{}")).await;
    assert_eq!(world.view("demo/a").await.status, None);
    world.reconcile("demo/a").await;
    world.run(&["demo"], |_| done("{}")).await;
    assert!(world.view("demo/a").await.status.is_some());
}

/// What is no JSON is the task's terminal failure.
pub async fn bad_status_is_a_terminal_failure(world: World) {
    world.manifest(&leaf("demo")).await;
    for (at, bad) in ["{", r#"{"a":1,"a":2}"#, "\u{0}"].into_iter().enumerate() {
        let key = format!("demo/r{at}");
        world.apply(&key, "{}").await;
        world.run(&["demo"], |_| done(bad)).await;
        assert_eq!(world.phase(&key).await, Phase::Failed, "{bad:?}");
        assert_eq!(world.view(&key).await.status, None);
    }
}

/// A condition is True or it is not: a report that says both is the task's terminal failure, and neither lands.
pub async fn a_condition_reported_twice_is_a_terminal_failure(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let twice = || {
        let mut outcome = done("{}");
        outcome.conditions = vec![ready(ConditionStatus::True), ready(ConditionStatus::False)];
        outcome
    };
    world.run(&["demo"], |_| twice()).await;
    let view = world.view("demo/a").await;
    assert_eq!(view.row.derived.phase, Phase::Failed);
    let reported = view
        .row
        .conditions
        .iter()
        .filter(|owned| !owned.reaction.is_empty());
    assert_eq!(reported.count(), 0);
    let failure = view.row.failure.as_ref().expect("it failed");
    assert!(failure.message.contains("Ready"), "{}", failure.message);
}

/// `Ready` other than True is looked at again: 10 s, 20 s, … until True.
pub async fn a_second_look_doubles_until_true(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let provisioning = || {
        let mut outcome = done("{}");
        outcome.conditions = vec![ready(ConditionStatus::Unknown)];
        outcome
    };
    world.run(&["demo"], |_| provisioning()).await;
    for seconds in [10, 20, 40] {
        assert!(world.claim("w", &["demo"], 1).await.is_empty());
        world.pass(seconds * 1_000 - 1).await;
        assert!(
            world.claim("w", &["demo"], 1).await.is_empty(),
            "not before {seconds} s"
        );
        world.pass(1).await;
        let task = world.claim_one("w", &["demo"]).await;
        world.report(&task, provisioning()).await;
    }
    world.pass(80_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
    world.pass(3_600_000).await;
    assert!(
        world.claim("w", &["demo"], 1).await.is_empty(),
        "True ends it"
    );
}

/// `Observed=False` and backoff; the phase stays.
pub async fn a_resync_that_fails_pins_nothing(world: World) {
    world
        .manifest(
            &leaf("demo").replace("\"reactions\"", "\"resync_interval_secs\":60,\"reactions\""),
        )
        .await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    world.pass(60_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.claim.trigger, Trigger::Resync);
    world.report(&task, failed("cloud is away", true)).await;
    let row = world.view("demo/a").await.row;
    assert_eq!(row.derived.phase, Phase::Ready);
    assert_eq!(
        row.condition(condition::OBSERVED).map(|it| it.status),
        Some(ConditionStatus::False)
    );
    world.pass(60_000).await;
    let task = world.claim_one("w", &["demo"]).await;
    world.report(&task, empty()).await;
    assert!(
        world
            .view("demo/a")
            .await
            .row
            .condition(condition::OBSERVED)
            .is_none()
    );
}

/// Health is the AND over what was reported.
pub async fn unknown_is_reconciling_and_false_is_degraded(world: World) {
    world.manifest(&leaf("demo")).await;
    for (status, phase) in [
        (ConditionStatus::False, Phase::Degraded),
        (ConditionStatus::Unknown, Phase::Reconciling),
        (ConditionStatus::True, Phase::Ready),
    ] {
        let key = format!("demo/{}", format!("{status}").to_lowercase());
        world.apply(&key, "{}").await;
        world
            .run(&["demo"], |_| {
                let mut outcome = done("{}");
                outcome.conditions = vec![ready(status)];
                outcome
            })
            .await;
        assert_eq!(world.phase(&key).await, phase);
    }
}

/// The fence is the exact claim: the right token with another epoch is stale, the right epoch with another token a guess.
pub async fn half_a_claim_is_fenced(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let task = world.claim_one("w", &["demo"]).await;
    let mut older = task.clone();
    older.claim.epoch -= 1;
    let mut guessed = task.clone();
    guessed.token.secret ^= 1;
    for wrong in [&older, &guessed] {
        assert_eq!(
            world.report(wrong, done(r#"{"forged":true}"#)).await,
            Landed::Fenced
        );
        assert_eq!(world.lose(wrong).await, 0, "nor does it end the lease");
        assert_eq!(world.view("demo/a").await.status, None);
    }
    world.lose(&task).await;
    let again = world.claim_one("w", &["demo"]).await;
    assert!(again.claim.epoch > task.claim.epoch);
    assert_eq!(
        world.report(&task, done(r#"{"late":true}"#)).await,
        Landed::Fenced
    );
    assert_eq!(
        world.report(&again, done(r#"{"right":true}"#)).await,
        Landed::Applied
    );
    assert_eq!(
        world.view("demo/a").await.status,
        Some(doc(r#"{"right":true}"#))
    );
}

/// One claim at a time, also when the resource is due again meanwhile.
pub async fn what_runs_is_not_claimed_again(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", r#"{"n":1}"#).await;
    let task = world.claim_one("w", &["demo"]).await;
    assert!(world.claim("other", &["demo"], 1).await.is_empty());
    world.apply("demo/a", r#"{"n":2}"#).await;
    world.reconcile("demo/a").await;
    assert!(world.claim("other", &["demo"], 1).await.is_empty());
    world.report(&task, done("{}")).await;
    assert_eq!(world.claim("other", &["demo"], 1).await.len(), 1);
}
