//! Who may call, and that everything refused is a problem document.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use converge_api::{ClientCertificate, Token};

use crate::harness::Harness;

#[tokio::test]
async fn a_rebound_name_and_a_page_elsewhere_are_refused_whatever_the_route() {
    let harness =
        Harness::with(|options| options.allowed_hosts = vec!["control.example".to_owned()]);
    for path in ["/api/v1/kinds", "/livez", "/nothing/here"] {
        let request = Request::get(path)
            .header("host", "evil.example")
            .body(Body::empty())
            .unwrap();
        assert!(
            harness
                .send(request)
                .await
                .problem(403)
                .contains("--allowed-host")
        );
        let request = Request::get(path).body(Body::empty()).unwrap();
        harness.send(request).await.problem(403);
        for origin in [
            "https://evil.example",
            "null",
            "http://localhost.evil.example",
        ] {
            harness
                .call("GET", path, &[("origin", origin)], Body::empty())
                .await
                .problem(403);
        }
    }
    harness
        .call(
            "GET",
            "/api/v1/kinds",
            &[("origin", "http://127.0.0.1:3000")],
            Body::empty(),
        )
        .await
        .ok(200);
    let named = Request::get("/api/v1/kinds")
        .header("host", "control.example:8080")
        .header("origin", "https://control.example");
    let answer = harness
        .send(named.body(Body::empty()).unwrap())
        .await
        .ok(200);
    assert_eq!(answer.header("access-control-allow-origin"), None);
    // HTTP/2 has no Host header but an authority; both count when both are there.
    let h2 = Request::get("http://evil.example/api/v1/kinds")
        .body(Body::empty())
        .unwrap();
    harness.send(h2).await.problem(403);
    let h2 = Request::get("http://evil.example/api/v1/kinds").header("host", "localhost");
    harness
        .send(h2.body(Body::empty()).unwrap())
        .await
        .problem(403);
}

#[tokio::test]
async fn readiness_ends_with_the_drain_and_with_the_store_while_liveness_stays() {
    let harness = Harness::new();
    harness.get("/readyz").await.ok(200);
    harness.api.drain();
    let answer = harness.get("/api/v1/readyz").await.ok(503);
    assert!(answer.text().contains("shutting down"), "{}", answer.text());
    harness.get("/livez").await.ok(200);
    harness.get("/healthz").await.ok(200);
    harness.world.store.close().await;
    harness.get("/livez").await.ok(200);
    let refused = harness.apply("demo", "a", "{}").await;
    refused.problem(503);
    assert!(refused.header("retry-after").is_some());
}

#[tokio::test]
async fn the_document_and_the_router_agree_and_both_prefixes_answer() {
    let harness = Harness::new();
    let document = harness.json("/api/v1/openapi.json").await;
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 20, "{}", paths.len());
    for (path, methods) in paths {
        let concrete = path
            .replace("{kind}", "demo")
            .replace("{name}", "a")
            .replace("{v}", "1");
        for prefix in ["/api/v1", "/api"] {
            let concrete = concrete.replacen("/api/v1", prefix, 1);
            // A method no route has: 405 proves that the route is there, and its header which methods it takes.
            let answer = harness.call("PATCH", &concrete, &[], Body::empty()).await;
            answer.problem(405);
            let allow: Vec<_> = answer
                .header("allow")
                .unwrap()
                .split(',')
                .map(str::trim)
                .filter(|method| *method != "HEAD")
                .map(str::to_lowercase)
                .collect();
            let documented: Vec<_> = methods.as_object().unwrap().keys().cloned().collect();
            for method in &allow {
                assert!(
                    documented.contains(method),
                    "{method} {path} is not documented"
                );
            }
            assert_eq!(allow.len(), documented.len(), "{path}");
        }
        let parameters = methods["get"]["parameters"].as_array();
        for parameter in parameters.into_iter().flatten() {
            let bounds = ["minimum", "maximum"].map(|bound| parameter["schema"][bound].as_u64());
            assert!(
                parameter["name"] != "limit" || bounds == [Some(1), Some(500)],
                "{path}: {parameter}"
            );
        }
    }
    harness.get("/api/v1/nothing").await.problem(404);
    harness.get("/").await.problem(404);
    harness
        .call("POST", "/api/v1/nothing", &[], "x")
        .await
        .problem(404);
    let page = harness.get("/docs").await.ok(200);
    assert!(
        !page.text().contains("http://") && !page.text().contains("https://"),
        "the page must work offline"
    );
}

#[tokio::test]
async fn who_shows_no_certificate_needs_the_newest_token() {
    let tokens = tokio::sync::watch::Sender::new(Arc::new(Token::new(b"first")));
    let harness = Harness::with(|options| options.token = Some(tokens.subscribe()));
    let asked = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let headers: &[_] = match token {
            "" => &[],
            _ => &[("authorization", bearer.as_str())],
        };
        harness.call("GET", path, headers, Body::empty()).await
    };
    for path in [
        "/api/v1/resources",
        "/api/version",
        "/metrics",
        "/docs",
        "/nowhere",
    ] {
        for token in ["", "second"] {
            let answer = asked(path, token).await;
            let said = answer.problem(401);
            assert!(said.contains("--token-file"), "{said}");
            assert!(
                !said.contains("first") && !said.contains("second"),
                "{said}"
            );
            let challenge = answer.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer realm=\"converge\""), "{path}");
        }
    }
    asked("/api/v1/resources", "first").await.ok(200);
    // Probes have nothing to show.
    for path in ["/livez", "/healthz", "/readyz"] {
        asked(path, "").await.ok(200);
    }
    tokens.send_replace(Arc::new(Token::new(b"second")));
    asked("/api/v1/resources", "first").await.problem(401);
    asked("/api/v1/resources", "second").await.ok(200);

    let mut request = Request::builder()
        .uri("/api/v1/resources")
        .header("host", "localhost")
        .body(Body::empty())
        .unwrap();
    request.extensions_mut().insert(ClientCertificate);
    harness.send(request).await.ok(200);
}

#[tokio::test]
async fn a_token_lets_no_page_from_elsewhere_in() {
    let tokens = tokio::sync::watch::Sender::new(Arc::new(Token::new(b"first")));
    let harness = Harness::with(|options| options.token = Some(tokens.subscribe()));
    let headers = [
        ("authorization", "Bearer first"),
        ("origin", "https://evil.example"),
    ];
    let answer = harness
        .call("GET", "/api/v1/resources", &headers, Body::empty())
        .await;
    answer.problem(403);
}
