//! How many leaf reconciles a second the store carries out by itself: apply, claim, complete, no worker and no network.
//!
//! `cargo run --release -p converge-store-sqlite --example cycle [SECONDS] [NAMES] [APPLIERS]`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use converge_engine::command::{
    ClaimTasks, Command, Complete, ManifestApply, Outcome, Precondition, Reply, ResourceApply,
};
use converge_engine::model::ClaimRef;
use converge_engine::store::Store;
use converge_store_sqlite::{Options, SqliteStore};
use converge_types::ids::{KindVersion, Uid};
use converge_types::labels::Labels;
use tokio::task::JoinSet;

const CLAIM: u32 = 256;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| -> Result<u64, std::num::ParseIntError> {
        args.next().map_or(Ok(default), |text| text.parse())
    };
    let (seconds, names, appliers) = (number(3)?, number(8_000)?, number(64)?);
    let dir = tempfile::tempdir()?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(
        dir.path().join("cycle.db"),
        Options::default(),
    )?);
    let leaf: KindVersion = "leaf/v1".parse()?;
    let manifest = r#"{"kind": "leaf", "kind_version": 1, "spec_schema": {"type": "object"},
        "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]}]}"#;
    let command = Command::ManifestApply(ManifestApply {
        doc: manifest.parse()?,
        precondition: Precondition::None,
        who: None,
    });
    for answer in store.transact(vec![command]).await {
        answer?;
    }

    let stop = Arc::new(AtomicBool::new(false));
    let applied = Arc::new(AtomicU64::new(0));
    let landed = Arc::new(AtomicU64::new(0));
    let mut tasks: JoinSet<Result<(), String>> = JoinSet::new();
    for applier in 0..appliers {
        let (store, stop, leaf) = (store.clone(), stop.clone(), leaf.clone());
        let (applied, landed) = (applied.clone(), landed.clone());
        tasks.spawn(async move {
            let mut turn = applier;
            while !stop.load(Ordering::Relaxed) {
                // A bounded backlog, so that what is measured is whole cycles.
                if applied.load(Ordering::Relaxed) > landed.load(Ordering::Relaxed) + 2_048 {
                    tokio::task::yield_now().await;
                    continue;
                }
                let name = format!("r{}", turn % names);
                let spec = format!(r#"{{"turn": {turn}, "text": "{}"}}"#, "x".repeat(250));
                let command = Command::ResourceApply(ResourceApply {
                    kind: leaf.kind.clone(),
                    kind_version: None,
                    name: name.parse().map_err(|error| format!("{error}"))?,
                    labels: Labels::default(),
                    config_ref: None,
                    spec: spec.parse().map_err(|error| format!("{error}"))?,
                    new_uid: Uid::now(),
                    precondition: Precondition::None,
                    who: None,
                });
                for answer in store.transact(vec![command]).await {
                    answer.map_err(|error| error.to_string())?;
                }
                applied.fetch_add(1, Ordering::Relaxed);
                turn += appliers;
            }
            Ok(())
        });
    }
    let started = Instant::now();
    let mut seed = 0_u128;
    while started.elapsed() < Duration::from_secs(seconds) {
        let seeds: Vec<u128> = (0..u128::from(CLAIM)).map(|n| seed + n).collect();
        seed += u128::from(CLAIM);
        let claim = Command::Claim(ClaimTasks {
            worker: "bench".to_owned(),
            broker: "bench".to_owned(),
            pairs: vec![leaf.clone()],
            limit: CLAIM,
            reserved_for_composers: 0,
            suspects_on_stream: Vec::new(),
            busy_on_stream: Vec::new(),
            seed: seeds,
        });
        let mut answers = store.transact(vec![claim]).await;
        let Some(Ok(Reply::Claimed { tasks })) = answers.pop() else {
            return Err(format!("claim: {answers:?}").into());
        };
        let completions: Vec<Command> = tasks
            .into_iter()
            .map(|task| {
                let status = format!(
                    r#"{{"epoch": {}, "text": "{}"}}"#,
                    task.claim.epoch,
                    "y".repeat(150)
                );
                Command::Complete(Complete {
                    claim: ClaimRef {
                        token: task.token,
                        epoch: task.claim.epoch,
                    },
                    stage: task.claim.stage,
                    outcome: Outcome {
                        status: Some(status.into_bytes().into()),
                        conditions: Vec::new(),
                        compose: None,
                        output: None,
                        failure: None,
                    },
                    seed: 1,
                })
            })
            .collect();
        if completions.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let count = completions.len() as u64;
        for answer in store.transact(completions).await {
            answer?;
        }
        landed.fetch_add(count, Ordering::Relaxed);
    }
    let elapsed = started.elapsed();
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let cycles = landed.load(Ordering::Relaxed);
    println!(
        "{cycles} cycles in {elapsed:.1?}: {:.0} cycles/s ({appliers} appliers, {names} names, claims of {CLAIM})",
        cycles as f64 / elapsed.as_secs_f64()
    );
    store.close().await;
    Ok(())
}
