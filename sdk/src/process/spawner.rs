//! Starts programs on threads of its own.
//!
//! `posix_spawn` blocks its thread until the program was executed, so it runs neither on the thread that sends heartbeats nor
//! on those that run handlers. Nothing here may make std leave the `posix_spawn` path: no `pre_exec`, no `uid()`, and the
//! program always as a path (std forks when it has to search a changed `PATH` itself); a fork costs milliseconds per 100 MB of
//! worker. The threads never end: a parent-death signal, should one ever be set, follows the thread.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{Access, access};
use tokio::sync::oneshot;

use super::command::{self, Command};
use super::cookie::{self, Cookie, WorkerId};
use super::error::{self, SpawnError};
use super::leash::Leash;
use super::registry::Place;
use super::scratch::Scratch;
use super::{Environment, StopSignal};

/// Starts waiting at once. The number of tasks in flight is far below it.
const WAITING: usize = 16 * 1024;

/// The part of a command that starting it needs.
pub(super) struct Launch {
    pub(super) program: String,
    pub(super) args: Vec<String>,
    pub(super) env: Environment,
    pub(super) cwd: Option<PathBuf>,
    pub(super) script: Option<Bytes>,
    pub(super) with_stdin: bool,
    pub(super) stop: StopSignal,
    pub(super) grace: std::time::Duration,
    pub(super) background: bool,
}

impl Launch {
    pub(super) fn of(command: &mut Command) -> Self {
        Launch {
            program: command.program.clone(),
            args: std::mem::take(&mut command.args),
            env: std::mem::replace(&mut command.env, Environment::empty()),
            cwd: command.cwd.take(),
            script: command.script.take(),
            with_stdin: command.stdin.is_some(),
            stop: command.stop,
            grace: command.grace,
            background: command.allow_background,
        }
    }
}

/// A program that runs, with its pipes. Dropping it ends the program.
pub(super) struct Started {
    pub(super) leash: Leash,
    pub(super) pidfd: OwnedFd,
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
}

type Answer = Result<Started, SpawnError>;

struct Queue {
    waiting: Mutex<VecDeque<Waiting>>,
    arrived: Condvar,
}

struct Waiting {
    launch: Launch,
    answer: oneshot::Sender<Answer>,
    decided: Arc<AtomicBool>,
}

/// A program that was asked for.
pub(super) struct Asked {
    answer: oneshot::Receiver<Answer>,
    /// Whoever sets it first has the say: the thread that starts the program, or the caller that no longer wants it.
    decided: Arc<AtomicBool>,
}

impl Asked {
    /// The started program, once it is there. May be dropped and called again until it has answered.
    pub(super) async fn answer(&mut self, program: &str) -> Answer {
        // The sender is dropped unanswered only when a thread that starts programs panicked.
        (&mut self.answer).await.unwrap_or_else(|_| {
            Err(SpawnError::Other {
                program: program.to_owned(),
                source: io::Error::other("the thread that starts programs failed"),
            })
        })
    }

    /// `true` if it will not be started; `false` if it is being started already.
    pub(super) fn withdraw(&self) -> bool {
        !self.decided.swap(true, Ordering::AcqRel)
    }
}

static QUEUE: LazyLock<&'static Queue> = LazyLock::new(|| {
    let queue: &'static Queue = Box::leak(Box::new(Queue {
        waiting: Mutex::new(VecDeque::new()),
        arrived: Condvar::new(),
    }));
    // More than one, so that a program on a file system that hangs does not stop all others.
    let threads = std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(2, 8);
    for number in 0..threads {
        let thread = std::thread::Builder::new().name(format!("converge-spawn-{number}"));
        if let Err(error) = thread.spawn(move || queue.serve()) {
            tracing::error!(%error, "could not start a thread that starts programs");
        }
    }
    queue
});

impl Queue {
    fn serve(&self) {
        loop {
            let Waiting {
                launch,
                answer,
                decided,
            } = {
                let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let mut waiting = self
                    .arrived
                    .wait_while(waiting, |waiting| waiting.is_empty())
                    .unwrap_or_else(PoisonError::into_inner);
                let Some(next) = waiting.pop_front() else {
                    continue;
                };
                next
            };
            if answer.is_closed() || decided.swap(true, Ordering::AcqRel) {
                continue;
            }
            // When the receiver has gone meanwhile, dropping what comes back ends the program.
            let started = catch_unwind(AssertUnwindSafe(|| start(launch)));
            if let Ok(started) = started {
                drop(answer.send(started));
            }
        }
    }
}

/// Asks for a program to be started.
pub(super) fn submit(launch: Launch) -> Result<Asked, SpawnError> {
    let (sender, receiver) = oneshot::channel();
    let decided = Arc::new(AtomicBool::new(false));
    let queue = *QUEUE;
    let mut waiting = queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.len() >= WAITING {
        return Err(SpawnError::Exhausted {
            resource: "places in the queue of programs to start",
            program: launch.program,
            source: io::ErrorKind::WouldBlock.into(),
        });
    }
    waiting.push_back(Waiting {
        launch,
        answer: sender,
        decided: Arc::clone(&decided),
    });
    drop(waiting);
    queue.arrived.notify_one();
    Ok(Asked {
        answer: receiver,
        decided,
    })
}

fn start(launch: Launch) -> Answer {
    let place = Place::take();
    let path = resolve(&launch.program, launch.env.get("PATH"))?;
    let scratch = match &launch.script {
        None => None,
        Some(script) => Some(
            Scratch::create(script)
                .map_err(|(path, source)| error::scratch(&launch.program, path, source))?,
        ),
    };
    let cookie = Cookie {
        worker: WorkerId::current(),
        task: place.task(),
        stop: launch.stop,
        grace: launch.grace,
        background: launch.background,
    };
    // By its path, not by its name: a shell or an interpreter would search the `PATH` for itself again.
    let mut command = std::process::Command::new(&path);
    launch.env.give_to(&mut command);
    command
        .args(&launch.args)
        .env(cookie::VARIABLE, cookie.encode())
        .process_group(0)
        .stdin(if launch.with_stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(scratch) = &scratch {
        command.arg(scratch.script());
    }
    if let Some(cwd) = launch.cwd.as_deref().or(scratch.as_ref().map(Scratch::dir)) {
        command.current_dir(cwd);
        // The worker's own would be wrong; a shell would look for itself, others believe it.
        let inherited = std::env::var_os("PWD");
        if inherited.is_some() && launch.env.get("PWD") == inherited.as_deref() && cwd.is_absolute()
        {
            command.env("PWD", cwd);
        }
    }
    let mut child = command
        .spawn()
        .map_err(|source| explain(&launch, &path, source))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let gone = || SpawnError::Other {
        program: launch.program.clone(),
        source: io::ErrorKind::InvalidData.into(),
    };
    let mut leash = Leash::new(place, child, scratch).ok_or_else(gone)?;
    let pidfd =
        rustix::process::pidfd_open(leash.tree().pid(), rustix::process::PidfdFlags::empty())
            .map_err(|errno| explain(&launch, &path, errno.into()))?;
    Ok(Started {
        leash,
        pidfd,
        stdin,
        stdout,
        stderr,
    })
}

/// Programs found in a `PATH` before: a search costs a look into each directory. (One that is installed further ahead later is
/// seen once the known one is gone, or after a restart.)
static FOUND: Mutex<BTreeMap<(String, OsString), PathBuf>> = Mutex::new(BTreeMap::new());
const FOUND_MOST: usize = 256;

/// The program's path. Searched here, with the `PATH` the program will see; what was found before is only looked at.
fn resolve(program: &str, search: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    if program.contains('/') {
        return search_path(program, search);
    }
    let key = (program.to_owned(), search.unwrap_or_default().to_owned());
    let known = FOUND
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&key)
        .cloned();
    if let Some(path) = known
        && access(&path, Access::EXEC_OK).is_ok()
    {
        return Ok(path);
    }
    let path = search_path(program, search)?;
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if found.len() >= FOUND_MOST {
        found.clear();
    }
    found.insert(key, path.clone());
    Ok(path)
}

fn search_path(program: &str, search: Option<&OsStr>) -> Result<PathBuf, SpawnError> {
    if program.contains('/') {
        // Against the worker's own directory, whatever the program's is going to be.
        return std::path::absolute(program).map_err(|source| SpawnError::Other {
            program: program.to_owned(),
            source,
        });
    }
    let search = search.map_or_else(command::default_path, OsStr::to_owned);
    let mut found = None;
    if !program.is_empty() {
        for dir in std::env::split_paths(&search) {
            let candidate = if dir.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                dir
            }
            .join(program);
            match std::fs::metadata(&candidate) {
                Ok(meta) if meta.is_file() => {
                    if access(&candidate, Access::EXEC_OK).is_ok() {
                        return std::path::absolute(candidate).map_err(|source| {
                            SpawnError::Other {
                                program: program.to_owned(),
                                source,
                            }
                        });
                    }
                    found = Some(candidate);
                }
                _ => {}
            }
        }
    }
    Err(match found {
        Some(path) => SpawnError::ProgramNotExecutable {
            program: path.display().to_string(),
        },
        None => SpawnError::ProgramMissing {
            program: program.to_owned(),
            searched: Some(OsString::from(&search).to_string_lossy().into_owned()),
        },
    })
}

/// What the kernel's few error numbers mean in this case: ENOENT alone has four causes.
fn explain(launch: &Launch, path: &Path, source: io::Error) -> SpawnError {
    use rustix::io::Errno;
    let program = launch.program.clone();
    if let Some(resource) = error::exhausted(&source) {
        return SpawnError::Exhausted {
            resource,
            program,
            source,
        };
    }
    if let Some(cwd) = &launch.cwd
        && let Some(problem) = directory_problem(cwd)
    {
        return SpawnError::WorkingDirectory {
            path: cwd.clone(),
            problem,
        };
    }
    let meta = std::fs::metadata(path);
    let is_dir = meta.as_ref().is_ok_and(std::fs::Metadata::is_dir);
    match Errno::from_io_error(&source) {
        Some(Errno::NOENT | Errno::NOTDIR) if meta.is_ok() => {
            SpawnError::InterpreterMissing { program }
        }
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
            SpawnError::ProgramMissing {
                program,
                searched: None,
            }
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::ISDIR) if is_dir => {
            SpawnError::ProgramIsDirectory { program }
        }
        Some(Errno::ACCESS | Errno::PERM) => SpawnError::ProgramNotExecutable { program },
        Some(Errno::NOEXEC | Errno::LIBBAD) => SpawnError::ProgramFormat { program },
        Some(Errno::TXTBSY) => SpawnError::TextBusy { program },
        Some(Errno::TOOBIG) => SpawnError::TooLong {
            what: "the arguments and variables together".to_owned(),
            bytes: Command::total_bytes(&launch.args, &launch.env),
        },
        _ if source.kind() == io::ErrorKind::InvalidInput => SpawnError::NulByte {
            field: "an argument, a variable or a path".to_owned(),
        },
        _ => SpawnError::Other { program, source },
    }
}

fn directory_problem(path: &Path) -> Option<&'static str> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Some("may not be entered by the worker")
        }
        Err(_) => Some("does not exist"),
        Ok(meta) if !meta.is_dir() => Some("is not a directory"),
        Ok(meta) if meta.mode() & 0o111 == 0 || access(path, Access::EXEC_OK).is_err() => {
            Some("may not be entered by the worker")
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            program: "/bin/true".to_owned(),
            args: Vec::new(),
            env: Environment::empty(),
            cwd: None,
            script: None,
            with_stdin: false,
            stop: StopSignal::Terminate,
            grace: std::time::Duration::ZERO,
            background: false,
        }
    }

    #[test]
    fn a_file_being_written_and_a_full_machine_are_transient() {
        for (errno, exhausted) in [(26, false), (11, true), (12, true), (24, true)] {
            let error = explain(
                &launch(),
                Path::new("/bin/true"),
                io::Error::from_raw_os_error(errno),
            );
            assert!(error.is_transient(), "{error}");
            assert_eq!(error.is_exhaustion(), exhausted, "{error}");
        }
    }

    #[test]
    fn a_bare_name_is_searched_in_the_path_it_will_see() {
        assert!(
            resolve("sh", Some(OsStr::new("/nowhere:/usr/bin:/bin")))
                .unwrap()
                .is_absolute()
        );
        let missing = resolve("sh", Some(OsStr::new("/nowhere")))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/nowhere"), "{missing}");
        assert!(resolve("", None).is_err());
    }
}
