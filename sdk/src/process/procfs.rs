//! What `/proc` says about processes: state, group, start time, task cookie, children.
//!
//! Everything read here may be gone or recycled a moment later; callers decide only over their own unreaped children
//! (whose pids cannot be recycled) or hold a pidfd.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::cookie::{self, Cookie};

/// More environment than a process can be given (the kernel stops at a quarter of the stack limit).
const ENVIRON_LIMIT_BYTES: u64 = 8 * 1024 * 1024;

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) state: u8,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// Clock ticks since boot.
    pub(super) started: u64,
}

impl Stat {
    /// Ended, perhaps not yet reaped.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The command name may hold spaces and parentheses: the last one closes it.
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let session = fields.next()?.parse().ok()?;
        let started = fields.nth(15)?.parse().ok()?;
        Some(Stat {
            state,
            parent,
            group,
            session,
            started,
        })
    }
}

/// `None` when there is no such process, and when it cannot be looked at.
pub(super) fn stat(pid: i32) -> Option<Stat> {
    find(pid).ok().flatten()
}

/// `Ok(None)` only when there is no such process: who cannot look (no descriptor left, no memory) knows nothing of it.
pub(super) fn find(pid: i32) -> io::Result<Option<Stat>> {
    let mut line = [0_u8; 1024];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut line));
    match read {
        Ok(length) => Stat::parse(line.get(..length).unwrap_or_default())
            .map(Some)
            .ok_or_else(|| io::ErrorKind::InvalidData.into()),
        // It was not there, or ended between the two calls.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the environment of a process says about its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// It carries this cookie.
    Of(Cookie),
    /// It carries none, or its environment cannot be read (ended, between fork and exec, other user).
    Unknown,
}

/// Reads the task cookie of a process.
pub(super) fn mark(pid: i32) -> Mark {
    let mut environ = Vec::new();
    let read = File::open(format!("/proc/{pid}/environ"))
        .and_then(|file| file.take(ENVIRON_LIMIT_BYTES).read_to_end(&mut environ));
    if read.is_err() {
        return Mark::Unknown;
    }
    environ
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            std::str::from_utf8(entry.strip_prefix(cookie::VARIABLE.as_bytes())?).ok()
        })
        .find_map(|value| Cookie::parse(value.strip_prefix('=')?))
        .map_or(Mark::Unknown, Mark::Of)
}

/// Every pid on this machine that can be seen from here.
pub(super) fn all_pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// The children of this process's first thread: adopted orphans land there, while programs of tasks are children of the
/// threads that spawned them.
pub(super) fn children_of_first_thread() -> Vec<i32> {
    static LIST: OnceLock<Option<File>> = OnceLock::new();
    let pid = std::process::id();
    let list = LIST.get_or_init(|| File::open(format!("/proc/self/task/{pid}/children")).ok());
    match list {
        Some(file) => read_children(file).unwrap_or_default(),
        // A kernel without CONFIG_PROC_CHILDREN: slower, and it also lists what other threads started.
        None => {
            let me = i32::try_from(pid).unwrap_or(i32::MAX);
            all_pids()
                .into_iter()
                .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == me))
                .collect()
        }
    }
}

fn read_children(file: &File) -> std::io::Result<Vec<i32>> {
    let mut text = Vec::new();
    let mut block = [0_u8; 4096];
    loop {
        let length = file.read_at(&mut block, text.len() as u64)?;
        if length == 0 {
            break;
        }
        text.extend_from_slice(&block[..length]);
    }
    Ok(String::from_utf8_lossy(&text)
        .split_ascii_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect())
}

/// Now, in the unit of [`Stat::started`].
pub(super) fn now_ticks() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * per_second + nanos * per_second / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"42 (a) R (b) S 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            stat,
            Stat {
                state: b'S',
                parent: 7,
                group: 8,
                session: 9,
                started: 12345
            }
        );
    }

    #[test]
    fn this_process_started_in_the_past_and_carries_no_cookie() {
        let me = i32::try_from(std::process::id()).unwrap();
        let stat = stat(me).unwrap();
        assert!(stat.started > 0 && stat.started <= now_ticks());
        assert!(!stat.is_dead());
        assert_eq!(super::stat(i32::MAX), None);
        assert_eq!(mark(i32::MAX), Mark::Unknown);
    }
}
