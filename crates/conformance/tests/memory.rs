//! The suite on the reference store.

use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_engine::Store;

fn open(clock: ManualClock) -> (Arc<dyn Store>, ()) {
    (Arc::new(MemoryStore::new(clock)), ())
}

converge_conformance::suite!(open);
