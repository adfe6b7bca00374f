//! Signals to a worker: the second one, those that whoever started it had set to be ignored, and the one nobody can send any more.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use converge_testkit::process::{pids_with, program};
use converge_testkit::{Plane, Worker, wait};
use nix::sys::signal::Signal;
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_worker_and_the_programs_of_its_tasks_at_once() {
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    let marker = format!("sleep 31{}", std::process::id());
    let mut worker = Worker::start(&plane, "stdshell", 1).await;
    let script = format!("trap '' TERM INT; while :; do {marker}; done");
    plane.script("stubborn", &script).await;
    wait::until("the program to run", || async {
        (!pids_with(&marker).is_empty()).then_some(())
    })
    .await;
    worker.process.signal(Signal::SIGTERM);
    wait::until("the worker to drain", || async {
        worker
            .process
            .output()
            .contains("shutting down")
            .then_some(())
    })
    .await;
    assert!(
        !pids_with(&marker).is_empty(),
        "a drain lets what runs go on"
    );
    worker.process.signal(Signal::SIGTERM);
    let code = worker.process.ended().await;
    assert_eq!(code, Some(130), "{}", worker.process.output());
    // Killed already; the kernel may take a moment to take it away.
    let soon = Duration::from_secs(5);
    wait::until_within("the program to be gone", soon, || async {
        pids_with(&marker).is_empty().then_some(())
    })
    .await;
}

/// A shell without job control starts its background commands that way: a worker in a script, a container's entry point, a CI job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_started_with_sigint_ignored_and_its_programs_still_hear_it() {
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    let mut shell = Command::new("bash");
    shell
        .args(["-c", "trap '' INT; exec \"$0\""])
        .arg(program("stdworker"));
    let mut worker = Worker::start_by(shell, &plane, "stdshell", 1, &[]).await;
    // What is ignored when a shell starts cannot be trapped in it.
    let script = "trap 'echo interrupted; exit 0' INT; kill -INT $$; echo ignored";
    plane.script("interrupted", script).await;
    let done = plane.wait_for("stdshell", "interrupted", "Ready").await;
    assert_eq!(done["status"]["stdout"], "interrupted\n");
    worker.process.signal(Signal::SIGINT);
    let code = worker.process.ended().await;
    assert_eq!(code, Some(0), "{}", worker.process.output());
}

/// Nobody is left to end it; and beside the next one it would take tasks that nobody counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_beside_a_control_plane_that_is_killed_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let beside = dir.path().join("beside");
    std::os::unix::fs::symlink(program("stdworker"), &beside).unwrap();
    ends_when_its_control_plane_is_killed(dir.path(), &beside).await;
}

/// Its parent is the script, from the first moment on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_a_script_runs_beside_a_control_plane_serves_and_ends_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let beside = dir.path().join("beside");
    let script = format!("#!/bin/sh\n{}\ntrue\n", program("stdworker").display());
    std::fs::write(&beside, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&beside, mode).unwrap();
    ends_when_its_control_plane_is_killed(dir.path(), &beside).await;
}

#[expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
async fn ends_when_its_control_plane_is_killed(dir: &Path, beside: &Path) {
    let log = dir.join("log");
    let mut converge = Command::new(program("converge"))
        .args(["dev", "--listen", "127.0.0.1:0"])
        .args(["--broker-listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir.join("data"))
        .arg("--worker")
        .arg(beside)
        .stdout(Stdio::null())
        // A file stays when who wrote to it is gone; a pipe would end the worker by itself.
        .stderr(std::fs::File::create(&log).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    wait::until("the worker to serve", || async {
        said().contains("serving").then_some(())
    })
    .await;
    // The control plane names it too, as an argument of its own.
    let own = i32::try_from(converge.id().unwrap()).unwrap();
    let workers = || {
        let mut pids = pids_with(&beside.display().to_string());
        pids.retain(|pid| *pid != own);
        pids
    };
    assert_eq!(workers().len(), 1, "{}", said());
    assert!(!said().contains("is gone"), "{}", said());
    converge.kill().await.unwrap();
    wait::until("the worker to end", || async {
        workers().is_empty().then_some(())
    })
    .await;
    assert!(
        said().contains("the process that started this worker is gone"),
        "{}",
        said()
    );
}
