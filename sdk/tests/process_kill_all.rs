//! The second signal: everything goes at once. Alone in its process, because it means all programs of it.

use std::future::pending;
use std::path::Path;
use std::time::{Duration, Instant};

use converge_sdk::process::{Command, Environment, Inherit, kill_all, prepare_worker, run_until};

#[tokio::test]
async fn killing_all_ends_groups_and_what_left_them() {
    prepare_worker().await;
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let script = format!(
        "trap '' TERM; (setsid sleep 300 & echo $! > {0}.new); echo $$ >> {0}.new; mv {0}.new {0}; while :; do sleep 60; done",
        pids.display()
    );
    let command = Command::new("bash", Environment::inherited(&Inherit::All))
        .arg("-c")
        .arg(script);
    let run = run_until(command, pending::<()>());
    let kill = async {
        let limit = Instant::now() + Duration::from_secs(10);
        while !pids.exists() {
            assert!(Instant::now() < limit, "the program did not come up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kill_all();
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(run, kill) });
    let (finished, ()) = ended.await.expect("the program is gone at once");
    assert!(finished.unwrap().failure().is_some());
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        assert!(
            !Path::new("/proc").join(pid).exists(),
            "{pid} is still there"
        );
    }
}
