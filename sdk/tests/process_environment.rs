//! What a worker's own environment looks like to the programs it runs.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::future::pending;

use converge_sdk::process::{Capture, Command, Environment, Inherit, run_until};

const INHERIT: &str = "CONVERGE_TEST_INHERIT";
const BEGIN: &str = "the program's environment:\n";

/// Not a test: the worker. Started by the others with an environment, prints the one its program sees.
#[tokio::test]
async fn worker() {
    let inherit = match std::env::var(INHERIT).as_deref() {
        Ok("all") => Inherit::All,
        Ok("listed") => Inherit::Only(vec!["*".to_owned()]),
        _ => return,
    };
    let mut env = Environment::inherited(&inherit);
    env.set("CHANGED", "by the task")
        .set("ADDED", "by the task");
    let command = Command::new("env", env).stdout(Capture::Whole(1 << 20));
    let finished = run_until(command, pending::<()>()).await.unwrap();
    println!("{BEGIN}{}", finished.stdout.text(1 << 20));
}

/// The environment of a program whose worker has these variables.
fn seen(inherit: &str) -> BTreeMap<String, String> {
    let worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "worker", "--nocapture"])
        .env(INHERIT, inherit)
        .env("TLS_KEY_FILE", "/etc/worker.key")
        .env("TLS_", "short")
        .env("WORKER_PARENT_PID", "1")
        .env("CONVERGE_TASK_COOKIE", "of the task that this worker is")
        .env("KEPT", "with = and\nlines")
        .env("CHANGED", "by the worker")
        .output()
        .unwrap();
    let text = String::from_utf8(worker.stdout).unwrap();
    let (_, seen) = text.split_once(BEGIN).unwrap();
    let pairs = seen.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn credentials_and_the_mark_of_another_task_are_never_passed() {
    for inherit in ["all", "listed"] {
        let seen = seen(inherit);
        let value = |name: &str| seen.get(name).map(String::as_str);
        assert_eq!(value("TLS_KEY_FILE"), None, "{inherit}");
        assert_eq!(value("TLS_"), None, "{inherit}");
        assert_eq!(value("WORKER_PARENT_PID"), None, "{inherit}");
        let cookie = value("CONVERGE_TASK_COOKIE").unwrap();
        assert!(cookie.starts_with("1."), "{inherit}: {cookie}");
        assert_eq!(value("KEPT"), Some("with = and"), "{inherit}");
        assert_eq!(value("CHANGED"), Some("by the task"), "{inherit}");
        assert_eq!(value("ADDED"), Some("by the task"), "{inherit}");
        assert_eq!(value(INHERIT), Some(inherit), "{inherit}");
    }
}
