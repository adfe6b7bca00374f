//! How runs end: exit, signal, timeout, cancellation, a dropped future.

use super::*;

use converge_sdk::process::{Ending, Exit, StopSignal};

#[tokio::test]
async fn a_signal_is_told_apart_from_a_code() {
    let finished = finish(bash("kill -KILL $$")).await;
    assert_eq!(finished.exit, Some(Exit::Signal(9)));
    let failure = finished.failure().unwrap();
    assert!(
        !failure.terminal && failure.message.contains("signal 9"),
        "{}",
        failure.message
    );

    let finished = finish(bash("bash -c 'kill -KILL $$'; exit $?")).await;
    assert_eq!(finished.exit_code(), Some(137));
    assert!(finished.failure().unwrap().message.contains("128+9"));
}

#[tokio::test]
async fn the_message_of_a_failure_ends_with_what_the_program_said() {
    let failure = finish(bash("echo 'no such bucket' >&2; exit 2"))
        .await
        .failure()
        .unwrap();
    assert!(failure.terminal);
    assert!(
        failure.message.ends_with("no such bucket"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_timeout_asks_every_process_of_the_group() {
    let script = r#"trap 'echo TERM' TERM; bash -c 'trap "echo CHILD" TERM; echo up; sleep 60 & wait' & wait; wait"#;
    let finished = finish(bash(script).timeout(Some(Duration::from_secs(1)))).await;
    assert!(matches!(finished.ending, Ending::TimedOut { .. }));
    let text = finished.stdout.text(4096);
    assert!(text.contains("TERM") && text.contains("CHILD"), "{text:?}");
    assert!(!finished.failure().unwrap().terminal);
}

#[tokio::test]
async fn what_ignores_the_request_is_killed_when_its_grace_is_over() {
    let command = bash("trap '' TERM; echo $BASHPID; while :; do sleep 60; done")
        .timeout(Some(Duration::from_millis(300)))
        .grace(Duration::from_millis(300));
    let started = Instant::now();
    let finished = finish(command).await;
    assert!(started.elapsed() >= Duration::from_millis(600));
    assert!(
        started.elapsed() < Duration::from_millis(1600),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(finished.exit, Some(Exit::Signal(9)));
    assert!(!exists(printed_pid(&finished, 0)));
    assert!(
        finished.failure().unwrap().message.contains("grace"),
        "{:?}",
        finished.failure()
    );
}

#[tokio::test]
async fn a_cancelled_program_is_interrupted_the_way_it_asked_for() {
    let marker = tempfile::tempdir().unwrap();
    let up = marker.path().join("up");
    let script = format!(
        "trap 'echo saved; exit 1' INT; touch {}; sleep 60 & wait",
        up.display()
    );
    let command = bash(&script).stop_signal(StopSignal::Interrupt);
    let finished = run_until(command, eventually("the trap is set", || up.exists()))
        .await
        .unwrap();
    assert_eq!(finished.ending, Ending::Cancelled);
    assert_eq!(finished.stdout.text(100), "saved\n");
    let failure = finished.failure().unwrap();
    assert!(
        !failure.terminal && failure.message.contains("cancelled"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn a_program_that_runs_before_its_start_is_known_is_stopped_the_way_it_asked_for_too() {
    let marker = tempfile::tempdir().unwrap();
    let up = marker.path().join("up");
    let script = format!(
        "trap 'echo saved; exit 1' INT; touch {}; sleep 60 & wait",
        up.display()
    );
    let command = bash(&script).stop_signal(StopSignal::Interrupt);
    // The first time nothing has been started; the second time holds up this thread, which would hear of the start.
    let mut asked = false;
    let cancel = std::future::poll_fn(|cx| {
        if !std::mem::replace(&mut asked, true) {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while !up.exists() {
            assert!(Instant::now() < limit, "the program does not come up");
            std::thread::yield_now();
        }
        std::task::Poll::Ready(())
    });
    let finished = run_until(command, cancel).await.unwrap();
    assert_eq!(finished.ending, Ending::Cancelled);
    assert_eq!(finished.stdout.text(100), "saved\n");
}

/// A shell without job control starts its background commands with SIGINT ignored, and that is inherited.
#[test]
fn a_program_is_interrupted_also_by_a_worker_that_was_started_with_sigint_ignored() {
    let me = std::env::current_exe().unwrap();
    let output = std::process::Command::new("bash")
        .args(["-c", "trap '' INT; exec \"$0\" \"$@\""])
        .arg(me)
        .args([
            "--exact",
            "endings::a_cancelled_program_is_interrupted_the_way_it_asked_for",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

#[tokio::test]
async fn a_task_that_is_cancelled_already_starts_nothing() {
    let marker = tempfile::tempdir().unwrap();
    let file = marker.path().join("ran");
    // Asked only after the start, it would hold up this thread until the program has run.
    let cancel = std::future::poll_fn(|_| {
        let limit = Instant::now() + Duration::from_millis(300);
        while !file.exists() && Instant::now() < limit {
            std::thread::yield_now();
        }
        std::task::Poll::Ready(())
    });
    let error = run_until(bash(&format!("touch {}", file.display())), cancel)
        .await
        .unwrap_err();
    assert!(error.is_transient());
    assert!(!file.exists());
}

#[tokio::test]
async fn dropping_the_run_ends_the_program_and_all_it_started() {
    converge_sdk::process::prepare_worker().await;
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "setsid sleep 300 & echo $! $$ > {0}.new; mv {0}.new {0}; wait",
        pids.display()
    );
    tokio::select! {
        _ = finish(bash(&script)) => panic!("it waits"),
        () = eventually("the program is up", || pids.exists()) => {}
    }
    let text = std::fs::read_to_string(&pids).unwrap();
    for pid in text.split_whitespace() {
        let pid = pid.parse().unwrap();
        eventually("the dropped program is gone", || !exists(pid)).await;
    }
}
