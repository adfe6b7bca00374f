//! The SDK's public API names no type of its transport: no tonic, prost, http, h2 or hyper.
//!
//! Read from rustdoc's JSON, whose format is unstable, so the walk asks as little of it as it can: every public item of the crate is searched for
//! references to an item of a banned crate. What the compiler implements by itself (auto and blanket implementations) is left out: it is
//! nothing an author could write down.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tree;

/// Crates whose types must not be reachable. A crate of the family (`tonic_prost`, `http_body`, `hyper_util`) counts too.
const BANNED: &[&str] = &["tonic", "prost", "http", "h2", "hyper"];

/// Documents the workspace (a warning is an error), the SDK as JSON besides, and checks that.
///
/// One pass for both: asked for alone, cargo would check the SDK's dependencies again with other features.
pub(crate) fn check() -> Result<()> {
    let target = tree::target_dir()?;
    let wrapper = target.join("tools").join("rustdoc-and-json");
    write_wrapper(&wrapper)?;
    tree::run(
        tree::cargo()
            .args([
                "doc",
                "--workspace",
                "--no-deps",
                "--all-features",
                "--keep-going",
            ])
            .env("RUSTDOC", &wrapper)
            // The second flag sets these docs apart from those of a plain `cargo doc`, which come without the JSON.
            .env("RUSTDOCFLAGS", "-D warnings --cfg documented_by_xtask"),
    )?;
    let file = target.join("doc").join("converge_sdk.json");
    let text = std::fs::read_to_string(&file).with_context(|| {
        format!(
            "could not read {0} (was it removed? `cargo clean -p converge-sdk` makes it anew)",
            file.display()
        )
    })?;
    let doc: Value = serde_json::from_str(&text)
        .with_context(|| format!("could not parse {}", file.display()))?;
    let report = inspect(&doc)?;
    if !report.violations.is_empty() {
        bail!(
            "transport types in the public API of converge-sdk\n  {}",
            report.violations.join("\n  ")
        );
    }
    // A walk that sees nothing would find nothing wrong.
    if !doc["index"]
        .as_object()
        .is_some_and(|index| index.values().any(|item| item["name"] == "Provider"))
    {
        bail!(
            "rustdoc's JSON does not list `Provider`: its format has changed, and xtask/src/public_api.rs must follow"
        );
    }
    println!(
        "{} public items of converge-sdk, none names {}",
        report.items,
        BANNED.join(", ")
    );
    Ok(())
}

/// Only rustdoc may see the variable that unlocks its JSON: set for cargo itself it would rebuild every dependency.
const WRAPPER: &str = r#"#!/bin/sh
case " $* " in
  *" --crate-name converge_sdk "*) RUSTC_BOOTSTRAP=1 rustdoc "$@" -Z unstable-options --output-format json || exit ;;
esac
exec rustdoc "$@"
"#;

fn write_wrapper(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let dir: PathBuf = path.parent().map(Path::to_path_buf).unwrap_or_default();
    std::fs::create_dir_all(&dir).with_context(|| format!("could not create {}", dir.display()))?;
    std::fs::write(path, WRAPPER).with_context(|| format!("could not write {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("could not mark {} executable", path.display()))
}

#[derive(Debug, PartialEq, Eq)]
struct Report {
    items: usize,
    violations: Vec<String>,
}

fn inspect(doc: &Value) -> Result<Report> {
    let crates: BTreeMap<&str, &str> = doc["external_crates"]
        .as_object()
        .context("rustdoc's JSON lists no crates")?
        .iter()
        .filter_map(|(id, it)| Some((id.as_str(), it["name"].as_str()?)))
        .collect();
    let mut banned: BTreeMap<&str, String> = BTreeMap::new();
    for (id, path) in doc["paths"]
        .as_object()
        .context("rustdoc's JSON lists no paths")?
    {
        let Some(name) = crates.get(path["crate_id"].to_string().as_str()) else {
            continue;
        };
        if BANNED.iter().any(|bad| {
            name.strip_prefix(bad)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        }) {
            let segments: Vec<&str> = path["path"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            banned.insert(id, segments.join("::"));
        }
    }
    let index = doc["index"]
        .as_object()
        .context("rustdoc's JSON has no index")?;
    let own: Vec<&Value> = index
        .values()
        .filter(|item| item["crate_id"] == 0 && !compiler_made(item))
        .collect();
    let mut violations = BTreeSet::new();
    for item in &own {
        let mut seen = BTreeSet::new();
        references(&item["inner"], &banned, &mut seen);
        for path in seen {
            let file = item["span"]["filename"].as_str().unwrap_or("?");
            let line = item["span"]["begin"][0].to_string();
            violations.insert(format!(
                "{file}:{line}: {} names {path}",
                item["name"].as_str().unwrap_or("an implementation")
            ));
        }
    }
    Ok(Report {
        items: own.len(),
        violations: violations.into_iter().collect(),
    })
}

fn compiler_made(item: &Value) -> bool {
    let imp = &item["inner"]["impl"];
    imp["is_synthetic"] == true || !imp["blanket_impl"].is_null()
}

/// A reference is an object with an `id` that is in the table of paths; how it is called around that differs between versions of the format.
fn references(value: &Value, banned: &BTreeMap<&str, String>, seen: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(path) = map
                .get("id")
                .and_then(|id| banned.get(id.to_string().as_str()))
            {
                seen.insert(path.clone());
            }
            map.values()
                .for_each(|inner| references(inner, banned, seen));
        }
        Value::Array(list) => list
            .iter()
            .for_each(|inner| references(inner, banned, seen)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn doc(inner: Value) -> Value {
        json!({
            "external_crates": {"1": {"name": "tonic"}, "2": {"name": "http_body"}, "3": {"name": "httparse"}},
            "paths": {
                "10": {"crate_id": 1, "path": ["tonic", "Status"]},
                "11": {"crate_id": 2, "path": ["http_body", "Body"]},
                "12": {"crate_id": 3, "path": ["httparse", "Request"]},
                "13": {"crate_id": 0, "path": ["converge_sdk", "Outcome"]}
            },
            "index": {
                "1": {"crate_id": 0, "name": "it", "span": {"filename": "a.rs", "begin": [3, 1]}, "inner": inner},
                "2": {"crate_id": 1, "name": "theirs", "inner": {"struct_field": {"resolved_path": {"path": "Status", "id": 10}}}}
            }
        })
    }

    #[test]
    fn a_transport_type_anywhere_in_a_signature_is_found() {
        let inner = json!({"function": {"sig": {"inputs": [["x", {"resolved_path": {"path": "Vec", "id": 99, "args": {"angle_bracketed": {
            "args": [{"type": {"resolved_path": {"path": "Status", "id": 10}}}, {"type": {"dyn_trait": {"traits": [{"trait": {"path": "Body", "id": 11}}]}}}]}}}}]]}}});
        assert_eq!(
            inspect(&doc(inner)).unwrap().violations,
            [
                "a.rs:3: it names http_body::Body",
                "a.rs:3: it names tonic::Status"
            ]
        );
    }

    /// The format as the pinned toolchain writes it, with a stand-in for the transport.
    #[test]
    fn what_rustdoc_really_writes_is_understood() {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &str, args: &[&str]| {
            tree::run(
                std::process::Command::new(program)
                    .current_dir(dir.path())
                    .env("RUSTC_BOOTSTRAP", "1")
                    .args(args),
            )
            .unwrap();
        };
        std::fs::write(
            dir.path().join("tonic.rs"),
            "pub struct Status; pub trait Into2 {} impl<T> Into2 for T {}",
        )
        .unwrap();
        let own = "pub struct Fine; mod hidden { pub fn unseen() -> tonic::Status { tonic::Status } }\n\
            pub fn uses() -> Option<Fine> { hidden::unseen(); None }\n\
            pub trait Provider { fn bad(&self) -> Result<Fine, tonic::Status>; }\n\
            impl From<tonic::Status> for Fine { fn from(_: tonic::Status) -> Self { Fine } }\n";
        std::fs::write(dir.path().join("own.rs"), own).unwrap();
        run("rustc", &["--edition=2024", "--crate-type=lib", "tonic.rs"]);
        let json = ["-Zunstable-options", "--output-format=json", "-o", "out"];
        run(
            "rustdoc",
            &[
                &[
                    "--edition=2024",
                    "--crate-type=lib",
                    "--extern=tonic=libtonic.rlib",
                    "own.rs",
                ],
                &json[..],
            ]
            .concat(),
        );
        let text = std::fs::read_to_string(dir.path().join("out/own.json")).unwrap();
        let report = inspect(&serde_json::from_str(&text).unwrap()).unwrap();
        let found: Vec<&str> = report
            .violations
            .iter()
            .map(|line| line.split(": ").nth(1).unwrap())
            .collect();
        assert_eq!(
            found,
            [
                "bad names tonic::Status",
                "an implementation names tonic::Status",
                "from names tonic::Status"
            ],
            "{:?}",
            report.violations
        );
    }

    #[test]
    fn a_hand_written_implementation_counts_and_a_blanket_one_does_not() {
        let written = json!({"impl": {"trait": {"path": "From", "id": 50, "args": {"angle_bracketed": {"args": [{"type": {"resolved_path": {"id": 10}}}]}}},
            "is_synthetic": false, "blanket_impl": null}});
        assert_eq!(inspect(&doc(written)).unwrap().violations.len(), 1);
        let blanket = json!({"impl": {"trait": {"path": "IntoRequest", "id": 10}, "is_synthetic": false, "blanket_impl": {"generic": "T"}}});
        assert_eq!(
            inspect(&doc(blanket)).unwrap(),
            Report {
                items: 0,
                violations: vec![]
            }
        );
    }

    #[test]
    fn a_crate_that_only_begins_alike_is_fine() {
        let inner = json!({"struct_field": {"resolved_path": {"path": "Request", "id": 12}}});
        assert_eq!(
            inspect(&doc(inner)).unwrap(),
            Report {
                items: 1,
                violations: vec![]
            }
        );
    }
}
