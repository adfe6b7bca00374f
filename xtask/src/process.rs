//! Children that are gone when their handle is: own process group, output in a log file, SIGTERM, a grace, SIGKILL.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::interrupt;

/// A running child. Dropping it stops it.
pub(crate) struct Process {
    child: Child,
    grace: Duration,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in its own process group (a Ctrl-C on the terminal reaches us, not it), stdout and stderr going to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path, grace: Duration) -> Result<Self> {
        let file =
            File::create(log).with_context(|| format!("could not create {}", log.display()))?;
        let twin = file
            .try_clone()
            .with_context(|| format!("could not open {} twice", log.display()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(twin)
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not start {program}"))?;
        Ok(Self {
            child,
            grace,
            log: log.to_owned(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Its exit status if it has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .context("could not ask for a child's status")
    }

    /// Asks it to end, waits for the grace period, then kills its group.
    pub(crate) fn stop(&mut self) {
        let Ok(id) = i32::try_from(self.child.id()) else {
            return;
        };
        let pid = Pid::from_raw(id);
        if let Ok(None) = self.child.try_wait() {
            // An error means that it ended in between, which is what we want.
            let _ = kill(pid, Signal::SIGTERM);
            let limit = Instant::now() + self.grace;
            while Instant::now() < limit
                && !interrupt::urgent()
                && matches!(self.child.try_wait(), Ok(None))
            {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else {
            return;
        }
        if let Ok(None) = self.child.try_wait() {
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The last `lines` lines of a log, for an error message.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| format!("  {line}\n"))
        .collect()
}

/// CPU time used so far by a process and the children it has reaped, from `/proc`.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_whitespace()
        .collect();
    // utime, stime, cutime, cstime are fields 14 to 17; the two before `)` are cut off.
    let ticks: u64 = fields
        .get(11..15)
        .unwrap_or_default()
        .iter()
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|n| u64::try_from(n).ok())
        .unwrap_or(100);
    Ok(Duration::from_millis(ticks * 1000 / per_second.max(1)))
}

/// Resident memory of a process in bytes, from `/proc`.
pub(crate) fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("no VmRSS line")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .context("VmRSS is not a number")?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_process_ends_it_and_its_group_even_if_it_ignores_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script = format!(
            "trap '' TERM; sleep 1000 & echo $! > {0}.part; mv {0}.part {0}; wait; wait",
            ready.display()
        );
        let process = Process::start(
            Command::new("bash").args(["-c", &script]),
            &dir.path().join("log"),
            Duration::from_millis(50),
        )
        .unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while !ready.exists() {
            assert!(Instant::now() < limit, "the script did not start");
            std::thread::yield_now();
        }
        let grandchild: i32 = std::fs::read_to_string(&ready)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        drop(process);
        // Killed, but perhaps not yet reaped by init: a zombie is gone for our purpose.
        let gone = || {
            std::fs::read_to_string(format!("/proc/{grandchild}/stat"))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(Instant::now() < limit, "the grandchild lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn cpu_and_memory_of_this_process_can_be_read() {
        assert!(resident(std::process::id()).unwrap() > 100_000);
        cpu(std::process::id()).unwrap();
        assert!(cpu(u32::MAX).is_err());
    }
}
