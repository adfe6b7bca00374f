//! Stored times: they come from the clock that was given, and survive it being set back.

use std::sync::atomic::{AtomicI64, Ordering};

use converge_engine::command::{SweepBatch, Wake};

use super::*;

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
    let failed = TaskFailure {
        message: "not now".to_owned(),
        terminal: false,
    };
    let claimed = tasks(world.one(claim(1)).await.unwrap());
    let failed = completion(&claimed[0], Some(failed));
    world.one(failed).await.unwrap();
    world.store.close().await;
    let World { dir, store } = world;
    drop(store);
    hand.0.store(at_ms, Ordering::Relaxed);
    let store = SqliteStore::open(dir.path().join("store.db"), options()).unwrap();
    let world = World { dir, store };
    let sweep = SweepBatch { limit: 10 };
    while let Ok(Reply::Swept { more: true, .. }) =
        world.one(Command::ConfigSweep(sweep.clone())).await
    {}
    hand.0.fetch_add(after_ms, Ordering::Relaxed);
    let wake = Wake { limit: 10 };
    world.one(Command::Wake(wake)).await.unwrap();
    !tasks(world.one(claim(1)).await.unwrap()).is_empty()
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
