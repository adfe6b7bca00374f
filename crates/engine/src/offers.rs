//! Claims of workers that have nothing to do, left with a store until there is something to claim.
//!
//! What a store needs to fulfil [`Store::stand`](crate::store::Store::stand): it asks for an offer in each transaction that signals a
//! pair with something left to claim, carries it out there, and answers after COMMIT, or drops the answer when that fails.
//!
//! An offer is open, or it is the writer's or gone; whoever takes it out of its slot first has it. So a claim is carried out at most
//! once, and one that was withdrawn never is. The oldest offer goes first: a worker that was served comes back behind the others.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use converge_types::ids::KindVersion;
use futures::channel::oneshot;

use crate::command::{ClaimTasks, Reply};
use crate::model::Class;
use crate::store::{Need, Rows, Standing, TransactError};

/// Where the answer to an offer goes. Dropped, it says that nothing was claimed.
pub type Answer = oneshot::Sender<Result<Reply, TransactError>>;

/// One claim, until somebody took it.
struct Offer(Mutex<Option<(ClaimTasks, Answer)>>);

impl Offer {
    fn slot(&self) -> MutexGuard<'_, Option<(ClaimTasks, Answer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn withdraw(&self) -> bool {
        self.slot().take().is_some()
    }
}

/// Withdraws the offer of somebody who no longer waits.
struct Waits(Arc<Offer>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.withdraw();
    }
}

/// All that are open, oldest first; those that were withdrawn go when the next one comes.
#[derive(Default)]
pub struct Offers(Mutex<VecDeque<Arc<Offer>>>);

impl Offers {
    fn list(&self) -> MutexGuard<'_, VecDeque<Arc<Offer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a claim.
    pub fn add(&self, claim: ClaimTasks) -> Standing {
        let (answer, answered) = oneshot::channel();
        let offer = Arc::new(Offer(Mutex::new(Some((claim, answer)))));
        let waits = Waits(offer.clone());
        let mut list = self.list();
        list.retain(|offer| offer.slot().is_some());
        list.push_back(offer.clone());
        Standing {
            answer: Box::pin(async move {
                let _waits = waits;
                // Whoever took it and could not commit answers nothing: then nothing was claimed.
                let nothing = Ok(Reply::Claimed { tasks: Vec::new() });
                answered.await.unwrap_or(nothing)
            }),
            withdraw: Box::new(move || offer.withdraw()),
        }
    }

    /// How many are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.list()
            .iter()
            .filter(|offer| offer.slot().is_some())
            .count()
    }

    /// The oldest that asks for one of these pairs, which from now on is the caller's to carry out.
    #[must_use]
    pub fn take_for(&self, pairs: &BTreeSet<KindVersion>) -> Option<(ClaimTasks, Answer)> {
        let mut list = self.list();
        for at in 0..list.len() {
            let mut slot = list.get(at)?.slot();
            if let Some(offered) =
                slot.take_if(|(claim, _)| claim.pairs.iter().any(|kv| pairs.contains(kv)))
            {
                drop(slot);
                list.remove(at);
                return Some(offered);
            }
        }
        None
    }
}

/// Of these pairs, those with something to claim.
///
/// # Errors
/// Those of `fetch`.
pub fn left_to_claim<E>(
    pairs: BTreeSet<KindVersion>,
    mut fetch: impl FnMut(&Need) -> Result<Rows, E>,
) -> Result<BTreeSet<KindVersion>, E> {
    let mut left = BTreeSet::new();
    for kv in pairs {
        for class in Class::ALL {
            let waiting = fetch(&Need::Ready(kv.clone(), class, 1))?;
            if matches!(waiting, Rows::Uids(found) if !found.is_empty()) {
                left.insert(kv);
                break;
            }
        }
    }
    Ok(left)
}
