//! The limits a child sets for itself, which the kernel keeps.
//!
//! Address space on top of what is mapped already (a debug build of a worker is large), no core file, no file written,
//! few descriptors. There is no limit on processor time: it would add up over the runs of a kept-warm child. The wall
//! clock is the parent's; the alarm here only ends a run whose parent is gone.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::alarm;

use crate::limits;

/// Descriptors: the three of the pipe and what the standard library opens for a moment.
const DESCRIPTORS: u64 = 16;

/// Sets the limits of this process, for good.
pub(super) fn set() -> Result<(), String> {
    let mapped = pages(0).ok_or("could not read /proc/self/statm")?;
    let limits = [
        (
            Resource::RLIMIT_AS,
            mapped.saturating_add(limits::ADDRESS_SPACE_BYTES),
        ),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_NOFILE, DESCRIPTORS),
    ];
    for (resource, limit) in limits {
        setrlimit(resource, limit, limit)
            .map_err(|err| format!("could not set {resource:?} to {limit}: {err}"))?;
    }
    Ok(())
}

/// Holds back what a terminal or a service manager sends to the whole process group. The worker drains then, and runs
/// must go on; this process ends when the worker closes the pipe. Call it on the first thread: the others inherit it.
pub(super) fn hold_back_group_signals() -> Result<(), String> {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGTSTP,
    ] {
        signals.add(signal);
    }
    signals
        .thread_block()
        .map_err(|err| format!("could not block signals: {err}"))
}

/// Lets the kernel end this process if the run that starts now is still going when nobody can be waiting for it.
pub(super) fn start_alarm() {
    alarm::set(limits::ALARM_SECONDS);
}

/// The run has ended.
pub(super) fn stop_alarm() {
    alarm::cancel();
}

/// Memory that is resident now; 0 where the system does not say.
pub(super) fn resident_bytes() -> u64 {
    pages(1).unwrap_or(0)
}

/// A field of `/proc/self/statm`, in bytes.
fn pages(field: usize) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let count: u64 = text.split_ascii_whitespace().nth(field)?.parse().ok()?;
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    count.checked_mul(u64::try_from(size).ok()?)
}
