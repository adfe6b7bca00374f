//! The worker's data directory: one directory per run, what must outlive a run, and what runs share.
//!
//! ```text
//! runs/<uid>-<n>/      one run; locked while its worker lives, removed at its end
//! kept/<uid>/          an errored.tfstate that must be pushed before anything else
//! trees/<digest>/      what was applied, until the last resource that needs it is destroyed
//! plugins/             the shared plugin cache        locks/  one lock file per shared thing
//! states/              states of a local backend without a path
//! ```
//!
//! Must hold: a run directory with an `errored.tfstate` is never removed before that file is kept elsewhere; a run counts as dead only when
//! its lock is free *and* no process works in it. One machine's workers may share the directory; two machines must not.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::failure::Failure;

/// Dead runs and cached trees older than this are removed by whoever comes by.
const STALE: Duration = Duration::from_secs(30 * 24 * 3600);
/// What Terraform writes when it cannot save a state.
pub(crate) const ERRORED: &str = "errored.tfstate";

/// The data directory.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    root: PathBuf,
}

/// A lock on one shared thing, held until dropped.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl Home {
    /// Opens the directory, making what is missing.
    pub(crate) fn open(root: &Path) -> Result<Self, Failure> {
        let home = Self {
            root: root.to_owned(),
        };
        for part in ["runs", "kept", "trees", "plugins", "locks", "states"] {
            private_directory(&home.root.join(part)).map_err(|error| {
                Failure::disk(
                    format_args!(
                        "the worker cannot make its data directory {}",
                        root.join(part).display()
                    ),
                    &error,
                )
            })?;
        }
        if root.to_str().is_none() {
            return Err(Failure::transient(
                "WorkerDisk",
                "the worker's data directory has a name that is not UTF-8",
            ));
        }
        Ok(home)
    }

    /// Where a local backend without a path keeps its states.
    pub(crate) fn states(root: &Path) -> PathBuf {
        root.join("states")
    }

    /// The shared plugin cache.
    pub(crate) fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// Where an errored state of this resource is kept.
    pub(crate) fn kept(&self, uid: &str) -> PathBuf {
        self.root.join("kept").join(uid).join(ERRORED)
    }

    /// Takes the lock on `name` (letters, digits, `.`, `-`); waits for it without holding a thread.
    pub(crate) async fn lock(&self, name: &str) -> Result<Held, Failure> {
        let path = self.root.join("locks").join(format!("{name}.lock"));
        let failed = |error: &io::Error| {
            Failure::disk(format_args!("cannot lock {}", path.display()), error)
        };
        let file = private_file()
            .create(true)
            .open(&path)
            .map_err(|error| failed(&error))?;
        let mut pause = Duration::from_millis(5);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Held(file)),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(pause).await,
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// Moves the errored state of a run to where it is found again. A state that is kept already is not overwritten.
    pub(crate) fn keep_errored(&self, uid: &str, file: &Path) -> Result<PathBuf, Failure> {
        let kept = self.kept(uid);
        let moved = || -> io::Result<PathBuf> {
            if let Some(parent) = kept.parent() {
                private_directory(parent)?;
            }
            let target = if kept.exists() {
                kept.with_file_name(format!("{ERRORED}.{}", now_ms()))
            } else {
                kept.clone()
            };
            fs::rename(file, &target)?;
            Ok(target)
        };
        moved()
            .map_err(|error| Failure::disk(format_args!("cannot keep {}", file.display()), &error))
    }

    /// Notes that a run of this worker ended without releasing its lock, and when it ran.
    pub(crate) fn note_unreleased(&self, uid: &str, started: SystemTime) {
        let path = self.unreleased_path(uid);
        let noted = path
            .parent()
            .map_or(Ok(()), private_directory)
            .and_then(|()| {
                let mut file = OpenOptions::new()
                    .append(true)
                    .create(true)
                    .mode(0o600)
                    .open(&path)?;
                writeln!(file, "{} {}", ms(started), now_ms())
            });
        if let Err(error) = noted {
            tracing::warn!(path = %path.display(), %error, "it could not be noted that a run left its lock");
        }
    }

    /// When runs of this machine's workers ran that left their locks.
    pub(crate) fn unreleased(&self, uid: &str) -> Vec<Window> {
        let text = fs::read_to_string(self.unreleased_path(uid)).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                let (started, ended) = line.split_once(' ')?;
                Some(Window {
                    started: from_ms(started)?,
                    ended: from_ms(ended)?,
                })
            })
            .collect()
    }

    /// Forgets them: the state was locked and released since.
    pub(crate) fn forget_unreleased(&self, uid: &str) {
        let _ = fs::remove_file(self.unreleased_path(uid));
    }

    fn unreleased_path(&self, uid: &str) -> PathBuf {
        self.root.join("kept").join(uid).join("unreleased")
    }

    /// Forgets everything about a resource that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        let kept = self.root.join("kept").join(uid);
        if !fs::exists(kept.join(ERRORED)).unwrap_or(true) {
            let _ = fs::remove_dir_all(kept);
        }
        self.release_trees(uid, None);
    }

    /// Keeps a copy of what is about to be applied, and lets go of what this resource applied before.
    pub(crate) fn keep_tree(&self, uid: &str, digest: &str, tree: &Path) -> io::Result<()> {
        let entry = self.tree_entry(digest);
        let users = entry.join("users");
        private_directory(&users)?;
        fs::write(users.join(uid), b"")?;
        let target = entry.join("tree");
        if !target.exists() {
            let fresh = entry.join(format!("tree-{}-{}", std::process::id(), unique()));
            copy_tree(tree, &fresh)?;
            // Whoever was first wins; the content is the same.
            if fs::rename(&fresh, &target).is_err() {
                fs::remove_dir_all(&fresh)?;
            }
        }
        Ok(())
    }

    /// Lets go of the trees of this resource except `keep`.
    pub(crate) fn release_trees(&self, uid: &str, keep: Option<&str>) {
        let kept = keep.map(|digest| self.tree_entry(digest));
        for entry in listed(&self.root.join("trees")) {
            if Some(&entry) == kept.as_ref() {
                continue;
            }
            if fs::remove_file(entry.join("users").join(uid)).is_ok()
                && listed(&entry.join("users")).is_empty()
            {
                let _ = fs::remove_dir_all(entry);
            }
        }
    }

    /// The kept copy of what was applied.
    pub(crate) fn tree(&self, digest: &str) -> Option<PathBuf> {
        let tree = self.tree_entry(digest).join("tree");
        (!digest.is_empty() && tree.is_dir()).then_some(tree)
    }

    fn tree_entry(&self, digest: &str) -> PathBuf {
        let name: String = digest
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .take(128)
            .collect();
        self.root.join("trees").join(name)
    }

    /// Removes what nobody came back for.
    pub(crate) fn sweep(&self) {
        let old = |path: &Path| {
            fs::metadata(path)
                .and_then(|meta| meta.modified())
                .ok()
                .and_then(|time| time.elapsed().ok())
                .is_some_and(|age| age > STALE)
        };
        for run in listed(&self.root.join("runs")) {
            if old(&run.join("run.lock"))
                && let Ok(Some(dead)) = DeadRun::open(run)
                && !dead.has_errored()
            {
                dead.remove();
            }
        }
        for entry in listed(&self.root.join("trees")) {
            let users = listed(&entry.join("users"));
            if users.iter().all(|user| old(user)) && old(&entry) {
                let _ = fs::remove_dir_all(entry);
            }
        }
    }

    /// Makes the directory of a run.
    pub(crate) fn new_run(&self, uid: &str) -> Result<RunDirectory, Failure> {
        let path =
            self.root
                .join("runs")
                .join(format!("{uid}-{}-{}", std::process::id(), unique()));
        let make = || -> io::Result<File> {
            private_directory(&path)?;
            let lock = private_file()
                .create_new(true)
                .open(path.join("run.lock"))?;
            lock.try_lock().map_err(io::Error::other)?;
            Ok(lock)
        };
        match make() {
            Ok(lock) => Ok(RunDirectory { path, _lock: lock }),
            Err(error) => Err(Failure::disk(
                format_args!("cannot make {}", path.display()),
                &error,
            )),
        }
    }

    /// What dead workers on this machine left of this resource's runs.
    ///
    /// # Errors
    /// Transient while such a run is not over: its programs still work.
    pub(crate) fn dead_runs(&self, uid: &str) -> Result<Vec<DeadRun>, Failure> {
        let mut dead = Vec::new();
        for path in listed(&self.root.join("runs")) {
            let ours = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| {
                    name.strip_prefix(uid)
                        .is_some_and(|rest| rest.starts_with('-'))
                });
            if !ours {
                continue;
            }
            if let Some(run) = DeadRun::open(path)
                .map_err(|error| Failure::disk("cannot look at a run of a dead worker", &error))?
            {
                if let Some(pid) = works_in(&run.path) {
                    return Err(Failure::transient(
                        "StillEnding",
                        format!(
                            "a run of a worker that was killed is still ending here (process {pid}); it is waited for"
                        ),
                    ));
                }
                dead.push(run);
            }
        }
        Ok(dead)
    }
}

/// The directory of one run, locked while this worker lives; removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file that only this user may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        write_private(&path, text).map_err(|error| {
            Failure::disk(format_args!("cannot write {}", path.display()), &error)
        })?;
        Ok(path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // A state that could not be kept elsewhere stays; whoever comes next for this resource finds it as a dead run's.
        if find_errored(&self.path).is_some() {
            tracing::error!(path = %self.path.display(), "the directory of a run stays: it holds a state that was not saved");
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the directory of a run could not be removed");
        }
    }
}

/// The time between the beginning and the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    started: SystemTime,
    ended: SystemTime,
}

impl Window {
    /// Whether what was made at `time` can be the run's.
    pub(crate) fn holds(&self, time: SystemTime) -> bool {
        // The clock of the file system lags behind by a tick.
        const SLACK: Duration = Duration::from_secs(2);
        time + SLACK >= self.started && time <= self.ended + SLACK
    }
}

/// A run that a dead worker left, and the right to deal with it.
#[derive(Debug)]
pub(crate) struct DeadRun {
    path: PathBuf,
    _lock: File,
    started: SystemTime,
}

impl DeadRun {
    /// Nothing when its worker lives, or another one deals with it.
    fn open(path: PathBuf) -> io::Result<Option<Self>> {
        let lock = match OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.join("run.lock"))
        {
            Ok(lock) => lock,
            // It is just being made, or removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let started = lock.metadata()?.modified()?;
        Ok(Some(Self {
            path,
            _lock: lock,
            started,
        }))
    }

    /// The state it could not save.
    pub(crate) fn errored(&self) -> Option<PathBuf> {
        find_errored(&self.path)
    }

    fn has_errored(&self) -> bool {
        self.errored().is_some()
    }

    /// When it ran: it last wrote shortly before it ended.
    pub(crate) fn window(&self) -> Window {
        let log = self.path.join(LOG_OUT);
        let last = fs::metadata(log)
            .and_then(|meta| meta.modified())
            .unwrap_or(self.started);
        Window {
            started: self.started,
            ended: last + Duration::from_secs(60),
        }
    }

    /// Removes it.
    pub(crate) fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The file Terraform's stdout goes to: a file, because a pipe whose reader dies kills it with the lock held and the state unsaved.
pub(crate) const LOG_OUT: &str = "out.log";

/// The errored state in a run's directory, wherever the module is.
pub(crate) fn find_errored(run: &Path) -> Option<PathBuf> {
    // Terraform writes it to its working directory, which lies in the run's.
    let mut left = vec![run.to_owned()];
    let mut seen = 0;
    while let Some(directory) = left.pop() {
        for path in listed(&directory) {
            seen += 1;
            if seen > 100_000 {
                return None;
            }
            if path.file_name().is_some_and(|name| name == ERRORED) {
                return Some(path);
            }
            if path.is_dir()
                && !path.is_symlink()
                && path.file_name().is_none_or(|name| name != ".terraform")
            {
                left.push(path);
            }
        }
    }
    None
}

/// A process whose working directory lies in `directory`.
fn works_in(directory: &Path) -> Option<u32> {
    let canonical = directory.canonicalize().ok()?;
    listed(Path::new("/proc")).into_iter().find_map(|process| {
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        fs::read_link(process.join("cwd"))
            .ok()?
            .starts_with(&canonical)
            .then_some(pid)
    })
}

/// The paths in a directory; none when it cannot be read.
fn listed(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Writes a new file that only this user may read.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    private_file()
        .create_new(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Copies plain files and directories; anything else is left out.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut left = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = left.pop() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
            if kind.is_dir() {
                fs::create_dir_all(&target)?;
                left.push((entry.path(), target));
            } else if kind.is_file() {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    now_ms()
        .wrapping_mul(1000)
        .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed) % 1000)
}

fn from_ms(text: &str) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(text.parse().ok()?))
}

fn now_ms() -> u64 {
    ms(SystemTime::now())
}

fn ms(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |time| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests;
