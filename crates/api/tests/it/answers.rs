//! The shapes of answers: each is read as its type of the API and written back, and must come out the same, byte for byte; and each is,
//! but for what is random, the golden file. `UPDATE_GOLDEN=1` writes the files anew.

use std::path::PathBuf;

use axum::body::Body;
use converge_api_types as api;
use converge_conformance::world::{child, composed, composer, composing, done, edge, failed, leaf};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::harness::{Answer, Harness};

#[track_caller]
fn golden<T: DeserializeOwned + Serialize>(name: &str, answer: &Answer) {
    let typed: T = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|error| panic!("{name}: {error}: {}", answer.text()));
    assert_eq!(
        serde_json::to_string(&typed).unwrap(),
        answer.text(),
        "{name} has other fields, or in another order, than its type"
    );
    let text = serde_json::to_string_pretty(&typed).unwrap() + "\n";
    // Identities are random.
    let text: Vec<_> = text
        .lines()
        .map(|line| {
            if line.trim_start().starts_with("\"uid\":") {
                "  \"uid\": \"…\","
            } else {
                line
            }
        })
        .collect();
    let text = text.join("\n") + "\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.json"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(text, wanted, "{name}");
}

#[tokio::test]
async fn every_answer_has_its_golden_shape() {
    let harness = Harness::new();
    harness.connect("w-1", &["demo", "app"]);
    let manifest = leaf("demo").replacen('{', r#"{"description":"A demo kind","spec_schema":{"type":"object","properties":{"n":{"maximum":987654321098765432109876543210}}},"#, 1);
    golden::<api::Manifest>(
        "manifest",
        &harness
            .write("PUT", "/api/v1/kinds/demo/manifest", manifest)
            .await
            .ok(201),
    );
    harness.world.manifest(&composer("app")).await;
    let body = r#"{"name":"fast","kind":"demo","is_default":true,"spec":{"big":987654321098765432109876543210},"data":"UEs="}"#;
    golden::<api::ProviderConfig>(
        "providerconfig",
        &harness
            .write("POST", "/api/v1/providerconfigs", body)
            .await
            .ok(201),
    );
    golden::<api::List<api::ProviderConfig>>(
        "providerconfigs",
        &harness.get("/api/v1/providerconfigs").await.ok(200),
    );
    let body = r#"{"kind":"demo","name":"a","labels":{"team":"x"},"spec":{"n":987654321098765432109876543210}}"#;
    golden::<api::Resource>(
        "resource_new",
        &harness
            .write("POST", "/api/v1/resources", body)
            .await
            .ok(201),
    );
    harness.clock.step(1_000);
    harness
        .world
        .run(&["demo"], |_| {
            done(r#"{"x":987654321098765432109876543210}"#)
        })
        .await;
    golden::<api::Resource>(
        "resource_ready",
        &harness.get("/api/v1/resources/demo/a").await.ok(200),
    );
    harness.apply("demo", "f", "{}").await.ok(201);
    harness
        .world
        .run(&["demo"], |_| failed("exit 1", false))
        .await;
    golden::<api::Resource>(
        "resource_failed",
        &harness.get("/api/v1/resources/demo/f").await.ok(200),
    );
    golden::<api::List<api::Event>>(
        "events",
        &harness.get("/api/v1/resources/demo/f/events").await.ok(200),
    );
    golden::<api::List<api::SpecRevision>>(
        "spec_history",
        &harness
            .get("/api/v1/resources/demo/a/spec-history")
            .await
            .ok(200),
    );
    harness.apply("app", "x", "{}").await.ok(201);
    let result = composed(
        vec![
            child("demo", "web", r#"{"host":null}"#),
            child("demo", "db", "{}"),
        ],
        vec![edge("demo/web", "demo/db", &[("/host", "/address")])],
    );
    harness
        .world
        .run(&["app"], composing(result, |_| done("{}")))
        .await;
    golden::<api::Resource>(
        "resource_child",
        &harness.get("/api/v1/resources/demo/web").await.ok(200),
    );
    golden::<api::Graph>(
        "graph",
        &harness.get("/api/v1/resources/app/x/graph").await.ok(200),
    );
    golden::<api::Dependencies>(
        "dependencies",
        &harness
            .get("/api/v1/resources/demo/web/dependencies")
            .await
            .ok(200),
    );
    golden::<api::List<api::Root>>(
        "roots",
        &harness.get("/api/v1/resources/roots").await.ok(200),
    );
    golden::<api::List<api::Resource>>(
        "resources",
        &harness.get("/api/v1/resources").await.ok(200),
    );
    golden::<api::Summary>(
        "summary",
        &harness.get("/api/v1/resources/summary").await.ok(200),
    );
    golden::<api::List<api::Kind>>("kinds", &harness.get("/api/v1/kinds").await.ok(200));
    golden::<api::KindSchema>(
        "kind_schema",
        &harness.get("/api/v1/kinds/demo/schema").await.ok(200),
    );
    golden::<api::Policy>(
        "policy",
        &harness
            .write(
                "PUT",
                "/api/v1/kinds/demo/versions/1/config",
                r#"{"max_inflight":2}"#,
            )
            .await
            .ok(200),
    );
    golden::<api::List<api::ClusterMember>>(
        "cluster_members",
        &harness.get("/api/v1/cluster-members").await.ok(200),
    );
    golden::<api::Version>("version", &harness.get("/api/v1/version").await.ok(200));
    golden::<api::Health>("health", &harness.get("/readyz").await.ok(200));
    golden::<api::Problem>(
        "problem",
        &harness
            .apply("demo", "a", r#"{"n":9876543210987654321098765432100}"#)
            .await
            .ok(400),
    );
    golden::<api::KindReconciled>(
        "kind_reconciled",
        &harness
            .write("POST", "/api/v1/kinds/demo/reconcile", Body::empty())
            .await
            .ok(202),
    );
    let metrics = harness.get("/metrics").await.ok(200).text();
    assert!(
        metrics
            .contains(r#"converge_resources{kind="demo",kind_version="1",phase="Reconciling"} 4"#),
        "{metrics}"
    );
    assert!(metrics.contains("converge_workers 1\n"), "{metrics}");
}
