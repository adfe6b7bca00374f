//! Bundles: a directory as zip bytes that are the same for the same tree, on every machine.
//!
//! What must hold: entries are sorted by their path's bytes, carry no times, owners, modes or extra fields, and only
//! regular files are in. What is left out is said. The limits are those of whoever reads a bundle, checked here so that
//! the person who packs learns it first.

use std::fs;
use std::io::{Cursor, Read as _, Write as _};
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::exit::{self, Failure, Result};

/// The most a bundle may hold, unpacked.
const UNPACKED_LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// The largest `.star` file.
const STAR_LIMIT_BYTES: u64 = 512 * 1024;

/// The most entries.
const ENTRIES_LIMIT: usize = 2_000;

/// The deepest path.
const DEPTH_LIMIT: usize = 32;

/// A packed directory.
#[derive(Debug)]
pub(crate) struct Packed {
    /// The zip.
    pub(crate) bytes: Vec<u8>,
    /// How many files are in it.
    pub(crate) files: usize,
    /// What was left out, and why.
    pub(crate) skipped: Vec<String>,
}

/// Packs the files below `root`.
pub(crate) fn pack(root: &Path) -> Result<Packed> {
    let mut found = Found::default();
    walk(root, "", 0, &mut found)?;
    found.files.sort();
    if found.files.is_empty() {
        found
            .problems
            .push(format!("{} holds no file to pack", root.display()));
    }
    let mut contents = Vec::with_capacity(found.files.len());
    let mut total = 0_u64;
    // Counting goes on after a limit is broken, so that all that is wrong is said at once; reading does not.
    for (name, path) in &found.files {
        let bytes = read(path)?;
        let size = bytes.len() as u64;
        if name.ends_with(".star") && size > STAR_LIMIT_BYTES {
            found.problems.push(format!(
                "{name} has {size} bytes; a .star file may have {STAR_LIMIT_BYTES}"
            ));
        }
        total += size;
        if total > UNPACKED_LIMIT_BYTES {
            found.problems.push(format!(
                "with {name} the files have more than {UNPACKED_LIMIT_BYTES} bytes, the most a bundle may hold unpacked"
            ));
            break;
        }
        contents.push((name.as_str(), bytes));
    }
    if !found.problems.is_empty() {
        return Err(Failure::new(
            exit::REFUSED,
            format!(
                "cannot pack {}:\n  {}",
                root.display(),
                found.problems.join("\n  ")
            ),
        ));
    }
    let bytes = write(&contents).map_err(|err| {
        Failure::new(
            exit::REFUSED,
            format!("cannot pack {}: {err}", root.display()),
        )
    })?;
    Ok(Packed {
        files: contents.len(),
        bytes,
        skipped: found.skipped,
    })
}

fn write(contents: &[(&str, Vec<u8>)]) -> zip::result::ZipResult<Vec<u8>> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(6))
        .last_modified_time(DateTime::default())
        .unix_permissions(0o644);
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in contents {
        zip.start_file(*name, options)?;
        zip.write_all(bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// What a walk found.
#[derive(Default)]
struct Found {
    /// Name in the bundle, path on disk.
    files: Vec<(String, PathBuf)>,
    skipped: Vec<String>,
    problems: Vec<String>,
}

fn walk(directory: &Path, prefix: &str, depth: usize, found: &mut Found) -> Result {
    let failed =
        |err: std::io::Error| Failure::usage(format!("cannot read {}: {err}", directory.display()));
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        entries.push((
            entry.file_name(),
            entry.path(),
            entry.file_type().map_err(failed)?,
        ));
        if entries.len() > ENTRIES_LIMIT * 10 {
            found
                .problems
                .push(format!("{} holds too many entries", directory.display()));
            return Ok(());
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, path, kind) in entries {
        let Some(name) = name.to_str() else {
            found
                .problems
                .push(format!("{} has a name that is not UTF-8", path.display()));
            continue;
        };
        let inner = if prefix.is_empty() {
            name.to_owned()
        } else {
            format!("{prefix}/{name}")
        };
        if name.starts_with('.') {
            found.skipped.push(format!("{inner} is hidden"));
        } else if name.contains(['\\', '\0']) || name.chars().any(char::is_control) {
            found.problems.push(format!(
                "{inner:?} has a character in its name that a bundle cannot have"
            ));
        } else if kind.is_symlink() {
            found.skipped.push(format!("{inner} is a symbolic link"));
        } else if kind.is_dir() {
            if depth >= DEPTH_LIMIT {
                found
                    .problems
                    .push(format!("{inner} is deeper than {DEPTH_LIMIT} directories"));
            } else {
                walk(&path, &inner, depth + 1, found)?;
            }
        } else if !kind.is_file() {
            found.skipped.push(format!("{inner} is not a regular file"));
        } else if found.files.len() >= ENTRIES_LIMIT {
            found.problems.push(format!(
                "there are more than {ENTRIES_LIMIT} files, the most a bundle may hold"
            ));
            return Ok(());
        } else {
            found.files.push((inner, path));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let failed =
        |err: std::io::Error| Failure::usage(format!("cannot read {}: {err}", path.display()));
    let mut bytes = Vec::new();
    fs::File::open(path)
        .map_err(failed)?
        .take(UNPACKED_LIMIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_same_tree_is_the_same_bytes_whenever_it_was_written() {
        let files = [
            ("compose.star", "def compose(s, c): pass\n"),
            ("lib/a.star", "x = 1\n"),
            ("lib-b.star", ""),
        ];
        let first = tree(&files);
        let mut backwards = files;
        backwards.reverse();
        let second = tree(&backwards);
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = fs::File::options()
            .write(true)
            .open(second.path().join("compose.star"))
            .unwrap();
        file.set_modified(old).unwrap();
        let first = pack(first.path()).unwrap();
        assert_eq!(first.bytes, pack(second.path()).unwrap().bytes);
        assert_eq!(first.files, 3);
    }

    #[test]
    fn entries_are_sorted_and_carry_nothing_but_their_content() {
        let dir = tree(&[
            ("b.star", "b"),
            ("a/z.star", "z"),
            ("a-.star", "-"),
            (".git/config", "no"),
            (".hidden", "no"),
        ]);
        #[cfg(unix)]
        std::os::unix::fs::symlink("b.star", dir.path().join("link.star")).unwrap();
        let packed = pack(dir.path()).unwrap();
        let mut zip = zip::ZipArchive::new(Cursor::new(&packed.bytes)).unwrap();
        // A strict reader compares both headers of each entry.
        zip.validate_header_consistency().unwrap();
        let mut names = Vec::new();
        for index in 0..zip.len() {
            let file = zip.by_index(index).unwrap();
            assert!(file.is_file());
            assert!(file.extra_data().is_none_or(|data| data.is_empty()));
            assert_eq!(file.last_modified(), Some(DateTime::default()));
            names.push(file.name().unwrap().into_owned());
        }
        assert_eq!(names, ["a-.star", "a/z.star", "b.star"]);
        let mut skipped = vec![".git is hidden", ".hidden is hidden"];
        if cfg!(unix) {
            skipped.push("link.star is a symbolic link");
        }
        assert_eq!(packed.skipped, skipped);
        // What a strict reader asks for: no comment, the end record in the last 22 bytes.
        assert_eq!(&packed.bytes[packed.bytes.len() - 22..][..4], b"PK\x05\x06");
    }

    #[test]
    fn every_limit_that_is_broken_is_named() {
        let dir = tree(&[
            ("a.star", &"#".repeat(513 * 1024)),
            ("big.txt", &"x".repeat(4 * 1024 * 1024)),
        ]);
        let err = pack(dir.path()).unwrap_err();
        assert_eq!(err.code, exit::REFUSED);
        assert!(
            err.message.contains("a.star has 525312 bytes"),
            "{}",
            err.message
        );
        assert!(
            err.message
                .contains("with big.txt the files have more than 4194304 bytes"),
            "{}",
            err.message
        );
    }

    #[test]
    fn an_empty_directory_is_refused() {
        let dir = tree(&[]);
        assert!(
            pack(dir.path())
                .unwrap_err()
                .message
                .contains("holds no file to pack")
        );
    }

    #[test]
    fn more_files_than_a_bundle_may_hold_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for index in 0..=ENTRIES_LIMIT {
            fs::write(dir.path().join(format!("{index}.star")), "").unwrap();
        }
        assert!(
            pack(dir.path())
                .unwrap_err()
                .message
                .contains("more than 2000 files")
        );
    }
}
