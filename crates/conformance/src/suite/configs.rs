//! Provider configs and who reads them.

use converge_engine::command::{Command, ConfigDelete, Precondition, Reply};
use converge_engine::model::Due;
use converge_engine::refusal::Refusal;
use converge_engine::store::TransactError;
use converge_types::ids::ConfigName;
use converge_types::phase::Phase;

use crate::world::{World, done, leaf};

async fn apply_with_ref(world: &World, key: &str, config: &str) -> Result<Reply, TransactError> {
    let mut command = world.apply_command(key, "{}");
    command.config_ref = Some(ConfigName::new(config).expect("a name"));
    world.try_do(Command::ResourceApply(command)).await
}

/// What changes the effective digest is due; order, spacing and hidden keys are not.
pub async fn an_edit_that_changes_what_is_read_makes_it_due(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .config("base", "demo", true, r#"{"region":"a","size":1}"#)
        .await
        .expect("taken");
    world
        .config("over", "demo", false, r#"{"region":"b"}"#)
        .await
        .expect("taken");
    world.apply("demo/plain", "{}").await;
    apply_with_ref(&world, "demo/over", "over")
        .await
        .expect("taken");
    world.run(&["demo"], |_| done("{}")).await;
    world
        .config("base", "demo", true, r#"{ "size":1.0, "region":"a" }"#)
        .await
        .expect("taken");
    assert!(
        world.claim("w", &["demo"], 9).await.is_empty(),
        "equal by value is no edit"
    );
    world
        .config("base", "demo", true, r#"{"region":"c","size":1}"#)
        .await
        .expect("taken");
    assert_eq!(world.phase("demo/plain").await, Phase::Reconciling);
    assert_eq!(
        world.phase("demo/over").await,
        Phase::Ready,
        "its override hides the key"
    );
    let task = world.claim_one("w", &["demo"]).await;
    assert_eq!(task.resource.row.name, "plain");
    world.report(&task, done("{}")).await;
    world
        .config("base", "demo", true, r#"{"region":"c","size":2}"#)
        .await
        .expect("taken");
    assert_eq!(world.run(&["demo"], |_| done("{}")).await, 2);
}

/// A second default is 409 unless it replaces the first.
pub async fn one_default_per_pair(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .config("one", "demo", true, "{}")
        .await
        .expect("taken");
    let refused = world.config("two", "demo", true, "{}").await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Conflict { .. }))
        ),
        "{refused:?}"
    );
    let refused = world.config("three", "nothing", true, "{}").await;
    assert!(
        matches!(refused, Err(TransactError::Refused(Refusal::NotFound(_)))),
        "{refused:?}"
    );
}

/// A ref that names nothing holds the resource and ends when it comes.
pub async fn a_missing_ref_holds(world: World) {
    world.manifest(&leaf("demo")).await;
    world.manifest(&leaf("other")).await;
    world
        .config("base", "demo", true, "{}")
        .await
        .expect("taken");
    apply_with_ref(&world, "demo/a", "later")
        .await
        .expect("taken");
    assert!(
        world.claim("w", &["demo"], 1).await.is_empty(),
        "never with the default alone"
    );
    assert!(matches!(
        world.view("demo/a").await.row.due,
        Due::Held(converge_engine::model::Hold::Config)
    ));
    world
        .config("later", "demo", false, r#"{"x":1}"#)
        .await
        .expect("taken");
    let task = world.claim_one("w", &["demo"]).await;
    assert!(task.config_override.is_some());
    world
        .config("foreign", "other", false, "{}")
        .await
        .expect("taken");
    let refused = apply_with_ref(&world, "demo/b", "foreign").await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Invalid { .. }))
        ),
        "{refused:?}"
    );
}

/// The override is checked over the default of then; a later default that breaks it is a terminal failure at its readers.
pub async fn a_default_that_breaks_an_override_shows(world: World) {
    let schema = r#"{"type":"object","properties":{"mode":{"enum":["x","y"]},"size":{"type":"integer"}},"if":{"properties":{"mode":{"const":"y"}},"required":["mode"]},"then":{"properties":{"size":{"maximum":5}}}}"#;
    world
        .manifest(&leaf("demo").replace(
            "\"reactions\"",
            &format!("\"config_schema\":{schema},\"reactions\""),
        ))
        .await;
    let refused = world.config("bad", "demo", true, r#"{"mode":"z"}"#).await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Invalid { .. }))
        ),
        "{refused:?}"
    );
    world
        .config("base", "demo", true, r#"{"mode":"x"}"#)
        .await
        .expect("taken");
    world
        .config("over", "demo", false, r#"{"size":9}"#)
        .await
        .expect("taken");
    apply_with_ref(&world, "demo/a", "over")
        .await
        .expect("taken");
    world.run(&["demo"], |_| done("{}")).await;
    world
        .config("base", "demo", true, r#"{"mode":"y"}"#)
        .await
        .expect("taken");
    let row = world.view("demo/a").await.row;
    assert_eq!(row.derived.phase, Phase::Failed);
    let message = row
        .condition("Synced")
        .map(|it| it.message.clone())
        .unwrap_or_default();
    assert!(
        message.contains("over") && message.contains("base"),
        "{message}"
    );
    world
        .config("base", "demo", true, r#"{"mode":"x"}"#)
        .await
        .expect("taken");
    assert_eq!(
        world.phase("demo/a").await,
        Phase::Ready,
        "what it reads is what it was"
    );
}

/// 409 while referenced.
pub async fn a_referenced_config_stays(world: World) {
    world.manifest(&leaf("demo")).await;
    world
        .config("over", "demo", false, "{}")
        .await
        .expect("taken");
    apply_with_ref(&world, "demo/a", "over")
        .await
        .expect("taken");
    let delete = || {
        Command::ConfigDelete(ConfigDelete {
            name: ConfigName::new("over").expect("a name"),
            precondition: Precondition::None,
            who: None,
        })
    };
    let refused = world.try_do(delete()).await;
    assert!(
        matches!(
            refused,
            Err(TransactError::Refused(Refusal::Conflict { .. }))
        ),
        "{refused:?}"
    );
    world.delete("demo/a").await;
    world.must(delete()).await;
}

/// `on_config_change: next` makes nothing due.
pub async fn next_uses_an_edit_later(world: World) {
    world
        .manifest(&leaf("demo").replace(
            "\"reactions\"",
            "\"on_config_change\":\"next\",\"reactions\"",
        ))
        .await;
    world
        .config("base", "demo", true, r#"{"v":1}"#)
        .await
        .expect("taken");
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| done("{}")).await;
    world
        .config("base", "demo", true, r#"{"v":2}"#)
        .await
        .expect("taken");
    assert_eq!(world.phase("demo/a").await, Phase::Ready);
    assert!(world.claim("w", &["demo"], 1).await.is_empty());
}
