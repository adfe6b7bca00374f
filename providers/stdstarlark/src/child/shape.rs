//! Checks what `compose` returned and turns it into the documents the parent passes on.
//!
//! Dicts and structs are taken alike. All problems of a result are told together, each with the path of the value
//! (`children[3].spec must be a dict, got list`). What only the control plane can know (kinds, schemas, owners) is not
//! judged here; what the result alone decides is: duplicate children, edges to nothing, cycles.

use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;
use starlark::values::Value;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;

use super::graph;
use super::json_out::{self, Budget, Order, member, type_name};
use super::value::Object;
use crate::limits;
use crate::protocol::{Child, Composed, Condition, Config, Edge, Reference};

/// Checks a whole result.
///
/// # Errors
/// The problems, one a line.
pub(crate) fn check(value: Value<'_>) -> Result<Composed, String> {
    let mut checker = Checker {
        problems: Vec::new(),
        budget: Budget::default(),
    };
    let result = checker.result(value);
    if checker.problems.is_empty() {
        Ok(result)
    } else {
        Err(listed(&checker.problems))
    }
}

/// Problems, one a line, the first of them and how many more.
pub(crate) fn listed(problems: &[String]) -> String {
    let mut text = problems
        .iter()
        .take(limits::PROBLEMS)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n");
    if problems.len() > limits::PROBLEMS {
        text.push_str(&format!(
            "\n(and {} more problems)",
            problems.len() - limits::PROBLEMS
        ));
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
        self.values
            .get(name)
            .copied()
            .filter(|value| !value.is_none())
    }

    fn path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }
}

impl Checker {
    fn report(&mut self, problem: String) {
        self.problems.push(problem);
    }

    fn result(&mut self, value: Value<'_>) -> Composed {
        if value.is_none() {
            self.report(
                "compose must return struct(children=[…], …), got None (is a return missing?)"
                    .into(),
            );
            return Composed::default();
        }
        let names = ["children", "edges", "configs", "status", "conditions"];
        let Some(fields) = self.fields("", value, &names) else {
            return Composed::default();
        };
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
        let status = fields
            .get("status")
            .and_then(|status| self.document("status", status));
        let mut conditions = Vec::new();
        for (path, item) in self.list(&fields, "conditions") {
            conditions.extend(self.condition(&path, item));
        }
        graph::duplicates(&mut self.problems, &children, &configs, &conditions);
        // A child that is itself wrong is left out above; edges to it would only repeat that.
        if before == 0 {
            graph::ends(&mut self.problems, &children, &edges);
        }
        let edges = graph::merged(edges);
        if let Some(cycle) = graph::find_cycle(&edges) {
            self.report(format!("the edges form a cycle: {}", cycle.join(" -> ")));
        }
        Composed {
            children,
            edges,
            configs,
            status,
            conditions,
            retire: false,
        }
    }

    /// The members of a dict or struct; unknown names are problems.
    fn fields<'v>(&mut self, path: &str, value: Value<'v>, known: &[&str]) -> Option<Fields<'v>> {
        let shown = if path.is_empty() {
            "the result of compose"
        } else {
            path
        };
        let members: Vec<(Value<'v>, Value<'v>)> =
            match (json_out::members(value), Object::from_value(value)) {
                (Some(members), _) => members,
                (None, Some(object)) => {
                    let values = object
                        .iter()
                        .filter(|(name, _)| known.contains(name))
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect();
                    for (name, _) in object.iter().filter(|(name, _)| !known.contains(name)) {
                        self.report(unknown(shown, name, known));
                    }
                    return Some(Fields {
                        path: path.to_owned(),
                        values,
                    });
                }
                (None, None) => {
                    self.report(format!(
                        "{shown} must be a struct or dict, got {}",
                        type_name(value)
                    ));
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
                None => self.report(format!(
                    "{shown} has a key of type {}; names are strings",
                    type_name(key)
                )),
            }
        }
        Some(Fields {
            path: path.to_owned(),
            values,
        })
    }

    /// The items of an optional list with their paths.
    fn list<'v>(&mut self, fields: &Fields<'v>, name: &str) -> Vec<(String, Value<'v>)> {
        let Some(value) = fields.get(name) else {
            return Vec::new();
        };
        let path = fields.path(name);
        let items = match (ListRef::from_value(value), TupleRef::from_value(value)) {
            (Some(list), _) => list.content(),
            (None, Some(tuple)) => tuple.content(),
            (None, None) => {
                self.report(format!("{path} must be a list, got {}", type_name(value)));
                return Vec::new();
            }
        };
        items
            .iter()
            .enumerate()
            .map(|(index, item)| (format!("{path}[{index}]"), *item))
            .collect()
    }

    fn child(&mut self, path: &str, value: Value<'_>) -> Option<Child> {
        let fields = self.fields(
            path,
            value,
            &["kind", "kind_version", "name", "spec", "labels"],
        )?;
        let (kind, kind_version) = (self.kind(&fields), self.version(&fields));
        let name = self.name(&fields);
        let spec = self.mapping(&fields, "spec");
        let labels = self.labels(&fields);
        Some(Child {
            kind: kind?,
            kind_version: kind_version?,
            name: name?,
            spec: spec?,
            labels: labels?,
        })
    }

    fn config(&mut self, path: &str, value: Value<'_>) -> Option<Config> {
        let fields = self.fields(
            path,
            value,
            &["kind", "kind_version", "name", "spec", "is_default"],
        )?;
        let (kind, kind_version) = (self.kind(&fields), self.version(&fields));
        let name = self.name(&fields);
        let spec = self.mapping(&fields, "spec");
        let is_default = match fields.get("is_default") {
            None => Some(false),
            Some(value) => self.expect(&fields, "is_default", "a bool", value, value.unpack_bool()),
        };
        Some(Config {
            kind: kind?,
            kind_version: kind_version?,
            name: name?,
            spec: spec?,
            is_default: is_default?,
        })
    }

    fn edge(&mut self, path: &str, value: Value<'_>) -> Option<Edge> {
        let fields = self.fields(path, value, &["dependent", "dependency", "values"])?;
        let dependent = self.reference(&fields, "dependent");
        let dependency = self.reference(&fields, "dependency");
        let mut values = Vec::new();
        for (path, item) in self.list(&fields, "values") {
            let Some(flow) = self.fields(&path, item, &["dependent", "source"]) else {
                continue;
            };
            let pointers = (
                self.pointer(&flow, "dependent"),
                self.pointer(&flow, "source"),
            );
            if let (Some(dependent), Some(source)) = pointers {
                values.push((dependent, source));
            }
        }
        Some(Edge {
            dependent: dependent?,
            dependency: dependency?,
            values,
        })
    }

    fn condition(&mut self, path: &str, value: Value<'_>) -> Option<Condition> {
        let fields = self.fields(path, value, &["type", "status", "reason", "message"])?;
        let kind = self.text(&fields, "type");
        let status = self.text(&fields, "status");
        if let Some(status) = status
            .as_deref()
            .filter(|status| !["True", "False", "Unknown"].contains(status))
        {
            self.report(format!(
                "{} must be \"True\", \"False\" or \"Unknown\", got {status:?}",
                fields.path("status")
            ));
        }
        let mut optional = |name: &str| match fields.get(name) {
            None => Some(String::new()),
            Some(value) => self
                .expect(&fields, name, "a string", value, value.unpack_str())
                .map(str::to_owned),
        };
        let (reason, message) = (optional("reason"), optional("message"));
        Some(Condition {
            kind: kind?,
            status: status?,
            reason: reason?,
            message: message?,
        })
    }

    fn reference(&mut self, fields: &Fields<'_>, name: &str) -> Option<Reference> {
        let path = fields.path(name);
        let Some(value) = fields.get(name) else {
            self.report(format!("{path} is required: struct(kind=…, name=…)"));
            return None;
        };
        let fields = self.fields(&path, value, &["kind", "name"])?;
        let (kind, name) = (self.text(&fields, "kind"), self.text(&fields, "name"));
        Some(Reference {
            kind: kind?,
            name: name?,
        })
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

    /// A kind's name by the rules of the control plane.
    fn kind(&mut self, fields: &Fields<'_>) -> Option<String> {
        let kind = self.text(fields, "kind")?;
        let plain = kind
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !plain || !kind.starts_with(|c: char| c.is_ascii_lowercase()) || kind.len() > 63 {
            let path = fields.path("kind");
            let kind = clip(&kind);
            self.report(format!(
                "{path} must be a kind ([a-z][a-z0-9-]*, at most 63 characters), got {kind:?}"
            ));
            return None;
        }
        Some(kind)
    }

    /// A resource's or config's name by the rules of the control plane.
    fn name(&mut self, fields: &Fields<'_>) -> Option<String> {
        let name = self.text(fields, "name")?;
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if !plain || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || name.len() > 253 {
            let path = fields.path("name");
            let name = clip(&name);
            self.report(format!(
                "{path} must be a name (letters, digits, \".\", \"_\" and \"-\", starting with a letter or digit, at most 253), got {name:?}"
            ));
            return None;
        }
        Some(name)
    }

    fn version(&mut self, fields: &Fields<'_>) -> Option<i32> {
        let Some(value) = fields.get("kind_version") else {
            return Some(1);
        };
        let version = self.expect(fields, "kind_version", "an int", value, value.unpack_i32())?;
        if !(1..=32_767).contains(&version) {
            self.report(format!(
                "{} must be from 1 to 32767, got {version}",
                fields.path("kind_version")
            ));
            return None;
        }
        Some(version)
    }

    fn labels(&mut self, fields: &Fields<'_>) -> Option<BTreeMap<String, String>> {
        let Some(value) = fields.get("labels") else {
            return Some(BTreeMap::new());
        };
        let path = fields.path("labels");
        let members: Vec<(Option<String>, Value<'_>)> =
            match (json_out::members(value), Object::from_value(value)) {
                (Some(members), _) => members
                    .into_iter()
                    .map(|(key, value)| (key.unpack_str().map(str::to_owned), value))
                    .collect(),
                (None, Some(object)) => object
                    .iter()
                    .map(|(key, value)| (Some(key.to_owned()), value))
                    .collect(),
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
                    self.report(format!(
                        "{path}{} must be a string, got {}",
                        member(&key),
                        type_name(value)
                    ));
                }
                (None, _) => self.report(format!("{path} has a key that is not a string")),
            }
        }
        Some(labels)
    }

    /// A spec: an object, `{}` when absent.
    fn mapping(&mut self, fields: &Fields<'_>, name: &str) -> Option<Box<RawValue>> {
        let path = fields.path(name);
        let Some(value) = fields.get(name) else {
            return self.raw(&path, "{}".into());
        };
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
        RawValue::from_string(text)
            .map_err(|err| self.report(format!("{path} could not be written: {err}")))
            .ok()
    }

    /// A pointer into a document. A name without a slash is a pointer of one segment.
    fn pointer(&mut self, fields: &Fields<'_>, name: &str) -> Option<String> {
        let text = self.text(fields, name)?;
        if !text.starts_with('/') {
            return Some(format!("/{}", text.replace('~', "~0")));
        }
        let valid = text
            .split('~')
            .skip(1)
            .all(|rest| rest.starts_with(['0', '1']));
        if !valid {
            let path = fields.path(name);
            self.report(format!(
                "{path} is not a JSON pointer: {text:?} (after ~ comes 0 or 1)"
            ));
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
            self.report(format!(
                "{} must be {wanted}, got {}",
                fields.path(name),
                type_name(value)
            ));
        }
        found
    }
}

/// A text short enough for a message.
fn clip(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
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
    let name = clip(name);
    format!("{shown} has an unknown field {name:?}; {hint}")
}
