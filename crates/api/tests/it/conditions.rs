//! `If-Match`, `If-None-Match`, ETags and idempotency keys.

use axum::body::Body;
use converge_conformance::world::{done, leaf};

use crate::harness::Harness;

#[tokio::test]
async fn a_conditional_write_holds_to_what_was_read() {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    let body = r#"{"kind":"demo","name":"a","spec":{"n":1}}"#;
    let json = ("content-type", "application/json");
    let apply = async |condition: (&str, &str), body: &'static str| {
        harness
            .call("POST", "/api/v1/resources", &[json, condition], body)
            .await
    };
    let delete = async |etag: &str| {
        let headers = [json, ("if-match", etag)];
        harness
            .call(
                "DELETE",
                "/api/v1/resources/demo/a",
                &headers,
                Body::empty(),
            )
            .await
    };
    apply(("if-match", "*"), body).await.problem(412);
    apply(("if-none-match", "*"), body).await.ok(201);
    apply(("if-none-match", "*"), body).await.problem(412);
    let read = harness.get("/api/v1/resources/demo/a").await.ok(200);
    let etag = read.header("etag").unwrap().to_owned();
    let next = r#"{"kind":"demo","name":"a","spec":{"n":2}}"#;
    let changed = apply(("if-match", &etag), next).await.ok(200);
    assert_eq!(changed.header("x-apply-result"), Some("configured"));
    assert_ne!(changed.header("etag").unwrap(), etag);
    apply(("if-match", &etag), body).await.problem(412);
    delete(&etag).await.problem(412);
    delete(changed.header("etag").unwrap()).await.ok(204);
}

#[tokio::test]
async fn the_same_key_asks_for_one_pass() {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    harness.apply("demo", "a", "{}").await.ok(201);
    let path = "/api/v1/resources/demo/a/reconcile";
    for (key, passes) in [("k1", 1), ("k1", 0), ("k2", 1)] {
        harness.world.run(&["demo"], |_| done("{}")).await;
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", key),
        ];
        harness
            .call("POST", path, &headers, Body::empty())
            .await
            .ok(202);
        assert_eq!(
            harness.world.run(&["demo"], |_| done("{}")).await,
            passes,
            "{key}"
        );
    }
}
