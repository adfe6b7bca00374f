//! Graphs with their right answers, one file each.
//!
//! A file holds `config` (the graph), `spec` (of an instance called `demo`) and `expect`: children and edges in the shape
//! that `stdworker render -o json` prints, or the class of an error and the pointer it must name.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use stdcel::{Composition, Graph, Instance, summary};

fn cases() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let case = serde_json::from_slice(&fs::read(path).unwrap())
            .unwrap_or_else(|err| panic!("{name}: {err}"));
        (name, case)
    };
    files.into_iter().map(read).collect()
}

fn shape(composition: &Composition) -> Value {
    let children = composition.children.iter().map(|child| {
        json!({
            "kind": child.kind, "kind_version": child.kind_version, "name": child.name, "labels": child.labels,
            "spec": serde_json::from_str::<Value>(&child.spec).unwrap(),
        })
    });
    json!({"children": children.collect::<Vec<_>>(), "edges": edges(&shape_edges(composition))})
}

fn shape_edges(composition: &Composition) -> Value {
    let end = |at: usize| json!({"kind": composition.children[at].kind, "name": composition.children[at].name});
    let edges = composition.edges.iter().map(|edge| {
        let values = edge.values.iter().map(
            |(dependent, source)| json!({"dependent_field": dependent, "source_field": source}),
        );
        json!({"from": end(edge.from), "to": end(edge.to), "values": values.collect::<Vec<_>>()})
    });
    Value::Array(edges.collect())
}

/// Edges in an order of their own.
fn edges(edges: &Value) -> Value {
    let keyed: BTreeMap<String, Value> = edges
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| (format!("{}{}", edge["from"], edge["to"]), edge.clone()))
        .collect();
    assert_eq!(
        keyed.len(),
        edges.as_array().unwrap().len(),
        "two edges between the same ends"
    );
    Value::Array(keyed.into_values().collect())
}

#[test]
fn every_case_has_its_answer() {
    let cases = cases();
    assert!(cases.len() >= 37, "only {} cases found", cases.len());
    let mut wrong = Vec::new();
    for (file, case) in &cases {
        let graph = Graph::parse(case["config"].to_string().as_bytes());
        let spec = case["spec"].to_string();
        let result = graph.compose(&Instance {
            spec: spec.as_bytes(),
            name: "demo",
            uid: "u-1",
            ..Default::default()
        });
        let expect = &case["expect"];
        match (result, expect["error"].as_str()) {
            (Ok(composition), None) => {
                let mut expected =
                    json!({"children": expect["children"], "edges": edges(&expect["edges"])});
                if let Some(children) = expected["children"].as_array_mut() {
                    children
                        .iter_mut()
                        .filter(|child| child["labels"].is_null())
                        .for_each(|child| child["labels"] = json!({}));
                }
                let got = shape(&composition);
                if got != expected {
                    wrong.push(format!("{file}:\n  got      {got}\n  expected {expected}"));
                }
            }
            (Err(problems), Some(class)) => {
                let fits = problems.iter().any(|problem| {
                    problem.class.as_str() == class
                        && expect["pointer"]
                            .as_str()
                            .is_none_or(|pointer| problem.pointer.as_deref() == Some(pointer))
                });
                println!("{file}: {}", summary(&problems));
                if !fits || problems.len() > 1 {
                    wrong.push(format!(
                        "{file}: expected {class} at {}, got {problems:?}",
                        expect["pointer"]
                    ));
                }
            }
            (Ok(composition), Some(class)) => wrong.push(format!(
                "{file}: expected {class}, got {}",
                shape(&composition)
            )),
            (Err(problems), None) => wrong.push(format!("{file}: {}", summary(&problems))),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} are wrong:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}
