//! The hold on one running program and everything it started.
//!
//! While the leader is not reaped its pid, and so its group's number, cannot be recycled: the group is signalled first and
//! the leader reaped after. A leash that is dropped with the program still running (the task's future was dropped) is handed
//! to the sweeper thread, which ends the tree; nothing is left running either way.

use std::process::{Child, ExitStatus};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::StopSignal;
use super::registry::{self, Place};
use super::scratch::{self, Scratch};

/// How long the end of a killed tree is waited for before it is reported as unkillable.
pub(super) const END_LIMIT: Duration = Duration::from_millis(600);
/// How often orphans that nobody waits for are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Trees handed over at once; more are ended where they are dropped.
const HANDED_OVER: usize = 4096;

/// One started program. Dropping it ends the program's tree, without waiting for that.
#[derive(Debug)]
pub(super) struct Leash(Option<Tree>);

/// A program and all it started.
#[derive(Debug)]
pub(super) struct Tree {
    place: Place,
    group: Pid,
    leader: Option<Child>,
    status: Option<ExitStatus>,
    scratch: Option<Scratch>,
    /// The tree is gone, or was let go.
    done: bool,
}

/// What one step towards the end of the tree achieved.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing of the tree is left.
    Gone,
    /// These are left (the group's leader, or escaped processes), as far as they can be named.
    Left(Vec<u32>),
}

impl Leash {
    pub(super) fn new(place: Place, leader: Child, scratch: Option<Scratch>) -> Option<Self> {
        let group = Pid::from_raw(i32::try_from(leader.id()).ok()?)?;
        place.set_group(group);
        Some(Leash(Some(Tree {
            place,
            group,
            leader: Some(leader),
            status: None,
            scratch,
            done: false,
        })))
    }

    /// The tree, to be ended or let go by the caller; it is ended anyway if the caller is dropped before that.
    pub(super) fn tree(&mut self) -> &mut Tree {
        self.0.as_mut().expect("only drop takes it")
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let Some(mut tree) = self.0.take() else {
            return;
        };
        if !tree.done {
            tree.end_step();
        }
        if tree.done && tree.scratch.is_none() {
            return;
        }
        if let Err(mut refused) = hand_over(tree) {
            refused.end_blocking(END_LIMIT);
        }
    }
}

impl Tree {
    pub(super) fn pid(&self) -> Pid {
        self.group
    }

    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Asks the whole group to end.
    pub(super) fn ask_to_stop(&self, how: StopSignal) {
        let signal = match how {
            StopSignal::Terminate => Signal::TERM,
            StopSignal::Interrupt => Signal::INT,
        };
        if self.leader.is_some() {
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }

    /// Kills the group, reaps what can be reaped, and sweeps what escaped. Cheap; repeat until [`Step::Gone`].
    pub(super) fn end_step(&mut self) -> Step {
        let mut left = Vec::new();
        if self.leader.is_some() {
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        }
        if !self.reap_leader() {
            // The task stays in the registry until then: what escaped is looked at once the leader is gone.
            return Step::Left(vec![self.group.as_raw_nonzero().get().unsigned_abs()]);
        }
        self.place.end();
        left.extend(registry::sweep(Some(self.place.task())).dying);
        if rustix::process::test_kill_process_group(self.group).is_ok() {
            // Members forked while the signal was delivered; the number is in use by them, so it is still theirs.
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
            if left.is_empty() {
                left.push(self.group.as_raw_nonzero().get().unsigned_abs());
            }
        }
        if left.is_empty() {
            self.done = true;
            return Step::Gone;
        }
        Step::Left(left)
    }

    /// Ends the whole tree; gives the pids that would not die within the limit.
    pub(super) async fn end(&mut self) -> Vec<u32> {
        let deadline = Instant::now() + END_LIMIT;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.end_step() {
                Step::Gone => return Vec::new(),
                Step::Left(pids) if Instant::now() >= deadline => return pids,
                Step::Left(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Reaps the leader and lets what it left in the background live.
    pub(super) fn let_go(&mut self) {
        if self.reap_leader() {
            self.place.end();
            self.done = true;
        }
    }

    /// Removes the private directory; a full one off this thread. `reuse` as in [`Scratch::remove_quickly`].
    pub(super) async fn remove_scratch(&mut self, reuse: bool) {
        let Some(mut scratch) = self.scratch.take() else {
            return;
        };
        if !scratch.remove_quickly(reuse && sweeper().is_some()) {
            let removal = tokio::task::spawn_blocking(move || drop(scratch));
            // A panic or a shutdown of the runtime: the drop has run or runs with the closure's.
            let _ = removal.await;
        }
    }

    /// `true` once the leader is reaped.
    fn reap_leader(&mut self) -> bool {
        let Some(leader) = &mut self.leader else {
            return true;
        };
        // An error means that somebody else reaped it, which leaves nothing to wait for.
        let reaped = self.place.reap_leader(|| match leader.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(Some(status)),
            Err(_) => Some(None),
        });
        if let Some(status) = reaped {
            self.status = status;
            self.leader = None;
        }
        self.leader.is_none()
    }

    fn end_blocking(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while let Step::Left(_) = self.end_step() {
            if Instant::now() >= deadline {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Gives a tree to the sweeper thread, or back when it takes no more.
fn hand_over(tree: Tree) -> Result<(), Box<Tree>> {
    match sweeper() {
        Some(sender) => sender
            .try_send(Box::new(tree))
            .map_err(|error| match error {
                std::sync::mpsc::TrySendError::Full(tree)
                | std::sync::mpsc::TrySendError::Disconnected(tree) => tree,
            }),
        None => Err(Box::new(tree)),
    }
}

/// Starts the sweeper thread if it does not run yet.
pub(super) fn sweeper() -> Option<&'static SyncSender<Box<Tree>>> {
    static SWEEPER: OnceLock<Option<SyncSender<Box<Tree>>>> = OnceLock::new();
    SWEEPER
        .get_or_init(|| {
            let (sender, receiver) = sync_channel::<Box<Tree>>(HANDED_OVER);
            let thread = std::thread::Builder::new().name("converge-sweep".to_owned());
            thread
                .spawn(move || {
                    let mut stubborn: Vec<Box<Tree>> = Vec::new();
                    loop {
                        match receiver.recv_timeout(SWEEP_INTERVAL) {
                            Ok(tree) => stubborn.push(tree),
                            Err(RecvTimeoutError::Timeout) => {
                                registry::sweep(None);
                            }
                            Err(RecvTimeoutError::Disconnected) => return,
                        }
                        scratch::remove_idle(false);
                        stubborn.retain_mut(|tree| !finish(tree));
                    }
                })
                .ok()
                .map(|_| sender)
        })
        .as_ref()
}

/// `true` when nothing of it is left, so that it can be dropped.
fn finish(tree: &mut Tree) -> bool {
    if !tree.done {
        tree.end_blocking(Duration::from_millis(100));
    }
    tree.done
}
