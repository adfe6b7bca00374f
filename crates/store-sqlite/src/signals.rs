//! Who hears of commits. One slot per listener: what is not fetched yet merges, so nothing queues up behind a slow one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use converge_engine::store::{SignalStream, Signals};
use tokio::sync::Notify;

#[derive(Default)]
struct Slot {
    pending: Mutex<Signals>,
    wake: Notify,
}

/// Every listener of one store.
#[derive(Default)]
pub(crate) struct Hub {
    slots: Mutex<Vec<Weak<Slot>>>,
}

impl Hub {
    pub(crate) fn subscribe(&self) -> Box<dyn SignalStream> {
        let slot = Arc::new(Slot::default());
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        Box::new(Listener(slot))
    }

    /// Tells every listener. Called after COMMIT, but for pairs that became ready: see the writer.
    pub(crate) fn publish(&self, signals: &Signals) {
        if signals.is_empty() {
            return;
        }
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.iter().filter_map(Weak::upgrade) {
            slot.pending
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .merge(signals.clone());
            slot.wake.notify_one();
        }
    }
}

struct Listener(Arc<Slot>);

#[async_trait]
impl SignalStream for Listener {
    async fn next(&mut self) -> Signals {
        loop {
            let signals = std::mem::take(
                &mut *self
                    .0
                    .pending
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
            );
            if !signals.is_empty() {
                return signals;
            }
            // Keeps a permit when notified first, so nothing published in between is missed.
            self.0.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_slow_listener_misses_comes_as_one() {
        let hub = Hub::default();
        let mut listener = hub.subscribe();
        for kv in ["a/v1", "b/v1", "a/v1"] {
            hub.publish(&Signals {
                ready: [kv.parse().unwrap()].into(),
                wake_ms: Some(kv.len() as i64),
                ..Signals::default()
            });
        }
        let heard = listener.next().await;
        assert_eq!(heard.ready.len(), 2);
        let more = tokio::time::timeout(std::time::Duration::from_millis(20), listener.next());
        more.await.expect_err("everything was heard already");
    }
}
