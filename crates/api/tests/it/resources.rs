//! What the routes do, in the order a person would use them.

use axum::body::Body;
use converge_conformance::world::{
    child, composed, composer, composing, done, edge, failed, leaf, leaf_with_teardown,
};

use crate::harness::{Harness, column};

#[tokio::test]
async fn an_apply_is_created_then_unchanged_then_configured_and_keeps_every_digit() {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    let big = "987654321098765432109876543210";
    let first = harness
        .apply("demo", "a", &format!(r#"{{ "n": {big} }}"#))
        .await
        .ok(201);
    assert_eq!(first.header("x-apply-result"), Some("created"));
    assert_eq!(first.header("location"), Some("/api/v1/resources/demo/a"));
    assert!(
        first
            .text()
            .contains(&format!(r#""spec":{{ "n": {big} }}"#)),
        "{}",
        first.text()
    );
    assert_eq!(first.json()["waiting"], "NoWorker");
    let same = harness
        .apply("demo", "a", &format!(r#"{{"n":{big}.0}}"#))
        .await
        .ok(200);
    assert_eq!(same.header("x-apply-result"), Some("unchanged"));
    assert_eq!(
        harness
            .apply("demo", "a", r#"{"n":2}"#)
            .await
            .ok(200)
            .header("x-apply-result"),
        Some("configured")
    );
    harness.connect("w-1", &["demo"]);
    let read = harness.json("/api/resources/demo/a").await;
    assert_eq!(
        (&read["generation"], &read["waiting"]),
        (&2.into(), &"Queued".into())
    );
    harness.world.run(&["demo"], |_| done(r#"{"x":1}"#)).await;
    let read = harness.json("/api/v1/resources/demo/a").await;
    assert_eq!(
        (&read["phase"], &read["status"]["x"]),
        (&"Ready".into(), &1.into())
    );
    assert!(read.get("waiting").is_none(), "{read}");
    let history = harness
        .get("/api/v1/resources/demo/a/spec-history")
        .await
        .ok(200);
    assert_eq!(history.json()["items"].as_array().unwrap().len(), 2);
    let back = harness
        .write(
            "POST",
            "/api/v1/resources/demo/a/rollback",
            r#"{"generation":1}"#,
        )
        .await
        .ok(200);
    assert!(back.text().contains(big), "{}", back.text());
    harness
        .write(
            "POST",
            "/api/v1/resources/demo/a/rollback",
            r#"{"generation":99}"#,
        )
        .await
        .problem(404);
}

#[tokio::test]
async fn a_removed_resource_says_when_it_went_and_its_events_stay() {
    let harness = Harness::new();
    harness.world.manifest(&leaf_with_teardown("demo")).await;
    harness.apply("demo", "a", "{}").await.ok(201);
    harness.world.run(&["demo"], |_| done("{}")).await;
    let deleting = harness
        .write("DELETE", "/api/v1/resources/demo/a", Body::empty())
        .await
        .ok(202)
        .json();
    assert_eq!(deleting["phase"], "Deleting");
    assert!(
        harness
            .apply("demo", "a", r#"{"n":1}"#)
            .await
            .problem(409)
            .contains("being deleted")
    );
    harness
        .write("DELETE", "/api/v1/resources/demo/a", Body::empty())
        .await
        .ok(202);
    harness.world.run(&["demo"], |_| done("{}")).await;
    let text = harness.get("/api/v1/resources/demo/a").await.problem(404);
    assert!(
        text.contains("removed at 2026-01-02T03:04:05.678Z"),
        "{text}"
    );
    let text = harness
        .write("DELETE", "/api/v1/resources/demo/a", Body::empty())
        .await
        .problem(404);
    assert!(text.contains("removed at"), "{text}");
    harness
        .get("/api/v1/resources/demo/a/events")
        .await
        .problem(404);
    let events = harness
        .json("/api/v1/resources/demo/a/events?deleted=true")
        .await;
    let words = column(&events["items"], "type");
    assert_eq!(
        (words.first(), words.last()),
        (Some(&"applied"), Some(&"deleted")),
        "{words:?}"
    );
    harness
        .get("/api/v1/resources/demo/never")
        .await
        .problem(404);
}

#[tokio::test]
async fn lists_are_paged_filtered_and_short_unless_asked() {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    harness.world.manifest(&leaf("other")).await;
    for number in 0..5 {
        harness
            .apply("demo", &format!("d{number}"), "{}")
            .await
            .ok(201);
    }
    harness.apply("other", "o", "{}").await.ok(201);
    harness
        .world
        .run(&["demo"], |task| {
            if task.resource.row.name == *"d3" {
                failed("no", true)
            } else {
                done("{}")
            }
        })
        .await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = harness
            .get(&format!("/api/v1/resources?kind=demo&limit=2{cursor}"))
            .await
            .ok(200);
        let body = page.json();
        assert!(body["revision"].as_u64().unwrap() > 0);
        for item in body["items"].as_array().unwrap() {
            assert!(item.get("spec").is_none() && item.get("status").is_none());
            seen.push(item["name"].as_str().unwrap().to_owned());
        }
        match page.header("x-next-cursor") {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["d0", "d1", "d2", "d3", "d4"]);
    let names = async |query: &str| {
        let body = harness.json(&format!("/api/v1/resources?{query}")).await;
        let names = column(&body["items"], "name").into_iter();
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names("phase=failed").await, ["d3"]);
    assert_eq!(names("phase=Failed&phase=Reconciling").await, ["d3", "o"]);
    assert_eq!(
        names("phase=Ready&phase=Failed&limit=3").await,
        ["d0", "d1", "d2"]
    );
    assert_eq!(
        names("phase=Ready&phase=Failed&limit=3&cursor=demo/d2").await,
        ["d3", "d4"]
    );
    assert_eq!(names("kv=other/v1").await, ["o"]);
    assert_eq!(names("name=3").await, ["d3"]);
    assert_eq!(names("owner=demo/none").await, Vec::<String>::new());
    let full = harness.json("/api/v1/resources?name=d0&view=full").await;
    assert!(full["items"][0].get("spec").is_some() && full["items"][0].get("status").is_some());
    let summary = harness.json("/api/v1/resources/summary").await;
    assert_eq!(
        (
            &summary["total"],
            &summary["phases"]["Ready"],
            &summary["phases"]["Failed"]
        ),
        (&6.into(), &4.into(), &1.into())
    );
    let answer = harness
        .write(
            "POST",
            "/api/v1/kinds/demo/reconcile?phase=Failed",
            Body::empty(),
        )
        .await
        .ok(202)
        .json();
    assert_eq!(answer["reconciled"], 1);
    harness
        .write("POST", "/api/v1/kinds/nope/reconcile", Body::empty())
        .await
        .problem(404);
    harness
        .write(
            "POST",
            "/api/v1/resources/demo/d0/quarantine",
            Body::empty(),
        )
        .await
        .ok(202);
    assert_eq!(names("phase=Quarantined").await, ["d0"]);
    harness
        .write(
            "POST",
            "/api/v1/resources/demo/d0/unquarantine",
            Body::empty(),
        )
        .await
        .ok(202);
    assert_eq!(names("phase=Quarantined").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_graph_is_drawn_owners_first_with_its_flows() {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    harness.world.manifest(&composer("app")).await;
    harness.apply("app", "x", "{}").await.ok(201);
    let mut result = composed(
        vec![
            child("demo", "web", r#"{"host":null}"#),
            child("demo", "db", "{}"),
        ],
        vec![edge("demo/web", "demo/db", &[("/host", "/address")])],
    );
    result.conditions.clear();
    harness
        .world
        .run(&["app"], composing(result, |_| done("{}")))
        .await;
    let waiting = harness.json("/api/v1/resources/demo/web").await;
    assert_eq!(waiting["waiting"], "DependencyNotReady demo/db");
    assert_eq!(
        (&waiting["owner"]["name"], &waiting["root"]["name"]),
        (&"x".into(), &"x".into())
    );
    harness
        .world
        .run(&["demo"], |_| done(r#"{"address":"10.1"}"#))
        .await;
    let graph = harness.json("/api/v1/resources/app/x/graph").await;
    let nodes = column(&graph["nodes"], "name");
    assert_eq!(nodes, ["x", "db", "web"]);
    assert_eq!(graph["nodes"][1]["owner"]["name"], "x");
    assert_eq!(graph["edges"][0]["from"]["name"], "web");
    assert_eq!(graph["edges"][0]["values"][0]["source_field"], "/address");
    let needs = harness
        .json("/api/v1/resources/demo/web/dependencies")
        .await;
    assert_eq!(
        (
            &needs["items"][0]["name"],
            &needs["items"][0]["values"][0]["value"]
        ),
        (&"db".into(), &"10.1".into())
    );
    let needed = harness.json("/api/v1/resources/demo/db/dependencies").await;
    assert_eq!(needed["dependents"][0]["name"], "web");
    let children = harness
        .get("/api/v1/resources/app/x/children?limit=1")
        .await
        .ok(200);
    assert_eq!(children.header("x-next-cursor"), Some("demo/db"));
    let roots = harness.json("/api/v1/resources/roots").await;
    assert_eq!(
        (
            &roots["items"][0]["name"],
            &roots["items"][0]["descendants"]
        ),
        (&"x".into(), &2.into())
    );
    assert!(
        harness
            .apply("demo", "web", "{}")
            .await
            .problem(409)
            .contains("app/x")
    );
    harness
        .write("DELETE", "/api/v1/resources/demo/web", Body::empty())
        .await
        .problem(409);
}

#[tokio::test]
async fn a_kind_and_its_configs_live_their_lives() {
    let harness = Harness::new();
    let path = "/api/v1/kinds/demo/manifest";
    harness.write("PUT", path, leaf("demo")).await.ok(201);
    assert_eq!(
        harness
            .write("PUT", path, leaf("demo"))
            .await
            .ok(200)
            .header("x-apply-result"),
        Some("unchanged")
    );
    let policy = harness
        .write(
            "PUT",
            "/api/v1/kinds/demo/versions/v1/config",
            r#"{"max_inflight":3,"task_deadline_secs":null}"#,
        )
        .await
        .ok(200);
    assert_eq!(policy.json()["max_inflight"], 3);
    let again = leaf("demo").replacen('{', r#"{"max_inflight":4,"#, 1);
    let again = harness.write("PUT", path, again).await.ok(200).json();
    assert!(
        again["warnings"][0]
            .as_str()
            .unwrap()
            .contains("max_inflight"),
        "{again}"
    );
    assert_eq!(again["max_inflight"], 3);
    let configs = "/api/v1/providerconfigs";
    harness
        .write(
            "POST",
            configs,
            r#"{"name":"c","kind":"demo","is_default":true,"spec":{"a":1},"data":"UEs="}"#,
        )
        .await
        .ok(201);
    harness
        .write(
            "POST",
            configs,
            r#"{"name":"d","kind":"demo","is_default":true}"#,
        )
        .await
        .problem(409);
    let kept = harness
        .write(
            "POST",
            configs,
            r#"{"name":"c","kind":"demo","spec":{"a":2}}"#,
        )
        .await
        .ok(200)
        .json();
    assert_eq!(
        (&kept["data"], &kept["is_default"], &kept["bundle"]["size"]),
        (&"UEs=".into(), &true.into(), &2.into())
    );
    let emptied = harness
        .write(
            "POST",
            configs,
            r#"{"name":"c","kind":"demo","spec":{"a":2},"data":""}"#,
        )
        .await
        .ok(200)
        .json();
    assert!(
        emptied.get("data").is_none() && emptied["uid"] == kept["uid"],
        "{emptied}"
    );
    harness
        .write(
            "POST",
            &format!("{configs}?replace_default"),
            r#"{"name":"d","kind":"demo","is_default":true}"#,
        )
        .await
        .ok(201);
    assert_eq!(
        harness.json(&format!("{configs}?kind=demo")).await["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        harness.json(&format!("{configs}/c")).await["is_default"],
        false
    );
    harness
        .write("POST", configs, r#"{"name":"e","kind":"nope"}"#)
        .await
        .problem(404);
    harness
        .write(
            "POST",
            "/api/v1/resources",
            r#"{"kind":"demo","name":"a","spec":{},"provider_config_ref":"c"}"#,
        )
        .await
        .ok(201);
    assert!(
        harness
            .write("DELETE", "/api/v1/providerconfigs/c", Body::empty())
            .await
            .problem(409)
            .contains("demo/a")
    );
    harness
        .write(
            "DELETE",
            "/api/v1/kinds/demo/versions/1/manifest",
            Body::empty(),
        )
        .await
        .problem(409);
    harness
        .write("DELETE", "/api/v1/resources/demo/a", Body::empty())
        .await
        .ok(204);
    harness
        .write("DELETE", "/api/v1/providerconfigs/c", Body::empty())
        .await
        .ok(204);
    harness
        .write(
            "DELETE",
            "/api/v1/kinds/demo/versions/1/manifest",
            Body::empty(),
        )
        .await
        .ok(204);
    harness.get("/api/v1/kinds/demo/schema").await.problem(404);
}
