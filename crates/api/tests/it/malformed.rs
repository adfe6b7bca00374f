//! Malformed input of every route: a clear 4xx, and nothing stored.

use axum::body::Body;

use crate::harness::Harness;

const BODIES: &[(&str, &str)] = &[
    ("POST", "/api/v1/resources"),
    ("POST", "/api/v1/providerconfigs"),
    ("PUT", "/api/v1/kinds/demo/manifest"),
    ("PUT", "/api/v1/kinds/demo/versions/1/config"),
    ("POST", "/api/v1/resources/demo/a/rollback"),
];
const BODILESS: &[(&str, &str)] = &[
    ("DELETE", "/api/v1/resources/demo/a"),
    ("POST", "/api/v1/resources/demo/a/reconcile"),
    ("POST", "/api/v1/resources/demo/a/quarantine"),
    ("POST", "/api/v1/resources/demo/a/unquarantine"),
    ("POST", "/api/v1/kinds/demo/reconcile"),
    ("DELETE", "/api/v1/kinds/demo/versions/1/manifest"),
    ("DELETE", "/api/v1/providerconfigs/c"),
];
const READS: &[&str] = &[
    "/api/v1/resources",
    "/api/v1/resources/roots",
    "/api/v1/resources/summary",
    "/api/v1/resources/demo/a",
    "/api/v1/resources/demo/a/children",
    "/api/v1/resources/demo/a/dependencies",
    "/api/v1/resources/demo/a/graph",
    "/api/v1/resources/demo/a/events",
    "/api/v1/resources/demo/a/spec-history",
    "/api/v1/kinds",
    "/api/v1/kinds/demo/schema",
    "/api/v1/kinds/demo/versions/1/manifest",
    "/api/v1/providerconfigs",
    "/api/v1/providerconfigs/c",
    "/api/v1/cluster-members",
    "/api/v1/version",
];

/// A store with one of each, and its revision.
async fn populated() -> (Harness, i64) {
    let harness = Harness::new();
    harness
        .write("PUT", "/api/v1/kinds/demo/manifest", MANIFEST)
        .await
        .ok(201);
    harness.apply("demo", "a", "{}").await.ok(201);
    harness
        .write(
            "POST",
            "/api/v1/providerconfigs",
            r#"{"name":"c","kind":"demo","spec":{}}"#,
        )
        .await
        .ok(201);
    let revision = harness.world.store.revision().await.unwrap();
    (harness, revision)
}

const MANIFEST: &str = r#"{"type":"manifest","kind":"demo","kind_version":1,
    "spec_schema":{"type":"object","properties":{"n":{"type":"integer"},"m":{"type":"integer"}}},
    "reactions":[{"name":"work","trigger":"specChange","emits":["status","conditions"]}]}"#;

async fn unchanged(harness: &Harness, revision: i64, after: &str) {
    assert_eq!(
        harness.world.store.revision().await.unwrap(),
        revision,
        "something was stored by {after}"
    );
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_with_line_and_column() {
    let (harness, revision) = populated().await;
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let too_deep = nested(converge_types::limits::DOCUMENT_DEPTH + 1);
    let deep = nested(10_000);
    let garbage: &[&[u8]] = &[
        too_deep.as_bytes(),
        b"",
        b"{",
        b"{\"kind\":\n  demo}",
        b"[1,]",
        b"\xff\xfe",
        b"{} {}",
        b"{\"a\":1,\"a\":2}",
        b"{\"spec\":{\"x\":{\"y\":1,\"y\":1}}}",
        b"nul",
        b"{\"a\":01}",
        b"{\"a\":1e999999999}",
        deep.as_bytes(),
    ];
    for (method, path) in BODIES {
        for body in garbage {
            let answer = harness.write(method, path, body.to_vec()).await;
            let text = answer.problem(400);
            assert!(
                text.contains("line ") && text.contains("column "),
                "{method} {path}: {text}"
            );
        }
    }
    let answer = harness
        .write("POST", "/api/v1/resources", "{\"kind\":\n  demo}")
        .await;
    assert!(
        answer.text().contains("line 2, column 3"),
        "{}",
        answer.text()
    );
    let answer = harness
        .write("POST", "/api/v1/resources", r#"{"spec":{"y":1,"y":1}}"#)
        .await;
    let problem: converge_api_types::Problem = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(problem.detail.matches("/spec/y").count(), 1, "{problem:?}");
    assert_eq!(problem.errors[0].location, "/spec/y");
    assert_eq!(
        problem.errors[0].message,
        "duplicate key \"y\" (line 1, column 16)"
    );
    unchanged(&harness, revision, "garbage").await;
}

#[tokio::test]
async fn a_route_there_is_not_can_be_told_from_an_object_there_is_not() {
    let harness = Harness::new();
    let told = async |path: &str| {
        let answer = harness.get(path).await;
        answer.problem(404);
        let problem: converge_api_types::Problem = serde_json::from_str(&answer.text()).unwrap();
        problem.is_no_route()
    };
    assert!(told("/api/v1/resources/demo/a/ops").await);
    assert!(told("/api/v1/nothing").await);
    assert!(!told("/api/v1/resources/demo/a").await);
    assert!(!told("/api/v1/resources/demo/a/events").await);
}

#[tokio::test]
async fn a_body_of_the_wrong_shape_is_refused_with_everything_that_is_wrong() {
    let (harness, revision) = populated().await;
    for (method, path) in BODIES {
        for body in ["[]", "null", "7", "\"x\""] {
            let answer = harness.write(method, path, body).await;
            assert!(
                answer.status.is_client_error(),
                "{method} {path} {body}: {}",
                answer.text()
            );
            answer.problem(answer.status.as_u16());
        }
        let answer = harness.write(method, path, r#"{"typo":1}"#).await;
        assert!(answer.status.is_client_error(), "{method} {path}");
        assert!(
            answer.problem(answer.status.as_u16()).contains("typo"),
            "{method} {path}: {}",
            answer.text()
        );
    }
    let body = r#"{"type":"manifest","kind":"Demo","kind_version":40000,"name":"-a","labels":{"b ad":"x"},"provider_config_ref":"/","spec":[]}"#;
    let text = harness
        .write("POST", "/api/v1/resources", body)
        .await
        .problem(400);
    for place in [
        "/type",
        "/kind",
        "/kind_version",
        "/name",
        "/labels",
        "/provider_config_ref",
        "/spec",
    ] {
        assert!(
            text.contains(&format!("\"location\":\"{place}\"")),
            "{place}: {text}"
        );
    }
    let body =
        r#"{"type":"resource","kind":"Demo","kind_version":0,"name":"","spec":7,"data":"!"}"#;
    let text = harness
        .write("POST", "/api/v1/providerconfigs", body)
        .await
        .problem(400);
    for place in ["/type", "/kind", "/kind_version", "/name", "/spec", "/data"] {
        assert!(
            text.contains(&format!("\"location\":\"{place}\"")),
            "{place}: {text}"
        );
    }
    let text = harness
        .apply("demo", "a", r#"{"n":"x","m":"y"}"#)
        .await
        .problem(400);
    assert!(
        text.contains("/spec/n") && text.contains("/spec/m"),
        "{text}"
    );
    let text = harness
        .write(
            "POST",
            "/api/v1/resources",
            r#"{"kind":7,"name":"a","spec":{}}"#,
        )
        .await
        .problem(400);
    assert!(
        text.contains("/kind") && text.contains("integer `7`"),
        "{text}"
    );
    let other = MANIFEST.replace("\"demo\"", "\"other\"");
    assert!(
        harness
            .write("PUT", "/api/v1/kinds/demo/manifest", other)
            .await
            .problem(400)
            .contains("/kind")
    );
    harness
        .write(
            "PUT",
            "/api/v1/kinds/demo/manifest",
            MANIFEST.replace("work\"", "work\",\"verb\":\"x\""),
        )
        .await
        .problem(422);
    let policy = r#"{"max_inflight":4294967296,"on_config_change":"never"}"#;
    let text = harness
        .write("PUT", "/api/v1/kinds/demo/versions/1/config", policy)
        .await
        .problem(400);
    assert!(
        text.contains("/max_inflight") && text.contains("/on_config_change"),
        "{text}"
    );
    unchanged(&harness, revision, "a wrong shape").await;
}

#[tokio::test]
async fn a_write_says_that_it_is_json_and_is_not_larger_than_its_route_takes() {
    let (harness, revision) = populated().await;
    for (method, path) in BODIES.iter().chain(BODILESS) {
        for kind in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            Some("application/jsonp"),
        ] {
            let headers: Vec<_> = kind
                .map(|kind| ("content-type", kind))
                .into_iter()
                .collect();
            harness
                .call(method, path, &headers, "{}")
                .await
                .problem(415);
        }
    }
    let headers = [
        ("content-type", "Application/JSON; charset=utf-8"),
        ("content-length", "99999999999"),
    ];
    for (method, path) in BODIES {
        harness
            .call(method, path, &headers, "{}")
            .await
            .problem(413);
    }
    // Without a length: the bytes themselves are counted.
    let huge = format!(r#"{{"generation":{}1}}"#, " ".repeat(100_000));
    harness
        .write("POST", "/api/v1/resources/demo/a/rollback", huge)
        .await
        .problem(413);
    let spec = format!(r#"{{"x":"{}"}}"#, "y".repeat(16 << 20));
    harness.apply("demo", "big", &spec).await.problem(413);
    for (method, path) in BODILESS {
        for body in ["{\"a\":1}".to_owned(), "x".to_owned(), "z".repeat(1 << 20)] {
            let answer = harness.write(method, path, body).await;
            answer.problem(400);
        }
    }
    unchanged(&harness, revision, "a wrong type or size").await;
}

#[tokio::test]
async fn wrong_names_parameters_and_conditions_are_refused() {
    let (harness, revision) = populated().await;
    let all = BODIES
        .iter()
        .chain(BODILESS)
        .copied()
        .chain(READS.iter().map(|path| ("GET", *path)));
    for (method, path) in all {
        let answer = harness
            .write(method, &format!("{path}?nonsense=1"), Body::empty())
            .await;
        assert!(answer.problem(400).contains("nonsense"), "{method} {path}");
        for (good, bad) in [
            ("/demo", "/Demo"),
            ("/demo", "/d%00"),
            ("/demo", "/%ff"),
            ("/a", "/-a"),
            ("/versions/1", "/versions/0"),
            ("/versions/1", "/versions/x"),
            ("figs/c", "figs/c%2fd"),
        ] {
            let wrong = path.replacen(good, bad, 1);
            // "/a" is also the start of "/api".
            if wrong == path || wrong.starts_with("/-api") {
                continue;
            }
            let answer = harness.write(method, &wrong, "{}").await;
            answer.problem(400);
        }
    }
    let queries = [
        "kind=X",
        "kv=demo",
        "kv=demo/v0",
        "phase=Happy",
        "label=novalue",
        "owner=demo",
        "root=/x",
        "view=half",
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=-1",
        "cursor=x",
        "kind=demo&kind=demo",
    ];
    for query in queries {
        harness
            .get(&format!("/api/v1/resources?{query}"))
            .await
            .problem(400);
    }
    harness
        .get("/api/v1/kinds/demo/schema?version=0")
        .await
        .problem(400);
    harness
        .get("/api/v1/resources/demo/a/events?cursor=x")
        .await
        .problem(400);
    harness
        .write(
            "DELETE",
            "/api/v1/resources/demo/a?force=maybe",
            Body::empty(),
        )
        .await
        .problem(400);
    for (name, value) in [
        ("if-match", "7"),
        ("if-match", "W/\"7\""),
        ("if-match", "\"1\", \"2\""),
        ("if-match", "\"x\""),
        ("if-none-match", "\"1\""),
    ] {
        let headers = [("content-type", "application/json"), (name, value)];
        harness
            .call(
                "DELETE",
                "/api/v1/resources/demo/a",
                &headers,
                Body::empty(),
            )
            .await
            .problem(400);
    }
    unchanged(&harness, revision, "a wrong name, parameter or condition").await;
}

#[tokio::test]
async fn fields_of_the_wrong_type_are_all_named_with_their_place() {
    let (harness, revision) = populated().await;
    let body =
        r#"{"kind":5,"kind_version":1.5,"name":["a"],"labels":{"ok":"x","a/b":5},"bogus":1}"#;
    let answer = harness.write("POST", "/api/v1/resources", body).await;
    answer.problem(400);
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    let mut places: Vec<&str> = errors
        .iter()
        .map(|error| error["location"].as_str().unwrap())
        .collect();
    places.sort_unstable();
    assert_eq!(
        places,
        [
            "/bogus",
            "/kind",
            "/kind_version",
            "/labels/a~1b",
            "/name",
            "/spec"
        ],
        "{errors:?}"
    );
    for error in &errors {
        let message = error["message"].as_str().unwrap();
        assert!(!message.contains("column"), "{message}");
    }
    unchanged(&harness, revision, "fields of the wrong type").await;
}
