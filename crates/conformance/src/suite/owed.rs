//! Teardowns that are owed across versions and configs.

use converge_engine::command::{
    Command, ConfigDelete, ManifestApply, Precondition, RawConfig, Task,
};
use converge_engine::model::{Due, Hold};
use converge_types::ids::ConfigName;
use converge_types::phase::Stage;

use crate::world::{
    World, child, composed, composer, doc, done, empty, failed, leaf, leaf_with_teardown,
};

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
    world.manifest(&composer("app")).await;
    let mut composition = composed(Vec::new(), Vec::new());
    if let Some(compose) = &mut composition.compose {
        compose.configs.push(RawConfig {
            name: "c".to_owned(),
            kind: "torn".to_owned(),
            kind_version: 1,
            is_default: false,
            spec: bytes::Bytes::from_static(b"{}"),
        });
    }
    world.apply("app/x", "{}").await;
    world.run(&["app"], |_| composition.clone()).await;
    let mut command = world.apply_command("torn/a", "{}");
    command.config_ref = Some(ConfigName::new("c").expect("a name"));
    world.must(Command::ResourceApply(command)).await;
    world.run(&["torn"], |_| done("{}")).await;
    // A composer takes the configs it owns with it.
    world.delete("app/x").await;
    world.delete("torn/a").await;
    assert!(world.claim("w", &["torn"], 1).await.is_empty());
    assert_eq!(world.view("torn/a").await.row.due, Due::Held(Hold::Config));
    world.config("c", "torn", false, "{}").await.expect("taken");
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
}

fn config_ref(world: &World, name: &str, version: i32) -> Command {
    let mut command = world.apply_command("torn/a", "{}");
    command.kind_version = Some(version);
    command.config_ref = Some(ConfigName::new(name).expect("a name"));
    Command::ResourceApply(command)
}

/// A ref that changed and was never dispatched is not what the resource was made with; the one that was stays until it is torn down.
pub async fn teardown_reads_the_config_dispatched_last(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world
        .manifest(&leaf_with_teardown("torn").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    for name in ["made", "later"] {
        let spec = format!(r#"{{"name":"{name}"}}"#);
        world
            .config(name, "torn", false, &spec)
            .await
            .expect("taken");
    }
    world.must(config_ref(&world, "made", 1)).await;
    world.run(&["torn"], |_| done("{}")).await;
    world.must(config_ref(&world, "later", 1)).await;
    // The same holds for a version it was never dispatched at.
    let mut flipped = world.apply_command("torn/a", "{}");
    flipped.kind_version = Some(2);
    world.must(Command::ResourceApply(flipped)).await;
    let delete = Command::ConfigDelete(ConfigDelete {
        name: ConfigName::new("made").expect("a name"),
        precondition: Precondition::None,
        who: None,
    });
    assert!(
        world.try_do(delete.clone()).await.is_err(),
        "what a teardown reads is referred to"
    );
    world.delete("torn/a").await;
    let task = world.claim_one("w", &["torn"]).await;
    let (spec, _) = task.config_override.clone().expect("an override");
    assert_eq!(
        (task.claim.stage, task.claim.kv.version, spec),
        (Stage::Delete, 1, doc(r#"{"name":"made"}"#))
    );
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
    world.must(delete).await;
}

/// A composer that drops a child with the config it reads: the orphan is torn down with it, then the config goes.
pub async fn an_orphan_keeps_the_config_its_composer_dropped(world: World) {
    world.manifest(&leaf_with_teardown("torn")).await;
    world.manifest(&composer("app")).await;
    let result = |emits: bool| {
        let mut outcome = composed(Vec::new(), Vec::new());
        if let (true, Some(compose)) = (emits, &mut outcome.compose) {
            let mut child = child("torn", "a", "{}");
            let label = "converge.sh/provider-config".to_owned();
            child.labels.insert(label, "own".to_owned());
            compose.children.push(child);
            compose.configs.push(RawConfig {
                name: "own".to_owned(),
                kind: "torn".to_owned(),
                kind_version: 1,
                is_default: false,
                spec: bytes::Bytes::from_static(br#"{"own":1}"#),
            });
        }
        outcome
    };
    let handle = |emits: bool| {
        move |task: &Task| match task.claim.stage {
            Stage::Compose => result(emits),
            _ => done("{}"),
        }
    };
    let own = ConfigName::new("own").expect("a name");
    world.apply("app/x", r#"{"n":1}"#).await;
    world.run(&["app", "torn"], handle(true)).await;
    world.apply("app/x", r#"{"n":2}"#).await;
    let task = world.claim_one("w", &["app"]).await;
    world.report(&task, result(false)).await;
    world.pass(3_600_000).await;
    let task = world.claim_one("w", &["torn"]).await;
    assert_eq!(task.claim.stage, Stage::Delete);
    assert!(task.config_override.is_some());
    world.report(&task, failed("not yet", false)).await;
    let kept = world.store.config_get(&own).await.expect("reads work");
    assert!(kept.is_some_and(|(config, _)| config.former));
    world.pass(60_000).await;
    let task = world.claim_one("w", &["torn"]).await;
    world.report(&task, empty()).await;
    assert!(world.get("torn/a").await.is_none());
    let left = world.store.config_get(&own).await.expect("reads work");
    assert!(left.is_none(), "it goes with its last reader");
}
