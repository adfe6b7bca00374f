//! The graph as it was configured: read once per config, checked as far as it can be without an instance.
//!
//! Nothing here stops at the first problem. A resource with one is marked broken, so that composing can go on to the rest
//! and list what is wrong there too.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cel::is_variable_name;
use crate::json::{Doc, push_segment};
use crate::names;
use crate::order;
use crate::problem::{Class, Problem};
use crate::references;
use crate::template::{self, Expression, Template};

/// Most resources in one graph.
pub(crate) const MAX_RESOURCES: usize = 20_000;

/// A composition as data: resources that refer to each other, and what they add up to.
///
/// Reading it finds every problem that needs no instance; [`Graph::problems`] lists them. It is immutable and may be
/// shared between threads.
#[derive(Debug)]
pub struct Graph {
    pub(crate) resources: Vec<Resource>,
    pub(crate) status: Template,
    pub(crate) ids: HashMap<Arc<str>, usize>,
    /// Indices into `resources`: dependencies first, listing order otherwise. Broken circles are left out.
    pub(crate) order: Vec<usize>,
    pub(crate) problems: Vec<Problem>,
}

/// One entry of the graph.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) id: Arc<str>,
    pub(crate) kind: String,
    pub(crate) kind_version: i32,
    pub(crate) name: Template,
    pub(crate) spec: Template,
    pub(crate) labels: Vec<(String, Template)>,
    pub(crate) include_when: Vec<Expression>,
    /// Variables and what they run over; `None` if that has a problem.
    pub(crate) for_each: Vec<(Arc<str>, Option<Expression>)>,
    pub(crate) ready_when: Vec<Expression>,
    /// Resources its template reads, each once.
    pub(crate) reads: Vec<usize>,
    /// It has a problem and cannot be composed; what else is wrong with it is found all the same.
    pub(crate) broken: bool,
    /// It cannot even be tried: it is in a circle, or its id is not its own.
    pub(crate) skipped: bool,
}

impl Graph {
    /// Reads a graph from the JSON of a providerconfig's spec.
    #[must_use]
    pub fn parse(config: &[u8]) -> Self {
        let mut graph = Self {
            resources: Vec::new(),
            status: Template::Literal(crate::cel::Value::empty_map()),
            ids: HashMap::new(),
            order: Vec::new(),
            problems: Vec::new(),
        };
        match Doc::parse(config) {
            Ok(doc) => graph.read(&doc),
            Err(message) => graph.problems.push(Problem::new(
                Class::Malformed,
                format!("the graph is not JSON: {message}"),
            )),
        }
        graph
    }

    /// What is wrong with it, whatever the instance.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn read(&mut self, doc: &Doc) {
        let Doc::Object(fields) = doc else {
            let message = format!(
                "the graph must be an object with `resources`, not {}",
                doc.kind()
            );
            return self.problems.push(Problem::new(Class::Malformed, message));
        };
        for (name, _) in fields
            .iter()
            .filter(|(name, _)| name != "resources" && name != "status")
        {
            self.problems
                .push(unknown_field(name, "", &["resources", "status"]));
        }
        match doc.get("resources") {
            Some(Doc::Array(items)) if items.len() <= MAX_RESOURCES => {
                for (at, item) in items.iter().enumerate() {
                    self.read_resource(at, item);
                }
            }
            Some(Doc::Array(items)) => {
                let message = format!(
                    "the graph has {} resources; the most is {MAX_RESOURCES}",
                    items.len()
                );
                self.problems.push(Problem::new(Class::Limit, message));
            }
            Some(other) => {
                let message = format!("`resources` must be a list, not {}", other.kind());
                self.problems
                    .push(Problem::new(Class::Malformed, message).at("/resources"));
            }
            None => self
                .problems
                .push(Problem::new(Class::Malformed, "`resources` is missing")),
        }
        match doc.get("status") {
            None | Some(Doc::Null) => {}
            Some(status @ Doc::Object(_)) => {
                self.status =
                    template::compile(status, &mut "/status".to_owned(), &mut self.problems);
            }
            Some(other) => {
                let message = format!("`status` must be an object, not {}", other.kind());
                self.problems
                    .push(Problem::new(Class::Malformed, message).at("/status"));
            }
        }
        references::check(self);
        order::sort(self);
    }

    fn read_resource(&mut self, at: usize, doc: &Doc) {
        let place = format!("/resources/{at}");
        let mut found = Vec::new();
        let id = match doc.get("id") {
            Some(Doc::String(id)) => id.clone(),
            _ => {
                let what = if matches!(doc, Doc::Object(_)) {
                    "`id` is missing or not a string"
                } else {
                    "a resource must be an object"
                };
                self.problems
                    .push(Problem::new(Class::Malformed, what).at(&place));
                return;
            }
        };
        if !is_variable_name(&id) || id == "schema" || id == "each" {
            let hint = if id == "schema" || id == "each" {
                "the word is taken"
            } else {
                "an id is a variable in expressions: letters, digits and `_`, no digit first, no word of the language"
            };
            found.push(
                Problem::new(Class::InvalidId, format!("`{id}` cannot be an id")).hint(Some(hint)),
            );
        }
        let mut resource = read_fields(&id, doc, &mut found);
        let index = self.resources.len();
        if let Some(first) = self.ids.get(&resource.id) {
            let message = format!(
                "the id is used twice, by entries {} and {} of `resources`",
                first + 1,
                at + 1
            );
            found.push(Problem::new(Class::DuplicateId, message));
            resource.skipped = true;
        } else {
            self.ids.insert(Arc::clone(&resource.id), index);
        }
        resource.broken = !found.is_empty();
        self.problems
            .extend(found.into_iter().map(|problem| problem.in_resource(&id)));
        self.resources.push(resource);
    }
}

fn unknown_field(name: &str, within: &str, known: &[&str]) -> Problem {
    let mut pointer = within.to_owned();
    push_segment(&mut pointer, name);
    let hint = match crate::nearest::nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", known.join(", ")),
    };
    Problem::new(Class::Malformed, format!("unknown field `{name}`"))
        .at(&pointer)
        .hint(Some(hint))
}

fn read_fields(id: &str, doc: &Doc, found: &mut Vec<Problem>) -> Resource {
    let mut resource = Resource {
        id: Arc::from(id),
        kind: String::new(),
        kind_version: 1,
        name: Template::Broken,
        spec: Template::Literal(crate::cel::Value::empty_map()),
        labels: Vec::new(),
        include_when: Vec::new(),
        for_each: Vec::new(),
        ready_when: Vec::new(),
        reads: Vec::new(),
        broken: false,
        skipped: false,
    };
    const KNOWN: [&str; 5] = ["id", "template", "includeWhen", "forEach", "readyWhen"];
    if let Doc::Object(fields) = doc {
        for (name, _) in fields
            .iter()
            .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
        {
            found.push(unknown_field(name, "", &KNOWN));
        }
    }
    match doc.get("template") {
        Some(template @ Doc::Object(_)) => read_template(template, &mut resource, found),
        Some(other) => found.push(Problem::new(
            Class::Malformed,
            format!("`template` must be an object, not {}", other.kind()),
        )),
        None => found.push(Problem::new(Class::Malformed, "`template` is missing")),
    }
    resource.include_when = conditions(doc, "includeWhen", found);
    resource.ready_when = conditions(doc, "readyWhen", found);
    resource.for_each = dimensions(doc, found);
    resource
}

fn read_template(doc: &Doc, resource: &mut Resource, found: &mut Vec<Problem>) {
    const KNOWN: [&str; 5] = ["kind", "kind_version", "name", "spec", "labels"];
    if let Doc::Object(fields) = doc {
        for (name, _) in fields
            .iter()
            .filter(|(name, _)| !KNOWN.contains(&name.as_str()))
        {
            found.push(unknown_field(name, "", &KNOWN));
        }
    }
    match doc.get("kind") {
        Some(Doc::String(kind)) if names::is_kind(kind) => resource.kind = kind.clone(),
        Some(Doc::String(kind)) => {
            let problem =
                Problem::new(Class::Malformed, format!("`{kind}` is no kind")).at("/kind");
            found.push(problem.hint(Some(match kind.contains("${") {
                true => "the kind is literal; use two resources with `includeWhen` to choose between kinds",
                false => "a kind is a lower-case letter and then letters, digits and `-`, 63 at most",
            })));
        }
        Some(other) => {
            found.push(
                Problem::new(
                    Class::Malformed,
                    format!("`kind` must be a string, not {}", other.kind()),
                )
                .at("/kind"),
            );
        }
        None => found.push(Problem::new(Class::Malformed, "`kind` is missing").at("/kind")),
    }
    match doc.get("kind_version") {
        None => {}
        Some(Doc::Number(text))
            if text
                .parse()
                .is_ok_and(|version: i32| (1..=32_767).contains(&version)) =>
        {
            resource.kind_version = text.parse().unwrap_or(1);
        }
        Some(_) => {
            let message = "`kind_version` must be a whole number from 1 to 32767";
            found.push(Problem::new(Class::Malformed, message).at("/kind_version"));
        }
    }
    match doc.get("name") {
        Some(Doc::String(name)) => resource.name = template::string(name, "/name", found),
        Some(other) => {
            found.push(
                Problem::new(
                    Class::BadName,
                    format!("`name` must be a string, not {}", other.kind()),
                )
                .at("/name"),
            );
        }
        None => found.push(Problem::new(Class::BadName, "`name` is missing").at("/name")),
    }
    match doc.get("spec") {
        None => {}
        Some(spec @ (Doc::Object(_) | Doc::String(_))) => {
            resource.spec = template::compile(spec, &mut "/spec".to_owned(), found);
            if matches!(&resource.spec, Template::Literal(value) if value.as_str().is_some()) {
                found.push(
                    Problem::new(Class::Malformed, "`spec` must be an object, not a string")
                        .at("/spec"),
                );
            }
        }
        Some(other) => {
            found.push(
                Problem::new(
                    Class::Malformed,
                    format!("`spec` must be an object, not {}", other.kind()),
                )
                .at("/spec"),
            );
        }
    }
    match doc.get("labels") {
        None => {}
        Some(Doc::Object(labels)) => {
            for (name, value) in labels {
                read_label(name, value, resource, found);
            }
            resource.labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Some(other) => {
            let message = format!("`labels` must be an object, not {}", other.kind());
            found.push(Problem::new(Class::BadLabel, message).at("/labels"));
        }
    }
}

fn read_label(name: &str, value: &Doc, resource: &mut Resource, found: &mut Vec<Problem>) {
    let mut pointer = "/labels".to_owned();
    push_segment(&mut pointer, name);
    if name == "composed_by" || name == "graph_id" {
        let message = format!("the label `{name}` is set by the composer and cannot be written");
        return found.push(Problem::new(Class::BadLabel, message).at(&pointer));
    }
    if name.contains("${") {
        let message = format!("the key `{name}` holds an expression; keys are literal");
        return found.push(Problem::new(Class::ExpressionInKey, message).at(&pointer));
    }
    if !names::is_label_key(name) {
        let message = format!("`{name}` cannot be the key of a label");
        return found.push(Problem::new(Class::BadLabel, message).at(&pointer));
    }
    match value {
        Doc::String(text) => resource
            .labels
            .push((name.to_owned(), template::string(text, &pointer, found))),
        other => {
            let message = format!("a label must be a string, not {}", other.kind());
            found.push(Problem::new(Class::BadLabel, message).at(&pointer));
        }
    }
}

/// `includeWhen` and `readyWhen`: lists of `"${…}"`.
fn conditions(doc: &Doc, field: &str, found: &mut Vec<Problem>) -> Vec<Expression> {
    let items = match doc.get(field) {
        None => return Vec::new(),
        Some(Doc::Array(items)) => items,
        Some(other) => {
            let message = format!(
                "`{field}` must be a list of \"${{…}}\", not {}",
                other.kind()
            );
            found.push(Problem::new(Class::Malformed, message).at(&format!("/{field}")));
            return Vec::new();
        }
    };
    let read = |(at, item): (usize, &Doc)| whole(item, &format!("/{field}/{at}"), found);
    items.iter().enumerate().filter_map(read).collect()
}

/// A string that is one expression.
fn whole(doc: &Doc, pointer: &str, found: &mut Vec<Problem>) -> Option<Expression> {
    let before = found.len();
    let template = match doc {
        Doc::String(text) => template::string(text, pointer, found),
        _ => Template::List(Vec::new()),
    };
    match template {
        Template::Whole(expression) => return Some(expression),
        _ if found.len() > before => {}
        _ => found.push(
            Problem::new(Class::Malformed, "one expression \"${…}\" is needed here").at(pointer),
        ),
    }
    None
}

fn dimensions(doc: &Doc, found: &mut Vec<Problem>) -> Vec<(Arc<str>, Option<Expression>)> {
    let fields = match doc.get("forEach") {
        None => return Vec::new(),
        Some(Doc::Object(fields)) => fields,
        Some(other) => {
            let message = format!(
                "`forEach` must be an object of variables, not {}",
                other.kind()
            );
            found.push(
                Problem::new(Class::Malformed, message)
                    .at("/forEach")
                    .hint(Some("{\"zone\": \"${schema.spec.zones}\"}")),
            );
            return Vec::new();
        }
    };
    if fields.is_empty() {
        found.push(Problem::new(Class::Malformed, "`forEach` names no variable").at("/forEach"));
    }
    let mut dimensions: Vec<(Arc<str>, Option<Expression>)> = Vec::new();
    for (name, item) in fields {
        let mut pointer = "/forEach".to_owned();
        push_segment(&mut pointer, name);
        if !is_variable_name(name)
            || name == "schema"
            || dimensions.iter().any(|(other, _)| **other == **name)
        {
            found.push(
                Problem::new(
                    Class::InvalidId,
                    format!("`{name}` cannot be a variable here"),
                )
                .at(&pointer),
            );
            continue;
        }
        dimensions.push((Arc::from(name.as_str()), whole(item, &pointer, found)));
    }
    dimensions
}
