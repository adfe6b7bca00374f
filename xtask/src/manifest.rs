//! `example.json`: how an example is run. The keys are explained in `examples/README.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a folder under `examples/` asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) kinds: Vec<String>,
    #[serde(default = "default_apply")]
    pub(crate) apply: Vec<Apply>,
    #[serde(default)]
    pub(crate) worker: Worker,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) ready: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) expect: BTreeMap<String, BTreeMap<String, Value>>,
    #[serde(default = "default_timeout")]
    pub(crate) timeout_seconds: u64,
    #[serde(default)]
    pub(crate) teardown: Option<Vec<String>>,
}

/// One `conctl apply`: a file or folder, and perhaps a bundle for the providerconfig in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct Apply {
    pub(crate) file: PathBuf,
    pub(crate) bundle: Option<PathBuf>,
}

/// Which worker serves the example.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
pub(crate) enum Worker {
    /// `stdworker` of this tree.
    #[default]
    Stdworker,
    /// Another program of the workspace.
    Built {
        /// The package that holds it.
        package: String,
        /// The binary or cargo example in it.
        target: String,
        /// Whether `target` is a cargo example.
        example: bool,
    },
    /// Nobody: the example shows what waits.
    Nobody,
}

fn default_apply() -> Vec<Apply> {
    vec![Apply {
        file: "manifests".into(),
        bundle: None,
    }]
}

fn default_timeout() -> u64 {
    120
}

impl TryFrom<Value> for Apply {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(file) => Ok(Self {
                file: file.into(),
                bundle: None,
            }),
            Value::Object(map) => {
                let mut texts = texts(map, "an entry of `apply`", &["file", "bundle"])?;
                let file = texts
                    .remove("file")
                    .ok_or("an entry of `apply` has no `file`")?;
                Ok(Self {
                    file: file.into(),
                    bundle: texts.remove("bundle").map(PathBuf::from),
                })
            }
            other => Err(format!(
                "an entry of `apply` is a path or {{\"file\", \"bundle\"}}, not {other}"
            )),
        }
    }
}

impl TryFrom<Value> for Worker {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::Bool(false) => Ok(Self::Nobody),
            Value::Object(map) => {
                let mut texts = texts(map, "`worker`", &["package", "bin", "example"])?;
                let package = texts.remove("package").ok_or("`worker` has no `package`")?;
                match (texts.remove("bin"), texts.remove("example")) {
                    (Some(_), Some(_)) => {
                        Err("`worker` names both a `bin` and an `example`".into())
                    }
                    (None, Some(target)) => Ok(Self::Built {
                        package,
                        target,
                        example: true,
                    }),
                    (bin, None) => Ok(Self::Built {
                        target: bin.unwrap_or_else(|| package.clone()),
                        package,
                        example: false,
                    }),
                }
            }
            other => Err(format!(
                "`worker` is false or {{\"package\", \"bin\" or \"example\"}}, not {other}"
            )),
        }
    }
}

fn texts(
    map: Map<String, Value>,
    what: &str,
    known: &[&str],
) -> Result<BTreeMap<String, String>, String> {
    map.into_iter()
        .map(|(key, value)| match value {
            _ if !known.contains(&key.as_str()) => Err(format!(
                "{what} has an unknown key `{key}` (known: {})",
                known.join(", ")
            )),
            Value::String(text) => Ok((key, text)),
            other => Err(format!("`{key}` of {what} is a text, not {other}")),
        })
        .collect()
}

impl Manifest {
    /// Reads an example's manifest and checks that the files it names in its folder are there.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("example.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", path.display()))?;
        let manifest: Self = serde_json::from_str(&text)
            .with_context(|| format!("could not parse {}", path.display()))?;
        let mut problems = Vec::new();
        for path in manifest
            .apply
            .iter()
            .flat_map(|apply| [Some(&apply.file), apply.bundle.as_ref()])
            .flatten()
        {
            if !dir.join(path).exists() {
                problems.push(format!("`apply`: there is no {}", path.display()));
            }
        }
        for name in manifest
            .ready
            .iter()
            .flatten()
            .chain(manifest.expect.keys())
            .chain(manifest.teardown.iter().flatten())
        {
            if name.split('/').filter(|part| !part.is_empty()).count() != 2 {
                problems.push(format!("`{name}` is not kind/name"));
            }
        }
        for pointer in manifest
            .expect
            .values()
            .flat_map(BTreeMap::keys)
            .filter(|pointer| !pointer.starts_with('/'))
        {
            problems.push(format!("`expect`: {pointer:?} is not a JSON pointer"));
        }
        if !problems.is_empty() {
            bail!("{}\n  {}", path.display(), problems.join("\n  "));
        }
        Ok(manifest)
    }
}

/// Fails naming the kinds that are not in `kinds/`.
pub(crate) fn check_kinds(root: &Path, kinds: &[String]) -> Result<()> {
    let missing: Vec<&str> = kinds
        .iter()
        .map(String::as_str)
        .filter(|kind| !kind_file(root, kind).is_file())
        .collect();
    if !missing.is_empty() {
        bail!("kinds/ holds no manifest for {}", missing.join(", "));
    }
    Ok(())
}

/// Where a reference kind's manifest is.
pub(crate) fn kind_file(root: &Path, kind: &str) -> PathBuf {
    root.join("kinds").join(format!("{kind}.kind.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<Manifest, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_manifest_is_short_when_the_defaults_fit() {
        let manifest = parse(json!({"about": "x"})).unwrap();
        assert_eq!(
            manifest.apply,
            [Apply {
                file: "manifests".into(),
                bundle: None
            }]
        );
        assert_eq!(
            (manifest.worker, manifest.timeout_seconds, manifest.ready),
            (Worker::Stdworker, 120, None)
        );
    }

    #[test]
    fn workers_and_bundles_are_read() {
        let manifest = parse(json!({"about": "x", "worker": {"package": "classic"}, "apply": ["a", {"file": "b", "bundle": "c"}]})).unwrap();
        assert_eq!(
            manifest.worker,
            Worker::Built {
                package: "classic".into(),
                target: "classic".into(),
                example: false
            }
        );
        assert_eq!(
            manifest.apply[1],
            Apply {
                file: "b".into(),
                bundle: Some("c".into())
            }
        );
        assert_eq!(
            parse(json!({"about": "x", "worker": false}))
                .unwrap()
                .worker,
            Worker::Nobody
        );
    }

    #[test]
    fn a_slip_is_told_by_name() {
        for (value, wanted) in [
            (json!({"about": "x", "aply": []}), "unknown field `aply`"),
            (
                json!({"about": "x", "apply": [{"path": "a"}]}),
                "unknown key `path`",
            ),
            (json!({"about": "x", "apply": [7]}), "is a path or"),
            (
                json!({"about": "x", "worker": {"bin": "a"}}),
                "no `package`",
            ),
            (
                json!({"about": "x", "worker": true}),
                "`worker` is false or",
            ),
            (
                json!({"about": "x", "worker": {"package": "p", "bin": "a", "example": "b"}}),
                "both",
            ),
        ] {
            let error = parse(value).unwrap_err();
            assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
        }
    }

    #[test]
    fn what_a_manifest_names_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("example.json"),
            r#"{"about": "x", "kinds": ["nope"], "ready": ["noslash"], "expect": {"a/b": {"status": 1}}}"#,
        )
        .unwrap();
        let error = Manifest::read(dir.path()).unwrap_err().to_string();
        for wanted in [
            "there is no manifests",
            "`noslash` is not kind/name",
            "\"status\" is not a JSON pointer",
        ] {
            assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
        }
    }

    #[test]
    fn a_kind_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("kinds")).unwrap();
        std::fs::write(dir.path().join("kinds/a.kind.json"), "{}").unwrap();
        let error = check_kinds(dir.path(), &["a".into(), "b".into()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "kinds/ holds no manifest for b");
    }

    #[test]
    fn every_example_of_the_tree_is_well_formed() {
        let root = crate::tree::root();
        for name in crate::example::names().unwrap() {
            Manifest::read(&root.join("examples").join(&name)).unwrap();
        }
    }
}
