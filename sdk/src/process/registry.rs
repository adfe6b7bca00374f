//! Which tasks run programs now, and what becomes of the orphans they leave.
//!
//! A worker that is a subreaper (or PID 1) inherits every process whose parent died below it. Such an orphan belongs to the
//! task its cookie names. Invariants: only unreaped children of this process are signalled or reaped here, so their pids
//! cannot be recycled meanwhile; a child of a live task is left alone; a child in the worker's own process group was started
//! by the embedding program, not by a task, and is left alone; nothing but an exact pid is ever waited for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::cookie::WorkerId;
use super::procfs::{self, Mark};

/// Busy periods remembered, newest last; older ones are merged.
const PERIODS: usize = 128;

/// Set once this process adopts orphans.
static ADOPTING: AtomicBool = AtomicBool::new(false);
/// Two sweeps at once would reap each other's children.
static SWEEPING: Mutex<()> = Mutex::new(());

static TASKS: LazyLock<Mutex<Tasks>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Tasks {
    last: u64,
    live: HashMap<u64, Live>,
    /// Periods (in ticks) in which at least one task was alive, for orphans without a readable cookie.
    busy: VecDeque<(u64, u64)>,
    busy_since: u64,
}

#[derive(Debug)]
struct Live {
    started: u64,
    group: Option<Pid>,
}

fn tasks() -> MutexGuard<'static, Tasks> {
    TASKS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn adopt_orphans() -> bool {
    let adopting = std::process::id() == 1
        || rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok();
    ADOPTING.store(adopting, Ordering::Relaxed);
    adopting
}

/// One task's place in the registry, from before its program starts until its tree is gone.
#[derive(Debug)]
pub(super) struct Place {
    task: u64,
    ended: bool,
}

impl Place {
    pub(super) fn take() -> Self {
        let started = procfs::now_ticks();
        let mut tasks = tasks();
        tasks.last += 1;
        let task = tasks.last;
        if tasks.live.is_empty() {
            tasks.busy_since = started;
        }
        tasks.live.insert(
            task,
            Live {
                started,
                group: None,
            },
        );
        Place { task, ended: false }
    }

    pub(super) fn task(&self) -> u64 {
        self.task
    }

    /// Records the group, so that it can be killed with all others.
    pub(super) fn set_group(&self, group: Pid) {
        if let Some(live) = tasks().live.get_mut(&self.task) {
            live.group = Some(group);
        }
    }

    /// Runs `reap` with no signal to the group possible meanwhile; when it says the leader is reaped the group is forgotten.
    pub(super) fn reap_leader<T>(&self, reap: impl FnOnce() -> Option<T>) -> Option<T> {
        let mut tasks = tasks();
        let reaped = reap();
        if reaped.is_some()
            && let Some(live) = tasks.live.get_mut(&self.task)
        {
            live.group = None;
        }
        reaped
    }

    /// The task is over: from now on its orphans are nobody's.
    pub(super) fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut tasks = tasks();
        tasks.live.remove(&self.task);
        if tasks.live.is_empty() {
            let period = (tasks.busy_since, procfs::now_ticks());
            tasks.remember_busy(period);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}

impl Tasks {
    fn remember_busy(&mut self, (from, to): (u64, u64)) {
        // Start times have the grain of a tick: periods that touch are one.
        if let Some(last) = self.busy.back_mut()
            && from <= last.1 + 1
        {
            last.1 = to;
            return;
        }
        self.busy.push_back((from, to));
        if self.busy.len() > PERIODS
            && let Some(oldest) = self.busy.pop_front()
            && let Some(next) = self.busy.front_mut()
        {
            next.0 = oldest.0;
        }
    }

    /// For a process nobody can be asked about: whether the last task that was alive when it started has ended.
    fn is_left_over(&self, started: u64) -> bool {
        let claimed = self.live.values().any(|live| live.started <= started);
        let somebody_was_alive = self
            .busy
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&started))
            || (!self.live.is_empty() && started >= self.busy_since);
        !claimed && somebody_was_alive
    }
}

/// What one look at the adopted orphans found.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Killed but not yet gone: look again.
    pub(super) dying: Vec<u32>,
}

/// Looks at every adopted orphan once: reaps what ended, kills what no live task owns. `ended` is the task whose background
/// processes go too, although it had asked to keep them.
pub(super) fn sweep(ended: Option<u64>) -> Sweep {
    let mut found = Sweep::default();
    if !ADOPTING.load(Ordering::Relaxed) {
        return found;
    }
    let _one_at_a_time = SWEEPING.lock().unwrap_or_else(PoisonError::into_inner);
    let children = procfs::children_of_first_thread();
    if children.is_empty() {
        return found;
    }
    // 0 for a PID 1 whose group lies outside its namespace, which the safe wrapper of getpgrp cannot say.
    let Some(own_group) = procfs::stat(WorkerId::current().pid).map(|me| me.group) else {
        return found;
    };
    for child in children {
        let (Some(pid), Some(stat)) = (Pid::from_raw(child), procfs::stat(child)) else {
            continue;
        };
        if stat.group == own_group || tasks().live.values().any(|live| live.group == Some(pid)) {
            continue;
        }
        if stat.is_dead() {
            let _ = rustix::process::waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
            );
            continue;
        }
        if is_doomed(child, stat.started, ended) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            found.dying.push(child.unsigned_abs());
        }
    }
    found
}

fn is_doomed(pid: i32, started: u64, ended: Option<u64>) -> bool {
    match procfs::mark(pid) {
        Mark::Of(cookie) if cookie.worker == WorkerId::current() => {
            let live = tasks().live.contains_key(&cookie.task);
            !live && (!cookie.background || ended == Some(cookie.task))
        }
        // A worker that runs as a task's program looks after its own.
        Mark::Of(cookie) if !cookie.worker.is_dead() => false,
        Mark::Of(_) | Mark::Unknown => tasks().is_left_over(started),
    }
}

/// Kills every program of this process, at once and for good: for a second signal, when nothing is waited for any more.
pub(super) fn kill_all() {
    let mut tasks_now = tasks();
    for live in tasks_now.live.values() {
        if let Some(group) = live.group {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
    // Whatever escaped its group is nobody's from here on.
    tasks_now.live.clear();
    drop(tasks_now);
    for _ in 0..3 {
        sweep(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks_with(live: &[u64], busy: &[(u64, u64)]) -> Tasks {
        let mut tasks = Tasks {
            busy_since: live.iter().copied().min().unwrap_or(0),
            ..Tasks::default()
        };
        for period in busy {
            tasks.remember_busy(*period);
        }
        for (task, started) in live.iter().enumerate() {
            tasks.live.insert(
                task as u64,
                Live {
                    started: *started,
                    group: None,
                },
            );
        }
        tasks
    }

    #[test]
    fn an_orphan_without_cookie_goes_when_the_last_task_alive_at_its_start_has_ended() {
        // Started at 10 while only the ended task was alive; one that started at 20 runs on.
        assert!(tasks_with(&[20], &[(5, 12)]).is_left_over(10));
        // The live task was alive already.
        assert!(!tasks_with(&[8], &[(1, 5)]).is_left_over(10));
        // A task that started earlier in the same busy period has ended, a younger one lives.
        let mut tasks = tasks_with(&[20], &[]);
        tasks.busy_since = 5;
        assert!(tasks.is_left_over(10));
        // No task was alive: adopted from elsewhere (PID 1), none of ours.
        assert!(!tasks_with(&[], &[(20, 30)]).is_left_over(10));
        assert!(!tasks_with(&[], &[]).is_left_over(10));
    }

    #[test]
    fn old_busy_periods_are_merged_and_never_lost() {
        let mut tasks = Tasks::default();
        for period in 0..1000_u64 {
            tasks.remember_busy((period * 10, period * 10 + 5));
        }
        assert_eq!(tasks.busy.len(), PERIODS);
        assert!(tasks.is_left_over(3));
        assert!(tasks.is_left_over(9993));
        assert!(!tasks.is_left_over(9998));
    }
}
