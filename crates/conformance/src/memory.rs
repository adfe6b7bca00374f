//! The reference store: maps, no SQL, nothing kept on disk.
//!
//! It is what the property tests compare behaviour with, so it is written to be obviously right: one mutex, a source that reads maps,
//! write sets applied row by row, secondary indexes derived from `Change::before` and `Change::after` alone.

mod reads;
mod tables;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use converge_engine::command::{self, Command, Reply};
use converge_engine::offers::{self, Offers};
use converge_engine::stamp::stamp;
use converge_engine::store::{SignalStream, Signals, Source as _, StoreError, TransactError};
use tokio::sync::watch;

use crate::clock::ManualClock;
use tables::Tables;

/// See the module.
pub struct MemoryStore {
    tables: Mutex<Tables>,
    clock: ManualClock,
    signals: watch::Sender<u64>,
    subscribers: Mutex<Vec<std::sync::Weak<Mutex<Signals>>>>,
    offers: Offers,
    closed: std::sync::atomic::AtomicBool,
}

impl MemoryStore {
    /// An empty store that tells this clock's time.
    #[must_use]
    pub fn new(clock: ManualClock) -> Self {
        Self {
            tables: Mutex::default(),
            clock,
            signals: watch::channel(0).0,
            subscribers: Mutex::default(),
            offers: Offers::default(),
            closed: std::sync::atomic::AtomicBool::new(false),
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.closed.load(std::sync::atomic::Ordering::Acquire) {
            Err(StoreError::Closed)
        } else {
            Ok(())
        }
    }

    fn signal(&self, signals: &Signals) {
        let mut subscribers = self
            .subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| {
            let Some(mine) = subscriber.upgrade() else {
                return false;
            };
            mine.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .merge(signals.clone());
            true
        });
        self.signals.send_modify(|count| *count += 1);
    }

    pub(crate) fn carry_out(&self, commands: &[Command]) -> Vec<Result<Reply, TransactError>> {
        let mut replies = Vec::with_capacity(commands.len());
        let mut signals = Signals::default();
        let mut tables = self.tables();
        for command in commands {
            replies.push(self.one(command, &mut tables, &mut signals));
        }
        loop {
            let ready = std::mem::take(&mut signals.ready);
            // A map cannot fail to be read.
            signals.ready =
                offers::left_to_claim(ready, |need| tables.fetch(need)).unwrap_or_default();
            let Some((claim, answer)) = self.offers.take_for(&signals.ready) else {
                break;
            };
            let _ = answer.send(self.one(&Command::Claim(claim), &mut tables, &mut signals));
        }
        drop(tables);
        if !signals.is_empty() {
            self.signal(&signals);
        }
        replies
    }

    fn one(
        &self,
        command: &Command,
        tables: &mut Tables,
        signals: &mut Signals,
    ) -> Result<Reply, TransactError> {
        let (mut reply, mut writes) = command::run_embedded(command, tables, self.clock.now_ms())?;
        signals.merge(writes.signals.clone());
        stamp(&mut writes, &mut reply, &mut tables.revision);
        tables.apply(writes);
        Ok(reply)
    }
}

struct MemorySignals {
    mine: Arc<Mutex<Signals>>,
    changed: watch::Receiver<u64>,
}

#[async_trait]
impl SignalStream for MemorySignals {
    async fn next(&mut self) -> Signals {
        loop {
            let taken =
                std::mem::take(&mut *self.mine.lock().unwrap_or_else(PoisonError::into_inner));
            if !taken.is_empty() {
                return taken;
            }
            if self.changed.changed().await.is_err() {
                // The store is gone; nothing will ever be signalled.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl MemoryStore {
    /// Rows that would change if every row were derived again now; and sums that are not the sums of what is there.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let mut tables = self.tables();
        let uids: Vec<_> = tables.resources.keys().copied().collect();
        let mut found = converge_engine::audit::audit(
            &uids,
            &mut *tables,
            self.clock.now_ms(),
            self.clock.went_back(),
        )
        .unwrap_or_else(|halt| vec![format!("the audit could not read: {halt:?}")]);
        found.extend(tables.wrong_sums());
        found
    }

    /// Claims that stand and have not been carried out.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.offers.open()
    }

    /// Rows that commands have read and written so far: what they cost, whatever else the machine does.
    #[must_use]
    pub fn work(&self) -> u64 {
        self.tables().work
    }

    /// Every resource row, by uid.
    #[must_use]
    pub fn rows(&self) -> Vec<Arc<converge_engine::model::Resource>> {
        self.tables().resources.values().cloned().collect()
    }

    /// Every live or former edge, by (from, to).
    #[must_use]
    pub fn edges(&self) -> Vec<Arc<converge_engine::model::Edge>> {
        self.tables().edges.values().cloned().collect()
    }
}
