//! Benches of graphs through the whole stack: one root, many leaves.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::json;

use super::harness::{Goal, Sample, Variant, compare};
use super::{Programs, Setting, stacked};
use crate::http::Http;
use crate::interrupt;
use crate::stack::Stack;

const LIMIT: Duration = Duration::from_secs(120);
const MANY: usize = 10_000;
const FEW: usize = 1_000;
const HOPS: usize = 1_000;

fn stack(programs: &Programs) -> Result<(Stack, Http)> {
    let mut stack = Stack::start(&programs.converge)?;
    let http = Http::new(&stack.at.api);
    stacked::noop_kind(&http)?;
    let count = json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]});
    let any = json!({"type": "object"});
    for kind in ["fan", "chain"] {
        let manifest = json!({"kind": kind, "kind_version": 1, "spec_schema": count, "status_schema": any, "config_schema": any,
            "reactions": [{"name": "compose", "trigger": "specChange", "emits": ["children", "edges", "conditions"]}]});
        http.put(&format!("/kinds/{kind}/manifest"), &manifest)?;
    }
    stacked::worker(&mut stack, &programs.graph, 256)?;
    super::load::await_worker(&http)?;
    Ok((stack, http))
}

/// Applies a root and waits until it is Ready; how long that took, and the CPU time of both processes per leaf.
fn one(stack: &Stack, http: &Http, kind: &str, name: &str, count: usize) -> Result<(f64, Sample)> {
    let (before, cpu, started) = (super::load::ready(http)?, stack.cpu()?, Instant::now());
    http.post(
        "/resources",
        &json!({"kind": kind, "name": name, "spec": {"count": count}}),
    )?;
    // The counts cost the same however large the graph is; reading the root while it waits would look through its children.
    let all = before + count as u64 + 1;
    while super::load::ready(http)? < all {
        interrupt::check()?;
        if started.elapsed() > LIMIT {
            bail!("{kind} {name} is not Ready after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = started.elapsed().as_secs_f64();
    let cpu = stack.cpu()?.saturating_sub(cpu) / u32::try_from(count).unwrap_or(u32::MAX);
    Ok((
        took,
        Sample {
            value: took,
            cpu: Some(cpu),
        },
    ))
}

/// One root with many leaves: the ratio of the two lines shows whether the cost of a leaf grows with the graph.
pub(crate) fn fan(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let (stack, http) = stack(programs)?;
    let resident = RefCell::new(Vec::new());
    let of = |count: usize, goal: Option<f64>| Variant {
        name: format!("{count} leaves"),
        goal: goal.map(Goal::Value),
        run: Box::new({
            let (stack, http, resident) = (&stack, &http, &resident);
            move |round| {
                let sample = one(stack, http, "fan", &format!("f{count}-{round}"), count)?.1;
                resident.borrow_mut().push(stack.resident()?);
                Ok(sample)
            }
        }),
    };
    compare(
        "s",
        setting.rounds,
        vec![of(FEW, None), of(MANY, Some(2.0))],
    )?;
    if let Some((converge, worker)) = resident.borrow().last() {
        let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
        println!(
            "resident with {} leaves stored: converge {:.0} MiB, worker {:.0} MiB",
            (FEW + MANY) * setting.rounds as usize,
            mib(*converge),
            mib(*worker)
        );
    }
    Ok(())
}

/// Each leaf waits for the one before: the latency of one hop.
pub(crate) fn chain(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let (stack, http) = stack(programs)?;
    let hop = Variant {
        name: format!("a chain of {HOPS}, per hop"),
        goal: Some(Goal::Value(1.5)),
        run: Box::new(|round| {
            let (took, sample) = one(&stack, &http, "chain", &format!("c{round}"), HOPS)?;
            Ok(Sample {
                value: took * 1e3 / HOPS as f64,
                ..sample
            })
        }),
    };
    compare("ms", setting.rounds, vec![hop])
}
