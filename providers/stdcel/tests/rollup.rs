//! What a rollup says of an instance: its status, and whether it is ready.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use stdcel::{Graph, Instance, Observed, Rollup, summary};

fn resource(id: &str, spec: Value) -> Value {
    json!({"id": id, "template": {"kind": "k", "name": format!("n-{id}"), "spec": spec}})
}

/// `resource` with more fields.
fn with(mut resource: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        resource[name] = value.clone();
    }
    resource
}

fn rollup(config: &Value, children: &[(&str, Option<Value>)]) -> Rollup {
    let statuses: Vec<_> = children
        .iter()
        .map(|(name, status)| (*name, status.as_ref().map(Value::to_string)))
        .collect();
    let observed: Vec<Observed<'_>> = statuses
        .iter()
        .map(|(name, status)| Observed {
            kind: "k",
            name,
            spec: br#"{"v": 1}"#,
            status: status.as_ref().map(String::as_bytes),
        })
        .collect();
    let instance = Instance {
        spec: br#"{"app": "x"}"#,
        name: "demo",
        ..Default::default()
    };
    let graph = Graph::parse(config.to_string().as_bytes());
    graph
        .rollup(&instance, &observed)
        .unwrap_or_else(|problems| panic!("{}", summary(&problems)))
}

#[test]
fn a_rollup_reads_what_is_there_and_leaves_out_what_is_not() {
    let config = json!({
        "resources": [
            with(resource("net", json!({})), json!({"readyWhen": ["${net.status.id != ''}", "${each.spec.v == 1}"]})),
            with(resource("off", json!({})), json!({"includeWhen": ["${false}"], "readyWhen": ["${false}"]})),
            {"id": "s", "forEach": {"z": "${['u', 'v']}"}, "readyWhen": ["${each.status.ok}"], "template": {"kind": "k", "name": "s-${z}"}},
        ],
        "status": {
            "id": "${net.status.id}", "text": "${schema.spec.app}/${net.status.id}", "off": "${off.status.x}", "fixed": {"n": 1},
            "ips": "${s.status.map(x, x.ip)}", "list": ["${net.status.id}", "${off.spec.v}"], "maybe": "${net.status.?none.orValue('-')}",
        },
    });
    let nothing = rollup(&config, &[]);
    assert_eq!(
        nothing.unready,
        ["net: it is not there yet", "s: it is not there yet"]
    );
    assert_eq!(nothing.status, r#"{"fixed":{"n":1},"list":[]}"#);
    assert!(nothing.problems.is_empty());

    let some = rollup(
        &config,
        &[
            ("n-net", None),
            ("s-u", Some(json!({"ok": true, "ip": "1"}))),
            ("s-v", Some(json!({"ok": false}))),
        ],
    );
    assert_eq!(some.unready.len(), 2, "{:?}", some.unready);
    assert!(
        some.unready[1].contains("does not hold"),
        "{:?}",
        some.unready
    );
    assert_eq!(some.status, r#"{"fixed":{"n":1},"list":[],"maybe":"-"}"#);

    let ready = json!({"ok": true, "ip": "1"});
    let all = rollup(
        &config,
        &[
            ("n-net", Some(json!({"id": "i-1"}))),
            ("s-u", Some(ready.clone())),
            ("s-v", Some(ready)),
        ],
    );
    assert!(all.unready.is_empty() && all.problems.is_empty(), "{all:?}");
    let expected =
        r#"{"fixed":{"n":1},"id":"i-1","ips":["1","1"],"list":["i-1"],"maybe":"-","text":"x/i-1"}"#;
    assert_eq!(all.status, expected);
}

#[test]
fn a_status_expression_that_fails_is_reported_and_hides_nothing() {
    let config = json!({"resources": [resource("net", json!({}))], "status": {"bad": "${net.status.n + 'x'}", "good": "${net.status.n}"}});
    let result = rollup(&config, &[("n-net", Some(json!({"n": 1})))]);
    assert_eq!(result.status, r#"{"good":1}"#);
    assert_eq!(result.problems.len(), 1);
    assert_eq!(result.problems[0].pointer.as_deref(), Some("/status/bad"));
}
