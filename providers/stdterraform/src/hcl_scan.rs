//! What a module's files say about themselves, read without running anything.
//!
//! Owns: which variables are sensitive, what version is required, which files would set a backend. Must hold: what cannot be read counts
//! as the worse case (every variable sensitive, a backend set), never as nothing. Terraform itself says what is wrong with such a file.
//! The parser bounds nesting, this module the size.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use hcl::{Body, Expression};
use serde_json::Value;

use crate::version::Constraint;

/// No module has a file of this size that a person wrote.
const LARGEST_FILE: u64 = 4 * 1024 * 1024;
/// Most files of one directory that are read.
const MOST_FILES: usize = 2_000;

/// What the root module declares.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    /// The names of its `.tf`, `.tf.json` (and for tofu `.tofu`, `.tofu.json`) files.
    pub(crate) files: Vec<String>,
    /// All variables.
    pub(crate) variables: BTreeSet<String>,
    /// Variables that are `sensitive` or `ephemeral`.
    pub(crate) sensitive: BTreeSet<String>,
    /// Whether a file could not be read, so that every variable must count as sensitive.
    pub(crate) unreadable: bool,
    /// All `required_version` that are literal and valid.
    pub(crate) required: Vec<Constraint>,
    /// Override files that may set a backend or `cloud`.
    pub(crate) backend_overrides: Vec<String>,
    /// All override files.
    pub(crate) overrides: Vec<String>,
}

impl Declared {
    /// Whether the module certainly has no such variable.
    pub(crate) fn lacks(&self, variable: &str) -> bool {
        !self.unreadable && !self.variables.contains(variable)
    }

    /// Whether the value of this variable must not be shown.
    pub(crate) fn is_sensitive(&self, variable: &str) -> bool {
        self.unreadable || self.sensitive.contains(variable)
    }
}

/// Reads the root module in `directory`.
///
/// # Errors
/// When the directory cannot be listed.
pub(crate) fn scan(directory: &Path, tofu: bool) -> io::Result<Declared> {
    let mut declared = Declared::default();
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string()
            && is_module_file(&name, tofu)
        {
            names.push(name);
        }
    }
    names.sort();
    declared.unreadable = names.len() > MOST_FILES;
    for name in names.iter().take(MOST_FILES) {
        let facts = read(&directory.join(name)).and_then(|text| facts(name, &text));
        let is_override = is_override(name);
        if is_override {
            declared.overrides.push(name.clone());
        }
        match facts {
            Some(facts) => {
                declared.variables.extend(facts.variables);
                declared.sensitive.extend(facts.sensitive);
                declared.required.extend(facts.required);
                if is_override && facts.sets_backend {
                    declared.backend_overrides.push(name.clone());
                }
            }
            None => {
                declared.unreadable = true;
                if is_override {
                    declared.backend_overrides.push(name.clone());
                }
            }
        }
    }
    declared.files = names;
    Ok(declared)
}

fn is_module_file(name: &str, tofu: bool) -> bool {
    let hidden = name.starts_with('.')
        || name.ends_with('~')
        || (name.starts_with('#') && name.ends_with('#'));
    let module = name.ends_with(".tf") || name.ends_with(".tf.json");
    !hidden && (module || (tofu && (name.ends_with(".tofu") || name.ends_with(".tofu.json"))))
}

fn is_override(name: &str) -> bool {
    let stem = [".tf.json", ".tofu.json", ".tf", ".tofu"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix));
    stem.is_some_and(|stem| stem == "override" || stem.ends_with("_override"))
}

fn read(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LARGEST_FILE + 1).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= LARGEST_FILE).then_some(text)
}

/// What one file says.
#[derive(Debug, Default)]
struct Facts {
    variables: Vec<String>,
    sensitive: Vec<String>,
    required: Vec<Constraint>,
    sets_backend: bool,
}

fn facts(name: &str, text: &str) -> Option<Facts> {
    if name.ends_with(".json") {
        serde_json::from_str(text)
            .ok()
            .map(|value| json_facts(&value))
    } else {
        hcl::parse(text.trim_start_matches('\u{feff}'))
            .ok()
            .map(|body| hcl_facts(&body))
    }
}

fn hcl_facts(body: &Body) -> Facts {
    let mut facts = Facts::default();
    for block in body.blocks() {
        match block.identifier() {
            "variable" => {
                let hidden = block.body().attributes().any(|attribute| {
                    matches!(attribute.key(), "sensitive" | "ephemeral")
                        && !matches!(attribute.expr(), Expression::Bool(false))
                });
                if let Some(label) = block.labels().first() {
                    facts.variables.push(label.as_str().to_owned());
                    if hidden {
                        facts.sensitive.push(label.as_str().to_owned());
                    }
                }
            }
            "terraform" => {
                facts.sets_backend |= block
                    .body()
                    .blocks()
                    .any(|inner| matches!(inner.identifier(), "backend" | "cloud"));
                for attribute in block
                    .body()
                    .attributes()
                    .filter(|attribute| attribute.key() == "required_version")
                {
                    if let Expression::String(text) = attribute.expr() {
                        facts.required.extend(Constraint::parse(text));
                    }
                }
            }
            _ => {}
        }
    }
    facts
}

fn json_facts(value: &Value) -> Facts {
    let mut facts = Facts::default();
    for terraform in members(value, "terraform") {
        facts.sets_backend |=
            terraform.get("backend").is_some() || terraform.get("cloud").is_some();
        if let Some(text) = terraform.get("required_version").and_then(Value::as_str) {
            facts.required.extend(Constraint::parse(text));
        }
    }
    for variables in members(value, "variable") {
        for (name, bodies) in variables.as_object().into_iter().flatten() {
            let hidden = |body: &Value| {
                ["sensitive", "ephemeral"].iter().any(|key| {
                    body.get(key)
                        .is_some_and(|value| *value != Value::Bool(false))
                })
            };
            let any = match bodies {
                Value::Array(bodies) => bodies.iter().any(hidden),
                body => hidden(body),
            };
            facts.variables.push(name.clone());
            if any {
                facts.sensitive.push(name.clone());
            }
        }
    }
    facts
}

/// A block in JSON syntax is an object or a list of them.
fn members<'v>(value: &'v Value, name: &str) -> Vec<&'v Value> {
    let roots: Vec<&Value> = match value {
        Value::Array(roots) => roots.iter().collect(),
        root => vec![root],
    };
    let found = roots.into_iter().filter_map(|root| root.get(name));
    found
        .flat_map(|found| match found {
            Value::Array(items) => items.iter().collect(),
            one => vec![one],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn sensitive_variables_are_found_in_both_syntaxes() {
        let directory = module(&[
            (
                "main.tf",
                "variable \"a\" {\n sensitive = true\n}\nvariable \"b\" { sensitive = false }\nvariable \"c\" { ephemeral = !false }\n# variable \"x\" { sensitive = true }\nlocals {\n s = <<EOT\nvariable \"y\" { sensitive = true }\nEOT\n}",
            ),
            (
                "more.tf.json",
                r#"{"variable":{"d":{"sensitive":true},"e":{"type":"string"},"f":[{"sensitive":"true"}]}}"#,
            ),
            ("x.tofu", "variable \"g\" { sensitive = true }"),
            ("notes.txt", "variable \"z\" { sensitive = true }"),
        ]);
        let declared = scan(directory.path(), false).unwrap();
        assert_eq!(
            declared
                .sensitive
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
            ["a", "c", "d", "f"]
        );
        assert!(!declared.unreadable);
        assert!(scan(directory.path(), true).unwrap().is_sensitive("g"));
    }

    #[test]
    fn what_cannot_be_read_counts_as_sensitive() {
        let nested = format!(
            "locals {{ x = {}1{} }}",
            "[".repeat(50_000),
            "]".repeat(50_000)
        );
        for text in ["variable \"a\" {", nested.as_str()] {
            let directory = module(&[("main.tf", text)]);
            assert!(
                scan(directory.path(), false)
                    .unwrap()
                    .is_sensitive("anything")
            );
        }
    }

    #[test]
    fn required_versions_and_overrides_are_found() {
        let directory = module(&[
            (
                "main.tf",
                "terraform {\n  required_version = \">= 1.2\"\n  backend \"s3\" {}\n}",
            ),
            ("v.tf.json", r#"{"terraform":[{"required_version":"< 2"}]}"#),
            ("override.tf", "terraform {\n backend \"local\" {}\n}"),
            ("zz_override.tf.json", r#"{"terraform":{"cloud":{}}}"#),
            ("a_override.tf", "locals {}"),
            ("b_override.tf", "locals {"),
        ]);
        let declared = scan(directory.path(), false).unwrap();
        assert_eq!(
            Constraint::all(declared.required.clone()).to_string(),
            ">= 1.2, < 2"
        );
        assert_eq!(
            declared.backend_overrides,
            ["b_override.tf", "override.tf", "zz_override.tf.json"]
        );
        assert_eq!(declared.overrides.len(), 4);
    }
}
