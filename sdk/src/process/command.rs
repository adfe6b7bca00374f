//! What to run, with what limits.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

use super::{Environment, Redactions, SpawnError};

/// Longest single argument or variable the kernel takes, without its closing NUL.
const STRING_LIMIT_BYTES: usize = 131_071;
/// How much of a stream is kept when nothing else is said.
const DEFAULT_TAIL_BYTES: usize = 8 * 1024;
/// How long a program may take to end after it was asked to, when nothing else is said.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// The largest response read whole from stdout: a full status (64 MiB) and its envelope fit.
pub const RESPONSE_LIMIT_BYTES: usize = 65 * 1024 * 1024;

/// How a program is asked to end, before it is killed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM to its whole group.
    #[default]
    Terminate,
    /// SIGINT to its whole group, once: for programs that save their work on it.
    Interrupt,
}

/// What to keep of stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    /// The last so many bytes; the program may write any amount.
    Tail(usize),
    /// All of it; a program that writes more than so many bytes is killed.
    Whole(usize),
}

/// Called with each line of stdout, without its newline, at most 1 MiB of it.
pub(super) type LineCallback = Box<dyn FnMut(&str) + Send>;

/// A program to run once, for one task.
pub struct Command {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Environment,
    pub(super) cwd: Option<PathBuf>,
    pub(super) script: Option<Bytes>,
    pub(super) stdin: Option<Bytes>,
    pub(super) stdout: Capture,
    pub(super) stderr_tail: usize,
    pub(super) log_stderr: bool,
    pub(super) on_stdout_line: Option<LineCallback>,
    pub(super) timeout: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) stop: StopSignal,
    pub(super) allow_background: bool,
    pub(super) redactions: Redactions,
}

impl fmt::Debug for Command {
    // Neither arguments nor environment: both may hold secrets, and this ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

impl Command {
    /// A program by path, or by a name that is looked up in the `PATH` of `env`. A relative path is taken from the
    /// worker's own directory. The program is told the whole path it was found at (`argv[0]`).
    pub fn new(program: impl Into<String>, env: Environment) -> Self {
        Command {
            program: program.into(),
            args: Vec::new(),
            env,
            cwd: None,
            script: None,
            stdin: None,
            stdout: Capture::Tail(DEFAULT_TAIL_BYTES),
            stderr_tail: DEFAULT_TAIL_BYTES,
            log_stderr: true,
            on_stdout_line: None,
            timeout: None,
            grace: DEFAULT_GRACE,
            stop: StopSignal::Terminate,
            allow_background: false,
            redactions: Redactions::default(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I>(mut self, args: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// The working directory; the worker's own when nothing is said.
    #[must_use]
    pub fn cwd(mut self, path: impl Into<PathBuf>) -> Self {
        self.cwd = Some(path.into());
        self
    }

    /// Writes `script` to a file in a private directory (0700), which becomes the working directory, and passes the file's
    /// path as the last argument. The directory is removed when the run ends, however it ends.
    #[must_use]
    pub fn script(mut self, script: impl Into<Bytes>) -> Self {
        self.script = Some(script.into());
        self
    }

    /// What the program reads on stdin; without it stdin is empty.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Bytes>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// What to keep of stdout (8 KiB of its end when nothing is said).
    #[must_use]
    pub fn stdout(mut self, capture: Capture) -> Self {
        self.stdout = capture;
        self
    }

    /// How many bytes of the end of stderr to keep (8 KiB when nothing is said).
    #[must_use]
    pub fn stderr_tail(mut self, bytes: usize) -> Self {
        self.stderr_tail = bytes;
        self
    }

    /// Whether lines of stderr go to the task's log as they come (true when nothing is said).
    #[must_use]
    pub fn log_stderr(mut self, log: bool) -> Self {
        self.log_stderr = log;
        self
    }

    /// Calls `each` with every line of stdout as it comes, redacted, without its newline and cut at 1 MiB. It must not block.
    #[must_use]
    pub fn on_stdout_line(mut self, each: impl FnMut(&str) + Send + 'static) -> Self {
        self.on_stdout_line = Some(Box::new(each));
        self
    }

    /// How long the program may run before it is asked to end; `None` is for ever.
    #[must_use]
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long it may take to end after it was asked to, before its group is killed.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How it is asked to end.
    #[must_use]
    pub fn stop_signal(mut self, stop: StopSignal) -> Self {
        self.stop = stop;
        self
    }

    /// Whether what the program started in the background may outlive it. Such a process loses its pipes to the worker.
    #[must_use]
    pub fn allow_background(mut self, allow: bool) -> Self {
        self.allow_background = allow;
        self
    }

    /// Secrets to take out of everything that is captured, logged or handed to a callback.
    #[must_use]
    pub fn redact(mut self, redactions: Redactions) -> Self {
        self.redactions = redactions;
        self
    }

    /// What can be known to fail before anything is started.
    pub(super) fn check(&self) -> Result<(), SpawnError> {
        if self.program.contains('\0') {
            return Err(SpawnError::NulByte {
                field: "the program's name".to_owned(),
            });
        }
        let cwd = self.cwd.as_deref().map(|path| path.as_os_str());
        if cwd.is_some_and(|path| path.as_encoded_bytes().contains(&0)) {
            return Err(SpawnError::NulByte {
                field: "the working directory".to_owned(),
            });
        }
        for (index, arg) in self.args.iter().enumerate() {
            let what = || format!("argument {}", index + 1);
            if arg.contains('\0') {
                return Err(SpawnError::NulByte { field: what() });
            }
            if arg.len() > STRING_LIMIT_BYTES {
                return Err(SpawnError::TooLong {
                    what: what(),
                    bytes: arg.len(),
                });
            }
        }
        for (name, value) in self.env.iter() {
            let bytes = name.len() + 1 + value.len();
            if bytes > STRING_LIMIT_BYTES {
                return Err(SpawnError::TooLong {
                    what: format!("the variable {}", name.display()),
                    bytes,
                });
            }
            let nul = |text: &std::ffi::OsStr| text.as_encoded_bytes().contains(&0);
            if nul(name) || nul(value) {
                return Err(SpawnError::NulByte {
                    field: format!("the variable {}", name.display()),
                });
            }
        }
        Ok(())
    }

    /// All bytes the kernel has to copy, for the message when they are too many together.
    pub(super) fn total_bytes(args: &[String], env: &Environment) -> usize {
        let args: usize = args.iter().map(|arg| arg.len() + 1).sum();
        let env: usize = env
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2)
            .sum();
        args + env
    }
}

/// Where a name without a slash is looked up when the environment has no `PATH`.
pub(super) fn default_path() -> OsString {
    OsString::from("/usr/local/bin:/usr/bin:/bin")
}
