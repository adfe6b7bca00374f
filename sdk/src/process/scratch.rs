//! Private directories for scripts: made per task, removed however the task ends, and, after a killed worker, by the next one.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::cookie::WorkerId;

const PREFIX: &str = "converge-task-";
const SCRIPT: &str = "script";
/// A name may be taken by a directory that could not be removed; more than a few times is no accident.
const ATTEMPTS: u32 = 16;

/// A private directory. Dropping it removes it, which may take long when a program filled it.
#[derive(Debug)]
pub(super) struct Scratch {
    path: Option<PathBuf>,
}

impl Scratch {
    /// Makes the directory for `task` with `script` in it.
    pub(super) fn create(task: u64, script: &[u8]) -> Result<Self, (PathBuf, io::Error)> {
        let WorkerId {
            namespace,
            pid,
            started,
        } = WorkerId::current();
        let parent = std::env::temp_dir();
        let mut attempt = 0;
        let path = loop {
            let path = parent.join(format!(
                "{PREFIX}{namespace}.{pid}.{started}.{task}.{attempt}"
            ));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => break path,
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS =>
                {
                    attempt += 1
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

    /// Removes the directory when only the script is in it, which takes microseconds. `false`: more is in it.
    pub(super) fn remove_quickly(&mut self) -> bool {
        let Some(path) = &self.path else { return true };
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

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.remove_quickly()
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
