//! The parent's side: a few child processes kept warm, and what their ends mean.
//!
//! What must hold: at most as many children as cores; a child serves one run at a time and is put back only after it
//! answered in full and said that it is well; a run that takes too long, is cancelled or dropped kills its child. How a
//! child ended decides whether the program is to blame (terminal) or the machine (transient).

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::protocol::{self, Composed, HEADER_BYTES, Tag};
use crate::{CHILD_ARGUMENT, limits};

/// Why a run gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The program, its input or what it returned is wrong.
    #[error("{0}")]
    Refused(String),
    /// The program ran over a bound.
    #[error("{0}")]
    OverLimit(String),
    /// No child could be started, or it was ended from outside. Another try may succeed.
    #[error("{0}")]
    Unavailable(String),
}

/// Which program to start as a child.
#[derive(Debug, Clone)]
pub(crate) struct ChildProgram {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<OsString>,
}

impl ChildProgram {
    /// The running binary itself. `/proc/self/exe` is the same file even after an upgrade has replaced it on disk.
    pub(crate) fn this_binary() -> io::Result<Self> {
        let path = if cfg!(target_os = "linux") {
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe()?
        };
        Ok(Self::at(path))
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        Self {
            path,
            arguments: vec![CHILD_ARGUMENT.into()],
        }
    }
}

/// Children, kept warm.
#[derive(Debug)]
pub(crate) struct Pool {
    program: ChildProgram,
    /// One per child that may exist. The queue is fair.
    permits: Semaphore,
    /// For programs not known to be good: one child fewer, where there is more than one. So however many programs attack at
    /// once, those that have shown themselves good still have a child.
    newcomers: Semaphore,
    /// Programs whose last run was short. The most recent last.
    good: Mutex<VecDeque<u64>>,
    /// The most recently used last: under light load the others stay paged out.
    idle: Mutex<Vec<Worker>>,
}

impl Pool {
    pub(crate) fn new(program: ChildProgram) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            program,
            permits: Semaphore::new(cores),
            newcomers: Semaphore::new(cores.saturating_sub(1).max(1)),
            good: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Runs one encoded request of a program; `print` gets the program's lines as they come.
    pub(crate) async fn run(
        &self,
        program: u64,
        request: &[u8],
        print: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Composed, RunError> {
        let closed = |_| RunError::Unavailable("the pool is closed".into());
        let _newcomer = match self.is_good(program) {
            true => None,
            false => Some(self.newcomers.acquire().await.map_err(closed)?),
        };
        let _permit = self.permits.acquire().await.map_err(closed)?;
        let start = Instant::now();
        let result = self.run_now(request, print).await;
        let is_good = match &result {
            Ok(_) | Err(RunError::Refused(_)) => start.elapsed() < limits::GOOD_TIME,
            Err(RunError::OverLimit(_)) => false,
            // It says nothing about the program.
            Err(RunError::Unavailable(_)) => return result,
        };
        self.remember(program, is_good);
        result
    }

    async fn run_now(
        &self,
        request: &[u8],
        print: &mut (dyn FnMut(&str) + Send),
    ) -> Result<Composed, RunError> {
        let mut outside = String::new();
        // A kept-warm child may have been ended by somebody since its last run; that is no fault of this run.
        for _ in 0..2 {
            let mut worker = match self.take() {
                Some(worker) => worker,
                None => Worker::start(&self.program).await?,
            };
            let failed = match timeout(limits::RUN_TIME, worker.exchange(request, print)).await {
                Ok(Ok(answer)) => {
                    if answer.keep && worker.runs < limits::RUNS_PER_CHILD {
                        self.give(worker);
                    }
                    return answer.result;
                }
                Ok(Err(failed)) => failed,
                Err(_) => {
                    worker.kill().await;
                    return Err(RunError::OverLimit(too_long()));
                }
            };
            match worker.post_mortem(&failed).await {
                Death::Program(text) => return Err(RunError::OverLimit(text)),
                Death::Outside(text) => outside = text,
            }
        }
        Err(RunError::Unavailable(outside))
    }

    fn is_good(&self, program: u64) -> bool {
        self.good
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&program)
    }

    fn remember(&self, program: u64, is_good: bool) {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let place = good.iter().position(|known| *known == program);
        match (place, is_good) {
            (None, true) => {
                if good.len() >= limits::GOOD_PROGRAMS {
                    good.pop_front();
                }
                good.push_back(program);
            }
            (Some(place), false) => {
                good.remove(place);
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    fn take(&self) -> Option<Worker> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }

    fn give(&self, worker: Worker) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(worker);
    }

    /// The process ids of the children that wait for work.
    pub(crate) fn idle_ids(&self) -> Vec<u32> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.iter().filter_map(|worker| worker.child.id()).collect()
    }
}

fn too_long() -> String {
    format!(
        "the program took longer than {} s, in one operation that could not be interrupted",
        limits::RUN_TIME.as_secs_f32()
    )
}

fn too_much_time() -> String {
    format!(
        "the program used more than {} s of processor time, in one operation that could not be interrupted",
        limits::RUN_PROCESSOR_TIME.as_secs_f32()
    )
}

/// One child. Dropping it kills the process. It stays in the worker's process group: groups of their own are what the
/// programs of tasks have, and what is looked through for leftovers. Signals meant for the group it holds back itself.
#[derive(Debug)]
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    runs: u32,
}

struct Answer {
    result: Result<Composed, RunError>,
    keep: bool,
}

enum Death {
    Program(String),
    Outside(String),
}

impl Worker {
    async fn start(program: &ChildProgram) -> Result<Self, RunError> {
        let unavailable = |what: &str, err: io::Error| {
            RunError::Unavailable(format!(
                "could not {what} an evaluation process ({}): {err}",
                program.path.display()
            ))
        };
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            // Nothing of the worker's environment is of use to a program, and much of it is secret. One arena keeps the
            // address space for the program's values.
            .env_clear()
            .env("MALLOC_ARENA_MAX", "1")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|err| unavailable("start", err))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unavailable("connect", io::Error::other("no pipe")));
        };
        let mut worker = Self {
            child,
            input,
            output: BufReader::new(output),
            runs: 0,
        };
        let ready = async {
            match worker.read().await? {
                (Tag::Ready, _) => Ok(()),
                _ => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it said something else",
                )),
            }
        };
        match timeout(limits::START_TIME, ready).await {
            Ok(Ok(())) => Ok(worker),
            Ok(Err(err)) => {
                let told = worker.last_words().await;
                Err(RunError::Unavailable(format!(
                    "an evaluation process ended as it started: {err}{told}"
                )))
            }
            Err(_) => {
                worker.kill().await;
                Err(RunError::Unavailable(format!(
                    "an evaluation process was not ready within {} s (does main begin with stdstarlark::enter_child_if_asked()?)",
                    limits::START_TIME.as_secs()
                )))
            }
        }
    }

    async fn exchange(
        &mut self,
        request: &[u8],
        print: &mut (dyn FnMut(&str) + Send),
    ) -> io::Result<Answer> {
        self.runs += 1;
        self.input
            .write_all(&protocol::header(Tag::Request, request.len())?)
            .await?;
        self.input.write_all(request).await?;
        self.input.flush().await?;
        loop {
            let (tag, body) = self.read().await?;
            let text = || String::from_utf8_lossy(&body).into_owned();
            let (result, keep) = match tag {
                Tag::Print => {
                    print(&String::from_utf8_lossy(&body));
                    continue;
                }
                Tag::Composed => {
                    let composed: Composed = serde_json::from_slice(&body)?;
                    let keep = !composed.retire;
                    (Ok(composed), keep)
                }
                Tag::Refused => (Err(RunError::Refused(text())), true),
                Tag::OverLimit => (Err(RunError::OverLimit(text())), false),
                Tag::Ready | Tag::Request => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "unexpected frame",
                    ));
                }
            };
            return Ok(Answer { result, keep });
        }
    }

    async fn read(&mut self) -> io::Result<(Tag, Vec<u8>)> {
        let mut head = [0; HEADER_BYTES];
        self.output.read_exact(&mut head).await?;
        let (tag, length) = protocol::parse_header(head)?;
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).await?;
        Ok((tag, body))
    }

    async fn kill(&mut self) {
        // It may have ended by itself; either way it is reaped here.
        let _ = self.child.kill().await;
    }

    /// The pipe broke: how did the child end?
    async fn post_mortem(mut self, failed: &io::Error) -> Death {
        const DYING: Duration = Duration::from_secs(1);
        let ended = match timeout(DYING, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(err)) => Err(err.to_string()),
            Err(_) => {
                self.kill().await;
                Err(format!("it broke off ({failed}) and did not end"))
            }
        };
        let told = self.last_words().await;
        match ended {
            Ok(status) => classify(status, &told),
            Err(what) => Death::Outside(format!("an evaluation process failed: {what}{told}")),
        }
    }

    /// What it wrote to stderr, bounded.
    async fn last_words(&mut self) -> String {
        const BYTES: u64 = 2_000;
        const PATIENCE: Duration = Duration::from_millis(500);
        let Some(stderr) = self.child.stderr.take() else {
            return String::new();
        };
        let mut told = Vec::new();
        let _ = timeout(PATIENCE, stderr.take(BYTES).read_to_end(&mut told)).await;
        let told = String::from_utf8_lossy(&told);
        if told.trim().is_empty() {
            String::new()
        } else {
            format!(": {}", told.trim())
        }
    }
}

/// What a program is told that asked for more memory than there is for it.
pub(crate) fn out_of_memory() -> String {
    format!(
        "the program used more memory than the {} MiB it may have",
        limits::ADDRESS_SPACE_BYTES >> 20
    )
}

/// Whether a panic or an abort says that a value was larger than it can be, or than there was room for. The last is what a
/// debug build says where the interpreter does not look whether an allocation succeeded; a release build ends by SIGSEGV.
pub(crate) fn tells_of_memory(text: &str) -> bool {
    [
        "out of memory",
        "memory allocation",
        "capacity overflow",
        "AlignedSize",
        "pointer is non-null",
    ]
    .iter()
    .any(|part| text.contains(part))
}

fn classify(status: ExitStatus, told: &str) -> Death {
    match status.signal().map(Signal::try_from) {
        Some(Ok(Signal::SIGABRT)) if told.contains("overflowed its stack") => Death::Program(
            "the program, or a value it made, nests deeper than the interpreter can follow".into(),
        ),
        Some(Ok(Signal::SIGABRT)) if tells_of_memory(told) => Death::Program(out_of_memory()),
        Some(Ok(Signal::SIGXCPU)) => Death::Program(too_much_time()),
        Some(Ok(
            signal @ (Signal::SIGABRT
            | Signal::SIGSEGV
            | Signal::SIGBUS
            | Signal::SIGILL
            | Signal::SIGTRAP
            | Signal::SIGFPE),
        )) => Death::Program(format!(
            "the program crashed the interpreter, most likely for want of memory ({signal}){told}"
        )),
        Some(Ok(signal)) => Death::Outside(format!(
            "the evaluation process was ended from outside ({signal}){told}"
        )),
        _ => Death::Outside(format!(
            "the evaluation process ended early ({status}){told}"
        )),
    }
}
