//! The kinds of a history, and what its composers compose: a function of the name and the spec alone, as a composer should be.

use bytes::Bytes;
use converge_engine::command::{Outcome, RawConfig, Task};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::world::{self, child, composed, edge};

/// Every pair there is.
pub(super) const PAIRS: [(&str, i32); 8] = [
    ("app", 1),
    ("app", 2),
    ("group", 1),
    ("leaf", 1),
    ("leaf", 2),
    ("torn", 1),
    ("torn", 2),
    ("slow", 1),
];

/// Two versions of a kind need not agree on anything: one rolls up, one has a teardown, the other does not.
pub(super) fn manifests() -> Vec<String> {
    let second = |text: String| text.replace("\"kind_version\":1", "\"kind_version\":2");
    vec![
        world::composer("app"),
        second(world::composer_with_rollup("app")),
        world::composer_with_rollup("group"),
        world::leaf("leaf"),
        second(world::leaf_with_teardown("leaf")),
        world::leaf_with_teardown("torn"),
        second(world::leaf("torn")),
        world::leaf_with_teardown("slow").replace(
            "\"kind_version\":1",
            "\"kind_version\":1,\"orphan_grace_secs\":20,\"max_inflight\":2",
        ),
    ]
}

/// The name of the one override a pair may have.
pub(super) fn override_of(kind: &str, version: i32) -> String {
    format!("o-{kind}-{version}")
}

/// Children, edges, flows and configs from the `s` of the spec; deeper levels get smaller.
pub(super) fn compose(task: &Task) -> Outcome {
    let row = &task.resource.row;
    let spec_seed = task
        .resource
        .spec
        .as_ref()
        .and_then(|spec| spec.to_value().ok())
        .and_then(|spec| spec.get("s").and_then(serde_json::Value::as_u64))
        .unwrap_or(0);
    let mut rng = SmallRng::seed_from_u64(spec_seed);
    let most = if row.depth >= 2 { 2 } else { 5 };
    let count = rng.random_range(0..=most);
    let mut children = Vec::new();
    let mut keys = Vec::new();
    let mut configs = Vec::new();
    for at in 0..count {
        let kind = match rng.random_range(0..10) {
            0 if row.depth < 3 => "group",
            1 if row.depth < 3 => "app",
            2..5 => "torn",
            5..7 => "slow",
            _ => "leaf",
        };
        let name = format!("{}-{at}", row.name);
        let spec = format!("{{\"s\":{}}}", rng.random_range(0..50));
        let mut child = child(kind, &name, &spec);
        if kind != "group" && kind != "slow" && rng.random_bool(0.3) {
            child.kind_version = 2;
        }
        let config = match rng.random_range(0..20) {
            0 | 1 => Some(override_of(kind, child.kind_version)),
            // Of another version: it is held, visibly.
            2 if kind == "torn" => Some(override_of(kind, 3 - child.kind_version)),
            3 | 4 => {
                let own = format!("own-{}-{name}", row.kv.kind);
                configs.push(RawConfig {
                    name: own.clone(),
                    kind: kind.to_owned(),
                    kind_version: child.kind_version,
                    is_default: false,
                    spec: Bytes::from(format!("{{\"own\":{}}}", rng.random_range(0..3))),
                });
                Some(own)
            }
            _ => None,
        };
        if let Some(config) = config {
            let label = "converge.sh/provider-config".to_owned();
            child.labels.insert(label, config);
        }
        keys.push(format!("{kind}/{name}"));
        children.push(child);
    }
    let mut edges = Vec::new();
    for from in 1..keys.len() {
        for to in 0..from {
            if rng.random_bool(0.4) {
                let is_leaf = !keys[to].starts_with("app") && !keys[to].starts_with("group");
                let dependent = format!("/from-{to}");
                let source = if rng.random_bool(0.3) { "/n" } else { "/id" };
                let flows: &[(&str, &str)] = if is_leaf && rng.random_bool(0.6) {
                    &[(dependent.as_str(), source)]
                } else {
                    &[]
                };
                edges.push(edge(&keys[from], &keys[to], flows));
            }
        }
    }
    let mut outcome = composed(children, edges);
    if let Some(compose) = &mut outcome.compose {
        compose.configs = configs;
    }
    outcome
}
