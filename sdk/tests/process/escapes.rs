//! Processes that outlive their leader or leave its group.

use super::*;

use converge_sdk::process::prepare_worker;

#[tokio::test]
async fn a_background_child_that_holds_the_pipe_delays_the_end_by_the_silence_and_is_killed() {
    let started = Instant::now();
    let finished =
        finish(bash("sleep 60 & echo $!; echo '{}'").timeout(Some(Duration::from_secs(30)))).await;
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert!(finished.failure().is_none());
    assert!(finished.drain_truncated);
    assert!(finished.stdout.text(100).ends_with("{}\n"));
    assert!(!runs(printed_pid(&finished, 0)));
}

#[tokio::test]
async fn what_comes_late_through_a_held_pipe_is_still_read() {
    let finished = finish(bash(
        "(for i in 1 2 3 4; do sleep .2; echo $i; done) & echo 0",
    ))
    .await;
    assert_eq!(finished.stdout.text(100), "0\n1\n2\n3\n4\n");
    assert!(!finished.drain_truncated);
}

#[tokio::test]
async fn a_daemon_is_ended_with_its_task_and_leaves_no_zombie() {
    prepare_worker().await;
    let daemons = [
        "setsid sleep 300 & echo $!",
        "(setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!)",
        "(setsid bash -c 'echo $BASHPID; exec sleep 300 2>/dev/null >&2' &)",
        // Without a cookie: found by when it started.
        "(env -i setsid sleep 300 >/dev/null 2>&1 & echo $!)",
        // A daemon's own child.
        "setsid bash -c 'sleep 300 & echo $!; wait' & sleep .3",
    ];
    for script in daemons {
        let started = Instant::now();
        let finished = finish(bash(&format!("{script}; sleep .1; echo ok >&2"))).await;
        assert!(
            finished.failure().is_none(),
            "{script}: {:?}",
            finished.failure()
        );
        assert!(
            started.elapsed() < Duration::from_secs(3),
            "{script}: {:?}",
            started.elapsed()
        );
        assert_eq!(finished.stderr.text(100), "ok\n");
        let pid = printed_pid(&finished, 0);
        eventually(
            &format!("{script}: no process {pid}, dead or alive"),
            || !exists(pid),
        )
        .await;
    }
}

#[tokio::test]
async fn one_task_ends_without_touching_the_daemons_of_another() {
    prepare_worker().await;
    let dir = tempfile::tempdir().unwrap();
    let (up, stop) = (dir.path().join("up"), dir.path().join("stop"));
    let long = format!(
        "(setsid sleep 300 >/dev/null 2>&1 & echo $! > {0}.new); mv {0}.new {0}; \
         until [ -e {1} ]; do sleep .02; done",
        up.display(),
        stop.display()
    );
    let long = finish(bash(&long));
    let short = async {
        eventually("the daemon of the long task is up", || up.exists()).await;
        let daemon = std::fs::read_to_string(&up)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        finish(bash("(setsid sleep 300 >/dev/null 2>&1 &)")).await;
        assert!(runs(daemon), "a daemon of another, live task was killed");
        std::fs::write(&stop, "").unwrap();
        daemon
    };
    let (finished, daemon) = tokio::join!(long, short);
    assert!(finished.failure().is_none());
    assert!(!exists(daemon));
}

#[tokio::test]
async fn a_program_that_may_stay_in_the_background_stays() {
    prepare_worker().await;
    let script = "setsid sleep 300 >/dev/null 2>&1 & echo $!; sleep 300 >/dev/null 2>&1 & echo $!";
    let finished = finish(bash(script).allow_background(true)).await;
    // Another task's end must not take them either.
    finish(bash(":")).await;
    for line in 0..2 {
        let pid = printed_pid(&finished, line);
        assert!(runs(pid));
        std::process::Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status()
            .unwrap();
    }
}

#[tokio::test]
async fn a_program_that_may_stay_is_killed_all_the_same_when_its_time_is_over() {
    prepare_worker().await;
    let script = "setsid sleep 300 >/dev/null 2>&1 & echo $!; sleep 300";
    let finished = finish(
        bash(script)
            .allow_background(true)
            .timeout(Some(Duration::from_millis(300))),
    )
    .await;
    assert!(finished.failure().is_some());
    let pid = printed_pid(&finished, 0);
    eventually("the daemon is gone", || !exists(pid)).await;
}

#[tokio::test]
async fn a_worker_that_is_pid_1_reaps_what_it_inherits() {
    // Its own PID namespace needs privileges that not every machine gives.
    let allowed = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "true"])
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no permission to make a PID namespace");
        return;
    }
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(me)
        .args([
            "--exact",
            "escapes::a_daemon_is_ended_with_its_task_and_leaves_no_zombie",
            "--nocapture",
            "--test-threads=1",
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}
