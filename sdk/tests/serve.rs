//! `serve` as a program meets it: environment, signals, exit codes.
#![cfg(feature = "testing")]
#![expect(clippy::unwrap_used, reason = "a failure here is a failed test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use converge_sdk::testing::{FnProvider, MemoryBroker};
use converge_sdk::{KindVersion, Outcome, TaskError, serve};

const LIMIT: Duration = Duration::from_secs(30);

fn pair() -> KindVersion {
    KindVersion::new("served", 1)
}

/// Runs as the worker when this test binary is started again with its environment.
#[test]
fn the_worker_process() {
    if std::env::var_os("SDK_TEST_SERVES").is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let provider = FnProvider::new(pair(), async |ctx, request| {
        if request.resource.name == "slow" {
            // Tells the test that it runs: a task that was only claimed may never have arrived.
            println!("{RUNS}");
            ctx.cancelled().await;
            return Err(TaskError::transient("cut"));
        }
        Ok(Outcome::new())
    });
    let code = match runtime.block_on(serve(vec![std::sync::Arc::new(provider)])) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            error.exit_code().into()
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the end of a process that stands for a worker"
    )]
    std::process::exit(code);
}

/// What the worker prints when its slow task runs.
const RUNS: &str = "the slow task runs";

/// Waits until the worker's slow task runs.
async fn runs(worker: &mut Child) {
    let out = worker.stdout.take().unwrap();
    let seen = tokio::task::spawn_blocking(|| {
        let mut lines = BufReader::new(out).lines();
        lines.any(|line| line.unwrap().contains(RUNS))
    });
    let seen = tokio::time::timeout(LIMIT, seen).await;
    assert!(seen.unwrap().unwrap(), "it ended before its task ran");
}

fn worker(vars: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_worker_process", "--nocapture"])
        .env("SDK_TEST_SERVES", "1")
        .env("WORKER_DRAIN_TIMEOUT", "20s")
        .envs(vars.iter().copied())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The names of its threads.
fn threads(worker: &Child) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", worker.id())).unwrap();
    // One may have ended since.
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

fn signal(worker: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &worker.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

async fn ended(worker: &mut Child) -> ExitStatus {
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(5));
    loop {
        pause.tick().await;
        if let Some(status) = worker.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > LIMIT {
            worker.kill().unwrap();
            panic!("the worker does not end");
        }
    }
}

fn stderr(worker: &mut Child) -> String {
    std::io::read_to_string(worker.stderr.take().unwrap()).unwrap()
}

#[tokio::test]
async fn sigterm_drains_and_exits_with_0() {
    let broker = MemoryBroker::start().await.unwrap();
    let mut worker = worker(&[("BROKER_ADDR", &broker.addr())]);
    broker.apply(&pair(), "a", serde_json::json!({}).into());
    broker
        .until(LIMIT, "the task lands", |broker| {
            broker
                .look(&pair(), "a")
                .is_some_and(|look| look.is_synced())
        })
        .await;
    let threads = threads(&worker);
    assert!(
        threads.contains(&"converge-worker".to_owned()),
        "{threads:?}"
    );
    assert!(
        !threads.contains(&"converge-health".to_owned()),
        "nothing listens unless it is told to: {threads:?}"
    );
    signal(&worker, "-TERM");
    assert_eq!(ended(&mut worker).await.code(), Some(0));
    let log = stderr(&mut worker);
    assert!(
        log.contains("serving") && log.contains("shutting down"),
        "{log}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_with_130() {
    let broker = MemoryBroker::start().await.unwrap();
    let mut worker = worker(&[("BROKER_ADDR", &broker.addr())]);
    broker.apply(&pair(), "slow", serde_json::json!({}).into());
    runs(&mut worker).await;
    signal(&worker, "-INT");
    broker
        .until(LIMIT, "it drains", |broker| !broker.is_served(&pair()))
        .await;
    signal(&worker, "-TERM");
    assert_eq!(ended(&mut worker).await.code(), Some(130));
    assert!(
        broker.look(&pair(), "slow").unwrap().message.is_empty(),
        "nothing was reported"
    );
}

#[tokio::test]
async fn an_unusable_environment_exits_with_64_and_names_everything() {
    let mut worker = worker(&[
        ("WORKER_MAX_PARALLEL", "many"),
        ("LOG_FORMAT", "xml"),
        ("BROKER_ADDR", ""),
    ]);
    assert_eq!(ended(&mut worker).await.code(), Some(64));
    let log = stderr(&mut worker);
    for name in [
        "BROKER_ADDR",
        "WORKER_MAX_PARALLEL=\"many\"",
        "LOG_FORMAT=\"xml\"",
    ] {
        assert!(log.contains(name), "{log}");
    }
}
