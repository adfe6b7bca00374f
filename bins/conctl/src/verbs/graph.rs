//! `conctl graph`: what a resource is composed of, as a tree, for Graphviz or for Mermaid.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use converge_client::types::{Graph, GraphEdge, GraphNode, ObjectRef, Phase};

use crate::context::Context;
use crate::document::raw;
use crate::exit::{Failure, Result};
use crate::names;
use crate::output::{self, clean, phase_cell};

/// Draw what a resource is composed of.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl graph stdcel/app                          a tree with what each resource needs
  conctl graph stdcel/app -o dot | dot -Tsvg > app.svg
  conctl graph stdcel/app -o mermaid               for a README")]
pub(crate) struct GraphArgs {
    /// The resource: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// How to draw it.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Drawing,
}

/// How to draw a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Drawing {
    /// Owners and what they own, as text.
    #[default]
    Tree,
    /// Graphviz.
    Dot,
    /// Mermaid flowchart.
    Mermaid,
    /// The API's body.
    Json,
    /// The same as YAML.
    Yaml,
}

pub(crate) async fn run(cx: &mut Context, args: GraphArgs) -> Result {
    let reference = names::resource(&args.names)?;
    let client = cx.client()?;
    let answer = client
        .resource_graph(&reference.kind, &reference.name)
        .await
        .map_err(|err| Failure::from(err).about(clean(&reference.to_string())))?;
    let graph = answer.value;
    let text = match args.output {
        Drawing::Tree => tree(&graph, cx.out.colour),
        Drawing::Dot => dot(&graph),
        Drawing::Mermaid => mermaid(&graph),
        Drawing::Json => {
            return cx
                .out
                .line(&output::pretty(&String::from_utf8_lossy(&answer.body)));
        }
        Drawing::Yaml => {
            let body = raw(String::from_utf8_lossy(&answer.body).into_owned())?;
            return output::document(&mut cx.out, output::Format::Yaml, &body);
        }
    };
    cx.out.text(&text)
}

fn reference(node: &GraphNode) -> ObjectRef {
    ObjectRef::new(&node.kind, &node.name)
}

/// Draws owners above what they own. What has an owner that is not in the graph stands at the top, and no node is drawn
/// twice, whatever the answer says.
fn tree(graph: &Graph, colour: bool) -> String {
    let present: HashSet<ObjectRef> = graph.nodes.iter().map(reference).collect();
    let mut owned: HashMap<ObjectRef, Vec<usize>> = HashMap::new();
    let mut needs: HashMap<&ObjectRef, Vec<&GraphEdge>> = HashMap::new();
    let mut tops = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        match &node.owner {
            Some(owner) if present.contains(owner) => {
                owned.entry(owner.clone()).or_default().push(index)
            }
            _ => tops.push(index),
        }
    }
    for edge in &graph.edges {
        needs.entry(&edge.from).or_default().push(edge);
    }
    let mut text = String::new();
    let mut drawn: HashSet<ObjectRef> = HashSet::new();
    // A stack instead of recursion: node, what its children's lines start with, what stands before it on its own line.
    let mut stack: Vec<(usize, String, &str)> = tops
        .into_iter()
        .rev()
        .map(|top| (top, String::new(), ""))
        .collect();
    while let Some((index, indent, branch)) = stack.pop() {
        let node = &graph.nodes[index];
        let this = reference(node);
        if !drawn.insert(this.clone()) {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{indent}{branch}{}  {}",
            clean(&this.to_string()),
            phase_cell(node.phase, colour).render()
        );
        if let Some(edges) = needs.get(&this) {
            let names: Vec<String> = edges.iter().map(|edge| need(edge)).collect();
            let _ = write!(text, "  <- {}", names.join(", "));
        }
        text.push('\n');
        let below = match branch {
            "├── " => format!("{indent}│   "),
            "└── " => format!("{indent}    "),
            _ => indent,
        };
        let children = owned.get(&this).map(Vec::as_slice).unwrap_or_default();
        for (position, child) in children.iter().enumerate().rev() {
            let branch = if position + 1 == children.len() {
                "└── "
            } else {
                "├── "
            };
            stack.push((*child, below.clone(), branch));
        }
    }
    text
}

fn need(edge: &GraphEdge) -> String {
    let mut text = clean(&edge.to.to_string());
    if !edge.values.is_empty() {
        let flows: Vec<String> = edge
            .values
            .iter()
            .map(|flow| clean(&flow.source_field))
            .collect();
        let _ = write!(text, " ({})", flows.join(" "));
    }
    text
}

/// Fill and line of a phase.
fn shades(phase: Phase) -> (&'static str, &'static str) {
    match phase {
        Phase::Ready => ("#d8f5dd", "#1a7f37"),
        Phase::Reconciling => ("#ddf4ff", "#0969da"),
        Phase::Degraded => ("#fff8c5", "#9a6700"),
        Phase::Failed => ("#ffebe9", "#cf222e"),
        Phase::Orphaned | Phase::Deleting => ("#f6f8fa", "#656d76"),
        Phase::Quarantined => ("#fbefff", "#8250df"),
    }
}

/// Numbers the nodes; an edge to something outside of the graph gets a node of its own.
fn numbered(graph: &Graph) -> (HashMap<ObjectRef, usize>, Vec<ObjectRef>) {
    let mut numbers: HashMap<ObjectRef, usize> = HashMap::new();
    for node in &graph.nodes {
        let next = numbers.len();
        numbers.entry(reference(node)).or_insert(next);
    }
    let mut outside = Vec::new();
    for end in graph.edges.iter().flat_map(|edge| [&edge.from, &edge.to]) {
        if !numbers.contains_key(end) {
            numbers.insert(end.clone(), numbers.len());
            outside.push(end.clone());
        }
    }
    (numbers, outside)
}

fn flows(edge: &GraphEdge) -> Vec<String> {
    edge.values
        .iter()
        .map(|flow| format!("{} -> {}", flow.source_field, flow.dependent_field))
        .collect()
}

fn dot(graph: &Graph) -> String {
    let (numbers, outside) = numbered(graph);
    let quote = |text: &str| clean(text).replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = String::from(
        "digraph {\n  rankdir=LR;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=10];\n",
    );
    for node in &graph.nodes {
        let this = reference(node);
        let (fill, line) = shades(node.phase);
        let _ = writeln!(
            text,
            "  n{} [label=\"{}\\n{}\", fillcolor=\"{fill}\", color=\"{line}\"];",
            numbers[&this],
            quote(&this.to_string()),
            node.phase
        );
    }
    for other in &outside {
        let _ = writeln!(
            text,
            "  n{} [label=\"{}\", style=dashed];",
            numbers[other],
            quote(&other.to_string())
        );
    }
    for node in &graph.nodes {
        if let Some(owner) = node.owner.as_ref().and_then(|owner| numbers.get(owner)) {
            let _ = writeln!(
                text,
                "  n{owner} -> n{} [style=dotted, arrowhead=none];",
                numbers[&reference(node)]
            );
        }
    }
    for edge in &graph.edges {
        let flows = flows(edge);
        let label = if flows.is_empty() {
            String::new()
        } else {
            format!(" [label=\"{}\"]", quote(&flows.join(", ")))
        };
        // The arrow shows the way of the values: from what is needed to what needs it.
        let _ = writeln!(
            text,
            "  n{} -> n{}{label};",
            numbers[&edge.to], numbers[&edge.from]
        );
    }
    text.push_str("}\n");
    text
}

fn mermaid(graph: &Graph) -> String {
    let (numbers, outside) = numbered(graph);
    let quote = |text: &str| {
        clean(text)
            .replace('&', "&amp;")
            .replace('"', "&quot;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('#', "&num;")
    };
    let mut text = String::from("flowchart LR\n");
    let mut phases: Vec<Phase> = Vec::new();
    for node in &graph.nodes {
        let this = reference(node);
        let _ = writeln!(
            text,
            "  n{}[\"{}<br/>{}\"]:::{}",
            numbers[&this],
            quote(&this.to_string()),
            node.phase,
            node.phase
        );
        if !phases.contains(&node.phase) {
            phases.push(node.phase);
        }
    }
    for other in &outside {
        let _ = writeln!(
            text,
            "  n{}[\"{}\"]",
            numbers[other],
            quote(&other.to_string())
        );
    }
    for node in &graph.nodes {
        if let Some(owner) = node.owner.as_ref().and_then(|owner| numbers.get(owner)) {
            let _ = writeln!(text, "  n{owner} -.- n{}", numbers[&reference(node)]);
        }
    }
    for edge in &graph.edges {
        let flows = flows(edge);
        let label = if flows.is_empty() {
            String::new()
        } else {
            format!("|\"{}\"|", quote(&flows.join(", ")))
        };
        let _ = writeln!(
            text,
            "  n{} -->{label} n{}",
            numbers[&edge.to], numbers[&edge.from]
        );
    }
    for phase in phases {
        let (fill, line) = shades(phase);
        let _ = writeln!(
            text,
            "  classDef {phase} fill:{fill},stroke:{line},color:#1f2328"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, phase: Phase, owner: Option<&str>) -> GraphNode {
        let owner = owner.map(|owner| ObjectRef::new("k", owner));
        GraphNode {
            kind: "k".to_owned(),
            name: name.to_owned(),
            phase,
            owner,
        }
    }

    #[test]
    fn an_answer_that_loops_is_drawn_once_and_ends() {
        let graph = Graph {
            nodes: vec![
                node("a", Phase::Ready, None),
                node("b", Phase::Ready, Some("a")),
                node("b", Phase::Ready, Some("b")),
            ],
            edges: vec![],
        };
        assert_eq!(tree(&graph, false), "k/a  Ready\n└── k/b  Ready\n");
    }

    #[test]
    fn a_name_cannot_break_out_of_its_label() {
        let graph = Graph {
            nodes: vec![node("a\"];x\\", Phase::Failed, None)],
            edges: vec![],
        };
        assert!(dot(&graph).contains("label=\"k/a\\\"];x\\\\\\nFailed\""));
        assert!(mermaid(&graph).contains("[\"k/a&quot;];x\\<br/>Failed\"]"));
    }
}
