//! Workers that are killed in the middle of a run, and what the next one on the machine makes of it.
//!
//! The worker is this test binary, started again to run [`worker_process`] alone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use converge_sdk::{CancelReason, Provider as _};
use serde_json::{Value, json};
use stdterraform::{Options, StdTerraform};

use crate::support::daemon::{aws, s3};
use crate::support::{Bench, Job, resources_of, wait_for, working_in};

/// Where the worker process reads what to do. Without it the function below is no worker and does nothing.
const ORDERS: &str = "STDTERRAFORM_TEST_ORDERS";

/// One worker: cleans up after dead ones as `serve` does, does one task, reports, and ends.
#[test]
fn worker_process() {
    let Ok(orders) = std::env::var(ORDERS) else {
        return;
    };
    let orders: Value = serde_json::from_str(&std::fs::read_to_string(&orders).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        converge_sdk::process::prepare_worker().await;
        let environment = serde_json::from_value(orders["environment"].clone()).unwrap();
        let mut options = Options::new(orders["data"].as_str().unwrap(), environment);
        options.allow_plain_http = true;
        options.lock_timeout = std::time::Duration::from_secs(1);
        let provider = StdTerraform::new(options);
        let mut job = Job::apply(orders["spec"].clone(), orders["config"].clone());
        job.uid = orders["uid"].as_str().unwrap().parse().unwrap();
        let (ctx, control) = job.context();
        let run = provider.work(&ctx, job.request());
        tokio::pin!(run);
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        let result = loop {
            tokio::select! {
                result = &mut run => break result,
                _ = terminate.recv() => control.cancel(CancelReason::Drain),
            }
        };
        let report = match result {
            Ok(outcome) => json!({"message": outcome.conditions[0].message}),
            Err(error) => json!({"error": error.message()}),
        };
        std::fs::write(orders["report"].as_str().unwrap(), report.to_string()).unwrap();
    });
}

struct Worker {
    child: Child,
    report: PathBuf,
}

impl Worker {
    fn start(bench: &Bench, job: &Job, name: &str) -> Self {
        let report = bench.path().join(format!("{name}-report"));
        let orders = bench.path().join(format!("{name}-orders"));
        let text = json!({
            "environment": bench.environment, "data": bench.data(), "report": report, "uid": job.uid.to_string(), "config": job.config,
            "spec": serde_json::from_str::<Value>(&job.spec).unwrap(),
        });
        std::fs::write(&orders, text.to_string()).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "killed::worker_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ORDERS, orders)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, report }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn signal(&self, name: &str) {
        assert!(
            Command::new("kill")
                .args([format!("-{name}"), self.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    fn report(mut self) -> Value {
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&std::fs::read_to_string(&self.report).unwrap()).unwrap()
    }
}

/// One such test at a time on a machine: a worker that starts ends what any dead worker left.
fn alone() -> File {
    let path = std::env::temp_dir().join("stdterraform-tests-killed.lock");
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.lock().unwrap();
    file
}

fn is_locked(job: &Job) -> bool {
    aws(&s3().url(), &["s3", "ls", "--recursive", "s3://states"])
        .contains(&format!("{}.tfstate.tflock", job.uid))
}

fn s3_resources(job: &Job) -> Vec<String> {
    resources_of(&aws(
        &s3().url(),
        &[
            "s3",
            "cp",
            &format!("s3://states/terraform/stdterraform/{}.tfstate", job.uid),
            "-",
        ],
    ))
}

fn wait_for_file(path: &Path) {
    wait_for(&format!("{} is there", path.display()), || path.exists());
}

#[test]
fn a_terminated_worker_saves_the_state_and_releases_the_lock() {
    let _alone = alone();
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let (source, release) = bench.waiting("term");
    let job = Job::apply(json!({"source": source}), config);
    let worker = Worker::start(&bench, &job, "one");
    wait_for_file(&bench.path().join("term-begun"));
    worker.signal("TERM");
    let report = worker.report();
    assert!(
        report["error"]
            .as_str()
            .unwrap()
            .contains("its state is saved and its lock released"),
        "{report}"
    );
    bench.assert_clean();
    assert!(!is_locked(&job));
    assert!(s3_resources(&job).contains(&"terraform_data.first".to_owned()));

    std::fs::write(release, "").unwrap();
    let report = Worker::start(&bench, &job, "two").report();
    assert_eq!(report["message"], "1 added, 0 changed, 1 destroyed");
}

#[test]
fn after_a_killed_worker_the_next_one_interrupts_the_run_and_goes_on() {
    let _alone = alone();
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let (source, release) = bench.waiting("kill");
    let job = Job::apply(json!({"source": source}), config);
    let mut worker = Worker::start(&bench, &job, "one");
    wait_for_file(&bench.path().join("kill-begun"));
    worker.kill();
    assert!(
        !working_in(bench.path()).is_empty(),
        "the run lives on without its worker"
    );
    assert!(is_locked(&job));

    let begun = bench.path().join("kill-begun");
    std::fs::remove_file(&begun).unwrap();
    let next = Worker::start(&bench, &job, "two");
    wait_for_file(&begun);
    std::fs::write(release, "").unwrap();
    let report = next.report();
    // One to be replaced: the first run's state was saved when it was interrupted.
    assert_eq!(report["message"], "1 added, 0 changed, 1 destroyed");
    bench.assert_clean();
    assert!(!is_locked(&job));
    assert_eq!(s3_resources(&job).len(), 2);
}

#[test]
fn a_run_whose_worker_was_killed_ends_well_by_itself() {
    let _alone = alone();
    let bench = Bench::new();
    let (source, release) = bench.waiting("alone");
    let job = bench.job(&source, json!({}));
    let mut worker = Worker::start(&bench, &job, "one");
    wait_for_file(&bench.path().join("alone-begun"));
    worker.kill();
    std::fs::write(release, "").unwrap();
    wait_for("the run is over", || working_in(bench.path()).is_empty());
    // A pipe without a reader would have killed it, state and all.
    assert_eq!(bench.resources(job.uid).len(), 2);

    let report = Worker::start(&bench, &job, "two").report();
    assert_eq!(report["message"], "0 added, 0 changed, 0 destroyed");
    bench.assert_clean();
}

#[test]
fn the_lock_of_a_dead_run_of_a_dead_worker_is_freed() {
    let _alone = alone();
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let (source, release) = bench.waiting("dead");
    let job = Job::apply(json!({"source": source}), config);
    let mut worker = Worker::start(&bench, &job, "one");
    wait_for_file(&bench.path().join("dead-begun"));
    worker.kill();
    wait_for("everything is killed", || {
        let left = working_in(bench.path());
        for pid in &left {
            Command::new("kill")
                .args(["-KILL", &pid.to_string()])
                .stderr(Stdio::null())
                .status()
                .unwrap();
        }
        left.is_empty()
    });
    assert!(is_locked(&job));

    std::fs::write(release, "").unwrap();
    // A worker elsewhere knows nothing of that run: it is told who holds the lock.
    let mut elsewhere = Bench::new();
    elsewhere.environment = bench.environment.clone();
    let report = Worker::start(&elsewhere, &job, "other").report();
    assert!(
        report["error"].as_str().unwrap().contains("is locked by"),
        "{report}"
    );
    assert!(is_locked(&job));

    let report = Worker::start(&bench, &job, "two").report();
    assert_eq!(report["message"], "2 added, 0 changed, 0 destroyed");
    assert!(!is_locked(&job));
    bench.assert_clean();
}

#[test]
fn what_ignores_every_signal_and_leaves_its_group_is_swept() {
    let _alone = alone();
    let bench = Bench::new();
    let begun = bench.path().join("stubborn-begun");
    let main = format!(
        r#"
resource "terraform_data" "stubborn" {{
  provisioner "local-exec" {{
    command = "trap '' INT TERM; (trap '' INT TERM; sleep 300) & setsid sleep 300 & touch {}; while :; do sleep 0.1; done"
  }}
}}
"#,
        begun.display()
    );
    let source = bench.module("stubborn", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({}));
    let worker = Worker::start(&bench, &job, "one");
    wait_for_file(&begun);
    let since = Instant::now();
    worker.signal("TERM");
    let report = worker.report();
    assert!(
        report["error"]
            .as_str()
            .unwrap()
            .contains("interrupted by the shutdown of the worker"),
        "{report}"
    );
    assert!(
        since.elapsed() < Duration::from_secs(15),
        "the grace was not needed"
    );
    bench.assert_clean();
    assert_eq!(
        bench.resources(job.uid),
        ["terraform_data.stubborn"],
        "tainted, but known"
    );
}
