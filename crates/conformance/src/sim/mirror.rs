//! A store beside the reference store: every answer is compared, and after a kill all that is there.

use std::sync::Arc;

use converge_engine::command::{Command, Reply};
use converge_engine::store::{Store, StoreError, TransactError};
use tokio::runtime::Runtime;

use super::Subject;
use crate::clock::ManualClock;
use crate::memory::MemoryStore;
use crate::state::state;

/// Opens the store: the first time an empty one, later what a killed process left of it.
pub type Open = Box<dyn FnMut() -> Result<Arc<dyn Store>, String>>;

/// See the module.
pub struct Mirror {
    reference: MemoryStore,
    store: Option<Arc<dyn Store>>,
    open: Open,
    runtime: Runtime,
    /// Told after each answer.
    answered: Box<dyn FnMut()>,
    /// Commands so far.
    count: u64,
    /// Commands an earlier process answered before it was killed: the reference alone repeats them.
    before: u64,
}

impl Mirror {
    /// A history from its beginning. `answered` is called after each answer of the store.
    ///
    /// # Errors
    /// When the store does not open.
    pub fn new(
        clock: ManualClock,
        mut open: Open,
        answered: Box<dyn FnMut()>,
    ) -> Result<Self, String> {
        let store = Some(open()?);
        Self::build(clock, store, open, answered, 0)
    }

    /// A history that another process began and was killed in, after it had answered `before` commands.
    ///
    /// # Errors
    /// When no runtime can be made.
    pub fn resumed(clock: ManualClock, open: Open, before: u64) -> Result<Self, String> {
        Self::build(clock, None, open, Box::new(|| {}), before)
    }

    fn build(
        clock: ManualClock,
        store: Option<Arc<dyn Store>>,
        open: Open,
        answered: Box<dyn FnMut()>,
        before: u64,
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            reference: MemoryStore::new(clock),
            store,
            open,
            runtime,
            answered,
            count: 0,
            before,
        })
    }

    /// How many commands were carried out.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    fn compare(&self, store: &dyn Store) -> Result<(), String> {
        let (expected, found) = self
            .runtime
            .block_on(async { (state(&self.reference).await, state(store).await) });
        let (expected, found) = (expected?, found?);
        for (expected, found) in expected.lines().zip(found.lines()) {
            if expected != found {
                return Err(format!(
                    "the stores differ\n  reference {expected}\n  store     {found}"
                ));
            }
        }
        if expected.len() == found.len() {
            Ok(())
        } else {
            Err(format!(
                "one store holds more\n  reference {expected}\n  store     {found}"
            ))
        }
    }

    /// Opens what the killed process left. It holds what was answered; or one command more, whose answer never came.
    fn take_over(&mut self, next: &Command) -> Result<Option<Reply>, TransactError> {
        let wrong = |why: String| TransactError::Store(StoreError::Corrupt(why));
        let store = (self.open)().map_err(wrong)?;
        let without = self.compare(&*store);
        let mut reply = None;
        if let Err(without) = without {
            reply = Some(
                self.reference
                    .carry_out(std::slice::from_ref(next))
                    .remove(0)?,
            );
            self.compare(&*store).map_err(|with| {
                wrong(format!(
                    "without the last command: {without}\nwith it: {with}"
                ))
            })?;
        }
        self.store = Some(store);
        Ok(reply)
    }
}

impl Subject for Mirror {
    fn carry_out(&mut self, command: &Command) -> Result<Reply, TransactError> {
        self.count += 1;
        if self.store.is_none()
            && self.count > self.before
            && let Some(reply) = self.take_over(command)?
        {
            return Ok(reply);
        }
        let expected = self
            .reference
            .carry_out(std::slice::from_ref(command))
            .remove(0);
        if let Some(store) = &self.store {
            let found = self
                .runtime
                .block_on(store.transact(vec![command.clone()]))
                .remove(0);
            (self.answered)();
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            if expected != found {
                return Err(TransactError::Store(StoreError::Corrupt(format!(
                    "the stores answer differently to {command:?}\n  reference {expected}\n  store     {found}"
                ))));
            }
        }
        expected
    }

    fn reopen(&mut self) -> Result<(), String> {
        if self.store.take().is_some() {
            let store = (self.open)()?;
            self.compare(&*store)?;
            self.store = Some(store);
        }
        Ok(())
    }

    fn goes_back(&self) -> bool {
        false
    }

    fn reference(&self) -> &MemoryStore {
        &self.reference
    }
}
