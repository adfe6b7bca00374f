//! The limits a child sets for itself, which the kernel keeps.
//!
//! Address space on top of what is mapped already (a debug build of a worker is large), no core file, no file written,
//! few descriptors. Processor time is limited by a timer that starts anew with each run (`RLIMIT_CPU` would add up over the
//! runs of a kept-warm child); it also ends a run whose parent is gone. The wall clock is the parent's.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

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

/// Ends this process when a run has used up its processor time.
pub(super) struct RunTimer(Timer);

impl RunTimer {
    pub(super) fn new() -> Result<Self, String> {
        // The signal's default action ends the process, and the parent knows the run by it.
        let signal = SigevNotify::SigevSignal {
            signal: Signal::SIGXCPU,
            si_value: 0,
        };
        Timer::new(ClockId::CLOCK_PROCESS_CPUTIME_ID, SigEvent::new(signal))
            .map(Self)
            .map_err(|err| format!("could not make a timer: {err}"))
    }

    /// A run starts: what runs before it used does not count.
    pub(super) fn start(&mut self) -> std::io::Result<()> {
        let after = Expiration::OneShot(limits::RUN_PROCESSOR_TIME.into());
        Ok(self.0.set(after, TimerSetTimeFlags::empty())?)
    }
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
