//! A worker that is asked to go.

use std::collections::BTreeMap;
use std::time::Duration;

use converge_testkit::{Plane, Worker, wait};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn draining_one_of_two_workers_counts_no_attempt_and_runs_nothing_twice() {
    let plane = Plane::start(Duration::from_secs(3)).await;
    plane.kind("stdshell").await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("runs");
    let first = Worker::start(&plane, "stdshell", 4).await;
    let _second = Worker::start(&plane, "stdshell", 4).await;
    let script = format!("echo $CONVERGE_NAME >> {}; sleep 1", file.display());
    let ran = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let mut counts = BTreeMap::<String, u32>::new();
        text.lines()
            .for_each(|line| *counts.entry(line.to_owned()).or_default() += 1);
        counts
    };
    for at in 0..8 {
        plane.script(&format!("task-{at}"), &script).await;
    }
    wait::until("eight tasks to run", || async {
        (ran().len() >= 8).then_some(())
    })
    .await;
    let more = async {
        for at in 8..24 {
            plane.script(&format!("task-{at}"), &script).await;
        }
    };
    let ((code, output), ()) = tokio::join!(first.drain(), more);
    assert_eq!(code, Some(0), "a drain ends well:\n{output}");

    for at in 0..24 {
        let name = format!("task-{at}");
        let done = plane.wait_for("stdshell", &name, "Ready").await;
        assert!(
            done.get("failure").is_none_or(serde_json::Value::is_null),
            "no attempt is counted: {done:#}"
        );
        let events = plane.events("stdshell", &name).await;
        let bad = events
            .iter()
            .find(|event| event["type"] == "failed" || event["type"] == "leaseLost");
        assert!(bad.is_none(), "{name}: {bad:?}");
    }
    let twice: Vec<_> = ran().into_iter().filter(|(_, times)| *times != 1).collect();
    assert!(twice.is_empty(), "ran other than once: {twice:?}");
}
