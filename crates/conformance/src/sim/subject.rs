//! What a history is run on: the reference store, or another store beside it.

use std::sync::Arc;

use converge_engine::command::{Command, Reply};
use converge_engine::model::{Edge, Resource};
use converge_engine::store::TransactError;

use crate::memory::MemoryStore;

/// A store, as a history drives it: one command, one commit.
pub trait Subject {
    /// Carries one command out.
    ///
    /// # Errors
    /// The refusal; a store that answers other than it should says so as [`TransactError::Store`].
    fn carry_out(&mut self, command: &Command) -> Result<Reply, TransactError>;

    /// The process that holds the store is killed, and another opens what it left.
    ///
    /// # Errors
    /// What is not there any more.
    fn reopen(&mut self) -> Result<(), String>;

    /// Whether the store's clock goes back when the machine's does; one that only goes on has it easier.
    fn goes_back(&self) -> bool;

    /// The reference store, for looking at what is there.
    fn reference(&self) -> &MemoryStore;

    /// Every row, by uid.
    fn rows(&self) -> Vec<Arc<Resource>> {
        self.reference().rows()
    }

    /// Every edge, by (from, to).
    fn edges(&self) -> Vec<Arc<Edge>> {
        self.reference().edges()
    }
}

/// The reference store alone. Its maps hold what was committed and nothing else, so that is what is found when it is opened again.
impl Subject for MemoryStore {
    fn carry_out(&mut self, command: &Command) -> Result<Reply, TransactError> {
        MemoryStore::carry_out(self, std::slice::from_ref(command)).remove(0)
    }

    fn reopen(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn goes_back(&self) -> bool {
        true
    }

    fn reference(&self) -> &MemoryStore {
        self
    }
}
