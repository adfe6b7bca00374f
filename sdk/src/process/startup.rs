//! What a worker does before its first task: adopt orphans, close what it inherited, and end what a killed worker left. The last it does
//! again as long as it runs.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::time::{Instant, MissedTickBehavior, sleep};

use super::cookie::{Cookie, WorkerId};
use super::procfs::{self, Mark};
use super::{StopSignal, leash, registry, scratch};

/// How often what was asked to end is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long killed processes may take to disappear.
const KILLED: Duration = Duration::from_secs(2);
/// How often a worker looks whether another one of its machine was killed.
const WATCH: Duration = Duration::from_secs(10);
/// A cookie is written by programs, too: no grace in it holds a worker up for longer.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);

/// What [`prepare_worker`] found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prepared {
    /// Orphans of tasks come to this process, so that none escapes.
    pub adopts_orphans: bool,
    /// Processes of dead workers that were ended.
    pub ended: usize,
    /// Processes of dead workers that could not be ended.
    pub survivors: Vec<u32>,
}

/// Makes this process fit to run programs for tasks. `serve` calls it once, before it connects.
///
/// It makes the process adopt the orphans of its programs (child subreaper), keeps descriptors the worker was started with
/// from being passed on, and ends every process that carries the cookie of a worker that is dead: asked first (SIGTERM, or
/// SIGINT once where the program wants that), killed when its own grace is over. That may take as long as the longest grace;
/// dropping the future leaves the rest running.
///
/// It changes process-wide state. A process that embeds the SDK and calls it must leave the children it starts by itself in
/// its own process group, else they count as orphans.
pub async fn prepare_worker() -> Prepared {
    let adopts_orphans = registry::adopt_orphans();
    if !adopts_orphans {
        tracing::warn!(
            "could not become a child subreaper: programs that leave their process group may outlive their task"
        );
    }
    keep_descriptors();
    let _ = leash::sweeper();
    let (ended, survivors) = clean_up_after_the_dead().await;
    Prepared {
        adopts_orphans,
        ended,
        survivors,
    }
}

/// How many programs of dead workers were ended, and which could not be.
async fn clean_up_after_the_dead() -> (usize, Vec<u32>) {
    let (ended, survivors) = end_left_behind().await;
    let directories = scratch::remove_left_behind();
    if ended > 0 || directories > 0 || !survivors.is_empty() {
        tracing::warn!(
            ended, directories, survivors = ?survivors,
            "cleaned up after a worker that was killed on this machine"
        );
    }
    (ended, survivors)
}

/// Ends, for as long as it is polled, what workers of this machine leave that are killed from now on.
///
/// Their tasks go to other workers once a lease is over (30 s by default), perhaps to this one: what is left of the first run is ended
/// before the second begins, not only when a worker starts.
pub(crate) async fn keep_watch() {
    let mut look = tokio::time::interval_at(Instant::now() + WATCH, WATCH);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        // Every process of the machine is looked at.
        let found = tokio::task::spawn_blocking(|| !left_behind().is_empty()).await;
        if matches!(found, Ok(true)) {
            clean_up_after_the_dead().await;
        }
    }
}

/// Descriptors above stderr that came from whoever started the worker go to no program. (Rust opens its own that way.)
fn keep_descriptors() {
    #[expect(
        unsafe_code,
        reason = "close_range has no safe wrapper; with CLOEXEC it closes nothing and touches no memory"
    )]
    // SAFETY: the call reads three integers and sets a flag on open descriptors.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    if result != 0 {
        tracing::debug!(
            "close_range is not available: descriptors the worker was started with are passed on"
        );
    }
}

struct LeftBehind {
    cookie: Cookie,
    handle: OwnedFd,
}

/// What carries a dead worker's cookie now. Each is held by a pidfd, so that a signal cannot reach another process.
fn left_behind() -> HashMap<i32, LeftBehind> {
    let me = WorkerId::current();
    let mut found = HashMap::new();
    for pid in procfs::all_pids() {
        if pid == me.pid {
            continue;
        }
        let Some(raw) = Pid::from_raw(pid) else {
            continue;
        };
        if !is_left_behind(pid) {
            continue;
        }
        let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else {
            continue;
        };
        // Read again under the handle: the first process may have ended and the pid been taken by another.
        if is_left_behind(pid)
            && let Mark::Of(cookie) = procfs::mark(pid)
        {
            found.insert(pid, LeftBehind { cookie, handle });
        }
    }
    found
}

fn is_left_behind(pid: i32) -> bool {
    let Mark::Of(cookie) = procfs::mark(pid) else {
        return false;
    };
    if cookie.worker == WorkerId::current() || !cookie.worker.is_dead() {
        return false;
    }
    let Some(stat) = procfs::stat(pid) else {
        return false;
    };
    // Of a task that may leave processes in the background, only what still runs in the task's own group is unfinished work.
    let group_runs = || {
        procfs::stat(stat.group)
            .is_some_and(|leader| leader.session != stat.group && !leader.is_dead())
    };
    !stat.is_dead() && (!cookie.background || group_runs())
}

async fn end_left_behind() -> (usize, Vec<u32>) {
    if left_behind().is_empty() {
        return (0, Vec::new());
    }
    // Workers that start together would both send what a program must get once.
    let _only_one = claim_recovery().await;
    let mut asked: HashMap<i32, Instant> = HashMap::new();
    let begun = Instant::now();
    let mut kill_since: Option<Instant> = None;
    loop {
        let left = left_behind();
        asked.retain(|pid, _| {
            left.contains_key(pid) || procfs::stat(*pid).is_none_or(|stat| stat.is_dead())
        });
        if left.is_empty() {
            return (asked.len(), Vec::new());
        }
        let now = Instant::now();
        for (pid, LeftBehind { cookie, handle }) in &left {
            let signal = match cookie.stop {
                StopSignal::Terminate => Signal::TERM,
                StopSignal::Interrupt => Signal::INT,
            };
            match asked.get(pid) {
                None => {
                    // What appears later was forked by something that was asked already; it has the rest of that time.
                    let _ = pidfd_send_signal(handle, signal);
                    asked.insert(*pid, begun + cookie.grace.min(LONGEST_GRACE));
                }
                Some(until) if *until <= now => {
                    let _ = pidfd_send_signal(handle, Signal::KILL);
                    kill_since.get_or_insert(now);
                }
                Some(_) => {}
            }
        }
        let all_due = left
            .keys()
            .all(|pid| asked.get(pid).is_some_and(|until| *until <= now));
        if all_due && kill_since.is_some_and(|since| now.duration_since(since) > KILLED) {
            let survivors: Vec<u32> = left.keys().map(|pid| pid.unsigned_abs()).collect();
            return (asked.len() - survivors.len(), survivors);
        }
        sleep(LOOK).await;
    }
}

/// Held while left-behind programs are ended. An abstract socket: gone with its process, whatever happens to it.
async fn claim_recovery() -> Option<UnixListener> {
    let user = rustix::process::geteuid().as_raw();
    let name = format!("converge-recovery-{user}-{}", WorkerId::current().namespace);
    let address = SocketAddr::from_abstract_name(name).ok()?;
    let limit = Instant::now() + LONGEST_GRACE;
    while Instant::now() < limit {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Some(listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => sleep(LOOK).await,
            Err(_) => return None,
        }
        if left_behind().is_empty() {
            return None;
        }
    }
    None
}
