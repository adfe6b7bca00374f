//! Checks what `compose` returned and turns it into the documents the parent passes on.
//!
//! Dicts and structs are taken alike. All problems of a result are told together, each with the path of the value
//! (`children[3].spec must be a dict, got list`). What only the control plane can know (kinds, schemas, owners) is not
//! judged here; what the result alone decides is: duplicate children, edges to nothing, cycles.

use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::Value;

use super::json_out::{self, Budget, Order, member, type_name};
use super::value::Object;
use crate::limits;
use crate::protocol::{Child, Composed, Condition, Config, Edge, Reference};

/// Checks a whole result.
///
/// # Errors
/// The problems, one a line.
pub(crate) fn check(value: Value<'_>) -> Result<Composed, String> {
    let mut checker = Checker { problems: Vec::new(), budget: Budget::default() };
    let result = checker.result(value);
    if checker.problems.is_empty() { Ok(result) } else { Err(listed(&checker.problems)) }
}

/// Problems, one a line, the first of them and how many more.
pub(crate) fn listed(problems: &[String]) -> String {
    let mut text = problems.iter().take(limits::PROBLEMS).map(String::as_str).collect::<Vec<_>>().join("\n");
    if problems.len() > limits::PROBLEMS {
        text.push_str(&format!("\n(and {} more problems)", problems.len() - limits::PROBLEMS));
    }
    text
}

struct Checker {
    problems: Vec<String>,
    budget: Budget,
}

/// The members of a struct or dict whose names have been checked.
struct Fields<'v> {
    path: String,
    values: HashMap<String, Value<'v>>,
}

impl<'v> Fields<'v> {
    /// A member that is there and not `None`.
    fn get(&self, name: &str) -> Option<Value<'v>> {
        self.values.get(name).copied().filter(|value| !value.is_none())
    }

    fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }
}

impl Checker {
    fn report(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn result(&mut self, value: Value<'_>) -> Composed {
        if value.is_none() {
            self.report("compose must return struct(children=[…], …), got None (is a return missing?)".into());
            return Composed::default();
        }
        let names = ["children", "edges", "configs", "status", "conditions"];
        let Some(fields) = self.fields("", value, &names) else { return Composed::default() };
        let mut children = Vec::new();
        for (path, item) in self.list(&fields, "children") {
            children.extend(self.child(&path, item));
        }
        let before = self.problems.len();
        let mut edges = Vec::new();
        for (path, item) in self.list(&fields, "edges") {
            edges.extend(self.edge(&path, item));
        }
        let mut configs = Vec::new();
        for (path, item) in self.list(&fields, "configs") {
            configs.extend(self.config(&path, item));
        }
        let status = fields.get("status").and_then(|status| self.document("status", status));
        let mut conditions = Vec::new();
        for (path, item) in self.list(&fields, "conditions") {
            conditions.extend(self.condition(&path, item));
        }
        self.duplicates(&children, &configs, &conditions);
        // A child that is itself wrong is left out above; edges to it would only repeat that.
        if before == 0 {
            self.ends(&children, &edges);
        }
        let edges = merged(edges);
        self.cycle(&edges);
        let edges = edges.into_iter().map(|(_, edge)| edge).collect();
        Composed { children, edges, configs, status, conditions, retire: false }
    }

    /// The members of a dict or struct; unknown names are problems.
    fn fields<'v>(&mut self, path: &str, value: Value<'v>, known: &[&str]) -> Option<Fields<'v>> {
        let shown = if path.is_empty() { "the result of compose" } else { path };
        let members: Vec<(Value<'v>, Value<'v>)> = match (json_out::members(value), Object::from_value(value)) {
            (Some(members), _) => members,
            (None, Some(object)) => {
                let values = object
                    .iter()
                    .filter_map(|(name, value)| known.contains(&name).then(|| (name.to_owned(), value)))
                    .collect();
                for (name, _) in object.iter().filter(|(name, _)| !known.contains(name)) {
                    self.report(unknown(shown, name, known));
                }
                return Some(Fields { path: path.to_owned(), values });
            }
            (None, None) => {
                self.report(format!("{shown} must be a struct or dict, got {}", type_name(value)));
                return None;
            }
        };
        let mut values = HashMap::new();
        for (key, value) in members {
            match key.unpack_str() {
                Some(name) if known.contains(&name) => {
                    values.insert(name.to_owned(), value);
                }
                Some(name) => self.report(unknown(shown, name, known)),
                None => self.report(format!("{shown} has a key of type {}; names are strings", type_name(key))),
            }
        }
        Some(Fields { path: path.to_owned(), values })
    }

    /// The items of an optional list with their paths.
    fn list<'v>(&mut self, fields: &Fields<'v>, name: &str) -> Vec<(String, Value<'v>)> {
        let Some(value) = fields.get(name) else { return Vec::new() };
        let path = fields.path(name);
        let items = match (ListRef::from_value(value), TupleRef::from_value(value)) {
            (Some(list), _) => list.content(),
            (None, Some(tuple)) => tuple.content(),
            (None, None) => {
                self.report(format!("{path} must be a list, got {}", type_name(value)));
                return Vec::new();
            }
        };
        items.iter().enumerate().map(|(index, item)| (format!("{path}[{index}]"), *item)).collect()
    }

    fn child(&mut self, path: &str, value: Value<'_>) -> Option<Child> {
        let fields = self.fields(path, value, &["kind", "kind_version", "name", "spec", "labels"])?;
        let (kind, kind_version) = (self.text(&fields, "kind"), self.version(&fields));
        let name = self.text(&fields, "name");
        let spec = self.mapping(&fields, "spec");
        let labels = self.labels(&fields);
        Some(Child { kind: kind?, kind_version: kind_version?, name: name?, spec: spec?, labels: labels? })
    }

    fn config(&mut self, path: &str, value: Value<'_>) -> Option<Config> {
        let fields = self.fields(path, value, &["kind", "kind_version", "name", "spec", "is_default"])?;
        let (kind, kind_version) = (self.text(&fields, "kind"), self.version(&fields));
        let name = self.text(&fields, "name");
        let spec = self.mapping(&fields, "spec");
        let is_default = match fields.get("is_default") {
            None => Some(false),
            Some(value) => self.expect(&fields, "is_default", "a bool", value, value.unpack_bool()),
        };
        Some(Config { kind: kind?, kind_version: kind_version?, name: name?, spec: spec?, is_default: is_default? })
    }

    fn edge(&mut self, path: &str, value: Value<'_>) -> Option<Edge> {
        let fields = self.fields(path, value, &["dependent", "dependency", "values"])?;
        let dependent = self.reference(&fields, "dependent");
        let dependency = self.reference(&fields, "dependency");
        let mut values = Vec::new();
        for (path, item) in self.list(&fields, "values") {
            let Some(flow) = self.fields(&path, item, &["dependent", "source"]) else { continue };
            let pointers = (self.pointer(&flow, "dependent"), self.pointer(&flow, "source"));
            if let (Some(dependent), Some(source)) = pointers {
                values.push((dependent, source));
            }
        }
        Some(Edge { dependent: dependent?, dependency: dependency?, values })
    }

    fn condition(&mut self, path: &str, value: Value<'_>) -> Option<Condition> {
        let fields = self.fields(path, value, &["type", "status", "reason", "message"])?;
        let kind = self.text(&fields, "type");
        let status = self.text(&fields, "status");
        if let Some(status) = status.as_deref().filter(|status| !["True", "False", "Unknown"].contains(status)) {
            self.report(format!("{} must be \"True\", \"False\" or \"Unknown\", got {status:?}", fields.path("status")));
        }
        let mut optional = |name: &str| match fields.get(name) {
            None => Some(String::new()),
            Some(value) => self.expect(&fields, name, "a string", value, value.unpack_str()).map(str::to_owned),
        };
        let (reason, message) = (optional("reason"), optional("message"));
        Some(Condition { kind: kind?, status: status?, reason: reason?, message: message? })
    }

    fn reference(&mut self, fields: &Fields<'_>, name: &str) -> Option<Reference> {
        let path = fields.path(name);
        let Some(value) = fields.get(name) else {
            self.report(format!("{path} is required: struct(kind=…, name=…)"));
            return None;
        };
        let fields = self.fields(&path, value, &["kind", "name"])?;
        let (kind, name) = (self.text(&fields, "kind"), self.text(&fields, "name"));
        Some(Reference { kind: kind?, name: name? })
    }

    /// A required string that is not empty.
    fn text(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let path = fields.path(name);
        let Some(value) = fields.get(name) else {
            self.report(format!("{path} is required: a string"));
            return None;
        };
        let text = self.expect(fields, name, "a string", value, value.unpack_str())?;
        if text.is_empty() {
            self.report(format!("{path} must not be empty"));
            return None;
        }
        Some(text.to_owned())
    }

    fn version(&mut self, fields: &Fields<'_>) -> Option<i32> {
        let Some(value) = fields.get("kind_version") else { return Some(1) };
        let version = self.expect(fields, "kind_version", "an int", value, value.unpack_i32())?;
        if !(1..=32_767).contains(&version) {
            self.report(format!("{} must be from 1 to 32767, got {version}", fields.path("kind_version")));
            return None;
        }
        Some(version)
    }

    fn labels(&mut self, fields: &Fields<'_>) -> Option<BTreeMap<String, String>> {
        let Some(value) = fields.get("labels") else { return Some(BTreeMap::new()) };
        let path = fields.path("labels");
        let members: Vec<(Option<String>, Value<'_>)> =
            match (json_out::members(value), Object::from_value(value)) {
                (Some(members), _) => {
                    members.into_iter().map(|(key, value)| (key.unpack_str().map(str::to_owned), value)).collect()
                }
                (None, Some(object)) => object.iter().map(|(key, value)| (Some(key.to_owned()), value)).collect(),
                (None, None) => {
                    self.report(format!("{path} must be a dict, got {}", type_name(value)));
                    return None;
                }
            };
        let mut labels = BTreeMap::new();
        for (key, value) in members {
            match (key, value.unpack_str()) {
                (Some(key), Some(text)) => {
                    labels.insert(key, text.to_owned());
                }
                (Some(key), None) => {
                    self.report(format!("{path}{} must be a string, got {}", member(&key), type_name(value)));
                }
                (None, _) => self.report(format!("{path} has a key that is not a string")),
            }
        }
        Some(labels)
    }

    /// A spec: an object, `{}` when absent.
    fn mapping(&mut self, fields: &Fields<'_>, name: &str) -> Option<Box<RawValue>> {
        let path = fields.path(name);
        let Some(value) = fields.get(name) else { return self.raw(&path, "{}".into()) };
        if json_out::members(value).is_none() && Object::from_value(value).is_none() {
            self.report(format!("{path} must be a dict, got {}", type_name(value)));
            return None;
        }
        self.document(&path, value)
    }

    fn document(&mut self, path: &str, value: Value<'_>) -> Option<Box<RawValue>> {
        match json_out::write(value, Order::Insertion, &mut self.budget) {
            Ok(text) => self.raw(path, text),
            Err(unfit) => {
                self.report(format!("{path}{} {}", unfit.path, unfit.problem));
                None
            }
        }
    }

    fn raw(&mut self, path: &str, text: String) -> Option<Box<RawValue>> {
        RawValue::from_string(text).map_err(|err| self.report(format!("{path} could not be written: {err}"))).ok()
    }

    /// A pointer into a document. A name without a slash is a pointer of one segment.
    fn pointer(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let text = self.text(fields, name)?;
        if !text.starts_with('/') {
            return Some(format!("/{}", text.replace('~', "~0")));
        }
        let valid = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if !valid {
            let path = fields.path(name);
            self.report(format!("{path} is not a JSON pointer: {text:?} (after ~ comes 0 or 1)"));
            return None;
        }
        Some(text)
    }

    fn expect<T>(
        &mut self,
        fields: &Fields<'_>,
        name: &str,
        wanted: &str,
        value: Value<'_>,
        found: Option<T>,
    ) -> Option<T> {
        if found.is_none() {
            self.report(format!("{} must be {wanted}, got {}", fields.path(name), type_name(value)));
        }
        found
    }

    fn duplicates(&mut self, children: &[Child], configs: &[Config], conditions: &[Condition]) {
        let mut seen = HashMap::new();
        for (index, child) in children.iter().enumerate() {
            if let Some(first) = seen.insert((&child.kind, &child.name), index) {
                self.problems.push(format!(
                    "children[{index}] is the same child as children[{first}]: {} {:?}",
                    child.kind, child.name
                ));
            }
        }
        let mut seen = HashMap::new();
        for (index, config) in configs.iter().enumerate() {
            if let Some(first) = seen.insert(&config.name, index) {
                self.problems.push(format!("configs[{index}] has the name of configs[{first}]: {:?}", config.name));
            }
        }
        let mut seen = HashMap::new();
        for (index, condition) in conditions.iter().enumerate() {
            if let Some(first) = seen.insert(&condition.kind, index) {
                self.problems
                    .push(format!("conditions[{index}] has the type of conditions[{first}]: {:?}", condition.kind));
            }
        }
    }

    /// Both ends of an edge are children of this result.
    fn ends(&mut self, children: &[Child], edges: &[Edge]) {
        let known: std::collections::HashSet<(&str, &str)> =
            children.iter().map(|child| (child.kind.as_str(), child.name.as_str())).collect();
        for (index, edge) in edges.iter().enumerate() {
            if edge.dependent == edge.dependency {
                self.report(format!(
                    "edges[{index}] makes {} {:?} depend on itself",
                    edge.dependent.kind, edge.dependent.name
                ));
                continue;
            }
            for (end, reference) in [("dependent", &edge.dependent), ("dependency", &edge.dependency)] {
                if known.contains(&(reference.kind.as_str(), reference.name.as_str())) {
                    continue;
                }
                let hint = nearest(reference, children);
                self.report(format!(
                    "edges[{index}].{end}: no child of this result is {} {:?}{hint}",
                    reference.kind, reference.name
                ));
            }
        }
    }

    fn cycle(&mut self, edges: &[(usize, Edge)]) {
        if let Some(cycle) = find_cycle(edges) {
            self.report(format!("the edges form a cycle: {}", cycle.join(" -> ")));
        }
    }
}

fn unknown(shown: &str, name: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match near {
        Some((_, near)) => format!("did you mean {near:?}?"),
        None => format!("it can have {}", known.join(", ")),
    };
    let name: String = name.chars().take(60).collect();
    format!("{shown} has an unknown field {name:?}; {hint}")
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
    near.map_or_else(String::new, |(_, child)| format!("; did you mean {:?}?", child.name))
}

/// Edges between the same two children become one, with the values of both.
fn merged(edges: Vec<Edge>) -> Vec<(usize, Edge)> {
    let mut places: HashMap<(Reference, Reference), usize> = HashMap::new();
    let mut out: Vec<(usize, Edge)> = Vec::new();
    for (index, edge) in edges.into_iter().enumerate() {
        let ends = (edge.dependent.clone(), edge.dependency.clone());
        match places.get(&ends) {
            Some(place) => {
                let values = &mut out[*place].1.values;
                for value in edge.values {
                    if !values.contains(&value) {
                        values.push(value);
                    }
                }
            }
            None => {
                places.insert(ends, out.len());
                out.push((index, edge));
            }
        }
    }
    out
}

/// One cycle, as names, if there is any. Iterative: chains may be as long as the result.
fn find_cycle(edges: &[(usize, Edge)]) -> Option<Vec<String>> {
    let mut next: BTreeMap<&Reference, Vec<&Reference>> = BTreeMap::new();
    for (_, edge) in edges.iter().filter(|(_, edge)| edge.dependent != edge.dependency) {
        next.entry(&edge.dependent).or_default().push(&edge.dependency);
    }
    let mut done: std::collections::BTreeSet<&Reference> = std::collections::BTreeSet::new();
    for start in next.keys() {
        let mut path: Vec<(&Reference, usize)> = vec![(start, 0)];
        let mut open: std::collections::BTreeSet<&Reference> = [*start].into();
        while let Some((node, at)) = path.last_mut() {
            let follow = next.get(*node).and_then(|out| out.get(*at)).copied();
            *at += 1;
            match follow {
                Some(follow) if open.contains(follow) => {
                    let from = path.iter().position(|(node, _)| *node == follow).unwrap_or(0);
                    let names = path[from..].iter().map(|(node, _)| *node).chain([follow]);
                    return Some(shorten(names.map(|node| format!("{}/{}", node.kind, node.name)).collect()));
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
