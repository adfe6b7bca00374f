//! How a run ended, and what that means for the task: succeed, fail for good, or try again.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::capture::Captured;
use crate::TaskError;

/// The exit code by which a program says that trying again cannot help.
pub const TERMINAL_EXIT_CODE: i32 = 2;
/// How much of stderr a failure's message quotes.
const MESSAGE_TAIL_BYTES: usize = 2 * 1024;

/// How a program's own process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    pub(super) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Code(-1),
        }
    }
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// By itself.
    Exited,
    /// It ran longer than it may, and was ended.
    TimedOut {
        /// The time it had.
        after: Duration,
    },
    /// Its task was cancelled, and it was ended.
    Cancelled,
    /// It wrote more to stdout than is read, and was killed.
    OutputTooLarge {
        /// The most that is read.
        limit_bytes: usize,
    },
}

/// A run that is over.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// Why it ended.
    pub ending: Ending,
    /// How its own process ended; `None` when it would not die.
    pub exit: Option<Exit>,
    /// What it wrote to stdout.
    pub stdout: Captured,
    /// What it wrote to stderr.
    pub stderr: Captured,
    /// From its start until its tree was gone.
    pub duration: Duration,
    /// Something it left behind still held its pipes when it had exited; what that wrote later is not captured.
    pub drain_truncated: bool,
    /// Processes of its tree that could not be killed.
    pub survivors: Vec<u32>,
}

/// What a failed run means for its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// No retry can help.
    pub terminal: bool,
    /// What happened, what the code means, and the end of stderr.
    pub message: String,
}

impl Finished {
    /// Its exit code, when it returned one.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match self.exit {
            Some(Exit::Code(code)) => Some(code),
            _ => None,
        }
    }

    /// `None` when it exited by itself with 0.
    ///
    /// Exit code 2 and a response that is too large are terminal; any other code, a signal, a timeout and a cancellation may
    /// end differently next time.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let (terminal, what) = match self.ending {
            Ending::Exited => match self.exit {
                Some(Exit::Code(0)) => return None,
                Some(Exit::Code(TERMINAL_EXIT_CODE)) => (
                    true,
                    "exited with code 2, which says that trying again cannot help".to_owned(),
                ),
                Some(Exit::Code(code)) => {
                    (false, format!("exited with code {code}{}", code_hint(code)))
                }
                Some(Exit::Signal(signal)) => (
                    false,
                    format!(
                        "was ended by {}{}",
                        signal_name(signal),
                        signal_hint(signal)
                    ),
                ),
                None => (false, "ended, but how is not known".to_owned()),
            },
            Ending::TimedOut { after } => (
                false,
                format!(
                    "ran longer than its timeout of {} and {}",
                    seconds(after),
                    self.how_it_stopped()
                ),
            ),
            Ending::Cancelled => (
                false,
                format!("was cancelled and {}", self.how_it_stopped()),
            ),
            Ending::OutputTooLarge { limit_bytes } => (
                true,
                format!(
                    "wrote more than {limit_bytes} bytes to stdout, which is the most that is read, and was killed"
                ),
            ),
        };
        let mut message = format!("the program {what}");
        if !self.survivors.is_empty() {
            let pids: Vec<String> = self.survivors.iter().map(u32::to_string).collect();
            message.push_str(&format!("; could not kill {}", pids.join(", ")));
        }
        let tail = self.stderr.text(MESSAGE_TAIL_BYTES);
        let tail = tail.trim();
        if !tail.is_empty() {
            message.push_str("; stderr ends:\n");
            message.push_str(tail);
        }
        Some(Failure { terminal, message })
    }

    fn how_it_stopped(&self) -> String {
        match self.exit {
            Some(Exit::Code(code)) => format!("ended with code {code} when it was asked to"),
            Some(Exit::Signal(9)) => "was killed after its grace period".to_owned(),
            Some(Exit::Signal(signal)) => format!("was ended by {}", signal_name(signal)),
            None => "could not be killed".to_owned(),
        }
    }
}

impl From<Failure> for TaskError {
    fn from(failure: Failure) -> Self {
        if failure.terminal {
            TaskError::terminal(failure.message)
        } else {
            TaskError::transient(failure.message)
        }
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// What a shell means by its high exit codes.
fn code_hint(code: i32) -> String {
    match code {
        126 => " (a command was found but could not be executed: check its permissions)".to_owned(),
        127 => " (a command was not found: check its spelling and the PATH)".to_owned(),
        137 => " (128+9: something in it was killed by SIGKILL, often because memory ran out)"
            .to_owned(),
        129..=192 => format!(
            " (128+{}: something in it was ended by {})",
            code - 128,
            signal_name(code - 128)
        ),
        _ => String::new(),
    }
}

fn signal_hint(signal: i32) -> &'static str {
    match signal {
        9 => " (not sent by this worker: often memory ran out)",
        _ => "",
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(ending: Ending, exit: Exit) -> Finished {
        Finished {
            ending,
            exit: Some(exit),
            stdout: Captured::default(),
            stderr: Captured::default(),
            duration: Duration::ZERO,
            drain_truncated: false,
            survivors: Vec::new(),
        }
    }

    #[test]
    fn codes_and_signals_say_what_they_mean() {
        assert_eq!(finished(Ending::Exited, Exit::Code(0)).failure(), None);
        let cases = [
            (Exit::Code(2), true, "code 2"),
            (Exit::Code(1), false, "code 1"),
            (Exit::Code(126), false, "could not be executed"),
            (Exit::Code(127), false, "not found"),
            (Exit::Code(137), false, "memory"),
            (Exit::Code(143), false, "SIGTERM"),
            (Exit::Signal(9), false, "signal 9 (SIGKILL)"),
            (Exit::Signal(34), false, "signal 34"),
        ];
        for (exit, terminal, text) in cases {
            let failure = finished(Ending::Exited, exit).failure().unwrap();
            assert_eq!(failure.terminal, terminal, "{exit:?}");
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }

    #[test]
    fn only_an_oversized_answer_is_terminal_among_the_cut_runs() {
        let timed_out = finished(
            Ending::TimedOut {
                after: Duration::from_millis(1500),
            },
            Exit::Signal(9),
        )
        .failure()
        .unwrap();
        assert!(
            !timed_out.terminal && timed_out.message.contains("1.5 s"),
            "{}",
            timed_out.message
        );
        assert!(
            !finished(Ending::Cancelled, Exit::Code(0))
                .failure()
                .unwrap()
                .terminal
        );
        assert!(
            finished(Ending::OutputTooLarge { limit_bytes: 9 }, Exit::Signal(9))
                .failure()
                .unwrap()
                .terminal
        );
    }
}
