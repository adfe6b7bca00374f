//! The list of guards: what a file of `xtask/guards` says, and whether it still fits the tree.
//!
//! A guard is a piece of text in a file; without it the code still compiles and does the unsafe thing. The check is cheap (it compiles
//! nothing) and part of the ordinary tests, so that whoever moves a guard or renames a test is told at once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::tree;

/// One guard and the tests that must fail without it.
#[derive(Debug)]
pub(crate) struct Guard {
    /// `FILE/NAME`, the file without its extension.
    pub(crate) name: String,
    /// What it protects.
    pub(crate) protects: String,
    edit: Edit,
    more: Vec<Edit>,
    pub(crate) tests: Vec<Test>,
    /// Without it a test may hang instead of failing.
    pub(crate) hangs: bool,
    /// Without it a test may take its process down instead of failing.
    pub(crate) crashes: bool,
}

impl Guard {
    /// What is taken out; at least one.
    pub(crate) fn edits(&self) -> Vec<&Edit> {
        std::iter::once(&self.edit).chain(&self.more).collect()
    }
}

/// A text that occurs once in a file, and what stands there without the guard.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
    pub(crate) without: String,
}

impl Edit {
    /// The file's content with the guard taken out.
    pub(crate) fn apply(&self, content: &str) -> Result<String> {
        let found = content.matches(&self.text).count();
        if self.text.is_empty() || found != 1 {
            bail!(
                "{}: the text of the guard must stand there exactly once, and is found {found} times:\n{}",
                self.file.display(),
                self.text
            );
        }
        Ok(content.replacen(&self.text, &self.without, 1))
    }
}

/// A test, written as `PACKAGE::BINARY NAME`, or `PACKAGE NAME` for one beside the code of a library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Test {
    pub(crate) binary: Binary,
    /// With its modules, as the test harness has it.
    pub(crate) name: String,
}

/// The executable that holds a test.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Binary {
    pub(crate) package: String,
    /// `None` = the unit tests of the library.
    pub(crate) target: Option<String>,
}

impl Test {
    fn parse(text: &str) -> Result<Self> {
        let (binary, name) = text.split_once(' ').with_context(|| {
            format!("{text:?} is no test: `PACKAGE::BINARY NAME` or `PACKAGE NAME` is expected")
        })?;
        let (package, target) = match binary.split_once("::") {
            Some((package, target)) => (package, Some(target.to_owned())),
            None => (binary, None),
        };
        Ok(Self {
            binary: Binary {
                package: package.to_owned(),
                target,
            },
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binary, self.name)
    }
}

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Some(target) => write!(f, "{}::{target}", self.package),
            None => f.write_str(&self.package),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    guard: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    protects: String,
    file: PathBuf,
    text: String,
    without: String,
    #[serde(default)]
    more: Vec<Edit>,
    tests: Vec<String>,
    #[serde(default)]
    hangs: bool,
    #[serde(default)]
    crashes: bool,
}

/// Reads every file of the list below `root`, in the order of their names.
pub(crate) fn read(root: &Path) -> Result<Vec<Guard>> {
    let dir = root.join("xtask/guards");
    let entries =
        std::fs::read_dir(&dir).with_context(|| format!("could not list {}", dir.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "toml"))
        .collect();
    files.sort();
    let mut guards = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", path.display()))?;
        let file: File = toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        for entry in file.guard {
            let name = format!("{stem}/{}", entry.name);
            let tests: Result<Vec<Test>> =
                entry.tests.iter().map(|test| Test::parse(test)).collect();
            guards.push(Guard {
                tests: tests.with_context(|| format!("guard {name}"))?,
                name,
                protects: entry.protects,
                edit: Edit {
                    file: entry.file,
                    text: entry.text,
                    without: entry.without,
                },
                more: entry.more,
                hangs: entry.hangs,
                crashes: entry.crashes,
            });
        }
    }
    Ok(guards)
}

/// Everything in which the list does not fit the tree at `root`: texts that are not found exactly once, tests that are not there.
pub(crate) fn problems(guards: &[Guard], root: &Path) -> Result<Vec<String>> {
    let packages = Packages::read(root)?;
    let mut problems = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for guard in guards {
        if !names.insert(&guard.name) {
            problems.push(format!("{}: there are two of this name", guard.name));
        }
        if guard.tests.is_empty() {
            problems.push(format!("{}: names no test", guard.name));
        }
        let mut contents: BTreeMap<&Path, String> = BTreeMap::new();
        for edit in guard.edits() {
            let content = match contents.remove(edit.file.as_path()) {
                Some(content) => Ok(content),
                None => std::fs::read_to_string(root.join(&edit.file))
                    .with_context(|| format!("could not read {}", edit.file.display())),
            };
            match content.and_then(|content| edit.apply(&content)) {
                Ok(content) => {
                    contents.insert(&edit.file, content);
                }
                Err(error) => problems.push(format!("{}: {error:#}", guard.name)),
            }
        }
        for test in &guard.tests {
            if let Err(error) = packages.find(test) {
                problems.push(format!("{}: {error:#}", guard.name));
            }
        }
    }
    Ok(problems)
}

/// The packages of a tree: where they are and what tests they have.
pub(crate) struct Packages(Vec<Value>);

impl Packages {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut command = tree::cargo();
        command
            .current_dir(root)
            .args(["metadata", "--no-deps", "--format-version=1"]);
        let metadata: Value =
            serde_json::from_str(&tree::read(&mut command)?).context("cargo metadata")?;
        Ok(Self(
            metadata["packages"]
                .as_array()
                .cloned()
                .context("cargo metadata lists no packages")?,
        ))
    }

    /// The name and directory of the package with this manifest.
    pub(crate) fn at(&self, manifest: &str) -> Option<(&str, &Path)> {
        let package = self
            .0
            .iter()
            .find(|package| package["manifest_path"] == manifest)?;
        let manifest = Path::new(package["manifest_path"].as_str()?);
        Some((package["name"].as_str()?, manifest.parent()?))
    }

    /// The source of a binary of tests.
    fn source(&self, binary: &Binary) -> Option<&Path> {
        let package = self
            .0
            .iter()
            .find(|package| package["name"] == binary.package.as_str())?;
        let target = package["targets"]
            .as_array()?
            .iter()
            .find(|target| match &binary.target {
                Some(name) => target["name"] == name.as_str() && target["kind"][0] == "test",
                None => target["kind"][0] == "lib",
            })?;
        Some(Path::new(target["src_path"].as_str()?))
    }

    /// Whether the test is there, as far as the text of the sources tells.
    fn find(&self, test: &Test) -> Result<()> {
        let Some(source) = self.source(&test.binary) else {
            bail!("there is no test binary {}", test.binary)
        };
        let mut files = vec![source.to_owned()];
        let is_root = ["main.rs", "lib.rs"]
            .iter()
            .any(|name| source.ends_with(name));
        let root = if is_root {
            source.parent().unwrap_or(source).to_owned()
        } else {
            source.with_extension("")
        };
        rust_files(&root, &mut files);
        let mut sources = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("could not read {}", file.display()))?;
            let modules = if file == source {
                Vec::new()
            } else {
                modules(file.strip_prefix(&root).unwrap_or(&file))
            };
            sources.push((Some(modules), text));
        }
        // Tests of the shared suite are named in its macro.
        if sources
            .iter()
            .any(|(_, text)| text.contains("converge_conformance::suite!"))
            && let Some(suite) = self.source(&Binary {
                package: "converge-conformance".to_owned(),
                target: None,
            })
        {
            let suite = suite.with_file_name("suite.rs");
            let text = std::fs::read_to_string(&suite)
                .with_context(|| format!("could not read {}", suite.display()))?;
            sources.push((None, text));
        }
        let parts: Vec<&str> = test.name.split("::").collect();
        let Some((name, modules)) = parts.split_last() else {
            bail!("{test} has no name")
        };
        let function = format!("fn {name}(");
        let found = sources.iter().any(|(path, text)| match path {
            // A function is found where its modules say.
            Some(path) if text.contains(&function) => is_below(path, modules, text),
            // What a macro makes is named there.
            _ => has_word(text, name),
        });
        if !found {
            bail!("{} has no test {}", test.binary, test.name);
        }
        Ok(())
    }
}

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") && !into.contains(&path) {
            into.push(path);
        }
    }
}

/// The modules a file stands for, by its path below the root of a crate.
fn modules(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut names: Vec<String> = path
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Whether `wanted` are the modules of the file, and then modules written in it.
fn is_below(file: &[String], wanted: &[&str], text: &str) -> bool {
    wanted.len() >= file.len()
        && file.iter().zip(wanted).all(|(is, wanted)| is == wanted)
        && wanted[file.len()..]
            .iter()
            .all(|inner| text.contains(&format!("mod {inner} {{")))
}

fn has_word(text: &str, word: &str) -> bool {
    let part_of_one = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(part_of_one) && !text[at + word.len()..].starts_with(part_of_one)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_stands_where_the_list_says_and_its_tests_are_there() {
        let root = tree::root();
        let guards = read(&root).unwrap();
        assert!(guards.len() > 20, "the list is read");
        let problems = problems(&guards, &root).unwrap();
        assert!(
            problems.is_empty(),
            "xtask/guards does not fit the tree (follow what you moved or renamed):\n{}",
            problems.join("\n")
        );
    }

    #[test]
    fn a_text_that_is_not_there_once_is_told_with_the_count() {
        let edit = Edit {
            file: "a.rs".into(),
            text: "if safe".to_owned(),
            without: "if true".to_owned(),
        };
        assert_eq!(edit.apply("if safe { }").unwrap(), "if true { }");
        for (content, count) in [("", "0 times"), ("if safe; if safe", "2 times")] {
            let error = edit.apply(content).unwrap_err().to_string();
            assert!(error.contains(count) && error.contains("a.rs"), "{error}");
        }
    }

    #[test]
    fn a_test_is_named_by_package_binary_and_modules_and_must_be_in_the_source() {
        let test = Test::parse("xtask guards::list::tests::nobody_wrote_this_one").unwrap();
        assert_eq!(test.binary.to_string(), "xtask");
        assert!(Test::parse("only_a_name").is_err());
        let packages = Packages::read(&tree::root()).unwrap();
        let wire = |name: &str| Test::parse(&format!("converge-testkit::wire {name}")).unwrap();
        packages.find(&wire("a_silent_claim_runs_out")).unwrap();
        let error = packages.find(&wire("a_silent_claim_runs")).unwrap_err();
        assert!(error.to_string().contains("no test"), "{error}");
        let store = "converge-store-sqlite::conformance passes::half_a_claim_is_fenced";
        packages.find(&Test::parse(store).unwrap()).unwrap();
        let sdk = |name: &str| Test::parse(&format!("converge-sdk {name}")).unwrap();
        let room = "tests::room_is_made_by_forgetting_the_oldest_sent_results_only";
        packages
            .find(&sdk(&format!("worker::results::{room}")))
            .unwrap();
        packages.find(&sdk(&format!("worker::{room}"))).unwrap_err();
        let missing = Test::parse("converge-testkit::nothing a").unwrap();
        let error = packages.find(&missing).unwrap_err().to_string();
        assert_eq!(error, "there is no test binary converge-testkit::nothing");
    }
}
