//! The store through its trait: what survives, what is answered when, and what happens when the disk does not play along.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use converge_engine::Refusal;
use converge_engine::command::{
    Applied, ClaimTasks, Complete, Landed, ManifestApply, Outcome, Precondition, ResourceApply,
    ResourceDelete,
};
use converge_engine::model::{ClaimRef, EventKind};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use tempfile::TempDir;

use super::*;

pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) store: SqliteStore,
}

impl World {
    pub(crate) fn new(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("store.db"), options).unwrap();
        Self { dir, store }
    }

    pub(crate) async fn with_leaf(options: Options) -> Self {
        let world = Self::new(options);
        world.one(manifest()).await.unwrap();
        world
    }

    pub(crate) async fn one(&self, command: Command) -> Result<Reply, TransactError> {
        self.store.transact(vec![command]).await.pop().unwrap()
    }
}

pub(crate) fn leaf() -> KindVersion {
    "leaf/v1".parse().unwrap()
}

pub(crate) fn manifest() -> Command {
    let doc = r#"{"kind": "leaf", "kind_version": 1, "spec_schema": {"type": "object"},
        "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]}]}"#;
    Command::ManifestApply(ManifestApply {
        doc: doc.parse().unwrap(),
        precondition: Precondition::None,
        who: None,
    })
}

pub(crate) fn apply(name: &str, spec: &str) -> Command {
    Command::ResourceApply(ResourceApply {
        kind: leaf().kind,
        kind_version: None,
        name: name.parse().unwrap(),
        labels: Labels::new([("team".to_owned(), name.to_owned())].into()).unwrap(),
        config_ref: None,
        spec: spec.parse().unwrap(),
        new_uid: Uid::now(),
        precondition: Precondition::None,
        who: Some("tester".to_owned()),
    })
}

pub(crate) fn claim(limit: u32) -> Command {
    Command::Claim(ClaimTasks {
        worker: "w".to_owned(),
        broker: "b".to_owned(),
        pairs: vec![leaf()],
        limit,
        reserved_for_composers: 0,
        suspects_on_stream: Vec::new(),
        busy_on_stream: vec![leaf()],
        seed: (0..u128::from(limit)).map(|n| n + 1).collect(),
    })
}

pub(crate) fn completions(claimed: Reply) -> Vec<Command> {
    let Reply::Claimed { tasks } = claimed else {
        panic!("{claimed:?}")
    };
    tasks
        .into_iter()
        .map(|task| {
            Command::Complete(Complete {
                claim: ClaimRef {
                    token: task.token,
                    epoch: task.claim.epoch,
                },
                stage: task.claim.stage,
                outcome: Outcome {
                    status: Some(bytes::Bytes::from(format!(
                        "{{\"epoch\": {}}}",
                        task.claim.epoch
                    ))),
                    conditions: Vec::new(),
                    compose: None,
                    output: None,
                    failure: None,
                },
                seed: 7,
            })
        })
        .collect()
}

fn row(reply: Result<Reply, TransactError>) -> (Applied, Arc<Resource>) {
    match reply {
        Ok(Reply::Resource { applied, row }) => (applied, row),
        other => panic!("{other:?}"),
    }
}

async fn get(store: &SqliteStore, name: &str) -> Option<ResourceView> {
    let name = name.parse().unwrap();
    store.resource_get(&leaf().kind, &name).await.unwrap()
}

#[tokio::test]
async fn a_pass_of_a_leaf_is_there_after_reopening() {
    let world = World::with_leaf(Options::default()).await;
    let (applied, created) = row(world.one(apply("a", r#"{ "n": 1.50 }"#)).await);
    assert_eq!(applied, Applied::Created);
    let claimed = world.one(claim(8)).await.unwrap();
    let live = world.store.claim_list().await.unwrap();
    assert_eq!(live.len(), 1, "the claim is live until its result");
    let landed = world.store.transact(completions(claimed)).await;
    assert!(
        matches!(landed[..], [Ok(Reply::Landed(Landed::Applied))]),
        "{landed:?}"
    );
    let before = get(&world.store, "a").await.unwrap();
    assert_eq!(before.row.derived.phase, Phase::Ready);
    assert!(before.row.revision > created.revision);
    let revision = world.store.revision().await.unwrap();
    world.store.close().await;

    let path = world.dir.path().join("store.db");
    let wal = std::fs::metadata(path.with_extension("db-wal")).map_or(0, |file| file.len());
    assert_eq!(wal, 0, "closing leaves nothing in the WAL");
    let again = SqliteStore::open(&path, Options::default()).unwrap();
    let after = get(&again, "a").await.unwrap();
    assert_eq!(after.row, before.row);
    assert_eq!(after.spec.unwrap().as_bytes(), br#"{ "n": 1.50 }"#);
    assert_eq!(after.status.unwrap().as_bytes(), br#"{"epoch": 1}"#);
    assert_eq!(again.revision().await.unwrap(), revision);
    let history = again.history_list(created.uid).await.unwrap();
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].who.as_deref(), Some("tester"));
    let events = again.event_list(created.uid, None, 10).await.unwrap();
    let kinds: Vec<_> = events.iter().rev().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::Applied,
            EventKind::Succeeded,
            EventKind::PhaseChanged
        ]
    );
    assert!(events.windows(2).all(|pair| pair[0].seq > pair[1].seq));
    assert_eq!(
        again.resource_summary().await.unwrap(),
        [(leaf(), Phase::Ready, 1)]
    );
    let manifests = again.manifest_list().await.unwrap();
    assert_eq!(manifests[0].1.resources, 1);
    assert_eq!(manifests[0].1.inflight, 0);
}

#[tokio::test]
async fn a_command_sees_what_the_one_before_it_wrote_and_a_refused_one_writes_nothing() {
    let world = World::with_leaf(Options::default()).await;
    let unknown = Command::ResourceDelete(ResourceDelete {
        kind: leaf().kind,
        name: "nobody".parse().unwrap(),
        force: false,
        abandon: false,
        precondition: Precondition::None,
        who: None,
    });
    let batch = vec![
        apply("a", "{}"),
        unknown,
        apply("a", "{}"),
        apply("a", "[]"),
    ];
    let answers = world.store.transact(batch).await;
    assert!(
        matches!(
            answers[..],
            [
                Ok(Reply::Resource {
                    applied: Applied::Created,
                    ..
                }),
                Err(TransactError::Refused(Refusal::NotFound(_))),
                Ok(Reply::Resource {
                    applied: Applied::Unchanged,
                    ..
                }),
                Err(TransactError::Refused(Refusal::Invalid { .. })),
            ]
        ),
        "{answers:?}"
    );
    let found = get(&world.store, "a").await.unwrap();
    assert_eq!(found.row.generation, 1);
}

/// Holds COMMIT until told what to do with it.
#[derive(Default)]
struct Gate {
    armed: AtomicBool,
    refuse: AtomicBool,
    inside: Mutex<bool>,
    moved: Condvar,
}

impl Gate {
    fn hook(self: &Arc<Self>) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let gate = self.clone();
        Arc::new(move || {
            if gate.armed.load(Ordering::SeqCst) {
                let mut inside = gate.inside.lock().unwrap();
                *inside = true;
                gate.moved.notify_all();
                while gate.armed.load(Ordering::SeqCst) {
                    inside = gate.moved.wait(inside).unwrap();
                }
                *inside = false;
            }
            gate.refuse.load(Ordering::SeqCst)
        })
    }

    fn wait_inside(&self) {
        let inside = self.inside.lock().unwrap();
        let limit = Duration::from_secs(10);
        let (inside, _) = self
            .moved
            .wait_timeout_while(inside, limit, |inside| !*inside)
            .unwrap();
        assert!(*inside, "the writer never came to its COMMIT");
    }

    fn open(&self) {
        let inside = self.inside.lock().unwrap();
        self.armed.store(false, Ordering::SeqCst);
        drop(inside);
        self.moved.notify_all();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_signalled_or_seen_before_commit() {
    let gate = Arc::new(Gate::default());
    let world = World::with_leaf(Options {
        on_commit: Some(gate.hook()),
        ..Options::default()
    })
    .await;
    let mut signals = world.store.subscribe();
    gate.armed.store(true, Ordering::SeqCst);
    let mut answer = Box::pin(world.one(apply("a", "{}")));
    let soon = Duration::from_millis(1);
    // Polling once sends it.
    tokio::time::timeout(soon, &mut answer)
        .await
        .expect_err("answered while COMMIT is held");
    gate.wait_inside();
    tokio::time::timeout(soon, &mut answer)
        .await
        .expect_err("answered while COMMIT is held");
    tokio::time::timeout(soon, signals.next())
        .await
        .expect_err("signalled while COMMIT is held");
    assert!(get(&world.store, "a").await.is_none());
    gate.open();
    row(answer.await);
    assert!(get(&world.store, "a").await.is_some());
    assert!(signals.next().await.ready.contains(&leaf()));
}

#[tokio::test]
async fn a_commit_that_fails_fails_every_command_of_the_batch_and_leaves_no_trace() {
    let gate = Arc::new(Gate::default());
    let world = World::with_leaf(Options {
        on_commit: Some(gate.hook()),
        ..Options::default()
    })
    .await;
    row(world.one(apply("a", "{}")).await);
    let before = world.store.revision().await.unwrap();
    gate.refuse.store(true, Ordering::SeqCst);
    let batch = vec![apply("a", r#"{"n": 1}"#), apply("b", "{}")];
    let answers = world.store.transact(batch).await;
    for answer in &answers {
        assert!(matches!(answer, Err(TransactError::Store(_))), "{answer:?}");
    }
    assert_eq!(answers.len(), 2);
    world.store.writable().expect_err("it just failed");
    gate.refuse.store(false, Ordering::SeqCst);
    assert!(get(&world.store, "b").await.is_none());
    assert_eq!(world.store.revision().await.unwrap(), before);
    // What was not committed is not remembered either.
    let (applied, again) = row(world.one(apply("a", r#"{"n": 1}"#)).await);
    assert_eq!((applied, again.generation), (Applied::Configured, 2));
    world.store.writable().expect("it takes writes again");
    let summary = world.store.resource_summary().await.unwrap();
    assert_eq!(summary, [(leaf(), Phase::Reconciling, 1)]);
}

#[tokio::test]
async fn a_command_that_cannot_be_written_is_undone_alone() {
    let world = World::with_leaf(Options::default()).await;
    let mut twin = apply("b", "{}");
    let (_, a) = row(world.one(apply("a", "{}")).await);
    if let Command::ResourceApply(apply) = &mut twin {
        // No two resources have one uid: the row is refused by the table, not by the engine.
        apply.new_uid = a.uid;
    }
    let batch = vec![apply("c", "{}"), twin, apply("d", "{}")];
    let answers = world.store.transact(batch).await;
    assert!(
        matches!(
            answers[..],
            [
                Ok(_),
                Err(TransactError::Store(StoreError::Unwritable(_))),
                Ok(_)
            ]
        ),
        "{answers:?}"
    );
    for (name, is_there) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        assert_eq!(get(&world.store, name).await.is_some(), is_there, "{name}");
    }
    let summary = world.store.resource_summary().await.unwrap();
    assert_eq!(summary, [(leaf(), Phase::Reconciling, 3)]);
    assert_eq!(world.store.manifest_list().await.unwrap()[0].1.resources, 3);
    world
        .store
        .writable()
        .expect("one bad command is no full disk");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_answers_reads_and_recovers_by_itself() {
    let world = World::with_leaf(Options {
        max_bytes: Some(2 << 20),
        ..Options::default()
    })
    .await;
    let big = format!(r#"{{"text": "{}"}}"#, "x".repeat(200 << 10));
    let mut stored = Vec::new();
    let full = loop {
        let name = format!("r{}", stored.len());
        match world.one(apply(&name, &big)).await {
            Ok(_) => stored.push(name),
            Err(error) => break error,
        }
        assert!(stored.len() < 100, "it never fills up");
    };
    let is_full = |error: &TransactError| matches!(error, TransactError::Store(StoreError::Unwritable(why)) if why.contains("full"));
    assert!(is_full(&full), "{full:?}");
    world.store.writable().expect_err("the disk is full");
    for name in &stored {
        let found = get(&world.store, name).await.unwrap();
        assert_eq!(found.spec.unwrap().size(), big.len());
    }
    let delete = |name: &String| {
        Command::ResourceDelete(ResourceDelete {
            kind: leaf().kind,
            name: name.parse().unwrap(),
            force: false,
            abandon: false,
            precondition: Precondition::None,
            who: None,
        })
    };
    // Room is made; the small write itself needs no new page.
    let answers = world
        .store
        .transact(stored.iter().map(delete).collect())
        .await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    world.store.writable().expect("there is room again");
    row(world.one(apply("after", &big)).await);
    let tombstone = world
        .store
        .tombstone_get(&leaf().kind, &stored[0].parse().unwrap())
        .await
        .unwrap();
    assert!(tombstone.is_some());
}

#[tokio::test]
async fn the_newest_events_and_states_are_kept() {
    let world = World::with_leaf(Options::default()).await;
    let mut uid = None;
    for n in 0..250 {
        let (_, row) = row(world.one(apply("a", &format!(r#"{{"n": {n}}}"#))).await);
        uid = Some(row.uid);
    }
    let uid = uid.unwrap();
    let all = world.store.event_list(uid, None, 1_000).await.unwrap();
    assert_eq!(all.len(), 200);
    assert_eq!(all[0].generation, 250);
    let page = world
        .store
        .event_list(uid, Some(all[9].seq), 5)
        .await
        .unwrap();
    assert_eq!(page, all[10..15]);
    let beyond = world
        .store
        .event_list(uid, Some(all[199].seq), 5)
        .await
        .unwrap();
    assert_eq!(beyond, [], "what is kept a little longer is not shown");
    let history = world.store.history_list(uid).await.unwrap();
    let generations: Vec<_> = history.iter().map(|state| state.generation).collect();
    assert_eq!(generations, (231..=250).rev().collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_small_memory_changes_nothing() {
    let small = Options {
        cache_rows: 2,
        cache_bytes: 8 << 10,
        ..Options::default()
    };
    let world = World::with_leaf(small).await;
    let names: Vec<String> = (0..20).map(|n| format!("r{n}")).collect();
    for round in 0..3 {
        let spec = format!(r#"{{"round": {round}}}"#);
        let batch = names.iter().map(|name| apply(name, &spec)).collect();
        for answer in world.store.transact(batch).await {
            row(answer);
        }
        let claimed = world.one(claim(64)).await.unwrap();
        let done = completions(claimed);
        assert_eq!(done.len(), 20);
        for answer in world.store.transact(done).await {
            assert!(matches!(answer, Ok(Reply::Landed(Landed::Applied))));
        }
    }
    for name in &names {
        let found = get(&world.store, name).await.unwrap();
        assert_eq!(found.row.derived.phase, Phase::Ready);
        assert_eq!((found.row.generation, found.row.synced_gen), (3, 3));
        assert_eq!(
            found.spec.unwrap(),
            r#"{"round": 2}"#.parse::<Doc>().unwrap()
        );
    }
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let world = World::with_leaf(Options::default()).await;
    world.store.close().await;
    world.store.close().await;
    let answer = world.one(apply("a", "{}")).await;
    assert!(matches!(
        answer,
        Err(TransactError::Store(StoreError::Closed))
    ));
    assert!(matches!(
        world.store.revision().await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(world.store.writable(), Err(StoreError::Closed)));
}

#[tokio::test]
async fn files_of_others_and_of_newer_versions_are_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign.db");
    let conn = rusqlite::Connection::open(&foreign).unwrap();
    conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
    drop(conn);
    let error = SqliteStore::open(&foreign, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");

    let world = World::with_leaf(Options::default()).await;
    world.store.close().await;
    let path = world.dir.path().join("store.db");
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    let error = SqliteStore::open(&path, Options::default()).unwrap_err();
    assert!(
        matches!(error, OpenError::NewerSchema { found: 99, .. }),
        "{error:?}"
    );
    let text = dir.path().join("text.db");
    std::fs::write(
        &text,
        "this is no database at all, and long enough to be read as one".repeat(20),
    )
    .unwrap();
    SqliteStore::open(&text, Options::default()).expect_err("no database");
}

#[tokio::test]
async fn a_large_wal_is_cut() {
    let limit = 256 << 10;
    let world = World::with_leaf(Options {
        wal_limit_bytes: limit,
        ..Options::default()
    })
    .await;
    let wal = world.dir.path().join("store.db-wal");
    let big = format!(r#"{{"text": "{}"}}"#, "x".repeat(100 << 10));
    for n in 0..10 {
        row(world.one(apply(&format!("r{n}"), &big)).await);
    }
    // The cut comes after the answer, so one more command waits for it.
    row(world.one(apply("last", "{}")).await);
    let size = std::fs::metadata(&wal).unwrap().len();
    assert!(size <= limit, "{size}");
}

struct Hand(AtomicI64);

impl Clock for Hand {
    fn now_ms(&self) -> Millis {
        self.0.load(Ordering::Relaxed)
    }
}

/// Backs off at one time, opens again at another; whether the task may be claimed once the sweeps are through and `after_ms` are over.
async fn claimable_after_a_restart(at_ms: Millis, after_ms: Millis) -> bool {
    let hand = Arc::new(Hand(AtomicI64::new(10_000_000)));
    let options = || Options {
        clock: hand.clone(),
        ..Options::default()
    };
    let world = World::with_leaf(options()).await;
    world.one(apply("a", "{}")).await.unwrap();
    let Reply::Claimed { tasks } = world.one(claim(1)).await.unwrap() else {
        panic!()
    };
    let failed = Complete {
        claim: ClaimRef {
            token: tasks[0].token,
            epoch: tasks[0].claim.epoch,
        },
        stage: tasks[0].claim.stage,
        outcome: Outcome {
            status: None,
            conditions: Vec::new(),
            compose: None,
            output: None,
            failure: Some(converge_engine::command::TaskFailure {
                message: "not now".to_owned(),
                terminal: false,
            }),
        },
        seed: 1,
    };
    world.one(Command::Complete(failed)).await.unwrap();
    world.store.close().await;
    let World { dir, store } = world;
    drop(store);
    hand.0.store(at_ms, Ordering::Relaxed);
    let store = SqliteStore::open(dir.path().join("store.db"), options()).unwrap();
    let world = World { dir, store };
    let sweep = converge_engine::command::SweepBatch { limit: 10 };
    while let Ok(Reply::Swept { more: true, .. }) =
        world.one(Command::ConfigSweep(sweep.clone())).await
    {}
    hand.0.fetch_add(after_ms, Ordering::Relaxed);
    let wake = converge_engine::command::Wake { limit: 10 };
    world.one(Command::Wake(wake)).await.unwrap();
    let Reply::Claimed { tasks } = world.one(claim(1)).await.unwrap() else {
        panic!()
    };
    !tasks.is_empty()
}

#[tokio::test]
async fn a_clock_set_back_across_a_restart_puts_nothing_off() {
    assert!(
        !claimable_after_a_restart(10_000_100, 0).await,
        "it backs off"
    );
    assert!(claimable_after_a_restart(10_000_100, 1_000).await);
    // An hour back: the second of backoff is not an hour now.
    assert!(claimable_after_a_restart(6_400_000, 1_000).await);
}

#[tokio::test]
async fn the_clock_is_the_one_given() {
    let hand = Arc::new(Hand(AtomicI64::new(5_000)));
    let world = World::with_leaf(Options {
        clock: hand.clone(),
        ..Options::default()
    })
    .await;
    let (_, first) = row(world.one(apply("a", "{}")).await);
    hand.0.store(9_000, Ordering::Relaxed);
    let (_, second) = row(world.one(apply("b", "{}")).await);
    assert_eq!((first.created_ms, second.created_ms), (5_000, 9_000));
    assert_eq!(world.store.now_ms(), 9_000);
}
