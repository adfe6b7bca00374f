//! Applying resources.

use converge_engine::command::{Applied, Command, Precondition, Reply};
use converge_engine::refusal::Refusal;
use converge_engine::store::TransactError;
use converge_types::phase::Phase;

use crate::world::{World, doc, done, leaf};

/// Key order, spacing and the spelling of numbers are no change.
pub async fn an_apply_is_compared_by_value(world: World) {
    world.manifest(&leaf("demo")).await;
    assert_eq!(
        world.apply("demo/a", r#"{"a":1,"b":[1.50]}"#).await,
        Applied::Created
    );
    assert_eq!(
        world
            .apply("demo/a", r#"{ "b" : [1.5e0], "a": 1.0 }"#)
            .await,
        Applied::Unchanged
    );
    assert_eq!(
        world.view("demo/a").await.spec,
        Some(doc(r#"{"a":1,"b":[1.50]}"#))
    );
    assert_eq!(
        world.view("demo/a").await.spec.expect("a spec").as_bytes(),
        br#"{"a":1,"b":[1.50]}"#,
        "stored as it was written"
    );
    assert_eq!(
        world.apply("demo/a", r#"{"a":2}"#).await,
        Applied::Configured
    );
    assert_eq!(world.view("demo/a").await.row.generation, 2);
    let big = r#"{"n":123456789012345678901234567890}"#;
    world.apply("demo/a", big).await;
    assert_eq!(
        world.view("demo/a").await.spec.expect("a spec").as_bytes(),
        big.as_bytes()
    );
}

/// All violations at once, each with its pointer; nothing is stored.
pub async fn every_violation_is_told(world: World) {
    let schema = r#"{"type":"object","required":["a"],"properties":{"b":{"type":"integer"}},"additionalProperties":false}"#;
    world
        .manifest(&leaf("demo").replace(
            "\"reactions\"",
            &format!("\"spec_schema\":{schema},\"reactions\""),
        ))
        .await;
    let refused = world
        .try_do(Command::ResourceApply(
            world.apply_command("demo/a", r#"{"b":"x","c":1}"#),
        ))
        .await;
    let Err(TransactError::Refused(Refusal::Invalid { problems, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(problems.len() >= 3, "{problems:?}");
    assert!(
        problems.iter().any(|problem| problem.location == "/spec/b"),
        "{problems:?}"
    );
    assert!(world.get("demo/a").await.is_none());
    let refused = world
        .try_do(Command::ResourceApply(world.apply_command("other/a", "{}")))
        .await;
    assert!(
        matches!(refused, Err(TransactError::Refused(Refusal::NotFound(_)))),
        "{refused:?}"
    );
}

/// `If-Match` and `If-None-Match: *`.
pub async fn a_stale_precondition_is_refused(world: World) {
    world.manifest(&leaf("demo")).await;
    let mut command = world.apply_command("demo/a", "{}");
    command.precondition = Precondition::Exists;
    let refused = world.try_do(Command::ResourceApply(command.clone())).await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Precondition(_)))
        ),
        "{refused:?}"
    );
    command.precondition = Precondition::Absent;
    world.must(Command::ResourceApply(command.clone())).await;
    let refused = world.try_do(Command::ResourceApply(command.clone())).await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Precondition(_)))
        ),
        "{refused:?}"
    );
    let revision = world.view("demo/a").await.row.revision;
    command.spec = doc(r#"{"a":1}"#);
    command.precondition = Precondition::Revision(revision);
    world.must(Command::ResourceApply(command.clone())).await;
    command.spec = doc(r#"{"a":2}"#);
    let refused = world.try_do(Command::ResourceApply(command)).await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Precondition(_)))
        ),
        "{refused:?}"
    );
}

/// Same uid, a new generation, all reactions run at the new version; an absent version keeps the stored one.
pub async fn another_version_flips_in_place(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .manifest(&leaf("demo").replace("\"kind_version\":1", "\"kind_version\":2"))
        .await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    let before = world.view("demo/a").await.row;
    let mut command = world.apply_command("demo/a", "{}");
    command.kind_version = Some(2);
    world.must(Command::ResourceApply(command)).await;
    let after = world.view("demo/a").await.row;
    assert_eq!(
        (after.uid, after.generation, after.kv.version),
        (before.uid, 2, 2)
    );
    assert_eq!(after.derived.phase, Phase::Reconciling);
    assert!(
        world.claim("w", &["demo"], 1).await.is_empty(),
        "version 1 never runs it"
    );
    assert_eq!(
        world.apply("demo/a", "{}").await,
        Applied::Unchanged,
        "an absent version means the stored one"
    );
}

/// Labels change no generation, and are due for the compose stage only.
pub async fn labels_bump_nothing(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    let mut command = world.apply_command("demo/a", "{}");
    let labels = std::collections::BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    command.labels = converge_types::labels::Labels::new(labels).expect("labels");
    let Reply::Resource { applied, row, .. } = world.must(Command::ResourceApply(command)).await
    else {
        panic!()
    };
    assert_eq!((applied, row.generation), (Applied::Configured, 1));
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
}

/// The newest 20 authored states; one of them can be applied again.
pub async fn history_keeps_twenty(world: World) {
    world.manifest(&leaf("demo")).await;
    for at in 0..25 {
        world.apply("demo/a", &format!("{{\"n\":{at}}}")).await;
    }
    let uid = world.view("demo/a").await.row.uid;
    let history = world.store.history_list(uid).await.expect("reads work");
    assert_eq!(
        history
            .iter()
            .map(|kept| kept.generation)
            .collect::<Vec<_>>(),
        (6..=25).rev().collect::<Vec<_>>()
    );
    let rollback = converge_engine::command::ResourceRollback {
        kind: converge_types::ids::Kind::new("demo").expect("a kind"),
        name: converge_types::ids::ResourceName::new("a").expect("a name"),
        generation: 10,
        who: None,
    };
    world
        .must(Command::ResourceRollback(rollback.clone()))
        .await;
    let view = world.view("demo/a").await;
    assert_eq!(
        (view.row.generation, view.spec),
        (26, Some(doc(r#"{"n":9}"#)))
    );
    let gone = converge_engine::command::ResourceRollback {
        generation: 1,
        ..rollback
    };
    assert!(world.try_do(Command::ResourceRollback(gone)).await.is_err());
}

/// A removed name leaves a tombstone with its events, and its next life is another resource.
pub async fn names_come_back_with_a_new_uid(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let first = world.view("demo/a").await.row.uid;
    world.delete("demo/a").await;
    assert!(world.get("demo/a").await.is_none());
    let kind = converge_types::ids::Kind::new("demo").expect("a kind");
    let name = converge_types::ids::ResourceName::new("a").expect("a name");
    let tombstone = world
        .store
        .tombstone_get(&kind, &name)
        .await
        .expect("reads work")
        .expect("a tombstone");
    assert_eq!(tombstone.uid, first);
    assert!(
        !world
            .store
            .event_list(first, None, 10)
            .await
            .expect("reads work")
            .is_empty()
    );
    world.apply("demo/a", "{}").await;
    assert_ne!(world.view("demo/a").await.row.uid, first);
}
