//! A provider crate copied out of the tree under a new name: the start of somebody's own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tree;
use crate::usage::usage;

/// Copies `providers/FROM` to `to` (or `./NAME`), renaming crate, kind and files.
pub(crate) fn run(name: &str, from: &str, to: Option<PathBuf>) -> Result<()> {
    let valid = name.starts_with(|first: char| first.is_ascii_lowercase()) && name.len() <= 63;
    if !valid
        || !name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    {
        return Err(usage(format!(
            "{name:?} is not a kind's name: a lower-case letter, then letters, digits and `-`, 63 at most"
        )));
    }
    let source = tree::root().join("providers").join(from);
    if !source.join("Cargo.toml").is_file() {
        return Err(usage(format!(
            "there is no provider {from:?} under providers/"
        )));
    }
    let to = match to {
        Some(to) => to,
        None => std::env::current_dir()
            .context("could not read the working directory")?
            .join(name),
    };
    if to.exists() {
        bail!("{} is there already", to.display());
    }
    copy(&source, &to, from, name)?;
    println!(
        "{}\nIt stands alone: its manifest inherits nothing. Until converge-sdk is in your registry, add to its Cargo.toml:\n\n[patch.crates-io]\nconverge-sdk = {{ path = {:?} }}\n",
        to.display(),
        tree::root().join("sdk").display().to_string()
    );
    Ok(())
}

fn copy(from: &Path, to: &Path, old: &str, new: &str) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("could not create {}", to.display()))?;
    for entry in from
        .read_dir()
        .with_context(|| format!("could not list {}", from.display()))?
    {
        let entry = entry.with_context(|| format!("could not list {}", from.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "target" {
            continue;
        }
        let target = to.join(name.replace(old, new));
        if entry.path().is_dir() {
            copy(&entry.path(), &target, old, new)?;
            continue;
        }
        let mut bytes = std::fs::read(entry.path())
            .with_context(|| format!("could not read {}", entry.path().display()))?;
        if let Ok(text) = std::str::from_utf8(&bytes) {
            bytes = renamed(text, name.ends_with(".rs"), old, new).into_bytes();
        }
        std::fs::write(&target, bytes)
            .with_context(|| format!("could not write {}", target.display()))?;
    }
    Ok(())
}

/// The crate's identifier has `_` where its name has `-`: in Rust, a name that stands as a path (`old::x`, `use old`) is the identifier.
fn renamed(text: &str, rust: bool, old: &str, new: &str) -> String {
    let identifier = new.replace('-', "_");
    if !rust || identifier == new {
        return text.replace(old, new);
    }
    let text = text.replace(&format!("{old}::"), &format!("{identifier}::"));
    let text = text.replace(&format!("use {old}"), &format!("use {identifier}"));
    text.replace(old, new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_dash_becomes_an_identifier_where_rust_wants_one() {
        let text = "use old::Provider;\nconst KIND: &str = \"old\"; // old::x\n";
        assert_eq!(
            renamed(text, true, "old", "my-kind"),
            "use my_kind::Provider;\nconst KIND: &str = \"my-kind\"; // my_kind::x\n"
        );
        assert_eq!(
            renamed("name = \"old\"", false, "old", "my-kind"),
            "name = \"my-kind\""
        );
    }

    #[test]
    fn a_copy_carries_the_new_name_in_files_and_text() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir_all(from.join("src")).unwrap();
        std::fs::write(from.join("old.kind.json"), "{\"kind\": \"old\"}").unwrap();
        std::fs::write(from.join("src/lib.rs"), "//! old").unwrap();
        let to = dir.path().join("to");
        copy(&from, &to, "old", "mine").unwrap();
        assert_eq!(
            std::fs::read_to_string(to.join("mine.kind.json")).unwrap(),
            "{\"kind\": \"mine\"}"
        );
        assert_eq!(
            std::fs::read_to_string(to.join("src/lib.rs")).unwrap(),
            "//! mine"
        );
    }

    #[test]
    fn a_bad_name_or_source_is_refused_before_anything_is_written() {
        let to = tempfile::tempdir().unwrap().path().join("x");
        for (name, from, wanted) in [
            ("Bad", "stdshell", "not a kind's name"),
            ("", "stdshell", "not a kind's name"),
            ("good", "nothing", "no provider"),
        ] {
            let error = run(name, from, Some(to.clone())).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert!(!to.exists());
    }
}
