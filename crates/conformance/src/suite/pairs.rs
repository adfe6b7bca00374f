//! A config that would become one of another pair while it is in use.

use converge_engine::command::{Command, ConfigApply, Outcome, Precondition, RawConfig, Reply};
use converge_engine::model::{Due, Hold};
use converge_engine::refusal::{Problem, Refusal};
use converge_engine::store::TransactError;
use converge_types::ids::{ConfigName, KindVersion};
use converge_types::phase::{Phase, Stage, condition};

use crate::world::{World, child, composed, composer, done, empty, leaf, leaf_with_teardown};

fn second(manifest: &str) -> String {
    manifest.replace("\"kind_version\":1", "\"kind_version\":2")
}

fn name(text: &str) -> ConfigName {
    ConfigName::new(text).expect("a name")
}

async fn put(
    world: &World,
    config: &str,
    kind: &str,
    version: i32,
) -> Result<Reply, TransactError> {
    let command = ConfigApply {
        name: name(config),
        kv: KindVersion::parse(kind, version).expect("a pair"),
        is_default: Some(false),
        spec: None,
        data: None,
        replace_default: false,
        precondition: Precondition::None,
        who: None,
    };
    world.try_do(Command::ConfigApply(command)).await
}

async fn apply(world: &World, key: &str, version: i32, config: &str) {
    let mut command = world.apply_command(key, "{}");
    command.kind_version = Some(version);
    command.config_ref = Some(name(config));
    world.must(Command::ResourceApply(command)).await;
}

/// Who stands in the way, and why.
fn obstacles(refused: Result<Reply, TransactError>) -> Vec<(String, String)> {
    match refused {
        Err(TransactError::Refused(Refusal::Conflict { problems, .. })) => problems
            .into_iter()
            .map(|Problem { location, message }| (location, message))
            .collect(),
        other => panic!("no conflict: {other:?}"),
    }
}

fn obstacle(key: &str, why: &str) -> Vec<(String, String)> {
    vec![(key.to_owned(), why.to_owned())]
}

/// What refers to it would wait for ever: 409, as for a deletion.
pub async fn a_config_in_use_stays_with_its_pair(world: World) {
    for kind in ["demo", "other"] {
        world.manifest(&leaf(kind)).await;
        world.manifest(&second(&leaf(kind))).await;
    }
    put(&world, "over", "demo", 1).await.expect("taken");
    apply(&world, "demo/a", 1, "over").await;
    for (kind, version) in [("other", 1), ("demo", 2)] {
        let refused = put(&world, "over", kind, version).await;
        assert_eq!(obstacles(refused), obstacle("demo/a", "refers to it"));
    }
    let task = world.claim_one("w", &["demo"]).await;
    assert!(task.config_override.is_some(), "nothing was written");
    world.report(&task, done("{}")).await;
    world.delete("demo/a").await;
    put(&world, "over", "other", 1).await.expect("free");
}

/// One that names it and is of another pair waits for just that edit.
pub async fn a_config_of_the_wrong_pair_can_be_mended(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&second(&leaf("demo"))).await;
    world.manifest(&leaf("other")).await;
    apply(&world, "demo/a", 1, "later").await;
    put(&world, "later", "other", 1).await.expect("taken");
    assert_eq!(world.view("demo/a").await.row.due, Due::Held(Hold::Config));
    put(&world, "later", "demo", 1).await.expect("mended");
    world.sweep().await;
    assert_eq!(world.run(&["demo"], |_| done("{}")).await, 1);
    // The same for one that was flipped away from its config.
    let mut flipped = world.apply_command("demo/a", "{}");
    flipped.kind_version = Some(2);
    flipped.config_ref = Some(name("later"));
    let refused = world.try_do(Command::ResourceApply(flipped)).await;
    assert!(refused.is_err(), "an apply with a ref is checked");
}

/// A teardown runs as what was dispatched last, and needs the config as it was then.
pub async fn a_config_stays_for_the_teardown_that_reads_it(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&second(&leaf_with_teardown("torn"))).await;
    put(&world, "one", "torn", 1).await.expect("taken");
    put(&world, "two", "torn", 2).await.expect("taken");
    apply(&world, "torn/a", 1, "one").await;
    world.run(&["torn"], |_| done("{}")).await;
    apply(&world, "torn/a", 2, "two").await;
    let refused = put(&world, "one", "torn", 2).await;
    let owes = "owes a teardown that reads it";
    assert_eq!(obstacles(refused), obstacle("torn/a", owes));
    let task = world.claim_pairs(&[("torn", 2)], 1).await.remove(0);
    world.report(&task, done("{}")).await;
    put(&world, "one", "torn", 2).await.expect("free");
}

/// A child that reads the config `own`, both of these versions.
fn with_own(kind: &str, child_version: i32, config_version: i32) -> Outcome {
    let mut outcome = composed(Vec::new(), Vec::new());
    if let Some(compose) = &mut outcome.compose {
        let mut child = child(kind, "a", "{}");
        child.kind_version = child_version;
        let label = "converge.sh/provider-config".to_owned();
        child.labels.insert(label, "own".to_owned());
        compose.children.push(child);
        compose.configs.push(RawConfig {
            name: "own".to_owned(),
            kind: kind.to_owned(),
            kind_version: config_version,
            is_default: false,
            spec: bytes::Bytes::from_static(b"{}"),
        });
    }
    outcome
}

async fn compose_again(world: &World, seed: u32, outcome: Outcome) {
    world.apply("app/x", &format!("{{\"n\":{seed}}}")).await;
    let task = world.claim_one("w", &["app"]).await;
    assert_eq!(task.claim.stage, Stage::Compose);
    world.report(&task, outcome).await;
}

async fn said(world: &World) -> String {
    let row = world.view("app/x").await.row;
    row.condition(condition::COMPOSED)
        .map(|told| told.message.clone())
        .unwrap_or_default()
}

/// A composer moves a config together with what reads it, or not at all.
pub async fn a_composer_moves_a_config_with_what_reads_it(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&second(&leaf("demo"))).await;
    world.manifest(&composer("app")).await;
    compose_again(&world, 1, with_own("demo", 1, 1)).await;
    world.run(&["demo"], |_| done("{}")).await;
    compose_again(&world, 2, with_own("demo", 1, 2)).await;
    assert_eq!(world.phase("app/x").await, Phase::Failed);
    assert!(
        said(&world)
            .await
            .contains("configures demo/v2, not demo/v1")
    );
    compose_again(&world, 3, with_own("demo", 2, 2)).await;
    let task = world.claim_pairs(&[("demo", 2)], 1).await.remove(0);
    assert!(task.config_override.is_some());
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
    // Left by every child, it must still be what others read it as; the composition is tried again when they are gone.
    apply(&world, "demo/outside", 2, "own").await;
    let task = world.claim_pairs(&[("demo", 2)], 1).await.remove(0);
    world.report(&task, done("{}")).await;
    compose_again(&world, 4, with_own("demo", 1, 1)).await;
    assert!(
        said(&world)
            .await
            .contains("demo/outside still reads it as one of demo/v2")
    );
    world.delete("demo/outside").await;
    let task = world.claim_one("w", &["app"]).await;
    world.report(&task, with_own("demo", 1, 1)).await;
    let task = world.claim_one("w", &["demo"]).await;
    assert!(task.config_override.is_some());
    world.report(&task, done("{}")).await;
    assert_eq!(world.phase("app/x").await, Phase::Ready);
}

/// What a child was made with cannot be told by another version's config: the composer gives that one another name.
pub async fn a_composer_keeps_the_config_a_teardown_reads(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&second(&leaf_with_teardown("torn"))).await;
    world.manifest(&composer("app")).await;
    compose_again(&world, 1, with_own("torn", 1, 1)).await;
    world.run(&["torn"], |_| done("{}")).await;
    compose_again(&world, 2, with_own("torn", 2, 2)).await;
    assert_eq!(world.phase("app/x").await, Phase::Failed);
    assert!(
        said(&world)
            .await
            .contains("torn/a still reads it as one of torn/v1")
    );
    world.delete("app/x").await;
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.kv.version),
        (Stage::Delete, 1)
    );
    assert!(task.config_override.is_some());
    world.report(&task, empty()).await;
    assert!(world.get("app/x").await.is_none());
}
