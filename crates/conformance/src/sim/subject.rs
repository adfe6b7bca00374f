//! What a history is run on: the reference store, or another store beside it.

use std::sync::Arc;

use converge_engine::command::{ClaimTasks, Command, Reply, Task};
use converge_engine::model::{Edge, Resource};
use converge_engine::store::{Standing, Store as _, TransactError};
use futures::FutureExt as _;

use crate::memory::MemoryStore;

/// What one command came to.
#[derive(Debug)]
pub struct Answer {
    /// The refusal; a store that answers other than it should says so as [`TransactError::Store`].
    pub reply: Result<Reply, TransactError>,
    /// What the claim that stood while it was carried out has got.
    pub served: Vec<Task>,
}

impl Answer {
    /// What a claim got that stood meanwhile; `claimed` is its answer, `None` when it was taken back.
    pub(super) fn of(
        reply: Result<Reply, TransactError>,
        claimed: Option<Result<Reply, TransactError>>,
    ) -> Self {
        match claimed {
            None => Self {
                reply,
                served: Vec::new(),
            },
            Some(Ok(Reply::Claimed { tasks })) => Self {
                reply,
                served: tasks,
            },
            Some(Ok(other)) => panic!("a claim is answered {other:?}"),
            Some(Err(error)) => Self {
                reply: Err(error),
                served: Vec::new(),
            },
        }
    }
}

/// A store, as a history drives it: one command, one commit.
pub trait Subject {
    /// Carries one command out, with a claim that stands meanwhile.
    fn carry_out(&mut self, command: &Command, standing: Option<&ClaimTasks>) -> Answer;

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
    fn carry_out(&mut self, command: &Command, standing: Option<&ClaimTasks>) -> Answer {
        let standing = standing.and_then(|claim| self.stand(claim.clone()));
        let reply = MemoryStore::carry_out(self, std::slice::from_ref(command)).remove(0);
        let claimed = standing
            .filter(|standing| !(standing.withdraw)())
            .and_then(|Standing { answer, .. }| answer.now_or_never());
        Answer::of(reply, claimed)
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
