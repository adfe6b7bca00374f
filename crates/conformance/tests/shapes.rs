//! Graph shapes that must not cost more than what moves: a long chain, a wide fan-out, a diamond, deep composites.

use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::world::{World, child, composed, composer, done, edge, leaf, succeed};
use converge_types::phase::{Phase, Stage};

fn world() -> (World, Arc<MemoryStore>) {
    let clock = ManualClock::at(1_700_000_000_000);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    (World::on(store.clone(), clock), store)
}

/// Runs a graph of leaves to Ready; the rows that were read and written for each of them.
async fn run_graph(count: usize, edges: impl Fn(usize) -> Vec<usize>) -> f64 {
    let (world, store) = world();
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/x", "{}").await;
    let name = |at: usize| format!("n{at}");
    let before = store.work();
    let ran = world
        .run(&["app", "demo"], |task| match task.claim.stage {
            Stage::Compose => {
                let children = (0..count)
                    .map(|at| child("demo", &name(at), "{}"))
                    .collect();
                let flows: &[(&str, &str)] = &[("/from", "/id")];
                let all =
                    (0..count).flat_map(|from| edges(from).into_iter().map(move |to| (from, to)));
                let edges = all.map(|(from, to)| {
                    let flows = if from == to + 1 { flows } else { &[] };
                    edge(
                        &format!("demo/{}", name(from)),
                        &format!("demo/{}", name(to)),
                        flows,
                    )
                });
                composed(children, edges.collect())
            }
            _ => done(r#"{"id":"x"}"#),
        })
        .await;
    let work = store.work() - before;
    assert_eq!(ran, count + 1, "each task runs once");
    assert_eq!(world.phase("app/x").await, Phase::Ready);
    assert_eq!(store.audit(), Vec::<String>::new());
    work as f64 / count as f64
}

#[tokio::test]
async fn a_chain_costs_the_same_per_hop_at_any_length() {
    let chain = |at: usize| if at == 0 { vec![] } else { vec![at - 1] };
    let short = run_graph(100, chain).await;
    let long = run_graph(1_000, chain).await;
    println!("{short:.1} and {long:.1} rows a hop");
    assert!(
        long < short * 1.1,
        "a hop of a chain of 1,000 takes {long} rows, of 100 {short}"
    );
}

#[tokio::test]
async fn a_fan_out_costs_the_same_per_leaf_at_any_width() {
    let fan = |at: usize| if at == 0 { vec![] } else { vec![0] };
    let small = run_graph(1_000, fan).await;
    let large = run_graph(10_000, fan).await;
    println!("{small:.1} and {large:.1} rows a leaf");
    assert!(
        large < small * 1.1,
        "a leaf of 10,000 takes {large} rows, of 1,000 {small}"
    );
}

#[tokio::test]
async fn a_diamond_waits_for_both_sides() {
    run_graph(4, |at| match at {
        0 => vec![],
        3 => vec![1, 2],
        _ => vec![0],
    })
    .await;
}

#[tokio::test]
async fn composites_twenty_deep_become_ready_and_go() {
    let (world, store) = world();
    world.manifest(&leaf("demo")).await;
    world.manifest(&composer("app")).await;
    world.apply("app/l0", "{}").await;
    let ran = world
        .run(&["app", "demo"], |task| {
            let depth = task.resource.row.depth;
            match task.claim.stage {
                Stage::Compose if depth < 20 => {
                    composed(vec![child("app", &format!("l{}", depth + 1), "{}")], vec![])
                }
                Stage::Compose => composed(vec![child("demo", "bottom", "{}")], vec![]),
                _ => succeed(task),
            }
        })
        .await;
    assert_eq!(ran, 22);
    assert_eq!(world.phase("app/l0").await, Phase::Ready);
    assert_eq!(world.view("app/l0").await.row.below.sums.ready, 21);
    world.delete("app/l0").await;
    assert_eq!(store.rows().len(), 0, "kinds without a teardown go at once");
}
