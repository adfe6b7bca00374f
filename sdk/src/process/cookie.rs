//! The mark every program of a task carries in its environment, inherited by all it starts.
//!
//! It names the worker (PID namespace, pid, start time) and the task, so that a sweep can tell whose orphan a process is,
//! and says how the program wants to be stopped, so that the next worker can end what a killed one left behind.
//! A pid alone is never trusted: with its start time and namespace it names one process for as long as the machine is up.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::Duration;

use super::StopSignal;
use super::procfs;

/// The environment variable the cookie rides in.
pub(super) const VARIABLE: &str = "CONVERGE_TASK_COOKIE";

/// One worker process on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorkerId {
    /// Inode of the PID namespace: pids of another namespace mean nothing here.
    pub(super) namespace: u64,
    pub(super) pid: i32,
    /// Clock ticks since boot.
    pub(super) started: u64,
}

impl WorkerId {
    /// This process.
    pub(super) fn current() -> Self {
        static CURRENT: OnceLock<WorkerId> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
            WorkerId {
                namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()),
                pid,
                started: procfs::stat(pid).map_or(0, |stat| stat.started),
            }
        })
    }

    /// Whether that worker is known to be gone. One of another namespace, or that cannot be looked at, counts as alive: its programs would be ended.
    pub(super) fn is_dead(self) -> bool {
        if self.namespace != Self::current().namespace {
            return false;
        }
        match procfs::find(self.pid) {
            Ok(Some(stat)) => stat.started != self.started || stat.is_dead(),
            Ok(None) => true,
            Err(_) => false,
        }
    }
}

/// Whose a process is and how it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cookie {
    pub(super) worker: WorkerId,
    pub(super) task: u64,
    pub(super) stop: StopSignal,
    pub(super) grace: Duration,
    pub(super) background: bool,
}

impl Cookie {
    pub(super) fn encode(&self) -> String {
        let stop = match self.stop {
            StopSignal::Terminate => 't',
            StopSignal::Interrupt => 'i',
        };
        let WorkerId {
            namespace,
            pid,
            started,
        } = self.worker;
        let background = if self.background { "b" } else { "" };
        format!(
            "1.{namespace}.{pid}.{started}.{}.{stop}{}{background}",
            self.task,
            self.grace.as_secs()
        )
    }

    /// `None` for anything this version did not write.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        if parts.next()? != "1" {
            return None;
        }
        let worker = WorkerId {
            namespace: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok().filter(|pid| *pid > 0)?,
            started: parts.next()?.parse().ok()?,
        };
        let task = parts.next()?.parse().ok()?;
        let how = parts.next()?;
        if parts.next().is_some() {
            return None;
        }
        let (stop, rest) = if let Some(rest) = how.strip_prefix('t') {
            (StopSignal::Terminate, rest)
        } else {
            (StopSignal::Interrupt, how.strip_prefix('i')?)
        };
        let (seconds, background) = match rest.strip_suffix('b') {
            Some(seconds) => (seconds, true),
            None => (rest, false),
        };
        Some(Cookie {
            worker,
            task,
            stop,
            grace: Duration::from_secs(seconds.parse().ok()?),
            background,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_reads_back_as_it_was_written() {
        for (stop, background) in [
            (StopSignal::Terminate, false),
            (StopSignal::Interrupt, true),
        ] {
            let cookie = Cookie {
                worker: WorkerId::current(),
                task: 17,
                stop,
                grace: Duration::from_secs(300),
                background,
            };
            assert_eq!(Cookie::parse(&cookie.encode()), Some(cookie));
        }
    }

    #[test]
    fn what_is_not_a_cookie_is_nobodys() {
        for text in [
            "",
            "1",
            "2.1.1.1.1.t5",
            "1.1.0.1.1.t5",
            "1.1.-4.1.1.t5",
            "1.1.1.1.1.x5",
            "1.1.1.1.1.t5.9",
            "1.1.1.1.1.t",
        ] {
            assert_eq!(Cookie::parse(text), None, "{text}");
        }
    }

    #[test]
    fn this_worker_lives_and_one_with_its_pid_but_another_start_is_dead() {
        let me = WorkerId::current();
        assert!(!me.is_dead());
        assert!(
            WorkerId {
                started: me.started + 1,
                ..me
            }
            .is_dead()
        );
        assert!(
            !WorkerId {
                namespace: me.namespace + 1,
                started: 0,
                ..me
            }
            .is_dead()
        );
    }

    /// Runs itself again, in a process of which all descriptors are taken.
    #[test]
    fn a_worker_that_cannot_be_looked_at_is_not_taken_for_dead() {
        const INNER: &str = "CONVERGE_TEST_WITHOUT_DESCRIPTORS";
        if std::env::var_os(INNER).is_some() {
            let me = WorkerId::current();
            let mut taken = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            let dead = me.is_dead();
            drop(taken);
            assert!(!dead);
            return;
        }
        let name =
            "process::cookie::tests::a_worker_that_cannot_be_looked_at_is_not_taken_for_dead";
        let output = std::process::Command::new("sh")
            .args(["-c", "ulimit -n 64; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(INNER, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("1 passed"), "{said}");
    }
}
