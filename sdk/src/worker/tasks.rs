//! The tasks that were accepted and not yet answered.
//!
//! Tasks of one resource form a *lane*: one is current, at most one waits behind it, and a newer claim means that the older
//! one was lost. A reactor delivery is a lane of its own. Among what may start, the order is that of arrival. Not here: when a
//! pair takes tasks (`pairs.rs`), and what a handler does (`handler.rs`).

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tokio::task::AbortHandle;

use super::convert::Claim;
use crate::TaskControl;
use crate::wire::{StageComplete, StageTask};

/// What two tasks have in common that must not run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey {
    /// Work on one resource.
    Resource([u8; 16]),
    /// One delivery to a reactor, by its token.
    Delivery(String),
}

pub(crate) struct Task {
    pub(crate) claim: Claim,
    /// The place of its pair.
    pub(crate) pair: usize,
    /// Kind and name, for logs.
    pub(crate) label: String,
    pub(crate) deadline: Option<Instant>,
    pub(crate) state: State,
    lane: LaneKey,
}

pub(crate) enum State {
    /// It has not started.
    Waiting(Box<StageTask>),
    /// Its handler runs.
    Running {
        since: Instant,
        control: TaskControl,
        abort: AbortHandle,
        cancelled_at: Option<Instant>,
    },
    /// Its result waits for room in the buffer; `slot` tells whether it had run and so keeps a slot.
    Ended {
        complete: Box<StageComplete>,
        slot: bool,
    },
}

struct Lane {
    current: u64,
    next: Option<u64>,
}

/// What becomes of a task that arrived.
pub(crate) enum Arrival {
    /// It may be started.
    Current(u64),
    /// It starts when the running task of its lane, which has lost its claim, has ended.
    Behind {
        /// The task whose claim is lost.
        running: u64,
        /// One that waited behind it and is overtaken too.
        overtaken: Option<u64>,
        /// The new one.
        id: u64,
    },
    /// It takes the place of one that had not started.
    Replaces {
        /// The one that had not started.
        waiting: u64,
        /// The new one.
        id: u64,
    },
    /// The same claim is here already.
    Known,
    /// A newer claim is here already.
    Stale,
}

#[derive(Default)]
pub(crate) struct Tasks {
    map: HashMap<u64, Task>,
    lanes: HashMap<LaneKey, Lane>,
    last_id: u64,
    /// Current tasks whose pair takes tasks, in order of arrival.
    pub(crate) runnable: VecDeque<u64>,
    /// Current tasks by the place of their pair, which takes none now.
    held: HashMap<usize, VecDeque<u64>>,
    /// Tasks whose results wait for room, in order.
    pub(crate) ended: VecDeque<u64>,
    /// Slots in use.
    pub(crate) running: usize,
}

impl Tasks {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Task> {
        self.map.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut Task> {
        self.map.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Task)> {
        self.map.iter().map(|(id, task)| (*id, task))
    }

    /// Takes a task into its lane.
    pub(crate) fn arrive(
        &mut self,
        claim: Claim,
        pair: usize,
        label: String,
        deadline: Option<Instant>,
        lane_key: LaneKey,
        task: Box<StageTask>,
    ) -> Arrival {
        let id = self.last_id + 1;
        let arrival = match self.lanes.get_mut(&lane_key) {
            None => {
                self.lanes.insert(
                    lane_key.clone(),
                    Lane {
                        current: id,
                        next: None,
                    },
                );
                Arrival::Current(id)
            }
            Some(lane) => {
                let newest = lane.next.unwrap_or(lane.current);
                let same = |id: u64| {
                    self.map.get(&id).is_some_and(|task| {
                        task.claim.token == claim.token && task.claim.epoch == claim.epoch
                    })
                };
                if same(lane.current) || lane.next.is_some_and(same) {
                    return Arrival::Known;
                }
                if self
                    .map
                    .get(&newest)
                    .is_some_and(|task| task.claim.epoch >= claim.epoch)
                {
                    return Arrival::Stale;
                }
                let current = lane.current;
                if matches!(
                    self.map.get(&current).map(|task| &task.state),
                    Some(State::Waiting(_))
                ) {
                    lane.current = id;
                    Arrival::Replaces {
                        waiting: current,
                        id,
                    }
                } else {
                    Arrival::Behind {
                        running: current,
                        overtaken: lane.next.replace(id),
                        id,
                    }
                }
            }
        };
        self.last_id = id;
        self.map.insert(
            id,
            Task {
                claim,
                pair,
                label,
                deadline,
                state: State::Waiting(task),
                lane: lane_key,
            },
        );
        arrival
    }

    /// Forgets a task that was answered. The one that waited behind it is current now and is returned.
    pub(crate) fn remove(&mut self, id: u64) -> Option<u64> {
        let task = self.map.remove(&id)?;
        if matches!(
            task.state,
            State::Running { .. } | State::Ended { slot: true, .. }
        ) {
            self.running -= 1;
        }
        let lane = self.lanes.get_mut(&task.lane)?;
        if lane.next == Some(id) {
            lane.next = None;
        } else if lane.current == id {
            match lane.next.take() {
                Some(next) => {
                    lane.current = next;
                    return Some(next);
                }
                None => {
                    self.lanes.remove(&task.lane);
                }
            }
        }
        None
    }

    /// Puts a current task aside until its pair takes tasks.
    pub(crate) fn hold(&mut self, id: u64, pair: usize) {
        self.held.entry(pair).or_default().push_back(id);
    }

    /// The pair takes tasks: those that were put aside may start.
    pub(crate) fn release(&mut self, pair: usize) {
        if let Some(mut held) = self.held.remove(&pair) {
            self.runnable.append(&mut held);
        }
    }

    /// The running task whose handler has this id on its runtime.
    pub(crate) fn by_handler(&self, handler: tokio::task::Id) -> Option<u64> {
        self.iter()
            .find(|(_, task)| matches!(&task.state, State::Running { abort, .. } if abort.id() == handler))
            .map(|(id, _)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrive(tasks: &mut Tasks, token: &str, epoch: i64) -> Arrival {
        let claim = Claim {
            token: token.to_owned(),
            epoch,
            stage: 2,
        };
        let lane = LaneKey::Resource([1; 16]);
        tasks.arrive(claim, 0, "demo/a".to_owned(), None, lane, Box::default())
    }

    /// Stands for a started handler.
    fn end_waiting(tasks: &mut Tasks, id: u64) {
        tasks.get_mut(id).unwrap().state = State::Ended {
            complete: Box::default(),
            slot: false,
        };
    }

    #[test]
    fn a_newer_claim_overtakes_and_an_older_one_is_stale() {
        let mut tasks = Tasks::default();
        assert!(matches!(arrive(&mut tasks, "a", 5), Arrival::Current(1)));
        assert!(matches!(arrive(&mut tasks, "a", 5), Arrival::Known));
        assert!(matches!(arrive(&mut tasks, "b", 5), Arrival::Stale));
        assert!(matches!(arrive(&mut tasks, "b", 4), Arrival::Stale));
        assert!(matches!(
            arrive(&mut tasks, "c", 6),
            Arrival::Replaces { waiting: 1, id: 2 }
        ));
        assert_eq!(tasks.remove(1), None, "the lane has moved on");
        end_waiting(&mut tasks, 2);
        assert!(matches!(
            arrive(&mut tasks, "d", 7),
            Arrival::Behind {
                running: 2,
                overtaken: None,
                id: 3
            }
        ));
        assert!(matches!(
            arrive(&mut tasks, "e", 8),
            Arrival::Behind {
                running: 2,
                overtaken: Some(3),
                id: 4
            }
        ));
        assert!(matches!(arrive(&mut tasks, "c", 6), Arrival::Known));
        assert_eq!(tasks.remove(3), None);
        assert_eq!(
            tasks.remove(2),
            Some(4),
            "the newest starts when the running one has ended"
        );
        assert_eq!(tasks.remove(4), None);
        assert!(tasks.is_empty());
        assert!(
            matches!(arrive(&mut tasks, "f", 1), Arrival::Current(5)),
            "the lane is gone"
        );
    }
}
