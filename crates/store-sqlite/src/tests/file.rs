//! The file: what is in it after reopening, whose it may be, how large it and its WAL get, and what happens when the disk is full.

use converge_engine::model::EventKind;

use super::*;

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
    // Room is made; the small write itself needs no new page.
    let answers = world
        .store
        .transact(stored.iter().map(|name| delete(name)).collect())
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
    let error = SqliteStore::open(&text, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("restore"), "{error}");
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
    // The cut comes after the answer.
    let size = || std::fs::metadata(&wal).unwrap().len();
    let started = std::time::Instant::now();
    while size() > limit {
        assert!(started.elapsed().as_secs() < 10, "{}", size());
        tokio::task::yield_now().await;
    }
}

/// A file as the second schema left it.
fn of_schema_2(path: &std::path::Path, uid: Uid) {
    let conn = rusqlite::Connection::open(path).unwrap();
    for step in [
        include_str!("../../migrations/0001_initial.sql"),
        include_str!("../../migrations/0002_what_teardown_reads.sql"),
    ] {
        conn.execute_batch(step).unwrap();
    }
    conn.execute_batch(
        r#"PRAGMA user_version = 2;
        PRAGMA application_id = 0x636f6e76;
        UPDATE meta SET revision = 41, seen_ms = 7;
        INSERT INTO pair VALUES ('leaf', 1, 2, '[1,2,3,4,5]', '[0,1,0,1,0]', x'000102030405060708090a0b0c0d0e0f', 3);
        INSERT INTO phase_count VALUES ('leaf', 1, 'Ready', 3), ('leaf', 1, 'Failed', 0);"#,
    )
    .unwrap();
    let event =
        "INSERT INTO event VALUES (?1, 40, 5, 'applied', 2, NULL, 'generation 2', 1, 'tester')";
    conn.execute(event, [uid.as_bytes()]).unwrap();
    let state = "INSERT INTO history VALUES (?1, 2, CAST('{\"n\": 1.50}' AS BLOB), '{\"team\":\"a\"}', 'leaf', 1, 'c', 6, NULL)";
    conn.execute(state, [uid.as_bytes()]).unwrap();
    let large = "INSERT INTO history VALUES (?1, 3, CAST('{\"text\": \"' || hex(zeroblob(4000)) || '\"}' AS BLOB), '{}', 'leaf', 1, NULL, 8, NULL)";
    conn.execute(large, [uid.as_bytes()]).unwrap();
}

#[tokio::test]
async fn a_file_of_an_older_schema_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.db");
    let uid = Uid::now();
    of_schema_2(&path, uid);
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    assert_eq!(store.revision().await.unwrap(), 41);
    assert_eq!(
        store.resource_summary().await.unwrap(),
        [(leaf(), Phase::Ready, 3)]
    );
    let events = store.event_list(uid, None, 10).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].seq, events[0].kind, events[0].who.as_deref()),
        (40, EventKind::Applied, Some("tester"))
    );
    let history = store.history_list(uid).await.unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!((history[0].generation, history[0].spec.size()), (3, 8_012));
    assert_eq!(history[1].spec.as_bytes(), br#"{"n": 1.50}"#);
    assert_eq!((history[1].generation, history[1].at_ms), (2, 6));
    // The counters of a pair are shown with its manifest, and taken further by what comes.
    store.transact(vec![manifest()]).await.remove(0).unwrap();
    row(store.transact(vec![apply("a", "{}")]).await.remove(0));
    let (_, pair) = store.manifest_list().await.unwrap().remove(0);
    assert_eq!((pair.inflight, pair.resources), (2, 4));
    assert_eq!((pair.turn, pair.since), ([1, 2, 3, 4, 5], [0, 1, 0, 1, 0]));
    assert_eq!(
        pair.default_config.0,
        0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f
    );
    assert_eq!(
        store.resource_summary().await.unwrap(),
        [(leaf(), Phase::Reconciling, 1), (leaf(), Phase::Ready, 3)]
    );
}

#[tokio::test]
async fn no_two_resources_have_one_name_whoever_owns_them() {
    use crate::rows::resource;
    let (_dir, conn) = database();
    let world = World::with_leaf(Options::default()).await;
    let (_, row) = row(world.one(apply("a", "{}")).await);
    resource::insert(&conn, 1, &row).unwrap();
    for owner in [None, Some(row.uid)] {
        let mut twin = (*row).clone();
        (twin.uid, twin.owner) = (Uid::now(), owner);
        let refused = resource::insert(&conn, 2, &twin).unwrap_err();
        assert!(refused.is_of_one_statement(), "{refused:?}");
    }
}
