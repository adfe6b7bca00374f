//! A worker that is killed leaves its programs behind; the next one on the machine ends them before it starts.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::future::pending;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use converge_sdk::process::{Command, Environment, Inherit, StopSignal, prepare_worker, run_until};

const SCRIPT: &str = "CONVERGE_TEST_SCRIPT";
const STOP: &str = "CONVERGE_TEST_STOP";
const BACKGROUND: &str = "CONVERGE_TEST_BACKGROUND";

/// Not a test: the worker that will be killed. Started by the others with a script to run.
#[tokio::test]
async fn worker() {
    let Ok(script) = std::env::var(SCRIPT) else {
        return;
    };
    let stop = match std::env::var(STOP).as_deref() {
        Ok("int") => StopSignal::Interrupt,
        _ => StopSignal::Terminate,
    };
    let command = Command::new("bash", Environment::inherited(&Inherit::All))
        .script(script)
        .stop_signal(stop)
        .grace(Duration::from_secs(2))
        .allow_background(std::env::var_os(BACKGROUND).is_some())
        .on_stdout_line(|line| println!("said {line}"));
    run_until(command, pending::<()>()).await.unwrap();
    println!("said finished");
    std::thread::sleep(Duration::from_secs(600));
}

/// Starts a worker with a script, waits until it says `up`, kills it, and gives the pids the script printed before.
fn kill_a_worker(script: &str, variables: &[(&str, &str)], until: &str) -> Vec<String> {
    let mut worker: Child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker", "--nocapture"])
        .env(SCRIPT, script)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(worker.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        match line.strip_prefix("said ") {
            Some(word) if word == until => break,
            Some(word) if word != "finished" => said.push(word.to_owned()),
            _ => {}
        }
    }
    worker.kill().unwrap();
    worker.wait().unwrap();
    said
}

fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

// One test: preparing looks at the whole machine. For the same reason nothing is said about what runs between the kill and
// the end of the preparation: another worker that starts on this machine does the same work.
#[tokio::test]
async fn the_next_worker_ends_what_a_killed_one_left() {
    // Its group, what left the group, and its private directory.
    let said = kill_a_worker(
        "pwd; echo $$; setsid sleep 300 & echo $!; sleep 300 & echo $!; echo up; wait",
        &[],
        "up",
    );
    let (dir, pids) = said.split_first().unwrap();
    assert_eq!(pids.len(), 3);
    let prepared = prepare_worker().await;
    assert!(prepared.adopts_orphans);
    assert!(pids.iter().all(|pid| !runs(pid)));
    assert!(!Path::new(dir).exists());

    // A program that saves its work on SIGINT gets one, and the time for it.
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!(
        "trap 'echo interrupted >> {0}; sleep .5; echo saved >> {0}; exit' INT; echo $$; echo up; while :; do sleep .05; done",
        file.path().display()
    );
    let said = kill_a_worker(&script, &[(STOP, "int")], "up");
    prepare_worker().await;
    assert!(!runs(&said[0]));
    assert_eq!(
        std::fs::read_to_string(file.path()).unwrap(),
        "interrupted\nsaved\n"
    );

    // One that ignores the request is killed when its grace is over.
    let said = kill_a_worker(
        "trap '' TERM; echo $$; echo up; while :; do sleep .05; done",
        &[],
        "up",
    );
    let prepared = prepare_worker().await;
    assert!(
        !runs(&said[0]) && prepared.survivors.is_empty(),
        "{prepared:?}"
    );

    // What was allowed to stay in the background stays; what had not finished is ended.
    let script = "setsid sleep 300 >/dev/null 2>&1 & echo $!";
    let said = kill_a_worker(script, &[(BACKGROUND, "1")], "finished");
    prepare_worker().await;
    assert!(runs(&said[0]));
    std::process::Command::new("kill")
        .arg(&said[0])
        .status()
        .unwrap();
    let said = kill_a_worker("echo $$; echo up; sleep 300", &[(BACKGROUND, "1")], "up");
    prepare_worker().await;
    assert!(!runs(&said[0]));
}
