//! Small things nobody should have to point out in a review.
//!
//! Errors: a Markdown link that leads nowhere, a text that names a place outside the repository, a module without its `//!`, a kind manifest that is not
//! linked from `kinds/`, an impure word in the engine's `decide/`. A warning: a file past 600 lines.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::tree;

const LINES: usize = 600;

/// Words that do not belong into rules that must be pure: they take what was loaded plus `now`.
const IMPURE: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "tokio::",
    "crate::store",
    "rusqlite",
    "rand::rng(",
];

/// Checks every file that git knows or would take.
pub(crate) fn check() -> Result<()> {
    let root = tree::root();
    let files = tree::files()?;
    let mut problems = Vec::new();
    for file in &files {
        let path = root.join(file);
        if path.is_symlink() {
            if !path.exists() {
                problems.push(format!("{}: a link to nothing", file.display()));
            }
            continue;
        }
        let bytes =
            std::fs::read(&path).with_context(|| format!("could not read {}", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        problems.extend(outside(&text).into_iter().map(|(line, what)| {
            format!(
                "{}:{line}: names {what}, a place outside the repository",
                file.display()
            )
        }));
        match file.extension().and_then(|ext| ext.to_str()) {
            Some("md") => {
                let broken = links(&text)
                    .into_iter()
                    .filter(|(_, link)| !resolves(&root, file, link));
                problems.extend(broken.map(|(line, link)| {
                    format!(
                        "{}:{line}: the link to {link} leads nowhere",
                        file.display()
                    )
                }));
            }
            Some("rs") => {
                problems.extend(module_problems(file, &text));
                let count = text.lines().count();
                if count > LINES && !generated(&text) {
                    println!(
                        "warning: {} has {count} lines; past {LINES} look for the second concept in it",
                        file.display()
                    );
                }
            }
            _ => {}
        }
    }
    problems.extend(unlinked_kinds(&root, &files));
    if !problems.is_empty() {
        bail!("{} problems\n  {}", problems.len(), problems.join("\n  "));
    }
    println!("{} files looked at", files.len());
    Ok(())
}

fn generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.contains("@generated"))
}

fn module_problems(file: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = file.display();
    let parts: Vec<_> = file.components().map(Component::as_os_str).collect();
    // A file of tests says what it is by its name.
    let tests = parts
        .iter()
        .any(|part| *part == "tests" || *part == "tests.rs");
    let module = !tests
        && parts
            .iter()
            .any(|part| *part == "src" || *part == "examples");
    if module && !generated(text) {
        let first = text.lines().find(|line| {
            !line.trim().is_empty() && !line.starts_with("#![") && !line.starts_with("#!/")
        });
        if !first.is_some_and(|line| line.starts_with("//!")) {
            problems.push(format!(
                "{name}: does not open with a `//!` that says what the module owns"
            ));
        }
    }
    if file.starts_with("crates/engine/src/decide") && !tests {
        for (number, line) in text
            .lines()
            .enumerate()
            .take_while(|(_, line)| !line.starts_with("#[cfg(test)]"))
        {
            let code = line.split("//").next().unwrap_or_default();
            problems.extend(
                IMPURE
                    .iter()
                    .filter(|word| code.contains(**word))
                    .map(|word| format!("{name}:{}: `{word}` in a pure rule", number + 1)),
            );
        }
    }
    problems
}

/// Texts that only make sense on somebody's machine. Spelled in pieces, since this file is looked at too.
fn outside(text: &str) -> Vec<(usize, &'static str)> {
    const PLACES: &[&str] = &[
        concat!("/wo", "rk/"),
        concat!("shared", "/spec"),
        concat!("shared", "/notes"),
        concat!("../sha", "red"),
        concat!("/ro", "ot/."),
        concat!("/ho", "me/"),
    ];
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // A part of a longer path (`crates/work/…`) or of a URL is no absolute path.
        found.extend(
            PLACES
                .iter()
                .copied()
                .filter(|place| {
                    line.match_indices(place).any(|(at, _)| {
                        !place.starts_with('/')
                            || line[..at].chars().next_back().is_none_or(|before| {
                                !before.is_alphanumeric() && !"./_-}*".contains(before)
                            })
                    })
                })
                .map(|place| (number + 1, place)),
        );
    }
    found
}

/// Link targets of a Markdown text, outside code blocks, with their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        if code {
            continue;
        }
        // What stands between backticks is code, too.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let mut rest = prose.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = rest[..end].split_whitespace().next().unwrap_or_default();
            found.push((number + 1, target.to_owned()));
        }
    }
    found
}

fn resolves(root: &Path, file: &Path, link: &str) -> bool {
    if link.contains("://") || link.starts_with("mailto:") || link.starts_with('#') {
        return true;
    }
    let path = link.split('#').next().unwrap_or_default();
    let dir = root
        .join(file)
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default();
    let mut clean = PathBuf::new();
    for part in dir.join(path).components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean.starts_with(root) && clean.exists()
}

fn unlinked_kinds(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let manifests = files.iter().filter(|file| {
        file.starts_with("providers")
            && file.components().count() == 3
            && file.to_string_lossy().ends_with(".kind.json")
    });
    manifests
        .filter_map(|file| {
            let link = root.join("kinds").join(file.file_name()?);
            let same = link.is_symlink()
                && link.canonicalize().ok() == root.join(file).canonicalize().ok();
            (!same).then(|| format!("{}: kinds/ holds no link to it", file.display()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_code() {
        let text = "see [a](a.md) and [b](b/c.md#part \"title\"), `[not](this)`\n```\n[nor](that)\n```\n[c](https://x.example)";
        assert_eq!(
            links(text),
            [
                (1, "a.md".to_owned()),
                (1, "b/c.md#part".to_owned()),
                (5, "https://x.example".to_owned())
            ]
        );
    }

    #[test]
    fn a_link_must_lead_to_something_inside() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        std::fs::write(dir.path().join("README.md"), "").unwrap();
        let check = |link: &str| resolves(dir.path(), Path::new("docs/a.md"), link);
        assert!(check("../README.md#x") && check("https://x.example/y") && check("#here"));
        assert!(!check("../missing.md") && !check("../../etc"));
    }

    #[test]
    fn a_path_of_somebodys_machine_is_seen() {
        let place = concat!("/wo", "rk/");
        assert_eq!(outside(&format!("ok\nsee {place}x")), [(2, place)]);
        assert_eq!(
            outside(&format!("crates{place}x and https://example.com{place}")),
            []
        );
    }

    #[test]
    fn a_module_says_what_it_owns_and_rules_stay_pure() {
        let bare = module_problems(Path::new("crates/a/src/b.rs"), "use x;\n");
        assert_eq!(
            bare,
            ["crates/a/src/b.rs: does not open with a `//!` that says what the module owns"]
        );
        let rule = "//! Rules.\nfn f() { Instant::now(); } // SystemTime::now in a comment is fine\n#[cfg(test)]\nmod tests { fn g() { tokio::spawn(); } }\n";
        assert_eq!(
            module_problems(Path::new("crates/engine/src/decide/a.rs"), rule),
            ["crates/engine/src/decide/a.rs:2: `Instant::now` in a pure rule"]
        );
        assert_eq!(
            module_problems(Path::new("crates/engine/src/sweep.rs"), rule),
            [""; 0]
        );
    }
}
