//! `stdworker render` as people run it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

struct Run {
    folder: tempfile::TempDir,
    args: Vec<String>,
}

impl Run {
    fn new(args: &[&str]) -> Self {
        let args = ["render"]
            .iter()
            .chain(args)
            .map(|arg| (*arg).to_owned())
            .collect();
        Self {
            folder: tempfile::tempdir().unwrap(),
            args,
        }
    }

    /// Writes a file and passes it with a flag.
    fn file(mut self, flag: &str, name: &str, content: &str) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        if !flag.is_empty() {
            self.args
                .extend([flag.to_owned(), path.to_str().unwrap().to_owned()]);
        }
        self
    }

    fn folder(mut self, flag: &str, name: &str) -> Self {
        self.args.extend([
            flag.to_owned(),
            self.folder.path().join(name).to_str().unwrap().to_owned(),
        ]);
        self
    }

    fn run(&self) -> (Option<i32>, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new(env!("CARGO_BIN_EXE_stdworker"))
            .args(&self.args)
            .env_remove("STDIO_COMMAND")
            .output()
            .unwrap();
        (
            status.code(),
            String::from_utf8(stdout).unwrap(),
            String::from_utf8(stderr).unwrap(),
        )
    }

    /// The output of a run that must succeed.
    fn ok(&self) -> String {
        let (code, stdout, stderr) = self.run();
        assert_eq!(code, Some(0), "{stderr}");
        stdout
    }
}

const GRAPH: &str = r#"{"resources": [
    {"id": "net", "template": {"kind": "network", "name": "${schema.metadata.name}-net", "spec": {"n": 1.50}}},
    {"id": "vm", "template": {"kind": "machine", "kind_version": 2, "name": "vm", "spec": {"net": "${net.status.id}"}}}
]}"#;

fn stdcel(form: &str) -> Run {
    Run::new(&["--kind", "stdcel", "-o", form])
        .file("--config", "graph.json", GRAPH)
        .file("--spec", "spec.json", "{}")
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../providers/stdcel/tests/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

/// Edges in an order of their own.
fn sorted(edges: &Value) -> Value {
    let mut edges = edges.as_array().unwrap().clone();
    edges.sort_by_key(|edge| format!("{}{}", edge["from"], edge["to"]));
    Value::Array(edges)
}

#[test]
fn every_case_of_stdcel_has_its_answer() {
    let cases = cases();
    assert!(cases.len() >= 37);
    for file in cases {
        let case: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let run = Run::new(&["--kind", "stdcel", "-o", "json"])
            .file("--config", "config.json", &case["config"].to_string())
            .file("--spec", "spec.json", &case["spec"].to_string());
        let (code, stdout, stderr) = run.run();
        let expect = &case["expect"];
        if expect["error"].is_string() {
            assert_eq!(code, Some(2), "{name}: {stdout}");
            let pointer = expect["pointer"].as_str().unwrap_or_default();
            assert!(
                stderr.contains(pointer) && stderr.contains("resource `"),
                "{name}: {stderr}"
            );
            continue;
        }
        assert_eq!(code, Some(0), "{name}: {stderr}");
        let got: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(got["children"], expect["children"], "{name}");
        assert_eq!(sorted(&got["edges"]), sorted(&expect["edges"]), "{name}");
    }
}

#[test]
fn json_is_the_response_shape_with_every_digit() {
    let output = stdcel("json").ok();
    assert!(output.contains("1.50"), "{output}");
    let labels = |id: &str| json!({"composed_by": "stdcel", "graph_id": id});
    let expected = json!({
        "children": [
            {"kind": "network", "kind_version": 1, "name": "demo-net", "spec": {"n": 0}, "labels": labels("net")},
            {"kind": "machine", "kind_version": 2, "name": "vm", "spec": {"net": null}, "labels": labels("vm")},
        ],
        "edges": [{
            "from": {"kind": "machine", "name": "vm"}, "to": {"kind": "network", "name": "demo-net"},
            "values": [{"dependent_field": "/net", "source_field": "/id"}],
        }],
    });
    let got: Value = serde_json::from_str(&output.replace("1.50", "0")).unwrap();
    assert_eq!(got, expected);
}

#[test]
fn the_other_forms_show_children_and_flows() {
    assert!(
        stdcel("yaml")
            .ok()
            .starts_with("children:\n  - kind: network\n    kind_version: 1\n"),
        "{}",
        stdcel("yaml").ok()
    );
    let tree = "stdcel/demo\n├─ network/demo-net\n└─ machine/vm v2\n     after network/demo-net\n       /net ← /id\n";
    assert_eq!(stdcel("tree").ok(), tree);
    let dot = stdcel("dot").ok();
    assert!(
        dot.contains("\"network/demo-net\" -> \"machine/vm\" [label=\"/id → /net\"];"),
        "{dot}"
    );
    let mermaid = stdcel("mermaid").ok();
    assert!(
        mermaid.starts_with("graph LR\n") && mermaid.contains("n0 -->|\"/id → /net\"| n1"),
        "{mermaid}"
    );
}

#[test]
fn yaml_is_read_and_the_order_of_its_keys_counts() {
    let graph = "resources:\n- id: a\n  forEach: {z: '${[1, 2]}', b: '${[3, 4]}'}\n  template: {kind: k, name: 'n-${z}-${b}'}\n";
    let run = Run::new(&["--kind", "stdcel", "-o", "tree", "--name", "x"]);
    let output = run
        .file("--config", "graph.yaml", graph)
        .file("--spec", "spec.yaml", "a: 1\n")
        .ok();
    assert_eq!(
        output,
        "stdcel/x\n├─ k/n-1-3\n├─ k/n-1-4\n├─ k/n-2-3\n└─ k/n-2-4\n"
    );
}

/// The `spec` of a manifest that has nothing after it.
fn spec_of(manifest: &str) -> String {
    let (_, spec) = manifest.split_once("\nspec:\n").unwrap();
    let spec = spec.split("\n---\n").next().unwrap();
    spec.lines()
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)))
        .collect()
}

#[test]
fn the_graphs_of_the_example_compose_what_its_readme_draws() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/datadriven/stdcel/manifests");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let instances = read("4-shop.yaml");
    let (shop, pipeline) = instances.split_once("\n---\n").unwrap();
    let render = |graph: &str, instance: &str, name: &str| {
        let run = Run::new(&["--kind", "stdcel", "-o", "tree", "--name", name]);
        run.file("--config", "graph.yaml", &spec_of(&read(graph)))
            .file("--spec", "spec.yaml", &spec_of(instance))
            .ok()
    };
    let shop = render("1-apps.yaml", shop, "shop");
    for line in [
        "├─ stdio/shop-db-b",
        "└─ stdshell/shop-app",
        "       /env/NETWORK ← /stdout",
        "       /env/DATABASE ← /endpoint",
    ] {
        assert!(
            shop.lines().any(|found| found == line),
            "{line} is not in\n{shop}"
        );
    }
    let pipeline = render("2-pipelines.yaml", pipeline, "shop-ci");
    assert_eq!(
        pipeline.matches("after stdshell/shop-ci-build").count(),
        3,
        "{pipeline}"
    );
    assert_eq!(
        pipeline.lines().filter(|line| line.contains('─')).count(),
        5,
        "{pipeline}"
    );
}

#[test]
fn a_starlark_program_renders_from_a_folder() {
    let program = "def compose(spec, config):\n  return struct(children=[struct(kind='k', name=spec.name)])\n";
    let run = Run::new(&["--kind", "stdstarlark", "-o", "tree"])
        .file("", "program/compose.star", program)
        .file("--spec", "spec.json", r#"{"name": "x"}"#)
        .file("--config", "config.json", "{}")
        .folder("--bundle", "program");
    assert_eq!(run.ok(), "stdstarlark/demo\n└─ k/x\n");
    let broken = Run::new(&["--kind", "stdstarlark", "--check"])
        .file("", "program/compose.star", "def compose(")
        .folder("--bundle", "program");
    assert_eq!(broken.run().0, Some(2));
}

#[test]
fn an_external_program_renders_and_is_checked_without_being_run() {
    let answer = r#"{"children": [{"kind": "k", "name": "x"}], "edges": []}"#;
    let config = format!(
        r#"{{"command": "bash", "args": ["-c", "cat >&2; echo '{answer}'"]}}"#,
        answer = answer.replace('"', "\\\"")
    );
    let run =
        Run::new(&["--kind", "stdio-composer", "-o", "tree"]).file("--spec", "spec.json", "{}");
    assert_eq!(
        run.file("--config", "config.json", &config).ok(),
        "stdio-composer/demo\n└─ k/x\n"
    );
    let failing = Run::new(&["--kind", "stdio-composer"]).file("--spec", "spec.json", "{}");
    let failing = failing.file(
        "--config",
        "config.json",
        r#"{"command": "bash", "args": ["-c", "exit 9"]}"#,
    );
    assert_eq!(
        failing.run().0,
        Some(1),
        "a program that fails may work the next time"
    );
    let check = |config: &str| {
        Run::new(&["--kind", "stdio-composer", "--check"])
            .file("--config", "config.json", config)
            .run()
            .0
    };
    assert_eq!(check(&config), Some(0));
    assert_eq!(check(r#"{"comand": "bash"}"#), Some(2));
    assert_eq!(check("{}"), Some(2), "no program is named");
}

#[test]
fn check_needs_no_instance_and_finds_what_is_wrong() {
    let check = |graph: &str| {
        Run::new(&["--kind", "stdcel", "--check"])
            .file("--config", "graph.json", graph)
            .run()
    };
    assert_eq!(check(GRAPH).0, Some(0));
    let (code, _, stderr) = check(&GRAPH.replace("net.status", "nett.status"));
    assert_eq!(code, Some(2));
    assert!(stderr.contains("did you mean `net`?"), "{stderr}");
}

#[test]
fn exit_codes_tell_what_would_help() {
    let no_graph = Run::new(&["--kind", "stdcel"]).file("--spec", "spec.json", "{}");
    assert_eq!(
        no_graph.run().0,
        Some(1),
        "a graph may be applied a second later"
    );
    let usage: [&[&str]; 6] = [
        &["--kind", "nope", "--spec", "/dev/null"],
        &["--kind", "stdcel"],
        &["--kind", "stdcel", "--spec", "/no/such/file"],
        &["--kind", "stdcel", "--spec", "/dev/null"],
        &["--kind", "stdcel", "-o", "xml", "--check"],
        &["--kind", "stdcel", "--check"],
    ];
    for args in usage {
        let (code, stdout, stderr) = Run::new(args).run();
        assert_eq!(code, Some(64), "{args:?}: {stderr}");
        assert!(stdout.is_empty() && !stderr.is_empty());
    }
}
