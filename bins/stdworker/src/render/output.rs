//! A composition as text: the response shape of stdio as JSON or YAML, a tree, and two graph languages.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use converge_sdk::{Outcome, ResourceRef};
use serde_json::{Map, Value, json};

use super::{Format, yaml};

/// Prints an outcome; `root` is the composite it belongs to.
///
/// # Errors
/// A document that is not JSON.
pub(super) fn print(
    outcome: &Outcome,
    root: &ResourceRef,
    format: Format,
) -> Result<String, String> {
    Ok(match format {
        Format::Json => {
            let text =
                serde_json::to_string_pretty(&response(outcome)?).map_err(|err| err.to_string())?;
            format!("{text}\n")
        }
        Format::Yaml => yaml::from_json(&response(outcome)?),
        Format::Tree => tree(outcome, root),
        Format::Dot => dot(outcome, root),
        Format::Mermaid => mermaid(outcome, root),
    })
}

/// The response shape of stdio. A child always has `kind_version` and `spec`; `labels` when there are any.
fn response(outcome: &Outcome) -> Result<Value, String> {
    let document = |what: &str, json: &converge_sdk::Json| {
        serde_json::from_slice::<Value>(json.as_bytes())
            .map_err(|err| format!("{what} is not JSON: {err}"))
    };
    let mut out = Map::new();
    if let Some(children) = &outcome.children {
        let mut list = Vec::with_capacity(children.len());
        for child in children {
            let spec = document(&format!("the spec of {}", child.reference()), &child.spec)?;
            let mut entry = json!({
                "kind": child.kind.kind(), "kind_version": child.kind.version(), "name": child.name, "spec": spec,
            });
            if !child.labels.is_empty() {
                entry["labels"] = json!(child.labels);
            }
            list.push(entry);
        }
        out.insert("children".to_owned(), Value::Array(list));
        let edge = |edge: &converge_sdk::Edge| {
            let mut entry = json!({"from": end(&edge.from), "to": end(&edge.to)});
            if !edge.values.is_empty() {
                let value = |flow: &converge_sdk::ValueFlow| json!({"dependent_field": flow.dependent_field, "source_field": flow.source_field});
                entry["values"] = edge.values.iter().map(value).collect();
            }
            entry
        };
        out.insert("edges".to_owned(), outcome.edges.iter().map(edge).collect());
    }
    if !outcome.configs.is_empty() {
        let mut list = Vec::new();
        for config in &outcome.configs {
            list.push(json!({
                "kind": config.kind.kind(), "kind_version": config.kind.version(), "name": config.name,
                "is_default": config.is_default, "spec": document(&format!("the config {}", config.name), &config.spec)?,
            }));
        }
        out.insert("configs".to_owned(), Value::Array(list));
    }
    if let Some(status) = &outcome.status {
        out.insert("status".to_owned(), document("the status", status)?);
    }
    if !outcome.conditions.is_empty() {
        let condition = |condition: &converge_sdk::Condition| {
            let mut entry = json!({"type": condition.type_, "status": condition.status.as_str()});
            for (name, text) in [
                ("reason", &condition.reason),
                ("message", &condition.message),
            ] {
                if !text.is_empty() {
                    entry[name] = json!(text);
                }
            }
            entry
        };
        out.insert(
            "conditions".to_owned(),
            outcome.conditions.iter().map(condition).collect(),
        );
    }
    Ok(Value::Object(out))
}

fn end(reference: &ResourceRef) -> Value {
    json!({"kind": reference.kind, "name": reference.name})
}

/// What a child waits for: by its own name, in the order of the edges.
fn waits(outcome: &Outcome) -> BTreeMap<&ResourceRef, Vec<&converge_sdk::Edge>> {
    let mut waits: BTreeMap<&ResourceRef, Vec<&converge_sdk::Edge>> = BTreeMap::new();
    for edge in &outcome.edges {
        waits.entry(&edge.from).or_default().push(edge);
    }
    waits
}

fn tree(outcome: &Outcome, root: &ResourceRef) -> String {
    let mut out = format!("{root}\n");
    let waits = waits(outcome);
    let children = outcome.children.as_deref().unwrap_or_default();
    for (at, child) in children.iter().enumerate() {
        let last = at + 1 == children.len();
        let version = if child.kind.version() == 1 {
            String::new()
        } else {
            format!(" v{}", child.kind.version())
        };
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "{} {}{version}",
            if last { "└─" } else { "├─" },
            child.reference()
        );
        for edge in waits.get(&child.reference()).into_iter().flatten() {
            let bar = if last { " " } else { "│" };
            let _ = writeln!(out, "{bar}    after {}", edge.to);
            for flow in &edge.values {
                let _ = writeln!(
                    out,
                    "{bar}      {} ← {}",
                    field(&flow.dependent_field),
                    field(&flow.source_field)
                );
            }
        }
    }
    out
}

/// A pointer as people read it.
fn field(pointer: &str) -> &str {
    if pointer.is_empty() { "(all)" } else { pointer }
}

/// A text between double quotes, for both graph languages.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn dot(outcome: &Outcome, root: &ResourceRef) -> String {
    let mut out = String::from("digraph composition {\n  rankdir=LR;\n  node [shape=box];\n");
    let root = label(&root.to_string());
    let _ = writeln!(out, "  \"{root}\" [style=bold];");
    for child in outcome.children.as_deref().unwrap_or_default() {
        let _ = writeln!(
            out,
            "  \"{root}\" -> \"{}\" [style=dotted, arrowhead=none];",
            label(&child.reference().to_string())
        );
    }
    for edge in &outcome.edges {
        let flows = edge.values.iter();
        let flows: Vec<String> = flows
            .map(|flow| {
                label(&format!(
                    "{} → {}",
                    field(&flow.source_field),
                    field(&flow.dependent_field)
                ))
            })
            .collect();
        let (to, from) = (label(&edge.to.to_string()), label(&edge.from.to_string()));
        let _ = writeln!(
            out,
            "  \"{to}\" -> \"{from}\" [label=\"{}\"];",
            flows.join("\\n")
        );
    }
    out.push_str("}\n");
    out
}

fn mermaid(outcome: &Outcome, root: &ResourceRef) -> String {
    let text = |text: &str| text.replace('"', "#quot;");
    let mut out = format!("graph LR\n  root([\"{}\"])\n", text(&root.to_string()));
    let children = outcome.children.as_deref().unwrap_or_default();
    let mut ids = BTreeMap::new();
    for (at, child) in children.iter().enumerate() {
        let reference = child.reference();
        let _ = writeln!(
            out,
            "  n{at}[\"{}\"]\n  root -.- n{at}",
            text(&reference.to_string())
        );
        ids.insert(reference, at);
    }
    for edge in &outcome.edges {
        let (Some(from), Some(to)) = (ids.get(&edge.from), ids.get(&edge.to)) else {
            continue;
        };
        let flows = edge.values.iter();
        let flows: Vec<String> = flows
            .map(|flow| {
                text(&format!(
                    "{} → {}",
                    field(&flow.source_field),
                    field(&flow.dependent_field)
                ))
            })
            .collect();
        let _ = match flows.is_empty() {
            true => writeln!(out, "  n{to} --> n{from}"),
            false => writeln!(out, "  n{to} -->|\"{}\"| n{from}", flows.join("<br>")),
        };
    }
    out
}
