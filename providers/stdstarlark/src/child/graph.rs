//! What the result alone shows about the graph: duplicates, edges to nothing, edges that repeat, cycles.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::protocol::{Child, Condition, Config, Edge, Reference};

/// Names that come twice where each may come once.
pub(crate) fn duplicates(
    problems: &mut Vec<String>,
    children: &[Child],
    configs: &[Config],
    conditions: &[Condition],
) {
    let mut seen = HashMap::new();
    for (index, child) in children.iter().enumerate() {
        if let Some(first) = seen.insert((&child.kind, &child.name), index) {
            problems.push(format!(
                "children[{index}] is the same child as children[{first}]: {} {:?}",
                child.kind, child.name
            ));
        }
    }
    let mut seen = HashMap::new();
    for (index, config) in configs.iter().enumerate() {
        if let Some(first) = seen.insert(&config.name, index) {
            problems.push(format!(
                "configs[{index}] has the name of configs[{first}]: {:?}",
                config.name
            ));
        }
    }
    let mut seen = HashMap::new();
    for (index, condition) in conditions.iter().enumerate() {
        if let Some(first) = seen.insert(&condition.kind, index) {
            problems.push(format!(
                "conditions[{index}] has the type of conditions[{first}]: {:?}",
                condition.kind
            ));
        }
    }
}

/// Both ends of an edge are children of this result.
pub(crate) fn ends(problems: &mut Vec<String>, children: &[Child], edges: &[Edge]) {
    let known: HashSet<(&str, &str)> = children
        .iter()
        .map(|child| (child.kind.as_str(), child.name.as_str()))
        .collect();
    for (index, edge) in edges.iter().enumerate() {
        if edge.dependent == edge.dependency {
            problems.push(format!(
                "edges[{index}] makes {} {:?} depend on itself",
                edge.dependent.kind, edge.dependent.name
            ));
            continue;
        }
        for (end, reference) in [
            ("dependent", &edge.dependent),
            ("dependency", &edge.dependency),
        ] {
            if known.contains(&(reference.kind.as_str(), reference.name.as_str())) {
                continue;
            }
            let hint = nearest(reference, children);
            problems.push(format!(
                "edges[{index}].{end}: no child of this result is {} {:?}{hint}",
                reference.kind, reference.name
            ));
        }
    }
}

fn nearest(reference: &Reference, children: &[Child]) -> String {
    if let Some(child) = children.iter().find(|child| child.name == reference.name) {
        return format!("; did you mean {} {:?}?", child.kind, child.name);
    }
    // Only a look at some of them: the result may hold very many.
    let near = children
        .iter()
        .take(1_000)
        .filter(|child| child.kind == reference.kind)
        .map(|child| (strsim::jaro_winkler(&child.name, &reference.name), child))
        .filter(|(score, _)| *score > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.map_or_else(String::new, |(_, child)| {
        format!("; did you mean {:?}?", child.name)
    })
}

/// Edges between the same two children become one, with the values of both.
pub(crate) fn merged(edges: Vec<Edge>) -> Vec<Edge> {
    let mut places: HashMap<(Reference, Reference), usize> = HashMap::new();
    let mut out: Vec<Edge> = Vec::new();
    for edge in edges {
        let ends = (edge.dependent.clone(), edge.dependency.clone());
        match places.get(&ends) {
            Some(place) => {
                let values = &mut out[*place].values;
                for value in edge.values {
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
            None => {
                places.insert(ends, out.len());
                out.push(edge);
            }
        }
    }
    out
}

/// One cycle, as names, if there is any. Iterative: chains may be as long as the result.
pub(crate) fn find_cycle(edges: &[Edge]) -> Option<Vec<String>> {
    let mut next: BTreeMap<&Reference, Vec<&Reference>> = BTreeMap::new();
    for edge in edges
        .iter()
        .filter(|edge| edge.dependent != edge.dependency)
    {
        next.entry(&edge.dependent)
            .or_default()
            .push(&edge.dependency);
    }
    let mut done: BTreeSet<&Reference> = BTreeSet::new();
    for start in next.keys() {
        let mut path: Vec<(&Reference, usize)> = vec![(start, 0)];
        let mut open: BTreeSet<&Reference> = [*start].into();
        while let Some((node, at)) = path.last_mut() {
            let follow = next.get(*node).and_then(|out| out.get(*at)).copied();
            *at += 1;
            match follow {
                Some(follow) if open.contains(follow) => {
                    let from = path
                        .iter()
                        .position(|(node, _)| *node == follow)
                        .unwrap_or(0);
                    let names = path[from..].iter().map(|(node, _)| *node).chain([follow]);
                    return Some(shorten(
                        names
                            .map(|node| format!("{}/{}", node.kind, node.name))
                            .collect(),
                    ));
                }
                Some(follow) if !done.contains(follow) => {
                    open.insert(follow);
                    path.push((follow, 0));
                }
                Some(_) => {}
                None => {
                    open.remove(*node);
                    done.insert(node);
                    path.pop();
                }
            }
        }
    }
    None
}

fn shorten(mut names: Vec<String>) -> Vec<String> {
    if names.len() > 10 {
        let dropped = names.len() - 10;
        names.splice(5..5 + dropped, [format!("({dropped} more)")]);
    }
    names
}
