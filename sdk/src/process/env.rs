//! The environment a program is given: what the worker has, below what a config says, below what a spec says.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, OnceLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use wildmatch::WildMatch;

use super::SpawnError;
use super::cookie;
use crate::options::PARENT_VARIABLE;
use crate::{ReactionRequest, TaskContext, TaskError};

/// Which of the worker's own variables a program sees. In a document: `true`, `false`, or a list of names and globs.
///
/// Variables that begin with `TLS_` are the worker's credentials and never passed, whatever is listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Inherit {
    /// All of them.
    #[default]
    All,
    /// Those whose name equals, or matches as a glob (`*`, `?`), one of these.
    Only(Vec<String>),
}

impl Inherit {
    /// None of them.
    #[must_use]
    pub fn none() -> Self {
        Inherit::Only(Vec::new())
    }
}

impl<'de> Deserialize<'de> for Inherit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Bool(true) => Ok(Inherit::All),
            serde_json::Value::Bool(false) => Ok(Inherit::none()),
            serde_json::Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    serde_json::Value::String(name) => Ok(name),
                    other => Err(D::Error::custom(format!(
                        "a name or glob must be a string, not {other}"
                    ))),
                })
                .collect::<Result<_, _>>()
                .map(Inherit::Only),
            other => Err(D::Error::custom(format!(
                "must be true, false or a list of names and globs, not {other}"
            ))),
        }
    }
}

/// Variables as they stand in a document: names to strings, numbers or booleans.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(items: I) -> Self {
        Variables(
            items
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl<'de> Deserialize<'de> for Variables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut variables = BTreeMap::new();
        let mut wrong = Vec::new();
        for (name, value) in BTreeMap::<String, serde_json::Value>::deserialize(deserializer)? {
            let value = match value {
                serde_json::Value::String(text) => text,
                // Every digit as it was written.
                serde_json::Value::Number(number) => number.to_string(),
                serde_json::Value::Bool(flag) => flag.to_string(),
                serde_json::Value::Null => {
                    wrong.push(format!("{name} is null"));
                    continue;
                }
                serde_json::Value::Array(_) => {
                    wrong.push(format!("{name} is an array"));
                    continue;
                }
                serde_json::Value::Object(_) => {
                    wrong.push(format!("{name} is an object"));
                    continue;
                }
            };
            variables.insert(name, value);
        }
        if wrong.is_empty() {
            Ok(Variables(variables))
        } else {
            Err(D::Error::custom(format!(
                "the value of a variable must be a string, a number or a boolean, but {}",
                wrong.join(", ")
            )))
        }
    }
}

type Pairs = Arc<[(OsString, OsString)]>;

/// A complete environment, built in layers; a later layer wins.
#[derive(Debug, Clone)]
pub struct Environment {
    base: Pairs,
    overlay: BTreeMap<OsString, OsString>,
    /// Over everything.
    fixed: Vec<(&'static str, OsString)>,
}

impl Environment {
    /// The worker's variables that `inherit` admits.
    #[must_use]
    pub fn inherited(inherit: &Inherit) -> Self {
        let base = match inherit {
            Inherit::All => Arc::clone(&worker().passed),
            Inherit::Only(patterns) if patterns.is_empty() => Pairs::from([]),
            Inherit::Only(patterns) => {
                let patterns: Vec<WildMatch> = patterns
                    .iter()
                    .map(|pattern| WildMatch::new(pattern))
                    .collect();
                let admitted = |name: &OsStr| {
                    name.to_str()
                        .is_some_and(|name| patterns.iter().any(|pattern| pattern.matches(name)))
                };
                worker()
                    .passed
                    .iter()
                    .filter(|(name, _)| admitted(name))
                    .cloned()
                    .collect()
            }
        };
        Environment {
            base,
            overlay: BTreeMap::new(),
            fixed: Vec::new(),
        }
    }

    /// The worker's variables that `inherit` admits, and those that say for which task the program runs: `CONVERGE_KIND`,
    /// `CONVERGE_NAME`, `CONVERGE_UID`, `CONVERGE_GENERATION` and `CONVERGE_CLAIM_EPOCH` (a number that grows with every claim
    /// of the resource: a fencing token for systems outside). No layer replaces those.
    #[must_use]
    pub fn for_task(inherit: &Inherit, ctx: &TaskContext, request: &ReactionRequest) -> Self {
        let mut env = Self::inherited(inherit);
        for (name, value) in [
            ("CONVERGE_KIND", request.resource.kind.clone()),
            ("CONVERGE_NAME", request.resource.name.clone()),
            ("CONVERGE_UID", request.resource.uid.to_string()),
            ("CONVERGE_GENERATION", request.generation.to_string()),
            ("CONVERGE_CLAIM_EPOCH", ctx.claim_epoch().to_string()),
        ] {
            env.fixed.push((name, value.into()));
        }
        env
    }

    /// Nothing at all.
    #[must_use]
    pub fn empty() -> Self {
        Environment {
            base: Pairs::from([]),
            overlay: BTreeMap::new(),
            fixed: Vec::new(),
        }
    }

    /// Puts `variables` on top. `field` says where they stand (`spec.env`), for the error.
    ///
    /// # Errors
    /// Terminal: a name that cannot be a variable, or a NUL byte in a name or value; the error names it.
    pub fn layer(&mut self, field: &str, variables: &Variables) -> Result<(), TaskError> {
        for (name, value) in variables.iter() {
            if name.is_empty() || name.contains('=') {
                return Err(SpawnError::VariableName {
                    field: field.to_owned(),
                    name: name.to_owned(),
                }
                .into());
            }
            if name.contains('\0') || value.contains('\0') {
                let field = format!("{field}.{}", name.replace('\0', "\u{FFFD}"));
                return Err(SpawnError::NulByte { field }.into());
            }
            self.overlay.insert(name.into(), value.into());
        }
        Ok(())
    }

    /// Sets one variable; the last setting of a name wins.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        self.overlay.insert(name.into(), value.into());
        self
    }

    /// Makes it the environment of `command`, which has not been given any.
    pub(super) fn give_to(&self, command: &mut std::process::Command) {
        if !Arc::ptr_eq(&self.base, &worker().passed) {
            command.env_clear().envs(self.iter());
            return;
        }
        // What is inherited anyway need not be copied twice.
        for name in &worker().withheld {
            command.env_remove(name);
        }
        command
            .envs(&self.overlay)
            .envs(self.fixed.iter().map(|(name, value)| (name, value)));
    }

    /// Takes one variable out of every layer.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        let name = OsStr::new(name);
        self.overlay.remove(name);
        if self.base.iter().any(|(known, _)| known == name) {
            self.base = self
                .base
                .iter()
                .filter(|(known, _)| known != name)
                .cloned()
                .collect();
        }
        self
    }

    /// The value a program will see.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let wanted = OsStr::new(name);
        let fixed = self
            .fixed
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value);
        fixed
            .or_else(|| self.overlay.get(wanted))
            .or_else(|| {
                self.base
                    .iter()
                    .find(|(known, _)| known == wanted)
                    .map(|(_, value)| value)
            })
            .map(OsString::as_os_str)
    }

    /// All variables, each once, as a program will see them.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let is_free = |name: &OsStr| self.fixed.iter().all(|(known, _)| name != *known);
        let below = self
            .base
            .iter()
            .filter(|(name, _)| !self.overlay.contains_key(name));
        let free = below
            .map(|(name, value)| (name, value))
            .chain(self.overlay.iter());
        free.map(|(name, value)| (name.as_os_str(), value.as_os_str()))
            .filter(move |(name, _)| is_free(name))
            .chain(
                self.fixed
                    .iter()
                    .map(|(name, value)| (OsStr::new(*name), value.as_os_str())),
            )
    }
}

/// The worker's environment, read once: nothing may change it while threads run.
struct Worker {
    passed: Pairs,
    /// Its credentials, the mark of a task it may be part of itself, and who started it.
    withheld: Vec<OsString>,
}

fn worker() -> &'static Worker {
    static WORKER: OnceLock<Worker> = OnceLock::new();
    WORKER.get_or_init(|| {
        let (withheld, passed): (Vec<_>, Vec<_>) = std::env::vars_os().partition(|(name, _)| {
            name.as_encoded_bytes().starts_with(b"TLS_")
                || name == cookie::VARIABLE
                || name == PARENT_VARIABLE
        });
        Worker {
            passed: passed.into(),
            withheld: withheld.into_iter().map(|(name, _)| name).collect(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(json: &str) -> Result<Variables, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn numbers_keep_every_digit_and_booleans_are_words() {
        let read =
            variables(r#"{"A":123456789012345678901234567890,"B":true,"C":"x","D":1.50}"#).unwrap();
        let expected = [
            ("A", "123456789012345678901234567890"),
            ("B", "true"),
            ("C", "x"),
            ("D", "1.50"),
        ];
        assert_eq!(read, expected.into_iter().collect());
    }

    #[test]
    fn all_values_that_are_no_scalars_are_named_at_once() {
        let message = variables(r#"{"A":null,"B":[1],"C":{},"D":1}"#)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("A is null, B is an array, C is an object"),
            "{message}"
        );
    }

    #[test]
    fn a_later_layer_wins_and_nothing_is_listed_twice() {
        let mut env = Environment::inherited(&Inherit::All);
        env.layer(
            "config.env",
            &[("PATH", "/a"), ("X", "1")].into_iter().collect(),
        )
        .unwrap();
        env.layer("spec.env", &[("X", "2")].into_iter().collect())
            .unwrap();
        assert_eq!(env.get("X"), Some(OsStr::new("2")));
        assert_eq!(env.iter().filter(|(name, _)| *name == "PATH").count(), 1);
        assert_eq!(env.get("PATH"), Some(OsStr::new("/a")));
        env.remove("PATH");
        assert_eq!(env.get("PATH"), None);
    }

    #[test]
    fn only_what_is_listed_is_inherited() {
        let env =
            Environment::inherited(&Inherit::Only(vec!["PA*H".into(), "CARGO_PKG_NAM?".into()]));
        let mut names: Vec<_> = env
            .iter()
            .map(|(name, _)| name.to_str().unwrap().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["CARGO_PKG_NAME", "PATH"]);
        assert_eq!(Environment::inherited(&Inherit::none()).iter().count(), 0);
    }

    #[test]
    fn inherit_reads_true_false_and_lists() {
        let read = |json: &str| serde_json::from_str::<Inherit>(json);
        assert_eq!(read("true").unwrap(), Inherit::All);
        assert_eq!(read("false").unwrap(), Inherit::none());
        assert_eq!(
            read(r#"["A","B*"]"#).unwrap(),
            Inherit::Only(vec!["A".into(), "B*".into()])
        );
        assert!(
            read("3")
                .unwrap_err()
                .to_string()
                .contains("true, false or a list")
        );
    }

    #[test]
    fn names_and_values_no_program_could_get_are_refused_by_name() {
        let mut env = Environment::empty();
        let mut refuse = |name: &str, value: &str| {
            env.layer("spec.env", &[(name, value)].into_iter().collect())
                .unwrap_err()
                .to_string()
        };
        assert!(refuse("", "x").contains("spec.env"));
        assert!(refuse("A=B", "x").contains("\"A=B\""));
        assert!(refuse("A", "x\0y").contains("spec.env.A contains a NUL byte"));
    }
}
