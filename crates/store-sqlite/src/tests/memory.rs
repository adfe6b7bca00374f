//! What is kept: the newest events and states in the tables, and rows in the writer's memory, however small that is.

use converge_types::json::Doc;

use super::*;

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
async fn large_specs_of_the_past_go_with_their_states() {
    let world = World::with_leaf(Options::default()).await;
    let spec = |n: usize| format!(r#"{{"n": {n}, "text": "{}"}}"#, "x".repeat(n * 100));
    let mut uid = None;
    for n in 0..30 {
        uid = Some(row(world.one(apply("a", &spec(n))).await).1.uid);
    }
    let uid = uid.unwrap();
    let history = world.store.history_list(uid).await.unwrap();
    let specs = history.iter().map(|state| state.spec.as_bytes().to_vec());
    let newest = (10..30).rev().map(|n| spec(n).into_bytes());
    assert!(specs.eq(newest));
    let stored = || {
        let conn = rusqlite::Connection::open(world.dir.path().join("store.db")).unwrap();
        let sql = "SELECT count(*), (SELECT count(*) FROM past WHERE big IS NOT NULL) FROM big";
        let counts = conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        counts.unwrap()
    };
    assert_eq!(stored(), (20, 20));
    world.one(delete("a")).await.unwrap();
    let forget = Command::Forget(converge_engine::command::Forget {
        removed_before_ms: i64::MAX,
    });
    world.one(forget).await.unwrap();
    assert!(world.store.history_list(uid).await.unwrap().is_empty());
    assert_eq!(stored(), (0, 0));
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
