//! A process that is killed loses nothing it was told is done.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use converge_engine::Store;
use converge_engine::command::{Command, ManifestApply, Precondition, ResourceApply};
use converge_store_sqlite::{Options, SqliteStore};
use converge_types::ids::{KindVersion, Uid};
use converge_types::labels::Labels;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PATH: &str = "STORE_CRASH_PATH";
const APPLIERS: u64 = 8;

fn leaf() -> KindVersion {
    "leaf/v1".parse().unwrap()
}

/// Run by the test below in a process of its own: applies for ever and says what is done.
#[tokio::test]
#[ignore = "the child of the test below"]
async fn child() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let store = SqliteStore::open(path, Options::default()).unwrap();
    let manifest = Command::ManifestApply(ManifestApply {
        doc: r#"{"kind": "leaf", "kind_version": 1, "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status"]}]}"#
            .parse()
            .unwrap(),
        precondition: Precondition::None,
        who: None,
    });
    store.transact(vec![manifest]).await.pop().unwrap().unwrap();
    let appliers = (0..APPLIERS).map(|applier| {
        let store = &store;
        async move {
            for n in 0.. {
                let name = format!("r{applier}-{n}");
                let command = Command::ResourceApply(ResourceApply {
                    kind: leaf().kind,
                    kind_version: None,
                    name: name.parse().unwrap(),
                    labels: Labels::default(),
                    config_ref: None,
                    spec: format!(r#"{{"name": "{name}"}}"#).parse().unwrap(),
                    new_uid: Uid::now(),
                    precondition: Precondition::None,
                    who: None,
                });
                store.transact(vec![command]).await.pop().unwrap().unwrap();
                println!("done {name}");
            }
        }
    });
    futures::future::join_all(appliers).await;
}

async fn check(path: &Path, done: &[String]) {
    let store = SqliteStore::open(path, Options::default()).unwrap();
    for name in done {
        let found = store
            .resource_get(&leaf().kind, &name.parse().unwrap())
            .await
            .unwrap();
        let found = found.unwrap_or_else(|| panic!("{name} was done and is gone"));
        assert_eq!(
            found.spec.unwrap().as_bytes(),
            format!(r#"{{"name": "{name}"}}"#).as_bytes()
        );
        let events = store.event_list(found.row.uid, None, 10).await.unwrap();
        assert!(!events.is_empty(), "{name} has no events");
    }
    // What is summed up agrees with the rows.
    let (_, pair) = store.manifest_list().await.unwrap().pop().unwrap();
    let summed: u64 = store
        .resource_summary()
        .await
        .unwrap()
        .iter()
        .map(|(_, _, n)| n)
        .sum();
    assert!(pair.resources >= done.len() as u64);
    assert_eq!(summed, pair.resources);
    store.close().await;
    let conn = rusqlite::Connection::open(path).unwrap();
    let (rows, sound): (u64, String) = conn
        .query_row(
            "SELECT (SELECT count(*) FROM resource), integrity_check FROM pragma_integrity_check",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((rows, sound.as_str()), (pair.resources, "ok"));
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3_usize {
        let path = dir.path().join(format!("store{round}.db"));
        let mut process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut done = Vec::new();
        let mut note = |line: String| {
            if let Some((_, name)) = line.split_once("done ") {
                done.push(name.to_owned());
            }
            done.len()
        };
        for line in lines.by_ref() {
            if note(line.unwrap()) >= 200 + 150 * round {
                break;
            }
        }
        kill(
            Pid::from_raw(process.id().try_into().unwrap()),
            Signal::SIGKILL,
        )
        .unwrap();
        process.wait().unwrap();
        // What it said before it died counts too; a torn last line does not.
        for line in lines.map_while(Result::ok) {
            note(line);
        }
        let torn = done.pop();
        assert!(
            torn.is_some() && done.len() >= 199,
            "the child never got going"
        );
        check(&path, &done).await;
    }
}
