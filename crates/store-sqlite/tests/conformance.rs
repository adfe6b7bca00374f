//! The suite on the embedded store.

use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_engine::Store;
use converge_store_sqlite::{Clock, Options, SqliteStore};
use tempfile::TempDir;

struct Hand(ManualClock);

impl Clock for Hand {
    fn now_ms(&self) -> i64 {
        self.0.now_ms()
    }
}

fn open(clock: ManualClock) -> (Arc<dyn Store>, TempDir) {
    let dir = TempDir::new().expect("a directory");
    let options = Options {
        clock: Arc::new(Hand(clock)),
        ..Options::default()
    };
    let store = SqliteStore::open(dir.path().join("store.db"), options).expect("it opens");
    (Arc::new(store), dir)
}

converge_conformance::suite!(open);
