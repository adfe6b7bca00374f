//! Reads a bundle: a zip of `.star` files, from anyone.
//!
//! Owns every judgement about the archive. What must hold: two tools can never see two contents (one archive, at offset
//! zero, ending with the file; local and central headers agree; no duplicate, overlapping or hidden entry), no name
//! reaches outside the bundle, and the bounds of `limits.rs` are checked on bytes that were really inflated, never on
//! what the archive claims. Not here: packing (`conctl bundle pack`), and what the files mean (`child/program.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Cursor, Read};
use std::path::Path;

use zip::read::{ArchiveOffset, Config, ZipReadOptions};
use zip::{CompressionMethod, ZipArchive};

use crate::limits;

/// The file whose `compose` is called.
pub const ENTRY_POINT: &str = "compose.star";

/// Why a bundle was refused. Another try with the same bytes ends the same way.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The bytes are not one plain zip archive.
    #[error("the bundle is not a plain zip archive: {0}")]
    NotZip(String),
    /// One entry is refused.
    #[error("bundle entry {name:?}: {problem}")]
    Entry {
        /// The entry's name, as far as it can be read.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The bundle as a whole is over a bound.
    #[error("{0}")]
    TooLarge(String),
    /// There is no entry point.
    #[error("the bundle has no {ENTRY_POINT} at its root{0}")]
    NoEntryPoint(String),
    /// A directory could not be read.
    #[error("could not read {path}")]
    Io {
        /// What was being read.
        path: String,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
}

/// A checked bundle: its `.star` files by path. Other entries count towards the bounds and are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    files: BTreeMap<String, String>,
    /// A digest of the files, made once.
    id: u64,
}

impl Bundle {
    /// Reads a bundle from the bytes of a zip archive.
    ///
    /// # Errors
    /// [`BundleError`], which names the entry where there is one.
    pub fn from_zip(bytes: &[u8]) -> Result<Self, BundleError> {
        if bytes.len() > limits::BUNDLE_BYTES {
            return Err(BundleError::TooLarge(format!(
                "the bundle has {} bytes; at most {} are taken",
                bytes.len(),
                limits::BUNDLE_BYTES
            )));
        }
        let directory = directory_offset(bytes)?;
        let config = Config {
            archive_offset: ArchiveOffset::Known(0),
        };
        let mut archive = ZipArchive::with_config(config, Cursor::new(bytes)).map_err(not_zip)?;
        if archive.central_directory_start() != directory {
            return Err(BundleError::NotZip("it holds more than one archive".into()));
        }
        check_count(archive.len())?;
        archive.validate_header_consistency().map_err(not_zip)?;
        let mut collector = Collector::default();
        for index in 0..archive.len() {
            let name = check_metadata(&mut archive, index)?;
            if !collector.admit(&name)? {
                continue;
            }
            let options = ZipReadOptions::new().enforce_header_consistency(true);
            let entry = archive
                .by_index_with_options(index, options)
                .map_err(|err| refuse(&name, err))?;
            let declared = entry.size();
            let cap = collector.cap(&name);
            let mut content = Vec::new();
            // One byte more than is allowed, to tell "exactly full" from "too long"; never sized by what is declared.
            entry
                .take(cap + 1)
                .read_to_end(&mut content)
                .map_err(|err| refuse(&name, err))?;
            if content.len() as u64 <= cap && content.len() as u64 != declared {
                return Err(refuse(
                    &name,
                    format!("has {} bytes but declares {declared}", content.len()),
                ));
            }
            collector.add(name, content)?;
        }
        collector.finish()
    }

    /// Reads a bundle from a directory, under the same rules: what packs into a good bundle and nothing else. Hidden
    /// files and directories (names with a leading dot) are passed over, symbolic links are refused.
    ///
    /// # Errors
    /// [`BundleError`], which names the file where there is one.
    pub fn from_dir(root: &Path) -> Result<Self, BundleError> {
        let mut collector = Collector::default();
        let mut pending = vec![(root.to_path_buf(), String::new())];
        let mut count = 0;
        while let Some((path, prefix)) = pending.pop() {
            let io = |source| BundleError::Io {
                path: path.display().to_string(),
                source,
            };
            for entry in std::fs::read_dir(&path).map_err(io)? {
                let entry = entry.map_err(io)?;
                let file_name = entry.file_name();
                let Some(file_name) = file_name.to_str() else {
                    return Err(refuse(
                        &entry.path().display().to_string(),
                        "the name is not UTF-8",
                    ));
                };
                if file_name.starts_with('.') {
                    continue;
                }
                count += 1;
                check_count(count)?;
                let name = format!("{prefix}{file_name}");
                let kind = entry.file_type().map_err(io)?;
                if kind.is_dir() {
                    collector.admit(&format!("{name}/"))?;
                    pending.push((entry.path(), format!("{name}/")));
                } else if kind.is_file() {
                    collector.admit(&name)?;
                    let cap = collector.cap(&name);
                    let file = std::fs::File::open(entry.path()).map_err(io)?;
                    let mut content = Vec::new();
                    file.take(cap + 1).read_to_end(&mut content).map_err(io)?;
                    collector.add(name, content)?;
                } else {
                    return Err(refuse(&name, "is neither a file nor a directory"));
                }
            }
        }
        collector.finish()
    }

    /// A bundle from files that are already in memory, under the same rules.
    ///
    /// # Errors
    /// [`BundleError`], which names the file where there is one.
    pub fn from_files<N: Into<String>, C: Into<Vec<u8>>>(
        files: impl IntoIterator<Item = (N, C)>,
    ) -> Result<Self, BundleError> {
        let mut collector = Collector::default();
        for (name, content) in files {
            let name = name.into();
            collector.admit(&name)?;
            collector.add(name, content.into())?;
        }
        collector.finish()
    }

    /// Tells programs apart well enough to remember how they behaved; not a proof of identity.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The `.star` files by their path in the bundle.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }
}

fn not_zip(err: zip::result::ZipError) -> BundleError {
    BundleError::NotZip(err.to_string())
}

fn refuse(name: &str, problem: impl std::fmt::Display) -> BundleError {
    BundleError::Entry {
        name: name.to_owned(),
        problem: problem.to_string(),
    }
}

fn check_count(count: usize) -> Result<(), BundleError> {
    if count > limits::ENTRIES {
        return Err(BundleError::TooLarge(format!(
            "the bundle has more than {} entries",
            limits::ENTRIES
        )));
    }
    Ok(())
}

/// Finds the end-of-central-directory record and where the directory starts.
///
/// The record must be the last 22 bytes, or be followed only by a comment of at most 256 bytes that cannot itself hold
/// a record (hosting sites put a commit id there). That the directory ends where the record begins refuses ZIP64, a
/// second archive behind the first, and one hidden in the comment.
fn directory_offset(bytes: &[u8]) -> Result<u64, BundleError> {
    const RECORD: usize = 22;
    const COMMENT: usize = 256;
    let problem = |what: &str| BundleError::NotZip(what.to_owned());
    if bytes.len() < RECORD {
        return Err(problem("too short"));
    }
    let last = bytes.len() - RECORD;
    let first = last.saturating_sub(COMMENT);
    let at = (first..=last)
        .rev()
        .find(|at| bytes[*at..].starts_with(b"PK\x05\x06"))
        .ok_or_else(|| problem("no end of archive in its last bytes"))?;
    let u16_at = |offset: usize| u16::from_le_bytes([bytes[at + offset], bytes[at + offset + 1]]);
    let u32_at = |offset: usize| {
        u32::from_le_bytes([
            bytes[at + offset],
            bytes[at + offset + 1],
            bytes[at + offset + 2],
            bytes[at + offset + 3],
        ])
    };
    let comment = &bytes[at + RECORD..];
    if usize::from(u16_at(20)) != comment.len() || comment.windows(2).any(|pair| pair == b"PK") {
        return Err(problem("something follows the archive"));
    }
    if u16_at(4) != 0 || u16_at(6) != 0 || u16_at(8) != u16_at(10) {
        return Err(problem("it spans several disks"));
    }
    let (size, offset) = (u64::from(u32_at(12)), u64::from(u32_at(16)));
    if offset + size != at as u64 {
        return Err(problem("its directory does not end where the archive ends"));
    }
    Ok(offset)
}

/// Judges an entry by its headers and returns its name; nothing is inflated.
fn check_metadata(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    index: usize,
) -> Result<String, BundleError> {
    let entry = archive
        .by_index_raw(index)
        .map_err(|err| refuse(&format!("#{index}"), err))?;
    let lossy = String::from_utf8_lossy(entry.name_raw()).into_owned();
    let Ok(name) = std::str::from_utf8(entry.name_raw()) else {
        return Err(refuse(&lossy, "the name is not UTF-8"));
    };
    let name = name.to_owned();
    if entry.encrypted() {
        return Err(refuse(&name, "is encrypted"));
    }
    if !matches!(
        entry.compression(),
        CompressionMethod::Stored | CompressionMethod::Deflated
    ) {
        return Err(refuse(&name, "is neither stored nor deflated"));
    }
    const KIND: u32 = 0o170_000;
    const FILE: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;
    let kind = entry.unix_mode().unwrap_or(0) & KIND;
    let wanted = if name.ends_with('/') { DIRECTORY } else { FILE };
    if entry.is_symlink() || (kind != 0 && kind != wanted) {
        return Err(refuse(&name, "is neither a plain file nor a directory"));
    }
    if name.ends_with('/') && entry.size() != 0 {
        return Err(refuse(&name, "is a directory with content"));
    }
    Ok(name)
}

/// Names and sizes seen so far.
#[derive(Default)]
struct Collector {
    files: BTreeMap<String, String>,
    /// Lower-case, without the trailing slash: names that differ only in case would be one file elsewhere.
    names: BTreeSet<String>,
    directories: BTreeSet<String>,
    file_names: BTreeSet<String>,
    total: u64,
}

impl Collector {
    /// Checks a name and says whether it is that of a file. Duplicates are refused.
    fn admit(&mut self, name: &str) -> Result<bool, BundleError> {
        check_name(name).map_err(|problem| refuse(name, problem))?;
        let bare = name.trim_end_matches('/');
        if !self.names.insert(bare.to_lowercase()) {
            return Err(refuse(
                name,
                "is there twice (names that differ only in case count as one)",
            ));
        }
        check_count(self.names.len())?;
        let is_file = !name.ends_with('/');
        if is_file {
            self.file_names.insert(bare.to_owned());
        }
        let mut parent = bare;
        while let Some((head, _)) = parent.rsplit_once('/') {
            self.directories.insert(head.to_owned());
            parent = head;
        }
        Ok(is_file)
    }

    /// How many bytes the file of this name may have.
    fn cap(&self, name: &str) -> u64 {
        let left = limits::UNPACKED_BYTES - self.total;
        if is_program(name) {
            left.min(limits::FILE_BYTES)
        } else {
            left
        }
    }

    fn add(&mut self, name: String, content: Vec<u8>) -> Result<(), BundleError> {
        let size = content.len() as u64;
        if is_program(&name) && size > limits::FILE_BYTES {
            return Err(refuse(
                &name,
                format!("is larger than {} bytes", limits::FILE_BYTES),
            ));
        }
        if size > limits::UNPACKED_BYTES - self.total {
            return Err(BundleError::TooLarge(format!(
                "the bundle unpacks to more than {} bytes (reached in {name:?})",
                limits::UNPACKED_BYTES
            )));
        }
        self.total += size;
        if is_program(&name) {
            let text = String::from_utf8(content).map_err(|err| {
                let line = 1 + err.as_bytes()[..err.utf8_error().valid_up_to()]
                    .iter()
                    .filter(|byte| **byte == b'\n')
                    .count();
                refuse(&name, format!("is not UTF-8 (line {line})"))
            })?;
            self.files.insert(name, text);
        }
        Ok(())
    }

    fn finish(self) -> Result<Bundle, BundleError> {
        if let Some(name) = self.file_names.intersection(&self.directories).next() {
            return Err(refuse(name, "is both a file and a directory"));
        }
        if !self.files.contains_key(ENTRY_POINT) {
            let elsewhere = self
                .files
                .keys()
                .find(|name| name.ends_with("/compose.star"));
            let hint = elsewhere.map_or_else(String::new, |name| {
                format!(" (there is {name:?}: pack the directory's content, not the directory)")
            });
            return Err(BundleError::NoEntryPoint(hint));
        }
        let mut hasher = DefaultHasher::new();
        self.files.hash(&mut hasher);
        Ok(Bundle {
            files: self.files,
            id: hasher.finish(),
        })
    }
}

fn is_program(name: &str) -> bool {
    name.ends_with(".star")
}

fn check_name(name: &str) -> Result<(), String> {
    if name.len() > limits::NAME_BYTES {
        return Err(format!(
            "the name is longer than {} bytes",
            limits::NAME_BYTES
        ));
    }
    let bare = name.strip_suffix('/').unwrap_or(name);
    if bare.split('/').count() > limits::NAME_PARTS {
        return Err(format!(
            "the path has more than {} parts",
            limits::NAME_PARTS
        ));
    }
    if bare
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Err("the name has an empty, \".\" or \"..\" part".into());
    }
    if bare.contains(['\\', ':']) || bare.chars().any(char::is_control) {
        return Err("the name has a backslash, a colon or a control character".into());
    }
    Ok(())
}
