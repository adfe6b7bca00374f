//! A worker that dies or stands still.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use converge_sdk::testing::Relay;
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
fn runs(file: &Path) -> Vec<(i64, Duration)> {
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

/// A script whose first run hangs in a program of its own; any later one ends.
fn hangs_once(file: &Path, program: &str) -> String {
    format!(
        "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {file}\nif [ \"$CONVERGE_CLAIM_EPOCH\" = 1 ]; then {program}; fi\n",
        file = file.display()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_workers_task_runs_again_after_its_lease_and_its_program_is_ended() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let marker = format!("sleep 30{}", std::process::id());
    let first = Worker::start(&plane, "stdshell", 4).await;
    plane.script("victim", &hangs_once(&file, &marker)).await;
    wait::until("the first run", || async {
        (runs(&file).len() == 1 && !pids_with(&marker).is_empty()).then_some(())
    })
    .await;

    let killed = unix();
    // Its program lives on until another worker of this machine sees to it: the next one here, or one of another test before it.
    first.kill().await;
    let _second = Worker::start(&plane, "stdshell", 4).await;
    // Not waited for: in the end any other worker of this machine that starts would do it.
    assert!(
        pids_with(&marker).is_empty(),
        "the next worker ends the dead one's program before it connects"
    );

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
async fn a_killed_workers_program_is_ended_by_a_worker_that_lives_on() {
    // Nothing takes the task over, and no worker starts any more.
    let plane = Plane::start(20 * LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let marker = format!("sleep 40{}", std::process::id());
    let killed = Worker::start(&plane, "stdshell", 1).await;
    plane.script("victim", &hangs_once(&file, &marker)).await;
    wait::until("the first run", || async {
        (runs(&file).len() == 1 && !pids_with(&marker).is_empty()).then_some(())
    })
    .await;
    let _other = Worker::start(&plane, "stdio", 1).await;
    killed.kill().await;
    wait::until("the program to be ended", || async {
        pids_with(&marker).is_empty().then_some(())
    })
    .await;
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
    plane.says("stale result").await;

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
async fn a_frozen_workers_late_result_is_fenced_while_another_runs_the_task() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let release = |epoch: u32| dir.path().join(format!("release-{epoch}"));
    let frozen = Worker::start(&plane, "stdshell", 1).await;
    // Each run waits until the test lets it go.
    plane
        .script(
            "slow",
            &format!(
                "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {file}\nuntil [ -e {dir}/release-$CONVERGE_CLAIM_EPOCH ]; do sleep 0.05; done\necho epoch $CONVERGE_CLAIM_EPOCH\n",
                file = file.display(),
                dir = dir.path().display()
            ),
        )
        .await;
    let ran = async |times: usize| {
        let what = format!("run {times}");
        wait::until(&what, || async {
            (runs(&file).len() == times).then_some(())
        })
        .await;
    };
    ran(1).await;
    frozen.freeze();
    let _other = Worker::start(&plane, "stdshell", 1).await;
    ran(2).await;
    let running = plane.resource("stdshell", "slow").await;
    let events = plane.events("stdshell", "slow").await;

    std::fs::write(release(1), "").expect("a file");
    frozen.thaw();
    wait::until("the stale result to arrive", || async {
        let landed = plane.resource("stdshell", "slow").await != running;
        (landed || plane.output().contains("stale result")).then_some(())
    })
    .await;
    assert_eq!(plane.resource("stdshell", "slow").await, running);
    assert_eq!(plane.events("stdshell", "slow").await, events);

    std::fs::write(release(2), "").expect("a file");
    let done = plane.wait_for("stdshell", "slow", "Ready").await;
    assert_eq!(done["status"]["stdout"], "epoch 2\n");
    assert_eq!(runs(&file).len(), 2, "nothing ran a third time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_control_plane_takes_the_results_of_tasks_it_gave_out_before() {
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let release = dir.path().join("release");
    // The next process listens elsewhere; the relay takes the worker there.
    let relay = Relay::to(&plane.broker).await.expect("a port is free");
    let dials = relay.addr();
    let _worker = Worker::start_with(&plane, "stdshell", 1, &[("BROKER_ADDR", &dials)]).await;
    plane
        .script(
            "long",
            &format!(
                "echo \"$CONVERGE_CLAIM_EPOCH $(date +%s.%N)\" >> {file}\nuntil [ -e {release} ]; do sleep 0.05; done\necho epoch $CONVERGE_CLAIM_EPOCH\n",
                file = file.display(),
                release = release.display()
            ),
        )
        .await;
    wait::until("the run", || async {
        (runs(&file).len() == 1).then_some(())
    })
    .await;
    let plane = plane.kill_and_restart().await;
    relay.retarget(&plane.broker);
    std::fs::write(&release, "").expect("a file");
    let done = plane.wait_for("stdshell", "long", "Ready").await;
    assert_eq!(done["status"]["stdout"], "epoch 1\n");
    assert_eq!(runs(&file).len(), 1, "it is not done again");
    let events = plane.events("stdshell", "long").await;
    assert!(
        events.iter().all(|event| event["type"] != "leaseLost"),
        "{events:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_control_plane_gives_every_claim_one_full_lease() {
    let plane = Plane::start(LEASE).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let marker = format!("sleep 32{}", std::process::id());
    let first = Worker::start(&plane, "stdshell", 1).await;
    plane.script("victim", &hangs_once(&file, &marker)).await;
    wait::until("the first run", || async {
        (runs(&file).len() == 1).then_some(())
    })
    .await;
    first.kill().await;
    let (before, plane, after) = (unix(), plane.kill_and_restart().await, unix());
    let _second = Worker::start(&plane, "stdshell", 1).await;
    plane.wait_for("stdshell", "victim", "Ready").await;
    let runs = runs(&file);
    assert_eq!(runs.iter().map(|run| run.0).collect::<Vec<_>>(), [1, 2]);
    let again = runs[1].1;
    assert!(
        again >= before + LEASE,
        "it ran again {:?} after the restart began, before a whole lease was over",
        again.saturating_sub(before)
    );
    assert!(
        again <= after + LEASE + Duration::from_secs(2),
        "it ran again only {:?} after the restart",
        again.saturating_sub(after)
    );
}
