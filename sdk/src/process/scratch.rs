//! Private directories for scripts: removed however the task ends, and, after a killed worker, by the next one.
//!
//! Making and removing a directory costs a journaling file system 100 µs of CPU and milliseconds of waiting, a tenth of a
//! short script. So an empty directory that a task left as it was is renamed out of the way and, within a second, renamed
//! to be the next task's: the path of a task is its own and gone when it ends, either way.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cookie::WorkerId;

const PREFIX: &str = "converge-task-";
const SCRIPT: &str = "script";
/// Empty directories kept for the next tasks, and for how long.
const IDLE: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(1);
/// A name may be taken by a directory that could not be removed; more than a few times is no accident.
const ATTEMPTS: u32 = 16;

static POOL: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

struct Idle {
    path: PathBuf,
    since: Instant,
}

fn pool() -> MutexGuard<'static, Vec<Idle>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn path_of(name: std::fmt::Arguments<'_>) -> PathBuf {
    let WorkerId {
        namespace,
        pid,
        started,
    } = WorkerId::current();
    std::env::temp_dir().join(format!("{PREFIX}{namespace}.{pid}.{started}.{name}"))
}

/// Removes the empty directories that no task wanted: those that wait for a while, or all of them.
pub(super) fn remove_idle(all: bool) {
    let now = Instant::now();
    let mut removed = Vec::new();
    pool().retain(|idle| {
        let keep = !all && now.duration_since(idle.since) < IDLE_FOR;
        if !keep {
            removed.push(idle.path.clone());
        }
        keep
    });
    for path in removed {
        let _ = fs::remove_dir(path);
    }
}

/// A private directory. Dropping it removes it, which may take long when a program filled it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: Option<PathBuf>,
}

impl Scratch {
    /// Makes the directory for `task` with `script` in it.
    pub(super) fn create(task: u64, script: &[u8]) -> Result<Self, (PathBuf, io::Error)> {
        let mut attempt = 0;
        let path = loop {
            let path = path_of(format_args!("{task}.{attempt}"));
            // The newest first: the others get old enough to be removed.
            let idle = pool().pop();
            if let Some(idle) = idle
                && fs::rename(&idle.path, &path).is_ok()
            {
                break path;
            }
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(error) => return Err((path, error)),
            }
        };
        let scratch = Scratch {
            path: Some(path.clone()),
        };
        let file = path.join(SCRIPT);
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)
            .and_then(|mut opened| opened.write_all(script))
            .map_err(|error| (file, error))?;
        Ok(scratch)
    }

    pub(super) fn dir(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("/"))
    }

    pub(super) fn script(&self) -> PathBuf {
        self.dir().join(SCRIPT)
    }

    /// Gives the directory up when only the script is in it, which takes microseconds. `false`: more is in it.
    ///
    /// With `reuse` another task may get it: only where nothing of this one can still be in it.
    pub(super) fn remove_quickly(&mut self, reuse: bool) -> bool {
        let Some(path) = &self.path else { return true };
        let _ = fs::remove_file(path.join(SCRIPT));
        if reuse && is_as_made(path) && pool().len() < IDLE {
            let idle = path_of(format_args!(
                "idle.{}",
                NUMBER.fetch_add(1, Ordering::Relaxed)
            ));
            if fs::rename(path, &idle).is_ok() {
                pool().push(Idle {
                    path: idle,
                    since: Instant::now(),
                });
                self.path = None;
                return true;
            }
        }
        match fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
        self.path = None;
        true
    }
}

/// Empty, and nobody but the worker may enter.
fn is_as_made(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o7777 == 0o700)
        && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.remove_quickly(false)
            && let Some(path) = &self.path
            && let Err(error) = remove_tree(path)
        {
            tracing::warn!(path = %path.display(), %error, "could not remove a task's directory");
        }
    }
}

/// Removes a tree even when a program took its own permissions away.
fn remove_tree(path: &Path) -> io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    open_up(path);
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_up(root: &Path) {
    let mut pending = vec![root.to_owned()];
    while let Some(dir) = pending.pop() {
        let _ = fs::set_permissions(&dir, fs::Permissions::from_mode(0o700));
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        pending.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
}

/// Removes the directories that dead workers of this machine left. Returns how many.
pub(super) fn remove_left_behind() -> usize {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return 0;
    };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(owner_of) else {
            continue;
        };
        // Another user's directory, or a link somebody planted, is none of ours.
        let ours = entry.metadata().is_ok_and(|meta| {
            use std::os::unix::fs::MetadataExt;
            meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw()
        });
        if ours && owner.is_dead() && remove_tree(&entry.path()).is_ok() {
            removed += 1;
        }
    }
    removed
}

fn owner_of(name: &str) -> Option<WorkerId> {
    let mut parts = name.strip_prefix(PREFIX)?.split('.');
    let namespace = parts.next()?.parse().ok()?;
    let pid = parts.next()?.parse().ok()?;
    let started = parts.next()?.parse().ok()?;
    Some(WorkerId {
        namespace,
        pid,
        started,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_gone_after_whatever_a_program_did_in_it() {
        let scratch = Scratch::create(u64::MAX, b"echo").unwrap();
        let dir = scratch.dir().to_owned();
        assert_eq!(
            fs::metadata(&dir).unwrap().permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(
            fs::metadata(scratch.script()).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/c"), "x").unwrap();
        fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
        drop(scratch);
        assert!(!dir.exists());
    }

    #[test]
    fn an_empty_directory_serves_the_next_task_and_a_changed_one_does_not() {
        let mut first = Scratch::create(u64::MAX - 3, b"one").unwrap();
        let (path, inode) = (first.dir().to_owned(), inode_of(first.dir()));
        assert!(first.remove_quickly(true));
        assert!(!path.exists());
        let mut second = Scratch::create(u64::MAX - 4, b"two").unwrap();
        assert_eq!(inode_of(second.dir()), inode);
        assert_eq!(fs::read(second.script()).unwrap(), b"two");
        fs::set_permissions(second.dir(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(second.remove_quickly(true));
        assert!(pool().is_empty());
    }

    fn inode_of(path: &Path) -> u64 {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
    }

    #[test]
    fn a_taken_name_is_stepped_over() {
        let first = Scratch::create(u64::MAX - 1, b"").unwrap();
        let second = Scratch::create(u64::MAX - 1, b"").unwrap();
        assert_ne!(first.dir(), second.dir());
    }

    #[test]
    fn what_a_dead_worker_left_is_removed_and_what_a_live_one_uses_is_not() {
        let mine = Scratch::create(u64::MAX - 2, b"").unwrap();
        let WorkerId {
            namespace,
            pid,
            started,
        } = WorkerId::current();
        let dead =
            std::env::temp_dir().join(format!("{PREFIX}{namespace}.{pid}.{}.1.0", started + 1));
        fs::create_dir_all(&dead).unwrap();
        assert!(remove_left_behind() >= 1);
        assert!(!dead.exists() && mine.dir().exists());
    }
}
