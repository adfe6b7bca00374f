//! Getting a module: its tree on this machine, and the digest that says which bytes it was.
//!
//! Owns the choice of tool per source and what makes a tree fit to run. Must hold: a tool gets a source only where it cannot be read as an
//! option; what comes is bounded while it comes; a tree holds plain files and directories. Not here: the grammar (`source`), unpacking
//! (`archive`).

mod download;
mod git;

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::hcl_scan;
use crate::home::copy_tree;
use crate::source::Source;
use crate::task::Task;

/// A module on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Fetched {
    /// `sha256:…` of the archive, or `git:COMMIT`.
    pub(crate) digest: String,
    /// Everything that came.
    pub(crate) tree: PathBuf,
    /// The directory to run in, inside the tree.
    pub(crate) module: PathBuf,
}

/// Fetches `source` into the directory `into`, which belongs to the run.
pub(crate) async fn fetch(
    task: &Task<'_>,
    source: &Source,
    into: &Path,
) -> Result<Fetched, Failure> {
    task.may_begin("the fetch of the source")?;
    let tree = into.join("tree");
    if tree.exists() {
        fs::remove_dir_all(&tree)
            .map_err(|error| Failure::disk("cannot remove an earlier fetch", &error))?;
    }
    fs::create_dir(&tree)
        .map_err(|error| Failure::disk("cannot make the directory of the module", &error))?;
    let digest = match source {
        Source::Git {
            url,
            reference,
            login,
            subdir,
        } => {
            let access = git::Access {
                url,
                login: login.as_ref(),
            };
            let commit = git::checkout(
                task,
                &access,
                reference.as_deref(),
                subdir.as_deref(),
                into,
                &tree,
            )
            .await?;
            format!("git:{commit}")
        }
        archive => format!(
            "sha256:{}",
            download::archive(task, archive, into, &tree).await?
        ),
    };
    let module = module_directory(&tree, source, task.is_tofu())?;
    Ok(Fetched {
        digest,
        tree,
        module,
    })
}

/// The reason of a failure when what was applied cannot be had any more.
pub(crate) const GONE: &str = "SourceGone";

/// Fetches what was applied, or the closest there is: the same commit or bytes, else the copy kept here, else what the source gives now.
pub(crate) async fn applied(
    task: &Task<'_>,
    source: &Source,
    digest: &str,
    into: &Path,
) -> Result<Fetched, Failure> {
    let is_gone = |failure: &Failure| failure.reason.starts_with("Source");
    let warn = |what: &str, failure: &Failure| {
        tracing::warn!("{what}: {}", task.redactor().redact(&failure.message));
    };
    let kept = task.home.tree(digest);
    let pinned = pinned(source, digest);
    match fetch(task, &pinned, into).await {
        Ok(fetched) if digest.is_empty() || fetched.digest == digest => return Ok(fetched),
        Ok(fetched) if kept.is_none() => {
            tracing::warn!(
                applied = digest,
                now = fetched.digest,
                "the source changed since it was applied; using what it is now"
            );
            return Ok(fetched);
        }
        Ok(_) => {}
        Err(failure) if is_gone(&failure) => warn("the applied source cannot be fetched", &failure),
        Err(failure) => return Err(failure),
    }
    if let Some(kept) = kept {
        let tree = into.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)
                .map_err(|error| Failure::disk("cannot remove an earlier fetch", &error))?;
        }
        let (from, to) = (kept, tree.clone());
        tokio::task::spawn_blocking(move || copy_tree(&from, &to))
            .await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| Failure::disk("cannot copy the kept module", &error))?;
        tracing::info!("using the copy of the module that this worker kept");
        let module = module_directory(&tree, source, task.is_tofu())?;
        return Ok(Fetched {
            digest: digest.to_owned(),
            tree,
            module,
        });
    }
    if pinned != *source {
        match fetch(task, source, into).await {
            Ok(fetched) => {
                tracing::warn!(
                    applied = digest,
                    now = fetched.digest,
                    "the applied commit is gone; using what the source is now"
                );
                return Ok(fetched);
            }
            Err(failure) if is_gone(&failure) => warn("the source cannot be fetched", &failure),
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::transient(
        GONE,
        format!(
            "{} cannot be fetched any more and this worker kept no copy of it; put it back, or abandon the resource",
            source.shown()
        ),
    ))
}

/// A git source at the commit that was applied; any other as it is.
fn pinned(source: &Source, digest: &str) -> Source {
    match (source, digest.strip_prefix("git:")) {
        (
            Source::Git {
                url, subdir, login, ..
            },
            Some(commit),
        ) if commit.bytes().all(|b| b.is_ascii_hexdigit()) => Source::Git {
            url: url.clone(),
            subdir: subdir.clone(),
            reference: Some(commit.to_owned()),
            login: login.clone(),
        },
        _ => source.clone(),
    }
}

/// Where in the tree the module is, checked to hold one.
fn module_directory(tree: &Path, source: &Source, tofu: bool) -> Result<PathBuf, Failure> {
    let shown = source.shown();
    let has_files = |directory: &Path| {
        hcl_scan::scan(directory, tofu).is_ok_and(|declared| !declared.files.is_empty())
    };
    if let Source::Git {
        subdir: Some(subdir),
        ..
    } = source
    {
        let module = tree.join(subdir);
        if !module.is_dir() {
            return Err(Failure::terminal(
                "SourceInvalid",
                format!("{shown} has no directory {subdir}"),
            ));
        }
        return if has_files(&module) {
            Ok(module)
        } else {
            Err(no_files(&shown))
        };
    }
    if has_files(tree) {
        return Ok(tree.to_owned());
    }
    // Archives that hosting sites make have one directory on top.
    let mut entries = fs::read_dir(tree).into_iter().flatten().flatten();
    if let (Some(only), None) = (entries.next(), entries.next())
        && only.file_type().is_ok_and(|kind| kind.is_dir())
        && has_files(&only.path())
    {
        return Ok(only.path());
    }
    Err(no_files(&shown))
}

fn no_files(shown: &str) -> Failure {
    Failure::terminal(
        "SourceInvalid",
        format!("{shown} holds no module: there is no .tf file where it should be"),
    )
}
