//! The provider as the worker sees it: tasks in, outcomes out.

use converge_sdk::{
    ConditionStatus, KindVersion, Outcome, Provider, ProviderConfig, ReactionRequest, Resource,
    Stage, TaskContext, TaskError, Uid,
};
use serde_json::{Value, json};
use stdcel::Stdcel;

const OWNER: Uid = Uid::from_bytes([7; 16]);

fn request(stage: Stage, reaction: &str) -> ReactionRequest {
    let resource = Resource::new("stdcel", "demo")
        .with_uid(OWNER)
        .with_spec(json!({"size": 3}));
    let child = |name: &str, owner: Uid| {
        let child = Resource::new("leaf", name)
            .with_owner(owner)
            .with_label("graph_id", "a");
        child.with_status(json!({"id": format!("id-of-{name}")}))
    };
    let descendants = [
        child("demo-a", OWNER),
        child("demo-a", Uid::from_bytes([9; 16])),
    ];
    let pair = KindVersion::new("stdcel", 1);
    ReactionRequest::builder(stage, reaction, pair, resource)
        .descendants(descendants)
        .build()
}

fn context(default: Option<Value>, over: Option<Value>) -> TaskContext {
    let config = |spec: Option<Value>| match spec {
        Some(spec) => ProviderConfig::new().with_spec(spec),
        None => ProviderConfig::new(),
    };
    let pair = KindVersion::new("stdcel", 1);
    TaskContext::builder(pair)
        .default_config(config(default))
        .override_config(config(over))
        .build()
}

async fn work(stage: Stage, reaction: &str, ctx: TaskContext) -> Result<Outcome, TaskError> {
    Stdcel::new().work(&ctx, request(stage, reaction)).await
}

fn graph(name: &str) -> Value {
    json!({
        "resources": [{"id": "a", "template": {"kind": "leaf", "name": name, "spec": {"size": "${schema.spec.size}"}},
                       "readyWhen": ["${a.status.id != ''}"]}],
        "status": {"id": "${a.status.id}", "size": "${schema.spec.size}"},
    })
}

#[tokio::test]
async fn a_compose_task_yields_the_children_of_the_graph() {
    let outcome = work(
        Stage::Compose,
        "compose",
        context(Some(graph("${schema.metadata.name}-a")), None),
    )
    .await;
    let outcome = outcome.expect("an outcome");
    let children = outcome.children.expect("children");
    assert_eq!(children.len(), 1);
    assert_eq!(
        (
            children[0].kind.kind(),
            children[0].kind.version(),
            children[0].name.as_str()
        ),
        ("leaf", 1, "demo-a")
    );
    assert_eq!(children[0].spec.as_str(), Some(r#"{"size":3}"#));
    assert_eq!(children[0].labels["graph_id"], "a");
}

#[tokio::test]
async fn an_override_with_resources_replaces_resources_and_status_together() {
    let over = json!({"resources": [{"id": "b", "template": {"kind": "leaf", "name": "b"}}]});
    let ctx = context(Some(graph("a")), Some(over));
    let outcome = work(Stage::Rollup, "rollup", ctx.clone())
        .await
        .expect("an outcome");
    assert_eq!(
        outcome.status.expect("a status").as_str(),
        Some("{}"),
        "the default's status is not merged in"
    );
    let outcome = work(Stage::Compose, "compose", ctx)
        .await
        .expect("an outcome");
    assert_eq!(outcome.children.expect("children")[0].name, "b");

    let ctx = context(Some(graph("demo-a")), Some(json!({"status": {"more": 1}})));
    let outcome = work(Stage::Rollup, "rollup", ctx)
        .await
        .expect("an outcome");
    let status = outcome.status.expect("a status");
    assert_eq!(
        status.as_str(),
        Some(r#"{"id":"id-of-demo-a","more":1,"size":3}"#)
    );
}

#[tokio::test]
async fn a_rollup_task_decides_ready_and_reads_its_own_children_only() {
    let outcome = work(
        Stage::Rollup,
        "rollup",
        context(Some(graph("demo-a")), None),
    )
    .await
    .expect("an outcome");
    assert_eq!(
        outcome.status.expect("a status").as_str(),
        Some(r#"{"id":"id-of-demo-a","size":3}"#)
    );
    assert_eq!(
        (
            outcome.conditions[0].type_.as_str(),
            outcome.conditions[0].status
        ),
        ("Ready", ConditionStatus::True)
    );

    let outcome = work(Stage::Rollup, "rollup", context(Some(graph("other")), None))
        .await
        .expect("an outcome");
    assert_eq!(outcome.conditions[0].status, ConditionStatus::False);
    assert_eq!(outcome.conditions[0].message, "a: it is not there yet");
}

#[tokio::test]
async fn no_graph_yet_is_transient_and_a_wrong_one_terminal() {
    for (default, terminal) in [
        (None, false),
        (Some(json!({})), false),
        (Some(json!({"status": {}})), true),
        (Some(graph("${nope}")), true),
        (Some(json!({"resources": [], "extra": 1})), true),
    ] {
        let error = work(Stage::Compose, "compose", context(default.clone(), None))
            .await
            .expect_err("a failure");
        assert_eq!(error.is_terminal(), terminal, "{default:?}: {error}");
    }
    let outcome = work(
        Stage::Compose,
        "compose",
        context(Some(json!({"resources": []})), None),
    )
    .await;
    assert_eq!(outcome.expect("an outcome").children, Some(vec![]));
}

#[tokio::test]
async fn an_unknown_reaction_is_terminal() {
    let error = work(Stage::Compose, "work", context(Some(graph("a")), None))
        .await
        .expect_err("a failure");
    assert!(error.is_terminal());
}

#[tokio::test]
async fn a_long_list_of_problems_fits_the_control_plane() {
    let resource = |at: usize| json!({"id": format!("r{at}"), "template": {"kind": "leaf", "name": "${é".repeat(40)}});
    let config = json!({"resources": (0..500).map(resource).collect::<Vec<_>>()});
    let error = work(Stage::Compose, "compose", context(Some(config), None))
        .await
        .expect_err("a failure");
    assert!(
        error.is_terminal() && error.message().len() <= 8 * 1024,
        "{}",
        error.message().len()
    );
}
