//! How large the WAL is, asked after every commit, and when it is to be cut.
//!
//! Not by `stat`: from Linux 6.13 on, a file whose times were asked for gets new ones with its next write, however soon that comes
//! (<https://docs.kernel.org/filesystems/multigrain-ts.html>). Where `fdatasync` then has the inode written besides the data, as on ext4
//! without a journal (seen with Linux 6.18), asking after every commit was a third request to the disk for each of them. Where a
//! descriptor ends is found without the times.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a WAL that readers kept from being cut is left alone.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Wal {
    path: PathBuf,
    /// Opened when it is first asked for. SQLite keeps its locks elsewhere, so closing this gives up none of them.
    file: Option<File>,
    limit_bytes: u64,
    next_cut: Instant,
}

impl Wal {
    pub(crate) fn new(path: PathBuf, limit_bytes: u64) -> Self {
        Self {
            path,
            file: None,
            limit_bytes,
            next_cut: Instant::now(),
        }
    }

    /// Its size when it has grown over the limit and may be cut.
    pub(crate) fn grown(&mut self) -> Option<u64> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let size = self.file.as_mut()?.seek(SeekFrom::End(0)).ok()?;
        (size > self.limit_bytes && Instant::now() >= self.next_cut).then_some(size)
    }

    /// Cutting it did not work out.
    pub(crate) fn put_off(&mut self) {
        self.next_cut = Instant::now() + AGAIN;
    }
}
