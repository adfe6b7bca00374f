//! Finds documents: files, directories, stdin.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::{Document, Syntax, parse};
use crate::exit::{self, Failure, Result};

/// The largest file read: a spec of the largest size and room for what is around it, or many small documents.
const FILE_LIMIT_BYTES: u64 = 128 * 1024 * 1024;

/// The most files taken from one directory.
const FILES_LIMIT: usize = 10_000;

/// The deepest directory looked into.
const DIRECTORY_DEPTH_LIMIT: usize = 32;

/// Whether a directory's own directories are read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    Flat,
    Recursive,
}

impl Walk {
    /// As `--recursive` is given or not.
    pub(crate) fn as_told(recursive: bool) -> Self {
        if recursive {
            Self::Recursive
        } else {
            Self::Flat
        }
    }
}

/// One document and the file it is from.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// The file; absent for stdin.
    pub(crate) path: Option<PathBuf>,
    pub(crate) document: Document,
}

/// Reads every document that `paths` name; every file's error is reported, not only the first.
pub(crate) fn read_paths(paths: &[PathBuf], walk: Walk) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            match read_stdin() {
                Ok(found) => sources.extend(found),
                Err(failure) => errors.push(failure),
            }
            continue;
        }
        let meta = fs::metadata(path)
            .map_err(|err| Failure::usage(format!("cannot read {}: {err}", path.display())))?;
        let files = if meta.is_dir() {
            let files = files_of(path, walk)?;
            if files.is_empty() {
                let hint = if walk == Walk::Flat {
                    " (-R also reads the directories in it)"
                } else {
                    ""
                };
                return Err(Failure::usage(format!(
                    "{} holds no .json, .yaml or .yml file{hint}",
                    path.display()
                )));
            }
            files
        } else {
            vec![path.clone()]
        };
        for file in files {
            match read_file(&file) {
                Ok(found) => sources.extend(found),
                Err(failure) => errors.push(failure),
            }
        }
    }
    finish(sources, errors)
}

/// Reads every document below a directory, which may hold none.
pub(crate) fn read_tree(root: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut errors = Vec::new();
    for file in files_of(root, Walk::Recursive)? {
        if is_app_file(&file) {
            continue;
        }
        match read_file(&file) {
            Ok(found) => sources.extend(found),
            Err(failure) => errors.push(failure),
        }
    }
    finish(sources, errors)
}

/// Reads the one document of a small settings file.
pub(crate) fn read_app(path: &Path) -> Result<Document> {
    match <[Source; 1]>::try_from(read_file(path)?) {
        Ok([source]) => Ok(source.document),
        Err(_) => Err(Failure::new(
            exit::REFUSED,
            format!("{} must hold one document", path.display()),
        )),
    }
}

fn is_app_file(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == "converge.yaml")
}

fn finish(sources: Vec<Source>, errors: Vec<Failure>) -> Result<Vec<Source>> {
    let Some(first) = errors.first() else {
        return Ok(sources);
    };
    let code = first.code;
    let lines: Vec<String> = errors.into_iter().map(|failure| failure.message).collect();
    Err(Failure::new(code, lines.join("\n")))
}

/// The files of a directory that hold documents, sorted, hidden ones left out.
fn files_of(root: &Path, walk: Walk) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = directories.pop() {
        let failed = |err: std::io::Error| {
            Failure::usage(format!("cannot read {}: {err}", directory.display()))
        };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let meta = fs::metadata(&path)
                .map_err(|err| Failure::usage(format!("cannot read {}: {err}", path.display())))?;
            if meta.is_dir() {
                // A link to a directory is not followed: it may lead back up.
                let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                if walk == Walk::Recursive && !is_link {
                    if depth >= DIRECTORY_DEPTH_LIMIT {
                        return Err(Failure::usage(format!(
                            "{} is deeper than {DIRECTORY_DEPTH_LIMIT} directories",
                            path.display()
                        )));
                    }
                    directories.push((path, depth + 1));
                }
            } else if syntax_of(&path).is_some() {
                files.push(path);
            }
            if files.len() > FILES_LIMIT {
                return Err(Failure::usage(format!(
                    "{} holds more than {FILES_LIMIT} files",
                    root.display()
                )));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn syntax_of(path: &Path) -> Option<Syntax> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "json" => Some(Syntax::Json),
        "yaml" | "yml" => Some(Syntax::Yaml),
        _ => None,
    }
}

/// Reads the documents of one file.
fn read_file(path: &Path) -> Result<Vec<Source>> {
    let failed =
        |err: std::io::Error| Failure::usage(format!("cannot read {}: {err}", path.display()));
    let file = fs::File::open(path).map_err(failed)?;
    let bytes = read_limited(file, path.display().to_string().as_str())?;
    documents(
        Some(path),
        &path.display().to_string(),
        &bytes,
        syntax_of(path).unwrap_or(Syntax::Guess),
    )
}

fn read_stdin() -> Result<Vec<Source>> {
    let bytes = read_limited(std::io::stdin().lock(), "stdin")?;
    documents(None, "-", &bytes, Syntax::Guess)
}

fn read_limited(from: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(FILE_LIMIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|err| Failure::usage(format!("cannot read {name}: {err}")))?;
    if bytes.len() as u64 > FILE_LIMIT_BYTES {
        return Err(Failure::new(
            exit::REFUSED,
            format!("{name} is larger than {FILE_LIMIT_BYTES} bytes"),
        ));
    }
    Ok(bytes)
}

fn documents(path: Option<&Path>, name: &str, bytes: &[u8], syntax: Syntax) -> Result<Vec<Source>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|err| {
        let line = bytes[..err.valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        Failure::new(
            exit::REFUSED,
            format!("{name}:{line}: this is not UTF-8 text"),
        )
    })?;
    let file: Rc<str> = name.into();
    let found = parse(&file, text, syntax).map_err(|err| {
        Failure::new(
            exit::REFUSED,
            format!(
                "{name}:{}:{}: {}",
                err.place.line, err.place.column, err.message
            ),
        )
    })?;
    Ok(found
        .into_iter()
        .map(|document| Source {
            path: path.map(Path::to_owned),
            document,
        })
        .collect())
}
