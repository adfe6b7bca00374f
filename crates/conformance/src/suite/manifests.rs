//! Kind manifests over the life of their resources.

use converge_engine::command::{Applied, Command, ManifestApply, ManifestDelete, Precondition};
use converge_engine::refusal::Refusal;
use converge_engine::store::TransactError;
use converge_types::ids::KindVersion;
use converge_types::phase::Phase;

use crate::world::{World, doc, failed, leaf};

fn with_schema(schema: &str) -> String {
    leaf("demo").replace(
        "\"reactions\"",
        &format!("\"spec_schema\":{schema},\"reactions\""),
    )
}

fn apply(text: &str) -> Command {
    Command::ManifestApply(ManifestApply {
        doc: doc(text),
        precondition: Precondition::None,
        who: None,
    })
}

/// A widened schema is taken, a narrowed one is refused while a resource exists and taken when none does.
pub async fn a_compatible_edit_is_taken_and_a_breaking_one_refused(world: World) {
    let narrow =
        with_schema(r#"{"type":"object","properties":{"n":{"type":"integer","maximum":5}}}"#);
    let wide =
        with_schema(r#"{"type":"object","properties":{"n":{"type":"integer","maximum":9}}}"#);
    assert_eq!(world.manifest(&narrow).await, Applied::Created);
    assert_eq!(world.manifest(&narrow).await, Applied::Unchanged);
    world.apply("demo/a", r#"{"n":5}"#).await;
    assert_eq!(world.manifest(&wide).await, Applied::Configured);
    world.apply("demo/a", r#"{"n":9}"#).await;
    let refused = world.try_do(apply(&narrow)).await;
    let Err(TransactError::Refused(Refusal::Conflict { problems, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(!problems.is_empty(), "each change is named");
    world.delete("demo/a").await;
    assert_eq!(world.manifest(&narrow).await, Applied::Configured);
}

/// 409 while resources of the version exist.
pub async fn a_used_manifest_is_not_deleted(world: World) {
    world.manifest(&leaf("demo")).await;
    world.apply("demo/a", "{}").await;
    let delete = || {
        Command::ManifestDelete(ManifestDelete {
            kv: KindVersion::parse("demo", 1).expect("a pair"),
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
    assert!(matches!(
        world.try_do(delete()).await,
        Err(TransactError::Refused(Refusal::NotFound(_)))
    ));
}

/// Every violation of the rules for manifests, together.
pub async fn an_illegal_manifest_lists_everything(world: World) {
    let text = r#"{"kind":"demo","kind_version":1,"spec_schema":{"type":"nonsense"},"reactions":[
        {"name":"a","trigger":"specChange","emits":["status"]},{"name":"b","trigger":"specChange","emits":["status"]},
        {"name":"c","trigger":"deleteRequested","emits":["finalizer"]}]}"#;
    let refused = world.try_do(apply(text)).await;
    let Err(TransactError::Refused(Refusal::Unprocessable { problems, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert!(problems.len() >= 3, "{problems:?}");
}

/// A pin names the manifest version besides its inputs.
pub async fn a_manifest_edit_ends_a_terminal_pin(world: World) {
    world.manifest(&with_schema(r#"{"type":"object"}"#)).await;
    world.apply("demo/a", "{}").await;
    world.run(&["demo"], |_| failed("no", true)).await;
    assert_eq!(world.phase("demo/a").await, Phase::Failed);
    world
        .manifest(&with_schema(r#"{"type":"object","properties":{"new":{}}}"#))
        .await;
    assert_eq!(world.phase("demo/a").await, Phase::Reconciling);
    assert_eq!(world.claim("w", &["demo"], 1).await.len(), 1);
}
