//! A store beside the reference store: every answer is compared, and after a kill all that is there.

use std::sync::Arc;

use converge_engine::command::{ClaimTasks, Command};
use converge_engine::store::{Store, StoreError, TransactError};
use tokio::runtime::Runtime;

use super::subject::{Answer, Subject};
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
    fn take_over(
        &mut self,
        next: &Command,
        standing: Option<&ClaimTasks>,
    ) -> Result<Option<Answer>, String> {
        let store = (self.open)()?;
        let without = self.compare(&*store);
        let mut answer = None;
        if let Err(without) = without {
            answer = Some(Subject::carry_out(&mut self.reference, next, standing));
            self.compare(&*store)
                .map_err(|with| format!("without the last command: {without}\nwith it: {with}"))?;
        }
        self.store = Some(store);
        Ok(answer)
    }

    /// The same on the store that is compared.
    fn ask(&self, store: &dyn Store, command: &Command, standing: Option<&ClaimTasks>) -> Answer {
        let standing = standing.and_then(|claim| store.stand(claim.clone()));
        self.runtime.block_on(async {
            let reply = store.transact(vec![command.clone()]).await.remove(0);
            let claimed = match standing.filter(|standing| !(standing.withdraw)()) {
                Some(standing) => Some(standing.answer.await),
                None => None,
            };
            Answer::of(reply, claimed)
        })
    }
}

impl Subject for Mirror {
    fn carry_out(&mut self, command: &Command, standing: Option<&ClaimTasks>) -> Answer {
        let wrong = |why: String| Answer {
            reply: Err(TransactError::Store(StoreError::Corrupt(why))),
            served: Vec::new(),
        };
        self.count += 1;
        if self.store.is_none() && self.count > self.before {
            match self.take_over(command, standing) {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(why) => return wrong(why),
            }
        }
        let expected = Subject::carry_out(&mut self.reference, command, standing);
        if let Some(store) = &self.store {
            let found = self.ask(&**store, command, standing);
            (self.answered)();
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            if expected != found {
                return wrong(format!(
                    "the stores answer differently to {command:?}\n  reference {expected}\n  store     {found}"
                ));
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
