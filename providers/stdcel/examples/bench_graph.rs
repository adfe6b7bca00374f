//! Times reading and composing a graph, and prints one JSON object a line.
//!
//! `bench_graph [RESOURCES] [RUNS]`: a graph with texts, conditions, specs that read specs and statuses that flow, a fifth
//! of it in one long chain.

use std::time::{Duration, Instant};

use stdcel::{Graph, Instance};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(Ok(1_000), |arg| arg.parse())?;
    let runs: usize = args.next().map_or(Ok(10), |arg| arg.parse())?;
    let config = config(count);
    let instance = Instance {
        spec: br#"{"app": "shop", "zones": ["a", "b", "c"], "size": 3, "on": true}"#,
        name: "bench",
        ..Default::default()
    };
    let (mut parse, mut compose) = (Vec::new(), Vec::new());
    let mut counts = (0, 0);
    for _ in 0..runs.max(1) {
        let started = Instant::now();
        let graph = Graph::parse(config.as_bytes());
        parse.push(started.elapsed());
        let started = Instant::now();
        let composition = graph
            .compose(&instance)
            .map_err(|problems| stdcel::summary(&problems))?;
        compose.push(started.elapsed());
        counts = (composition.children.len(), composition.edges.len());
    }
    let (parse, compose) = (median(parse), median(compose));
    println!(
        r#"{{"resources":{count},"children":{},"edges":{},"config_bytes":{},"parse_ms":{parse:.3},"compose_ms":{compose:.3}}}"#,
        counts.0,
        counts.1,
        config.len(),
    );
    Ok(())
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn config(count: usize) -> String {
    let resource = |at: usize| {
        let spec = match (at, at % 5) {
            (0, _) => serde_json::json!({"first": true}),
            (_, 0) => {
                serde_json::json!({"before": format!("${{r{}.spec.n}}", at.saturating_sub(5).max(1)), "n": "${schema.spec.size + 1}"})
            }
            (_, 1) => {
                serde_json::json!({"n": at, "text": "${schema.spec.app}-${schema.metadata.name}", "zones": "${schema.spec.zones.map(z, z + '-1')}"})
            }
            (_, 2) => serde_json::json!({"id": format!("${{r{}.status.id}}", at - 1), "n": 1}),
            (_, 3) => {
                serde_json::json!({"all": format!("${{r{}.spec}}", at - 1), "pick": "${schema.spec.on ? schema.spec.zones[0] : 'none'}"})
            }
            _ => {
                serde_json::json!({"name": format!("${{r{}.metadata.name}}", at - 1), "plain": {"a": [1, 2, 3], "b": "text"}})
            }
        };
        let name = format!("${{schema.metadata.name}}-{at}");
        serde_json::json!({"id": format!("r{at}"), "template": {"kind": "leaf", "name": name, "spec": spec}})
    };
    serde_json::json!({"resources": (0..count).map(resource).collect::<Vec<_>>()}).to_string()
}
