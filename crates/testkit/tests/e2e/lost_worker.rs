//! A worker that dies or stands still.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use converge_testkit::process::pids_with;
use converge_testkit::{Plane, Worker, wait};

const LEASE: Duration = Duration::from_secs(3);
/// Heartbeats of the test's workers, plus what a busy machine adds.
const HEARTBEAT_SLACK: Duration = Duration::from_millis(600);

fn unix() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is after 1970")
}

/// Lines `epoch seconds.nanos` a script wrote, one per run.
fn runs(file: &std::path::Path) -> Vec<(i64, Duration)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (epoch, at) = line.split_once(' ')?;
            Some((
                epoch.parse().ok()?,
                Duration::from_secs_f64(at.parse().ok()?),
            ))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_task_runs_again_after_its_lease_and_its_program_is_ended() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let marker = format!("sleep 30{}", std::process::id());
    let first = Worker::start(&plane, "stdshell", 4).await;
    // The first run hangs in a program of its own; any later one ends.
    plane
        .script(
            "victim",
            &format!(
                "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {file}\nif [ \"$CONVERGE_CLAIM_EPOCH\" = 1 ]; then {marker}; fi\n",
                file = file.display()
            ),
        )
        .await;
    wait::until("the first run", || async {
        (runs(&file).len() == 1 && !pids_with(&marker).is_empty()).then_some(())
    })
    .await;

    let killed = unix();
    first.kill().await;
    assert!(
        !pids_with(&marker).is_empty(),
        "a killed worker's program lives on"
    );
    let _second = Worker::start(&plane, "stdshell", 4).await;
    wait::until("the dead worker's program to be ended", || async {
        pids_with(&marker).is_empty().then_some(())
    })
    .await;

    plane.wait_for("stdshell", "victim", "Ready").await;
    let runs = runs(&file);
    assert_eq!(
        runs.iter().map(|run| run.0).collect::<Vec<_>>(),
        [1, 2],
        "it runs once more, with the next epoch"
    );
    let after = runs[1].1.saturating_sub(killed);
    assert!(
        after + HEARTBEAT_SLACK >= LEASE,
        "it ran again {after:?} after the kill, before its lease was over"
    );
    assert!(
        after <= LEASE + Duration::from_secs(2),
        "it ran again only {after:?} after the kill"
    );
    let lost = plane.events("stdshell", "victim").await;
    assert!(
        lost.iter().any(|event| event["type"] == "leaseLost"),
        "the lost lease is an event: {lost:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_workers_late_result_is_fenced_and_changes_nothing() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let release = dir.path().join("release");
    let frozen = Worker::start(&plane, "stdshell", 1).await;
    // The first run waits until the test lets it go, which is after it was reassigned.
    plane
        .script(
            "slow",
            &format!(
                "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {file}\nif [ \"$CONVERGE_CLAIM_EPOCH\" = 1 ]; then until [ -e {release} ]; do sleep 0.05; done; fi\necho epoch $CONVERGE_CLAIM_EPOCH\n",
                file = file.display(),
                release = release.display()
            ),
        )
        .await;
    wait::until("the first run", || async {
        (runs(&file).len() == 1).then_some(())
    })
    .await;
    frozen.freeze();
    let _other = Worker::start(&plane, "stdshell", 1).await;
    let done = plane.wait_for("stdshell", "slow", "Ready").await;
    assert_eq!(done["status"]["stdout"], "epoch 2\n");
    let events = plane.events("stdshell", "slow").await;

    std::fs::write(&release, "").expect("a file");
    frozen.thaw();
    wait::until("the stale result to arrive", || async {
        plane.output().contains("stale result").then_some(())
    })
    .await;

    assert_eq!(
        plane
            .resource("stdshell", "slow")
            .await
            .expect("it is there"),
        done,
        "no row changed"
    );
    assert_eq!(
        plane.events("stdshell", "slow").await,
        events,
        "no event was added"
    );
    assert_eq!(runs(&file).len(), 2, "nothing ran a third time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_control_plane_takes_the_results_of_tasks_it_gave_out_before() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    // A worker that can find the plane again: it keeps its port only within one life, so this one asks for the same broker port.
    let started = Instant::now();
    let worker = Worker::start(&plane, "stdshell", 1).await;
    plane
        .script(
            "before",
            &format!(
                "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {}",
                file.display()
            ),
        )
        .await;
    plane.wait_for("stdshell", "before", "Ready").await;
    let plane = plane.kill_and_restart().await;
    let again = plane.wait_for("stdshell", "before", "Ready").await;
    assert_eq!(
        again["synced_gen"], 1,
        "what was done before the kill is still done"
    );
    assert_eq!(runs(&file).len(), 1, "and is not done again");
    drop(worker);
    assert!(started.elapsed() < wait::LIMIT * 3);
}
