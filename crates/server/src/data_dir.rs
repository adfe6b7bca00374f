//! The data directory: one process at a time, and where others read what it listens on.
//!
//! The lock is taken before anything in the directory is touched and held until the process ends, however it ends: it is the kernel's.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: Flock<File>,
}

/// The content of `addresses.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Addresses {
    pub(crate) api: String,
    pub(crate) broker: String,
}

impl DataDir {
    /// Makes the directory if there is none, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self> {
        if path.exists() && !path.is_dir() {
            bail!(
                "the data directory {} is a file; choose another --data-dir",
                path.display()
            );
        }
        // What resources and configs hold is in it, secrets of theirs included.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("could not make the data directory {}", path.display()))?;
        let file = path.join("lock");
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file);
        let lock = open.with_context(|| format!("could not open {}", file.display()))?;
        let mut lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut held, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                // Whoever holds it wrote itself into it; an empty name is no reason to hide the refusal.
                let _ = (&mut held).take(200).read_to_string(&mut holder);
                let holder = match holder.trim() {
                    "" => "another process".to_owned(),
                    holder => holder.to_owned(),
                };
                bail!(
                    "the data directory {} is in use by {holder}; stop it, or choose another --data-dir",
                    path.display()
                );
            }
            Err((_, errno)) => {
                return Err(errno).with_context(|| format!("could not lock {}", file.display()));
            }
        };
        let name = format!("converge, process {}\n", std::process::id());
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| lock.write_all(name.as_bytes()));
        if let Err(error) = written {
            // A full disk must not keep the control plane from serving what it has.
            tracing::warn!(%error, "could not write the holder's name into the lock file");
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("converge.db")
    }

    /// Says so when nothing more can be written here.
    pub(crate) fn full(&self) -> Option<String> {
        let disk = nix::sys::statvfs::statvfs(&self.path).ok()?;
        (disk.blocks() > 0 && disk.blocks_available() == 0).then(|| {
            format!(
                "the file system of {} is full: make room, then start again",
                self.path.display()
            )
        })
    }

    fn addresses(&self) -> PathBuf {
        self.path.join("addresses.json")
    }

    /// Nobody shall read the addresses of a process that is gone.
    pub(crate) fn addresses_remove(&self) -> Result<()> {
        let path = self.addresses();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("could not remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Writes the file whole: who reads it reads all of it.
    pub(crate) fn addresses_write(&self, addresses: &Addresses) -> Result<()> {
        let path = self.addresses();
        let text =
            serde_json::to_string(addresses).context("could not write the addresses as JSON")?;
        let write = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.path)?;
            writeln!(file, "{text}")?;
            file.persist(&path)?;
            std::io::Result::Ok(())
        };
        write().with_context(|| format!("could not write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_data_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = DataDir::lock(file.path()).unwrap_err().to_string();
        assert!(error.contains("is a file"), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
    }

    #[test]
    fn a_second_holder_is_told_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::lock(dir.path()).unwrap();
        let error = DataDir::lock(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        drop(held);
        DataDir::lock(dir.path()).unwrap();
    }

    #[test]
    fn addresses_are_replaced_whole_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::lock(dir.path()).unwrap();
        data.addresses_remove().unwrap();
        for api in ["http://127.0.0.1:1", "http://127.0.0.1:2"] {
            let addresses = Addresses {
                api: api.to_owned(),
                broker: "http://127.0.0.1:3".to_owned(),
            };
            data.addresses_write(&addresses).unwrap();
            let text = std::fs::read_to_string(dir.path().join("addresses.json")).unwrap();
            let found: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(found["api"], api);
        }
        data.addresses_remove().unwrap();
        assert!(!dir.path().join("addresses.json").exists());
    }

    #[test]
    fn nobody_else_may_look_into_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let held = DataDir::lock(&dir.path().join("a/b")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&held.path), 0o700);
        assert_eq!(mode(&held.path.join("lock")), 0o600);
    }
}
