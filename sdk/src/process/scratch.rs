//! Private directories for scripts: removed however the task ends, and, after a killed worker, by the next one.
//!
//! Making and removing a directory and a file costs a journaling file system 150 µs of CPU and milliseconds of waiting, a tenth
//! of a short script. So a directory in which a task left nothing but its script is renamed to be, within a second, the next
//! task's, whose script is written over the old one: the path of a task is its own and gone when it ends, either way.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cookie::WorkerId;

const PREFIX: &str = "converge-task-";
const SCRIPT: &str = "script";
/// Directories kept for the next tasks, and for how long.
const IDLE: usize = 64;
const IDLE_FOR: Duration = Duration::from_secs(1);
/// A name may be taken by a directory that could not be removed; more than a few times is no accident.
const ATTEMPTS: u32 = 16;

static POOL: Mutex<Vec<Idle>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A directory that the next task gets, at the path it will have then, with the last one's script in it.
struct Idle {
    path: PathBuf,
    since: Instant,
}

fn pool() -> MutexGuard<'static, Vec<Idle>> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path that no task of this worker has had.
fn fresh_path() -> PathBuf {
    let WorkerId {
        namespace,
        pid,
        started,
    } = WorkerId::current();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{namespace}.{pid}.{started}.{number}");
    let path = std::env::temp_dir().join(name);
    // The program runs in the directory: a relative TMPDIR would be looked for below it.
    std::path::absolute(&path).unwrap_or(path)
}

/// Removes the directories that no task wanted: those that wait for a while, or all of them.
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
        let _ = fs::remove_file(path.join(SCRIPT));
        let _ = fs::remove_dir(path);
    }
}

/// A private directory. Dropping it removes it, which may take long when a program filled it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: Option<PathBuf>,
}

impl Scratch {
    /// Makes the directory, or takes one that is kept, with `script` in it.
    pub(super) fn create(script: &[u8]) -> Result<Self, (PathBuf, io::Error)> {
        // The newest first: the others get old enough to be removed.
        let idle = pool().pop();
        if let Some(Idle { path, .. }) = idle {
            let scratch = Scratch { path: Some(path) };
            let written = open_script(&scratch.script(), false)
                .and_then(|file| overwrite(file, scratch.dir(), script));
            // Whatever a cleaner of temporary files did to it: dropping it removes it, and a new one is made.
            if written.is_ok() {
                return Ok(scratch);
            }
        }
        let mut attempt = 0;
        let path = loop {
            let path = fresh_path();
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
        let scratch = Scratch { path: Some(path) };
        let file = scratch.script();
        open_script(&file, true)
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
        if reuse && pool().len() < IDLE && is_as_made(path) {
            let next = fresh_path();
            if fs::rename(path, &next).is_ok() {
                pool().push(Idle {
                    path: next,
                    since: Instant::now(),
                });
                self.path = None;
                return true;
            }
        }
        let _ = fs::remove_file(path.join(SCRIPT));
        match fs::remove_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
        self.path = None;
        true
    }
}

fn open_script(path: &Path, new: bool) -> io::Result<File> {
    // Neither a link nor a pipe that somebody put there is followed or waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new()
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Writes over a script that is still as it was made. Cutting it to nothing first would cost more than writing it.
fn overwrite(mut file: File, dir: &Path, script: &[u8]) -> io::Result<()> {
    let meta = file.metadata()?;
    if !is_private_file(&meta) || !fs::symlink_metadata(dir).is_ok_and(|dir| is_private_dir(&dir)) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    file.write_all(script)?;
    let length = script.len() as u64;
    if meta.len() > length {
        file.set_len(length)?;
    }
    Ok(())
}

/// Nobody but the worker may enter, and nothing is in it but the script, of which there is no other link.
fn is_as_made(path: &Path) -> bool {
    let has_private_script =
        || fs::symlink_metadata(path.join(SCRIPT)).is_ok_and(|script| is_private_file(&script));
    // With a file of that name in it, a directory with one entry has no other.
    let is_alone = || fs::read_dir(path).is_ok_and(|entries| entries.take(2).count() == 1);
    fs::symlink_metadata(path).is_ok_and(|dir| is_private_dir(&dir))
        && has_private_script()
        && is_alone()
}

fn is_private_dir(meta: &fs::Metadata) -> bool {
    meta.is_dir() && meta.permissions().mode() & 0o7777 == 0o700 && is_ours(meta)
}

fn is_private_file(meta: &fs::Metadata) -> bool {
    meta.is_file()
        && meta.nlink() == 1
        && meta.permissions().mode() & 0o7777 == 0o600
        && is_ours(meta)
}

/// A script that runs as root may give what it has to somebody else, who then could write the next one.
fn is_ours(meta: &fs::Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw()
        && meta.gid() == rustix::process::getegid().as_raw()
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
        let ours = entry
            .metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw());
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
        let scratch = Scratch::create(b"echo").unwrap();
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

    /// The pool is the process's: tests that look into it take turns.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn a_directory_left_as_it_was_serves_the_next_task_under_another_path() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first = Scratch::create(b"longer than the next").unwrap();
        let (path, inode) = (first.dir().to_owned(), inode_of(first.dir()));
        assert!(first.remove_quickly(true));
        assert!(!path.exists());
        let second = Scratch::create(b"two").unwrap();
        assert_eq!(inode_of(second.dir()), inode);
        assert_ne!(second.dir(), path);
        assert_eq!(fs::read(second.script()).unwrap(), b"two");
        drop(second);
        remove_idle(true);
    }

    #[test]
    fn a_directory_that_a_task_changed_serves_nobody_and_is_gone() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        type Change = fn(&Path);
        let changes: [(&str, Change); 8] = [
            ("mode of the directory", |dir| {
                fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
            }),
            ("mode of the script", |dir| {
                fs::set_permissions(dir.join(SCRIPT), fs::Permissions::from_mode(0o644)).unwrap();
            }),
            ("a file", |dir| fs::write(dir.join("more"), "x").unwrap()),
            ("a hidden directory", |dir| {
                fs::create_dir(dir.join(".more")).unwrap()
            }),
            ("a second link to the script", |dir| {
                fs::hard_link(dir.join(SCRIPT), dir.with_extension("link")).unwrap();
            }),
            ("no script", |dir| {
                fs::remove_file(dir.join(SCRIPT)).unwrap()
            }),
            ("a link in its place", |dir| {
                fs::remove_file(dir.join(SCRIPT)).unwrap();
                std::os::unix::fs::symlink("/dev/null", dir.join(SCRIPT)).unwrap();
            }),
            ("gone altogether", |dir| fs::remove_dir_all(dir).unwrap()),
        ];
        let given_away: [(&str, Change); 2] = [
            ("owner of the directory", |dir| {
                std::os::unix::fs::chown(dir, Some(65534), None).unwrap();
            }),
            ("owner of the script", |dir| {
                std::os::unix::fs::chown(dir.join(SCRIPT), Some(65534), None).unwrap();
            }),
        ];
        // Only root can give a file away.
        let is_root = rustix::process::geteuid().is_root();
        let changes = changes
            .into_iter()
            .chain(given_away.into_iter().filter(|_| is_root));
        for (what, change) in changes {
            remove_idle(true);
            let mut scratch = Scratch::create(b"one").unwrap();
            let path = scratch.dir().to_owned();
            change(&path);
            scratch.remove_quickly(true);
            assert!(pool().is_empty(), "{what}");
            drop(scratch);
            assert!(!path.exists(), "{what}");
            let link = path.with_extension("link");
            if link.exists() {
                assert_eq!(fs::read(&link).unwrap(), b"one", "{what}");
                fs::remove_file(link).unwrap();
            }
        }
    }

    #[test]
    fn a_kept_directory_that_somebody_removed_is_made_anew() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut first = Scratch::create(b"one").unwrap();
        assert!(first.remove_quickly(true));
        for idle in pool().iter() {
            fs::remove_dir_all(&idle.path).unwrap();
        }
        let second = Scratch::create(b"two").unwrap();
        assert_eq!(fs::read(second.script()).unwrap(), b"two");
        remove_idle(true);
    }

    #[test]
    fn a_kept_directory_that_somebody_changed_is_not_used() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        type Change = fn(&Path);
        let changes: [(&str, Change); 4] = [
            ("a pipe nobody reads", |dir| {
                fs::remove_file(dir.join(SCRIPT)).unwrap();
                let mode = rustix::fs::Mode::from_bits_truncate(0o600);
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, dir.join(SCRIPT), kind, mode, 0).unwrap();
            }),
            ("a link", |dir| {
                fs::remove_file(dir.join(SCRIPT)).unwrap();
                std::os::unix::fs::symlink("/dev/null", dir.join(SCRIPT)).unwrap();
            }),
            ("a second link", |dir| {
                fs::hard_link(dir.join(SCRIPT), dir.join("more")).unwrap();
            }),
            ("a directory others may enter", |dir| {
                fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
            }),
        ];
        for (what, change) in changes {
            remove_idle(true);
            let mut first = Scratch::create(b"one").unwrap();
            assert!(first.remove_quickly(true));
            let kept = pool().last().unwrap().path.clone();
            change(&kept);
            let second = Scratch::create(b"two").unwrap();
            assert_ne!(second.dir(), kept, "{what}");
            assert_eq!(fs::read(second.script()).unwrap(), b"two", "{what}");
            assert!(!kept.exists(), "{what}");
        }
    }

    fn inode_of(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn a_taken_name_is_stepped_over() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        remove_idle(true);
        let next = fresh_path().to_str().unwrap().to_owned();
        let (stem, number) = next.rsplit_once('.').unwrap();
        let taken = PathBuf::from(format!("{stem}.{}", number.parse::<u64>().unwrap() + 1));
        fs::create_dir(&taken).unwrap();
        let scratch = Scratch::create(b"").unwrap();
        assert_ne!(scratch.dir(), taken);
        fs::remove_dir(taken).unwrap();
    }

    #[test]
    fn what_a_dead_worker_left_is_removed_and_what_a_live_one_uses_is_not() {
        let mine = Scratch::create(b"").unwrap();
        let WorkerId {
            namespace,
            pid,
            started,
        } = WorkerId::current();
        let dead =
            std::env::temp_dir().join(format!("{PREFIX}{namespace}.{pid}.{}.1", started + 1));
        fs::create_dir_all(&dead).unwrap();
        assert!(remove_left_behind() >= 1);
        assert!(!dead.exists() && mine.dir().exists());
    }
}
