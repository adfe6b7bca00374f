//! Teardowns that are owed across versions and configs.

use converge_engine::command::{Command, ManifestApply, Precondition};
use converge_engine::model::{Due, Hold};
use converge_types::ids::{ConfigName, KindVersion};
use converge_types::phase::Stage;

use crate::world::{World, doc, done, empty, failed, leaf, leaf_with_teardown};

async fn move_config(world: &World, version: i32) {
    world
        .must(Command::ConfigApply(
            converge_engine::command::ConfigApply {
                name: ConfigName::new("c").expect("a name"),
                kv: KindVersion::parse("torn", version).expect("a pair"),
                is_default: Some(false),
                spec: None,
                data: None,
                replace_default: false,
                precondition: Precondition::None,
                who: None,
            },
        ))
        .await;
}

/// Version 2 has no teardown: what version 1 made is still torn down, at version 1, which must stay able to.
pub async fn a_flip_keeps_the_teardown_it_owes(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world
        .manifest(&leaf("torn").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    world.apply("torn/a", r#"{"n":1}"#).await;
    world.run(&["torn"], |_| done("{}")).await;
    let mut command = world.apply_command("torn/a", r#"{"n":2}"#);
    command.kind_version = Some(2);
    world.must(Command::ResourceApply(command)).await;
    let task = world.claim_pairs(&[("torn", 2)], 1).await.remove(0);
    world.report(&task, done("{}")).await;
    let edit = |text: &str| {
        Command::ManifestApply(ManifestApply {
            doc: doc(text),
            precondition: Precondition::None,
            who: None,
        })
    };
    assert!(
        world.try_do(edit(&leaf("torn"))).await.is_err(),
        "a teardown that is owed does not go, though no resource of the version is left"
    );
    world.delete("torn/a").await;
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(
        (task.claim.stage, task.claim.kv.version),
        (Stage::Delete, 1)
    );
    assert_eq!(task.resource.spec, Some(doc(r#"{"n":1}"#)));
    world.report(&task, failed("no", true)).await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
    // An edit of the manifest or config of the version that tears down tries it again.
    world
        .manifest(
            &leaf_with_teardown("torn")
                .replace("\"reactions\"", "\"description\":\"x\",\"reactions\""),
        )
        .await;
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, failed("no", true)).await;
    world
        .config("d", "torn", true, r#"{"k":1}"#)
        .await
        .expect("taken");
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
}

/// Never torn down with the default alone.
pub async fn a_missing_config_holds_a_teardown(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world
        .manifest(&leaf_with_teardown("torn").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    move_config(&world, 1).await;
    let mut command = world.apply_command("torn/a", "{}");
    command.config_ref = Some(ConfigName::new("c").expect("a name"));
    world.must(Command::ResourceApply(command)).await;
    world.run(&["torn"], |_| done("{}")).await;
    move_config(&world, 2).await;
    world.delete("torn/a").await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
    assert_eq!(world.view("torn/a").await.row.due, Due::Held(Hold::Config));
    move_config(&world, 1).await;
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
}
