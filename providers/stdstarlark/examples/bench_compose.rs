//! Times the provider end to end on a program that makes 125 children and 75 edges, and prints one JSON object.
//!
//! `bench_compose [RUNS]`: a task goes in, an outcome comes out, through the child process and back, warm. `cold_us` is the
//! first task, with the start of the child in it.

use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use converge_sdk::{
    Json, KindVersion, Provider, ProviderConfig, ReactionRequest, Resource, Stage, TaskContext,
};
use stdstarlark::{Engine, StarlarkProvider};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    stdstarlark::enter_child_if_asked();
    let runs: usize = std::env::args()
        .nth(1)
        .map_or(Ok(2_000), |runs| runs.parse())?;
    let provider = StarlarkProvider::new(Engine::of_this_binary()?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (cold, warm, counts) = runtime.block_on(measure(&provider, runs))?;
    let at = |part: f64| warm[((warm.len() - 1) as f64 * part) as usize].as_micros();
    println!(
        r#"{{"children":{},"edges":{},"runs":{},"cold_us":{},"p50_us":{},"p90_us":{},"p99_us":{},"max_us":{}}}"#,
        counts.0,
        counts.1,
        warm.len(),
        cold.as_micros(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
    Ok(())
}

type Measured = (Duration, Vec<Duration>, (usize, usize));

async fn measure(
    provider: &StarlarkProvider,
    runs: usize,
) -> Result<Measured, Box<dyn std::error::Error>> {
    let kind = KindVersion::new("stdstarlark", 1);
    let config = ProviderConfig::new()
        .with_spec(Json::parse(r#"{"zone":"eu-1","timeout":30}"#)?)
        .with_bundle(zip(include_bytes!("bench/compose.star"))?);
    let teams: Vec<String> = (0..25)
        .map(|i| format!(r#"{{"name":"team-{i}","size":{i}}}"#))
        .collect();
    let spec = Json::parse(format!(r#"{{"teams":[{}]}}"#, teams.join(",")))?;
    let mut times = Vec::with_capacity(runs + 1);
    let mut counts = (0, 0);
    for _ in 0..=runs.max(1) {
        let context = TaskContext::builder(kind.clone())
            .default_config(config.clone())
            .build();
        let resource = Resource::new("stdstarlark", "bench").with_spec(spec.clone());
        let request =
            ReactionRequest::builder(Stage::Compose, "compose", kind.clone(), resource).build();
        let start = Instant::now();
        let outcome = provider
            .work(&context, request)
            .await
            .map_err(|err| err.to_string())?;
        times.push(start.elapsed());
        counts = (
            outcome.children.map_or(0, |children| children.len()),
            outcome.edges.len(),
        );
    }
    let cold = times.remove(0);
    times.sort();
    Ok((cold, times, counts))
}

fn zip(program: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("compose.star", zip::write::SimpleFileOptions::default())?;
    writer.write_all(program)?;
    Ok(writer.finish()?.into_inner())
}
