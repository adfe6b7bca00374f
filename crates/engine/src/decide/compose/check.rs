//! What makes a compose result unacceptable. Every problem is listed; nothing is written here.

mod configs;

use std::collections::{BTreeMap, BTreeSet};

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use converge_types::limits;
use converge_types::pointer::Pointer;
use serde_json::Value;

use super::positions;
use crate::command::{ChildSpec, ComposeOutcome, ConfigSpec, EdgeSpec, RawChild, RawConfig};
use crate::model::Resource;
use crate::refusal::Problem;
use crate::view::{Decision, View};

/// No message lists more problems than this; the count says how many there were.
const MAX_PROBLEMS: usize = 50;

/// Why a compose result was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Everything that is wrong with it, cut at a bound.
    pub problems: Vec<Problem>,
    /// Kinds whose manifest or freed name would cure all of it; empty when something else is wrong too.
    pub cures: Vec<Kind>,
}

/// A child that can be landed.
pub(super) struct CheckedChild {
    pub(super) kv: KindVersion,
    pub(super) name: ResourceName,
    pub(super) labels: Labels,
    pub(super) config_ref: Option<ConfigName>,
    /// The spec as emitted, every flowed pointer null.
    pub(super) authored: Doc,
    pub(super) emitted: ChildSpec,
}

/// An edge between two children, by position.
pub(super) struct CheckedEdge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) flows: Vec<(Pointer, Pointer)>,
}

/// A config that can be landed.
pub(super) struct CheckedConfig {
    pub(super) name: ConfigName,
    pub(super) kv: KindVersion,
    pub(super) emitted: ConfigSpec,
}

pub(super) struct Checked {
    pub(super) children: Vec<CheckedChild>,
    pub(super) edges: Vec<CheckedEdge>,
    pub(super) configs: Vec<CheckedConfig>,
}

#[derive(Default)]
struct Problems {
    list: Vec<Problem>,
    total: usize,
    cures: BTreeSet<Kind>,
    incurable: bool,
}

impl Problems {
    fn add(&mut self, location: impl Into<String>, message: impl Into<String>) {
        self.incurable = true;
        self.push(location.into(), message.into());
    }

    fn add_curable(&mut self, location: impl Into<String>, message: impl Into<String>, kind: Kind) {
        self.cures.insert(kind);
        self.push(location.into(), message.into());
    }

    fn push(&mut self, location: String, message: String) {
        self.total += 1;
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(Problem { location, message });
        }
    }

    fn refused(mut self) -> Option<Refused> {
        if self.total == 0 {
            return None;
        }
        if self.total > self.list.len() {
            let more = self.total - self.list.len();
            self.list.push(Problem::new("", format!("and {more} more")));
        }
        let cures = if self.incurable {
            Vec::new()
        } else {
            self.cures.into_iter().collect()
        };
        Some(Refused {
            problems: self.list,
            cures,
        })
    }
}

pub(super) fn check(
    view: &mut View<'_>,
    owner: &Resource,
    result: &ComposeOutcome,
) -> Decision<Result<Checked, Refused>> {
    let mut problems = Problems::default();
    check_size(view, owner, result, &mut problems)?;
    if problems.total > 0 {
        // Too large to look at one by one.
        return Ok(Err(problems.refused().unwrap_or(Refused {
            problems: Vec::new(),
            cures: Vec::new(),
        })));
    }
    let mut children = Vec::with_capacity(result.children.len());
    let mut names = BTreeSet::new();
    for (at, child) in result.children.iter().enumerate() {
        if !names.insert((child.kind.as_str(), child.name.as_str())) && !child.name.is_empty() {
            problems.add(at_child(at, child), "emitted twice: (kind, name) is unique");
            continue;
        }
        if let Some(child) = check_child(view, owner, at, child, &mut problems)? {
            children.push(child);
        }
    }
    let edges = check_edges(&result.edges, &children, &names, &mut problems);
    check_flows(&mut children, &edges, &mut problems);
    check_schemas(view, &children, &edges, &mut problems)?;
    check_cycles(&children, &edges, &mut problems);
    let configs = configs::check(view, owner, &result.configs, &mut problems)?;
    configs::check_refs(view, owner, &children, &configs, &mut problems)?;
    Ok(match problems.refused() {
        Some(refused) => Err(refused),
        None => Ok(Checked {
            children,
            edges,
            configs,
        }),
    })
}

fn at_child(at: usize, child: &RawChild) -> String {
    format!("children[{at}] {}/{}", child.kind, child.name)
}

fn check_size(
    view: &mut View<'_>,
    owner: &Resource,
    result: &ComposeOutcome,
    problems: &mut Problems,
) -> Decision<()> {
    let count = result.children.len();
    if count > limits::CHILDREN_PER_RESULT {
        let message = format!(
            "{count} children; one result holds at most {}",
            limits::CHILDREN_PER_RESULT
        );
        problems.add("children", message);
    }
    if count > 0 && usize::from(owner.depth) + 2 > limits::OWNER_LEVELS {
        problems.add(
            "children",
            format!("a tree has at most {} levels", limits::OWNER_LEVELS),
        );
    }
    if let Some(root) = view.resource(owner.root)? {
        let others = usize::try_from(root.below.sums.total - owner.below.sums.total).unwrap_or(0);
        if others + count > limits::RESOURCES_PER_ROOT {
            let message = format!(
                "{} resources under one root; at most {}",
                others + count,
                limits::RESOURCES_PER_ROOT
            );
            problems.add("children", message);
        }
    }
    Ok(())
}

fn check_child(
    view: &mut View<'_>,
    owner: &Resource,
    at: usize,
    child: &RawChild,
    problems: &mut Problems,
) -> Decision<Option<CheckedChild>> {
    let place = at_child(at, child);
    let before = problems.total;
    let version = version_or_first(child.kind_version);
    let kv = match KindVersion::parse(&child.kind, version) {
        Ok(kv) => Some(kv),
        Err(error) => {
            problems.add(&place, error.to_string());
            None
        }
    };
    let name = match ResourceName::new(&child.name) {
        Ok(name) => Some(name),
        Err(error) => {
            problems.add(&place, error.to_string());
            None
        }
    };
    let bytes = spec_or_empty(&child.spec);
    let spec = if bytes.len() > limits::SPEC_BYTES {
        problems.add(
            &place,
            format!("a spec has at most {} bytes", limits::SPEC_BYTES),
        );
        None
    } else {
        match Doc::parse(bytes) {
            Ok(spec) => Some(spec),
            Err(error) => {
                problems.add(format!("{place} spec"), error.to_string());
                None
            }
        }
    };
    let labels = match Labels::new(child.labels.clone()) {
        Ok(labels) => match labels.of_composer() {
            Ok(labels) => Some(labels),
            Err(error) => {
                problems.add(format!("{place} labels"), error.to_string());
                None
            }
        },
        Err(errors) => {
            for error in errors {
                problems.add(format!("{place} labels"), error.to_string());
            }
            None
        }
    };
    if let Some(kv) = &kv
        && view.manifest(kv)?.is_none()
    {
        problems.add_curable(
            &place,
            format!("kind {kv} is not known here"),
            kv.kind.clone(),
        );
    }
    if let (Some(kv), Some(name)) = (&kv, &name)
        && let Some(row) = view.resource_by_name(&kv.kind, name)?
        && row.owner != Some(owner.uid)
    {
        let message = match row.owner {
            Some(other) => format!("belongs to {}", super::flows::name_of(view, other)?),
            None => "was applied by a person; nothing a person applied is adopted".to_owned(),
        };
        problems.add_curable(&place, message, kv.kind.clone());
    }
    let (Some(kv), Some(name), Some(spec), Some(labels)) = (kv, name, spec, labels) else {
        return Ok(None);
    };
    if problems.total > before && problems.incurable {
        return Ok(None);
    }
    let emitted = ChildSpec {
        kind: child.kind.clone(),
        kind_version: version,
        name: child.name.clone(),
        spec: spec.clone(),
        labels: child.labels.clone(),
    };
    Ok(Some(CheckedChild {
        kv,
        name,
        labels: labels.labels,
        config_ref: labels.provider_config_ref,
        authored: spec,
        emitted,
    }))
}

/// Edges with the same ends are one edge with the flows of all.
fn check_edges(
    edges: &[EdgeSpec],
    children: &[CheckedChild],
    emitted: &BTreeSet<(&str, &str)>,
    problems: &mut Problems,
) -> Vec<CheckedEdge> {
    let at = positions(children);
    let mut merged: Vec<CheckedEdge> = Vec::new();
    let mut by_ends: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let place = format!(
            "edges[{index}] {}/{} -> {}/{}",
            edge.from.0, edge.from.1, edge.to.0, edge.to.1
        );
        let mut end = |which: &str, end: &(String, String)| {
            let found = at.get(&(end.0.as_str(), end.1.as_str())).copied();
            if found.is_none() && !emitted.contains(&(end.0.as_str(), end.1.as_str())) {
                problems.add(
                    &place,
                    format!(
                        "`{which}` names {}/{}, which is no child of this result",
                        end.0, end.1
                    ),
                );
            }
            found
        };
        let (from, to) = (end("from", &edge.from), end("to", &edge.to));
        let mut flows = Vec::with_capacity(edge.values.len());
        for (dependent, source) in &edge.values {
            match (
                Pointer::parse_or_field(dependent),
                Pointer::parse_or_field(source),
            ) {
                (Ok(dependent), Ok(source)) => flows.push((dependent, source)),
                (dependent, source) => {
                    for error in [dependent.err(), source.err()].into_iter().flatten() {
                        problems.add(&place, error.to_string());
                    }
                }
            }
        }
        let (Some(from), Some(to)) = (from, to) else {
            continue;
        };
        match by_ends.get(&(from, to)) {
            Some(known) => merged[*known].flows.extend(flows),
            None => {
                by_ends.insert((from, to), merged.len());
                merged.push(CheckedEdge { from, to, flows });
            }
        }
    }
    merged
}

/// Flows that cannot be written are refused; those that can leave null where their value will go.
fn check_flows(children: &mut [CheckedChild], edges: &[CheckedEdge], problems: &mut Problems) {
    let mut by_child: BTreeMap<usize, Vec<&Pointer>> = BTreeMap::new();
    for edge in edges {
        by_child
            .entry(edge.from)
            .or_default()
            .extend(edge.flows.iter().map(|(dependent, _)| dependent));
    }
    for (at, mut pointers) in by_child
        .into_iter()
        .filter(|(_, pointers)| !pointers.is_empty())
    {
        let child = &mut children[at];
        let place = format!("{}/{}", child.kv.kind, child.name);
        pointers.sort_by_key(|pointer| pointer.to_string());
        for pair in pointers.windows(2) {
            if pair[0].overlaps(pair[1]) {
                let message = format!(
                    "two flows write {} and {}: one would overwrite the other",
                    pair[0], pair[1]
                );
                problems.add(&place, message);
            }
        }
        let Ok(mut spec) = child.authored.to_value() else {
            continue;
        };
        let mut wrote = false;
        for pointer in pointers {
            let set = if pointer.is_empty() {
                problems.add(
                    &place,
                    "a flow cannot replace the whole spec: its dependent pointer is empty",
                );
                continue;
            } else {
                pointer
                    .check_set(&spec)
                    .and_then(|()| pointer.set(&mut spec, Value::Null))
            };
            match set {
                Ok(()) => wrote = true,
                Err(error) => problems.add(
                    &place,
                    format!("the flow to {pointer} cannot be written: {error}"),
                ),
            }
        }
        if wrote && let Ok(authored) = Doc::from_value(&spec) {
            child.authored = authored;
        }
    }
}

/// Specs against their schemas, exempt where a flow is pending.
fn check_schemas(
    view: &mut View<'_>,
    children: &[CheckedChild],
    edges: &[CheckedEdge],
    problems: &mut Problems,
) -> Decision<()> {
    let mut pending: BTreeMap<usize, Vec<Pointer>> = BTreeMap::new();
    for edge in edges {
        pending
            .entry(edge.from)
            .or_default()
            .extend(edge.flows.iter().map(|(dependent, _)| dependent.clone()));
    }
    for (at, child) in children.iter().enumerate() {
        let Some(manifest) = view.manifest(&child.kv)? else {
            continue;
        };
        let Ok(spec) = child.authored.to_value() else {
            continue;
        };
        let schema = manifest.compiled.spec();
        let violations = match pending.get(&at).filter(|pending| !pending.is_empty()) {
            Some(pending) => schema.violations_while_pending(&spec, pending),
            None => schema.violations(&spec),
        };
        for violation in violations {
            let place = format!(
                "{}/{} /spec{}",
                child.kv.kind, child.name, violation.pointer
            );
            problems.add(place, violation.message);
        }
    }
    Ok(())
}

/// Kahn's algorithm; what is left over lies on or behind a cycle, and one cycle is named.
fn check_cycles(children: &[CheckedChild], edges: &[CheckedEdge], problems: &mut Problems) {
    let mut needs = vec![0_usize; children.len()];
    let mut needed_by = vec![Vec::new(); children.len()];
    let mut first_need = vec![Vec::new(); children.len()];
    for edge in edges {
        needs[edge.from] += 1;
        needed_by[edge.to].push(edge.from);
        first_need[edge.from].push(edge.to);
    }
    let mut free: Vec<usize> = (0..children.len()).filter(|at| needs[*at] == 0).collect();
    let mut done = vec![false; children.len()];
    while let Some(at) = free.pop() {
        done[at] = true;
        for from in &needed_by[at] {
            needs[*from] -= 1;
            if needs[*from] == 0 {
                free.push(*from);
            }
        }
    }
    let Some(mut at) = (0..children.len()).find(|at| !done[*at]) else {
        return;
    };
    // Every node left needs another that is left, so this walk must meet itself.
    let mut path: Vec<usize> = Vec::new();
    let cycle = loop {
        if let Some(start) = path.iter().position(|seen| *seen == at) {
            path.push(at);
            break path.split_off(start);
        }
        path.push(at);
        match first_need[at].iter().find(|to| !done[**to]) {
            Some(to) => at = *to,
            None => break path,
        }
    };
    let names: Vec<_> = cycle
        .iter()
        .take(20)
        .map(|at| format!("{}/{}", children[*at].kv.kind, children[*at].name))
        .collect();
    problems.add("edges", format!("a cycle: {}", names.join(" needs ")));
}

/// A composer that leaves the version out means 1.
fn version_or_first(given: i32) -> i32 {
    if given == 0 { 1 } else { given }
}

/// A composer that leaves the spec out means one without fields.
fn spec_or_empty(given: &bytes::Bytes) -> bytes::Bytes {
    if given.is_empty() {
        bytes::Bytes::from_static(b"{}")
    } else {
        given.clone()
    }
}

/// An accepted child as a composer would emit it.
pub(super) fn as_raw(child: ChildSpec) -> RawChild {
    RawChild {
        kind: child.kind,
        kind_version: child.kind_version,
        name: child.name,
        spec: child.spec.into_bytes(),
        labels: child.labels,
    }
}

/// An accepted config as a composer would emit it.
pub(super) fn config_as_raw(config: ConfigSpec) -> RawConfig {
    RawConfig {
        name: config.name,
        kind: config.kind,
        kind_version: config.kind_version,
        is_default: config.is_default,
        spec: config.spec.into_bytes(),
    }
}
