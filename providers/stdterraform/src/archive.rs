//! A `.tar.gz` unpacked into a directory that nothing of it can leave.
//!
//! Owns the caps and the rules: plain files and directories only, relative paths without `..`, nothing twice. Must hold: a refused archive is
//! terminal and names the entry; owners, times and all of the modes but "executable" are dropped. The `tar` crate's own `unpack` is not used: it skips
//! what it should refuse, and makes links that point outside.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::EntryType;

/// How much of an archive is taken.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the archive as it comes. 256 MiB.
    pub packed_bytes: u64,
    /// Bytes it unpacks to. 1 GiB.
    pub unpacked_bytes: u64,
    /// Files and directories. 20,000.
    pub entries: usize,
    /// Bytes of one path. 1,024.
    pub path_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packed_bytes: 256 << 20,
            unpacked_bytes: 1 << 30,
            entries: 20_000,
            path_bytes: 1024,
        }
    }
}

/// Why an archive was not unpacked.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The archive is not acceptable as it is.
    Bad(String),
    /// The disk could not take it.
    Disk(io::Error),
}

/// Counts what the decompressor gives, headers and padding included: tar's own sizes are claims.
struct Counted<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other("the archive unpacks to more than is taken"))?;
        Ok(count)
    }
}

/// Unpacks `archive` into `target`, which must exist and be empty.
pub(crate) fn unpack(archive: &Path, target: &Path, limits: Limits) -> Result<(), Refused> {
    let file = File::open(archive).map_err(Refused::Disk)?;
    let decoder = MultiGzDecoder::new(io::BufReader::new(file));
    let counted = Counted {
        inner: decoder,
        left: limits.unpacked_bytes,
    };
    let mut archive = tar::Archive::new(counted);
    let bad_read = |error: io::Error| Refused::Bad(format!("cannot be read as .tar.gz: {error}"));
    let mut seen = HashSet::new();
    let mut count = 0;
    for entry in archive.entries().map_err(bad_read)? {
        let mut entry = entry.map_err(bad_read)?;
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        count += 1;
        if count > limits.entries {
            return Err(Refused::Bad(format!(
                "holds more than {} entries",
                limits.entries
            )));
        }
        let shown = shown(&entry.path_bytes());
        let refuse = |why: &str| Refused::Bad(format!("entry {shown} {why}"));
        match kind {
            EntryType::Regular | EntryType::Directory => {}
            EntryType::Symlink | EntryType::Link => {
                return Err(refuse("is a link; only files and directories are taken"));
            }
            _ => {
                return Err(refuse(
                    "is no plain file; only files and directories are taken",
                ));
            }
        }
        let path = {
            let bytes = entry.path_bytes();
            relative(&bytes, limits.path_bytes).map_err(refuse)?
        };
        let Some(path) = path else { continue };
        if !seen.insert(path.clone()) && kind != EntryType::Directory {
            return Err(refuse("is there twice"));
        }
        let full = target.join(&path);
        if kind == EntryType::Directory {
            fs::create_dir_all(&full).map_err(|error| conflict(error, &refuse))?;
            continue;
        }
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(|error| conflict(error, &refuse))?;
        }
        let mut options = OpenOptions::new();
        // Of the mode only this is kept: a module may bring a script that a provisioner runs.
        let executable = entry.header().mode().is_ok_and(|mode| mode & 0o100 != 0);
        options
            .write(true)
            .create_new(true)
            .mode(if executable { 0o755 } else { 0o644 });
        let mut out = options
            .open(&full)
            .map_err(|error| conflict(error, &refuse))?;
        copy(&mut entry, &mut out).map_err(|error| match error {
            CopyError::Read(error) => bad_read(error),
            CopyError::Write(error) => Refused::Disk(error),
        })?;
    }
    if count == 0 {
        return Err(Refused::Bad("is empty".to_owned()));
    }
    // The rest of the stream is read too: its checksum says whether the archive is whole.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(bad_read)?;
    Ok(())
}

/// A directory in the place of a file, or the other way round, is the archive's fault.
fn conflict(error: io::Error, refuse: &dyn Fn(&str) -> Refused) -> Refused {
    match error.kind() {
        io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory => {
            refuse("is a file and a directory at once, or is there twice")
        }
        io::ErrorKind::InvalidFilename => refuse("has a name that is too long"),
        _ => Refused::Disk(error),
    }
}

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<(), CopyError> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count]).map_err(CopyError::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// The path of an entry if it stays inside; nothing for the root itself.
fn relative(bytes: &[u8], longest: usize) -> Result<Option<PathBuf>, &'static str> {
    if bytes.len() > longest {
        return Err("has a path that is too long");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "has a name that is not UTF-8")?;
    if text.chars().any(char::is_control) {
        return Err("has a control character in its name");
    }
    let mut path = PathBuf::new();
    for component in Path::new(text).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => return Err("leaves the directory by .."),
            Component::RootDir | Component::Prefix(_) => return Err("has an absolute path"),
        }
    }
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

fn shown(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes).chars().take(120).collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const SMALL: Limits = Limits {
        packed_bytes: 1 << 20,
        unpacked_bytes: 1 << 20,
        entries: 50,
        path_bytes: 200,
    };

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// An archive with exactly these names, types and link targets, however wrong.
    fn tar(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, body) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_mode(0o4777);
            let field = &mut header.as_old_mut().name;
            field[..name.len()].copy_from_slice(name.as_bytes());
            let data = if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.set_link_name(body).unwrap();
                ""
            } else {
                body
            };
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpacked(packed: &[u8]) -> (tempfile::TempDir, Result<(), Refused>) {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("a.tar.gz");
        fs::write(&archive, packed).unwrap();
        let target = directory.path().join("out");
        fs::create_dir(&target).unwrap();
        let result = unpack(&archive, &target, SMALL);
        (directory, result)
    }

    fn refusal(packed: &[u8]) -> String {
        match unpacked(packed).1 {
            Err(Refused::Bad(why)) => why,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn files_and_directories_come_out_plain() {
        use std::os::unix::fs::PermissionsExt as _;
        let packed = gzip(&tar(&[
            ("./", EntryType::Directory, ""),
            ("./a/b/main.tf", EntryType::Regular, "x"),
            ("a/b/", EntryType::Directory, ""),
            ("c", EntryType::Regular, ""),
        ]));
        let (directory, result) = unpacked(&packed);
        result.unwrap();
        let main = directory.path().join("out/a/b/main.tf");
        assert_eq!(fs::read_to_string(&main).unwrap(), "x");
        assert_eq!(
            fs::metadata(main).unwrap().permissions().mode() & 0o7777,
            0o755
        );
    }

    #[test]
    fn whatever_could_leave_the_directory_is_refused() {
        for (entries, why) in [
            (
                vec![("../x", EntryType::Regular, "x")],
                "leaves the directory",
            ),
            (
                vec![("a/../../x", EntryType::Regular, "x")],
                "leaves the directory",
            ),
            (vec![("/etc/x", EntryType::Regular, "x")], "absolute"),
            (
                vec![("main.tf", EntryType::Symlink, "/etc/passwd")],
                "is a link",
            ),
            (
                vec![
                    ("sub", EntryType::Symlink, "../../.."),
                    ("sub/x", EntryType::Regular, "x"),
                ],
                "is a link",
            ),
            (vec![("x", EntryType::Link, "/etc/passwd")], "is a link"),
            (vec![("d", EntryType::Char, "")], "no plain file"),
            (vec![("d", EntryType::Block, "")], "no plain file"),
            (vec![("d", EntryType::Fifo, "")], "no plain file"),
            (
                vec![
                    ("x", EntryType::Regular, "1"),
                    ("x", EntryType::Regular, "2"),
                ],
                "twice",
            ),
            (
                vec![
                    ("x", EntryType::Regular, "1"),
                    ("./x", EntryType::Regular, "2"),
                ],
                "twice",
            ),
            (
                vec![
                    ("x", EntryType::Regular, "1"),
                    ("x/y", EntryType::Regular, "2"),
                ],
                "at once",
            ),
            (
                vec![
                    ("x/y", EntryType::Regular, "1"),
                    ("x", EntryType::Regular, "2"),
                ],
                "at once",
            ),
            (vec![("a\nb", EntryType::Regular, "1")], "control character"),
        ] {
            let found = refusal(&gzip(&tar(&entries)));
            assert!(found.contains(why), "{entries:?}: {found}");
        }
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let good = gzip(&tar(&[("main.tf", EntryType::Regular, &"x".repeat(5000))]));
        for packed in [
            &b"<html>not found</html>"[..],
            b"",
            &good[..good.len() - 9],
            &good[..20],
            &gzip(b""),
            &gzip(&[1; 600]),
        ] {
            refusal(packed);
        }
        unpacked(&good).1.unwrap();
    }

    #[test]
    fn a_bomb_stops_at_the_caps() {
        let zeros = "\0".repeat(2 << 20);
        assert!(
            refusal(&gzip(&tar(&[("z", EntryType::Regular, &zeros)])))
                .contains("more than is taken")
        );
        let names: Vec<_> = (0..60).map(|n| format!("f{n}")).collect();
        let many: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), EntryType::Regular, ""))
            .collect();
        assert!(refusal(&gzip(&tar(&many))).contains("more than 50 entries"));
    }

    #[test]
    fn long_and_odd_names_are_refused() {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, "d/".repeat(150) + "x", io::empty())
            .unwrap();
        assert!(refusal(&gzip(&builder.into_inner().unwrap())).contains("too long"));
    }
}
