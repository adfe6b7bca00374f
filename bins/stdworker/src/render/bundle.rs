//! The bundle of a config from disk: a zip as it is, or a folder packed into one.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};

use zip::write::SimpleFileOptions;
use zip::{DateTime, ZipWriter};

/// The most a bundle may hold, and how deep a folder is followed.
const MAX_BYTES: u64 = 10 << 20;
const MAX_DEPTH: usize = 32;

/// The bytes of a bundle.
///
/// # Errors
/// What is wrong with the path, naming it.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |at: &Path, message: &dyn std::fmt::Display| {
        format!("--bundle {}: {message}", at.display())
    };
    if !path.is_dir() {
        return fs::read(path).map_err(|err| wrong(path, &err));
    }
    let mut files = Vec::new();
    walk(path, "", 0, &mut files).map_err(|(at, err)| wrong(&at, &err))?;
    files.sort();
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let mut total = 0;
    for (name, file) in files {
        let bytes = fs::read(&file).map_err(|err| wrong(&file, &err))?;
        total += bytes.len() as u64;
        if total > MAX_BYTES {
            return Err(wrong(
                path,
                &format!("its files have more than {MAX_BYTES} bytes"),
            ));
        }
        let options = SimpleFileOptions::default().last_modified_time(DateTime::default());
        let written = zip
            .start_file(name, options)
            .and_then(|()| Ok(zip.write_all(&bytes)?));
        written.map_err(|err| wrong(&file, &err))?;
    }
    zip.finish()
        .map(Cursor::into_inner)
        .map_err(|err| wrong(path, &err))
}

/// Regular files below a folder; hidden ones and links are no part of a bundle.
fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, PathBuf)>,
) -> Result<(), (PathBuf, std::io::Error)> {
    let at = |err| (folder.to_owned(), err);
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().map_err(at)?;
        if name.starts_with('.') {
            continue;
        }
        if kind.is_dir() && depth < MAX_DEPTH {
            walk(&entry.path(), &format!("{prefix}{name}/"), depth + 1, files)?;
        } else if kind.is_file() {
            files.push((format!("{prefix}{name}"), entry.path()));
        }
    }
    Ok(())
}
