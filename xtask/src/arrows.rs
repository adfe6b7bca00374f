//! Which package of the workspace may depend on which, and what the inner ones may never see.
//!
//! The table below is the one in `ARCHITECTURE.md`. Normal and build edges must be in it; a dev edge may, besides, lead to the dev-only crates (and from
//! a provider or `stdworker` to the SDK, for its `testing` feature). Not here: modules inside a crate (`hygiene.rs` looks at `decide/`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::tree;

/// For a package's directory: the packages it may depend on. `providers/*` and `crates/store-*` stand for every such directory.
const ARROWS: &[(&str, &[&str])] = &[
    ("sdk", &[]),
    ("providers/*", &["sdk"]),
    ("bins/stdworker", &["sdk", "providers/*"]),
    ("bins/converge", &["crates/server"]),
    ("bins/conctl", &["crates/client", "crates/api-types"]),
    ("crates/types", &[]),
    ("crates/engine", &["crates/types"]),
    ("crates/store-*", &["crates/engine", "crates/types"]),
    ("crates/broker", &["crates/engine", "crates/types"]),
    ("crates/api-types", &[]),
    ("crates/console", &[]),
    (
        "crates/api",
        &[
            "crates/engine",
            "crates/api-types",
            "crates/types",
            "crates/console",
        ],
    ),
    ("crates/client", &["crates/api-types"]),
    (
        "crates/server",
        &[
            "crates/engine",
            "crates/types",
            "crates/store-*",
            "crates/broker",
            "crates/api",
            "crates/api-types",
            "crates/console",
            "crates/client",
        ],
    ),
    ("crates/conformance", &["crates/engine", "crates/types"]),
    (
        "crates/testkit",
        &[
            "sdk",
            "crates/server",
            "crates/client",
            "crates/api-types",
            "crates/types",
        ],
    ),
    ("examples/*", &["sdk"]),
    ("xtask", &[]),
];

/// Where a dev edge may lead besides.
const DEV: &[&str] = &["crates/conformance", "crates/testkit"];

/// Foreign crates that an inner package must not link.
const FOREIGN: &[(&str, &[&str])] = &[
    (
        "crates/types",
        &[
            "tokio",
            "axum",
            "tonic",
            "prost",
            "rusqlite",
            "sqlx",
            "tokio-postgres",
            "hyper",
        ],
    ),
    (
        "crates/engine",
        &[
            "tokio",
            "axum",
            "tonic",
            "prost",
            "rusqlite",
            "sqlx",
            "tokio-postgres",
            "hyper",
        ],
    ),
    ("crates/store-*", &["axum", "tonic", "prost"]),
    (
        "crates/api",
        &["tonic", "prost", "rusqlite", "sqlx", "tokio-postgres"],
    ),
    (
        "crates/broker",
        &["axum", "rusqlite", "sqlx", "tokio-postgres"],
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Normal,
    Dev,
}

/// A member of the workspace: its directory below the root, and what its manifest depends on by package name.
#[derive(Debug)]
struct Member {
    name: String,
    dir: String,
    deps: Vec<(String, Edge)>,
}

/// Checks this workspace.
pub(crate) fn check() -> Result<()> {
    let text = tree::read(tree::cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    let members = members(&serde_json::from_str(&text).context("cargo metadata is not JSON")?)?;
    let mut problems = violations(&members);
    problems.extend(template_violations(&templates(&members)?));
    if !problems.is_empty() {
        bail!(
            "{} forbidden edges or manifests\n  {}",
            problems.len(),
            problems.join("\n  ")
        );
    }
    println!(
        "{} packages, every edge between them is in the table",
        members.len()
    );
    Ok(())
}

fn members(metadata: &Value) -> Result<Vec<Member>> {
    let root = metadata["workspace_root"]
        .as_str()
        .context("cargo metadata names no workspace root")?;
    let mut members = Vec::new();
    for package in metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?
    {
        let text = |key: &str| {
            package[key]
                .as_str()
                .with_context(|| format!("a package without {key}"))
        };
        let manifest = text("manifest_path")?;
        let dir = manifest
            .strip_prefix(root)
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"))
            .map(|dir| dir.trim_start_matches('/'));
        let dir = dir
            .with_context(|| format!("{manifest} is not below {root}"))?
            .to_owned();
        let deps = package["dependencies"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let deps = deps
            .iter()
            .filter_map(|dep| {
                Some((
                    dep["name"].as_str()?.to_owned(),
                    if dep["kind"] == "dev" {
                        Edge::Dev
                    } else {
                        Edge::Normal
                    },
                ))
            })
            .collect();
        members.push(Member {
            name: text("name")?.to_owned(),
            dir,
            deps,
        });
    }
    Ok(members)
}

fn violations(members: &[Member]) -> Vec<String> {
    let dirs: BTreeMap<&str, &str> = members
        .iter()
        .map(|member| (member.name.as_str(), member.dir.as_str()))
        .collect();
    let mut problems = BTreeSet::new();
    for member in members {
        let Some((_, allowed)) = ARROWS
            .iter()
            .find(|(pattern, _)| matches(pattern, &member.dir))
        else {
            problems.insert(format!(
                "{}: not in the table of arrows (xtask/src/arrows.rs, ARCHITECTURE.md)",
                member.dir
            ));
            continue;
        };
        let foreign: Vec<&str> = FOREIGN
            .iter()
            .filter(|(from, _)| matches(from, &member.dir))
            .flat_map(|(_, banned)| banned.iter().copied())
            .collect();
        for (name, edge) in &member.deps {
            match dirs.get(name.as_str()) {
                Some(to) => {
                    let dev = *edge == Edge::Dev
                        && (DEV.contains(to) && !member.dir.starts_with("providers/"));
                    if !dev && !allowed.iter().any(|pattern| matches(pattern, to)) {
                        problems.insert(format!(
                            "{} → {to}{}",
                            member.dir,
                            if *edge == Edge::Dev { " (dev)" } else { "" }
                        ));
                    }
                }
                None if *edge == Edge::Normal && foreign.contains(&name.as_str()) => {
                    problems.insert(format!(
                        "{} → {name} (a foreign crate this package must not see)",
                        member.dir
                    ));
                }
                None => {}
            }
        }
    }
    problems.into_iter().collect()
}

fn matches(pattern: &str, dir: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => dir
            .strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        None => pattern == dir,
    }
}

/// The manifests that are copied out of the tree, by directory, and the workspace's own under `""`.
fn templates(members: &[Member]) -> Result<BTreeMap<String, toml::Table>> {
    let mut found = BTreeMap::new();
    let dirs = members
        .iter()
        .map(|member| member.dir.as_str())
        .filter(|dir| dir.starts_with("providers/") || dir.starts_with("examples/"));
    for dir in std::iter::once("").chain(dirs) {
        let path = tree::root().join(dir).join("Cargo.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", path.display()))?;
        found.insert(
            dir.to_owned(),
            text.parse()
                .with_context(|| format!("could not parse {}", path.display()))?,
        );
    }
    Ok(found)
}

/// The manifest of a provider or an example stands alone: it inherits nothing, repeats the workspace's lints, and names the SDK by version.
fn template_violations(manifests: &BTreeMap<String, toml::Table>) -> Vec<String> {
    let lints = manifests
        .get("")
        .and_then(|root| root.get("workspace"))
        .and_then(|workspace| workspace.get("lints"));
    let mut problems = Vec::new();
    for (dir, manifest) in manifests.iter().filter(|(dir, _)| !dir.is_empty()) {
        let mut inherited = Vec::new();
        for (key, value) in manifest {
            inherits(key, value, &mut inherited);
        }
        problems.extend(inherited.iter().map(|key| format!("{dir}/Cargo.toml: {key} is inherited from the workspace, which breaks once the crate is copied")));
        if manifest.get("lints") != lints {
            problems.push(format!(
                "{dir}/Cargo.toml: [lints] differs from the workspace's [workspace.lints]"
            ));
        }
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(deps) = manifest.get(table).and_then(toml::Value::as_table) else {
                continue;
            };
            problems.extend(
                deps.iter()
                    .filter(|(_, dep)| dep.get("path").is_some())
                    .map(|(name, _)| format!("{dir}/Cargo.toml: {table}.{name} names a path, which breaks once the crate is copied")),
            );
        }
    }
    problems
}

fn inherits(at: &str, value: &toml::Value, found: &mut Vec<String>) {
    let Some(table) = value.as_table() else {
        return;
    };
    if table.get("workspace") == Some(&toml::Value::Boolean(true)) {
        found.push(at.to_owned());
    }
    for (key, inner) in table {
        inherits(&format!("{at}.{key}"), inner, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(dir: &str, name: &str, deps: &[(&str, Option<&str>)]) -> Value {
        let deps: Vec<Value> = deps
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind}))
            .collect();
        json!({"name": name, "manifest_path": format!("/r/{dir}/Cargo.toml"), "dependencies": deps})
    }

    fn problems(packages: &[Value]) -> Vec<String> {
        violations(&members(&json!({"workspace_root": "/r", "packages": packages})).unwrap())
    }

    fn base() -> Vec<Value> {
        vec![
            package("sdk", "converge-sdk", &[("tonic", None), ("prost", None)]),
            package("crates/types", "converge-types", &[("serde", None)]),
            package(
                "crates/testkit",
                "converge-testkit",
                &[("converge-sdk", None)],
            ),
            package("crates/conformance", "converge-conformance", &[]),
            package(
                "crates/engine",
                "converge-engine",
                &[("converge-types", None), ("tokio", Some("dev"))],
            ),
            package(
                "crates/store-sqlite",
                "converge-store-sqlite",
                &[
                    ("converge-engine", None),
                    ("converge-conformance", Some("dev")),
                ],
            ),
            package(
                "providers/stdio",
                "stdio",
                &[("converge-sdk", None), ("converge-sdk", Some("dev"))],
            ),
            package(
                "bins/stdworker",
                "stdworker",
                &[("stdio", None), ("converge-testkit", Some("dev"))],
            ),
        ]
    }

    #[test]
    fn the_intended_layout_passes() {
        assert_eq!(problems(&base()), [""; 0]);
    }

    #[test]
    fn every_wrong_edge_is_named() {
        let mut packages = base();
        packages.extend([
            package(
                "providers/stdshell",
                "stdshell",
                &[
                    ("stdio", None),
                    ("converge-types", Some("dev")),
                    ("converge-testkit", Some("dev")),
                ],
            ),
            package(
                "crates/api",
                "converge-api",
                &[("converge-broker", None), ("converge-sdk", Some("dev"))],
            ),
            package(
                "crates/broker",
                "converge-broker",
                &[("converge-conformance", None), ("xtask", Some("build"))],
            ),
            package("crates/surprise", "converge-surprise", &[]),
            package("xtask", "xtask", &[]),
        ]);
        assert_eq!(
            problems(&packages),
            [
                "crates/api → crates/broker",
                "crates/api → sdk (dev)",
                "crates/broker → crates/conformance",
                "crates/broker → xtask",
                "crates/surprise: not in the table of arrows (xtask/src/arrows.rs, ARCHITECTURE.md)",
                "providers/stdshell → crates/testkit (dev)",
                "providers/stdshell → crates/types (dev)",
                "providers/stdshell → providers/stdio",
            ]
        );
    }

    #[test]
    fn inner_crates_see_no_database_and_no_transport() {
        let mut packages = base();
        packages[4] = package(
            "crates/engine",
            "converge-engine",
            &[("rusqlite", None), ("tonic", None), ("serde", None)],
        );
        assert_eq!(
            problems(&packages),
            [
                "crates/engine → rusqlite (a foreign crate this package must not see)",
                "crates/engine → tonic (a foreign crate this package must not see)"
            ]
        );
    }

    #[test]
    fn a_provider_that_could_not_be_copied_is_named_with_the_reason() {
        let root = "[workspace.lints.rust]\nunsafe_code = \"deny\"";
        let good = "[package]\nname = \"a\"\n[dependencies]\nserde = \"1\"\n[lints.rust]\nunsafe_code = \"deny\"";
        let bad = "[package]\nversion.workspace = true\n[dependencies]\nserde = { workspace = true }\nsdk = { path = \"../../sdk\" }\n[lints]\nworkspace = true";
        let manifests = |provider: &str| -> BTreeMap<String, toml::Table> {
            [("", root), ("providers/a", provider)]
                .map(|(dir, text)| (dir.to_owned(), text.parse().unwrap()))
                .into()
        };
        assert_eq!(template_violations(&manifests(good)), [""; 0]);
        assert_eq!(
            template_violations(&manifests(bad)),
            [
                "providers/a/Cargo.toml: dependencies.serde is inherited from the workspace, which breaks once the crate is copied",
                "providers/a/Cargo.toml: lints is inherited from the workspace, which breaks once the crate is copied",
                "providers/a/Cargo.toml: package.version is inherited from the workspace, which breaks once the crate is copied",
                "providers/a/Cargo.toml: [lints] differs from the workspace's [workspace.lints]",
                "providers/a/Cargo.toml: dependencies.sdk names a path, which breaks once the crate is copied",
            ]
        );
    }
}
