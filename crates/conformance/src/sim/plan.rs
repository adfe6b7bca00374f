//! What the composers of a simulation compose: a function of the name and the spec alone, as a composer should be.

use converge_engine::command::{Outcome, Task};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::world::{child, composed, edge};

/// Children, edges and flows from the `s` of the spec; deeper levels get smaller.
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
        keys.push(format!("{kind}/{name}"));
        children.push(child(kind, &name, &spec));
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
    composed(children, edges)
}
