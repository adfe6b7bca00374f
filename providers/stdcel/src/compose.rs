//! One instance of a graph: children, and the values that will flow between them.
//!
//! Resources are evaluated dependencies first. What one reads of another is a value already, except a status, which is a
//! place: wherever such a place ends up, directly or by way of another resource's spec, the leaf becomes `null` and a flow
//! from the resource that has the status to the one that holds the leaf.
//!
//! A resource that fails takes those that read it out of the run, silently: its problem is the one to mend.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cel::value::{Key, Pending};
use crate::cel::{self, Budget, Fault, FaultKind, Value};
use crate::composition::{Child, Composition, Edge, Instance};
use crate::graph::{Graph, Resource};
use crate::inputs::{Composed, Names, State, schema};
use crate::json;
use crate::names::{self, MAX_LABEL_VALUE, MAX_LABELS};
use crate::problem::{Class, Problem};
use crate::template::{Expression, Part, Template};

/// Most children that one resource with `forEach` makes.
pub(crate) const MAX_FOR_EACH: usize = 1_000;
/// Most children of one composition.
pub(crate) const MAX_CHILDREN: usize = 20_000;
/// Most bytes of all specs together.
const MAX_OUTPUT_BYTES: usize = 32 << 20;
/// Steps and bytes for the whole composition, and for each expression of it.
const TOTAL: (u64, u64) = (20_000_000, 256 << 20);
pub(crate) const EACH: (u64, u64) = (4_000_000, 32 << 20);

/// A run with everything the rollup needs of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) composition: Composition,
    pub(crate) states: Vec<State>,
    pub(crate) schema: Value,
}

impl Graph {
    /// Composes an instance.
    ///
    /// # Errors
    /// Every problem of the graph and of this instance with it. None of them goes away by trying again.
    pub fn compose(&self, instance: &Instance<'_>) -> Result<Composition, Vec<Problem>> {
        self.run(instance).map(|run| run.composition)
    }

    pub(crate) fn run(&self, instance: &Instance<'_>) -> Result<Run, Vec<Problem>> {
        let schema = match schema(instance) {
            Ok(schema) => schema,
            Err(problem) => return Err(self.problems.iter().cloned().chain([*problem]).collect()),
        };
        let mut composer = Composer {
            graph: self,
            schema,
            states: vec![State::Unknown; self.resources.len()],
            children: Vec::new(),
            flows: BTreeMap::new(),
            identities: HashMap::new(),
            problems: self.problems.clone(),
            budget: Budget::new(TOTAL.0, TOTAL.1),
            output_bytes: 0,
        };
        for index in &self.order {
            composer.resource(*index);
            if composer.spent() {
                break;
            }
        }
        if !composer.problems.is_empty() {
            return Err(composer.problems);
        }
        let edges = composer
            .flows
            .into_iter()
            .map(|((from, to), values)| Edge { from, to, values })
            .collect();
        let composition = Composition {
            children: composer.children,
            edges,
        };
        Ok(Run {
            composition,
            states: composer.states,
            schema: composer.schema,
        })
    }
}

struct Composer<'g> {
    graph: &'g Graph,
    schema: Value,
    states: Vec<State>,
    children: Vec<Child>,
    flows: BTreeMap<(usize, usize), Vec<(String, String)>>,
    /// Who has a (kind, name) already.
    identities: HashMap<(String, String), usize>,
    problems: Vec<Problem>,
    budget: Budget,
    output_bytes: usize,
}

/// Why a resource yields no children this time.
enum Stop {
    LeftOut,
    Failed,
}

/// What `spec`, `status` and `metadata` of one child are to others.
struct Parts {
    spec: Value,
    status: Value,
    metadata: Value,
}

impl<'g> Composer<'g> {
    /// Whether a bound was met that all the rest would meet too.
    fn spent(&self) -> bool {
        self.problems.len() > 200
            || self
                .problems
                .last()
                .is_some_and(|problem| problem.class == Class::Limit)
    }

    fn resource(&mut self, index: usize) {
        let resource = &self.graph.resources[index];
        let unknown = |read: &usize| matches!(self.states[*read], State::Unknown);
        if resource.skipped || resource.reads.iter().any(unknown) {
            return;
        }
        let first = self.children.len();
        let before = self.problems.len();
        self.states[index] = match self.expand(resource) {
            Ok(value) if !resource.broken => State::Composed(Composed {
                value,
                children: first..self.children.len(),
            }),
            Err(Stop::LeftOut) => {
                self.forget(first);
                State::LeftOut
            }
            Ok(_) | Err(Stop::Failed) => State::Unknown,
        };
        for problem in &mut self.problems[before..] {
            problem.id = Some(resource.id.to_string());
        }
    }

    /// Takes back the children of a resource that turned out to be left out.
    fn forget(&mut self, first: usize) {
        if self.children.len() == first {
            return;
        }
        self.children.truncate(first);
        self.flows.retain(|(from, _), _| *from < first);
        self.identities.retain(|_, child| *child < first);
    }

    fn expand(&mut self, resource: &'g Resource) -> Result<Value, Stop> {
        for condition in &resource.include_when {
            match self.evaluate(condition, &[])? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Err(Stop::LeftOut),
                other => {
                    let message =
                        format!("`includeWhen` must give a bool, not {}", other.type_name());
                    return Err(self.fail(condition.wrong(class_of(&other), message, 0)));
                }
            }
        }
        if resource.for_each.is_empty() {
            let parts = self.child(resource, &[])?;
            return self.built(|| {
                Value::object([
                    ("spec", parts.spec),
                    ("status", parts.status),
                    ("metadata", parts.metadata),
                ])
            });
        }
        let mut dimensions = Vec::new();
        for (name, expression) in &resource.for_each {
            let Some(expression) = expression else {
                return Err(Stop::Failed);
            };
            match self.evaluate(expression, &[])? {
                Value::List(list) => dimensions.push((name, list)),
                other => {
                    let message = format!("`forEach` needs a list, not {}", other.type_name());
                    return Err(self.fail(expression.wrong(class_of(&other), message, 0)));
                }
            }
        }
        let count = dimensions.iter().try_fold(1_usize, |count, (_, list)| {
            count.checked_mul(list.items().len())
        });
        let count = match count {
            Some(count) if count <= MAX_FOR_EACH => count,
            _ => {
                let message = format!("`forEach` would make more than {MAX_FOR_EACH} children");
                return Err(self.fail(Problem::new(Class::Limit, message).at("/forEach")));
            }
        };
        let (mut specs, mut statuses, mut metadata) = (Vec::new(), Vec::new(), Vec::new());
        let mut failed = false;
        for at in 0..count {
            // The last dimension turns fastest.
            let mut rest = at;
            let mut locals: Vec<(Arc<str>, Value)> = Vec::with_capacity(dimensions.len());
            for (name, list) in dimensions.iter().rev() {
                let items = list.items();
                locals.push((Arc::clone(name), items[rest % items.len()].clone()));
                rest /= items.len();
            }
            match self.child(resource, &locals) {
                Ok(parts) => {
                    specs.push(parts.spec);
                    statuses.push(parts.status);
                    metadata.push(parts.metadata);
                }
                Err(Stop::LeftOut) => return Err(Stop::LeftOut),
                // One element's problem is the others' too, most of the time.
                Err(Stop::Failed) => {
                    failed = true;
                    break;
                }
            }
        }
        if failed {
            return Err(Stop::Failed);
        }
        self.built(|| {
            Value::object([
                ("spec", Value::list(specs)?),
                ("status", Value::list(statuses)?),
                ("metadata", Value::list(metadata)?),
            ])
        })
    }

    fn built(&mut self, build: impl FnOnce() -> Result<Value, Fault>) -> Result<Value, Stop> {
        build().map_err(|fault| self.fail(Problem::new(Class::Limit, fault.to_string())))
    }

    fn fail(&mut self, problem: Problem) -> Stop {
        self.problems.push(problem);
        Stop::Failed
    }

    fn child(
        &mut self,
        resource: &'g Resource,
        locals: &[(Arc<str>, Value)],
    ) -> Result<Parts, Stop> {
        let index = self.children.len();
        if index >= MAX_CHILDREN {
            return Err(self.fail(Problem::new(
                Class::Limit,
                format!("the graph makes more than {MAX_CHILDREN} children"),
            )));
        }
        // All three before any of them ends it: every problem of a resource is listed.
        let name = self.name(resource, locals);
        let labels = self.labels(resource, locals);
        let spec = self.spec(resource, locals);
        let (name, labels, spec) = (name?, labels?, spec?);
        let text = self.write(&spec, index)?;
        let shown = labels
            .iter()
            .map(|(name, value)| (name.as_str(), Value::string(value)));
        let metadata = Value::object(shown)
            .and_then(|labels| Value::object([("name", Value::string(&name)), ("labels", labels)]))
            .map_err(|fault| self.fail(Problem::new(Class::Limit, fault.to_string())))?;
        let status = Value::Pending(Arc::new(Pending {
            child: index,
            id: Arc::clone(&resource.id),
            pointer: String::new(),
        }));
        self.identities
            .insert((resource.kind.clone(), name.clone()), index);
        self.children.push(Child {
            id: Arc::clone(&resource.id),
            kind: resource.kind.clone(),
            kind_version: resource.kind_version,
            name,
            spec: text,
            labels,
        });
        Ok(Parts {
            spec,
            status,
            metadata,
        })
    }

    fn name(
        &mut self,
        resource: &'g Resource,
        locals: &[(Arc<str>, Value)],
    ) -> Result<String, Stop> {
        let bad = |message: String| Problem::new(Class::BadName, message).at("/name");
        let name = match self.leaf(&resource.name, locals)? {
            Some(Value::String(name)) => name,
            Some(other) => {
                let problem = match other {
                    Value::Pending(_) => self.status_read(&resource.name, &other),
                    _ => bad(format!(
                        "a name must be a string, not {}",
                        other.type_name()
                    )),
                };
                return Err(self.fail(problem));
            }
            None => {
                return Err(self.fail(
                    bad("the name is absent".to_owned())
                        .hint(Some("give it a value with `.orValue(…)`")),
                ));
            }
        };
        if !names::is_name(&name) {
            let shown: String = name.chars().take(80).collect();
            let problem = bad(format!("`{shown}` cannot be a name"));
            let hint = "1 to 253 letters, digits, `.`, `_` and `-`, with a letter or digit first";
            return Err(self.fail(problem.hint(Some(hint))));
        }
        let identity = (resource.kind.clone(), name.to_string());
        match self.identities.get(&identity) {
            Some(other) => {
                let other = self
                    .children
                    .get(*other)
                    .map_or_else(|| Arc::clone(&resource.id), |child| Arc::clone(&child.id));
                let message = match other == resource.id {
                    true => format!("two of its children are both `{}/{name}`", resource.kind),
                    false => format!("it makes `{}/{name}`, as `{other}` does", resource.kind),
                };
                let problem = Problem::new(Class::DuplicateObject, message).at("/name");
                let hint = match resource.for_each.first() {
                    Some((variable, _)) => format!("put ${{{variable}}} into the name"),
                    None => "kind and name together must be unique".to_owned(),
                };
                Err(self.fail(problem.hint(Some(hint))))
            }
            None => Ok(name.to_string()),
        }
    }

    fn labels(
        &mut self,
        resource: &'g Resource,
        locals: &[(Arc<str>, Value)],
    ) -> Result<BTreeMap<String, String>, Stop> {
        let mut labels = BTreeMap::from([
            ("composed_by".to_owned(), "stdcel".to_owned()),
            ("graph_id".to_owned(), resource.id.to_string()),
        ]);
        for (key, template) in &resource.labels {
            let mut pointer = "/labels".to_owned();
            json::push_segment(&mut pointer, key);
            let bad = |message: String| Problem::new(Class::BadLabel, message).at(&pointer);
            match self.leaf(template, locals)? {
                None => {}
                Some(Value::String(value)) if value.len() <= MAX_LABEL_VALUE => {
                    labels.insert(key.clone(), value.to_string());
                }
                Some(Value::String(_)) => {
                    return Err(self.fail(bad(format!(
                        "the label is longer than {MAX_LABEL_VALUE} bytes"
                    ))));
                }
                Some(other @ Value::Pending(_)) => {
                    let problem = self.status_read(template, &other);
                    return Err(self.fail(problem));
                }
                Some(other) => {
                    let problem = bad(format!(
                        "a label must be a string, not {}",
                        other.type_name()
                    ));
                    return Err(self.fail(problem.hint(Some("convert it with string()"))));
                }
            }
        }
        if labels.len() > MAX_LABELS {
            let problem = Problem::new(
                Class::BadLabel,
                format!("a resource has {MAX_LABELS} labels at most"),
            );
            return Err(self.fail(problem.at("/labels")));
        }
        Ok(labels)
    }

    fn status_read(&self, template: &Template, value: &Value) -> Problem {
        let fault = match value {
            Value::Pending(pending) => cel::status_read(pending),
            _ => Fault::new(
                FaultKind::StatusRead,
                "a status is not known while composing",
            ),
        };
        match template {
            Template::Whole(expression) => expression.problem(&fault),
            _ => Problem::new(Class::StatusInExpression, fault.to_string()),
        }
    }

    fn spec(
        &mut self,
        resource: &'g Resource,
        locals: &[(Arc<str>, Value)],
    ) -> Result<Value, Stop> {
        match self.leaf(&resource.spec, locals)? {
            None => Ok(Value::empty_map()),
            Some(value @ Value::Map(_)) => Ok(value),
            Some(other @ Value::Pending(_)) => {
                let problem = self.status_read(&resource.spec, &other);
                Err(self.fail(problem))
            }
            Some(other) => {
                let message = format!("a spec must be an object, not {}", other.type_name());
                Err(self.fail(Problem::new(Class::EvalError, message).at("/spec")))
            }
        }
    }

    /// Evaluates a template; all of it, also after a problem. `None`: absent.
    fn leaf(
        &mut self,
        template: &'g Template,
        locals: &[(Arc<str>, Value)],
    ) -> Result<Option<Value>, Stop> {
        match template {
            Template::Literal(value) => Ok(Some(value.clone())),
            Template::Broken => Err(Stop::Failed),
            Template::Whole(expression) => {
                let value = self.evaluate(expression, locals)?;
                json::plain(value).map_err(|fault| {
                    let class = if fault.kind() == FaultKind::Limit {
                        Class::Limit
                    } else {
                        Class::NonJsonValue
                    };
                    self.fail(
                        expression
                            .wrong(class, fault.to_string(), 0)
                            .hint(fault.hint()),
                    )
                })
            }
            Template::Text(text) => {
                let mut out = String::new();
                let mut stop = None;
                for part in &text.parts {
                    match part {
                        Part::Text(text) => out.push_str(text),
                        Part::Broken => stop = Some(Stop::Failed),
                        Part::Expression(expression) => match self.text_part(expression, locals) {
                            Ok(text) => out.push_str(&text),
                            Err(found) => stop = worse(stop, found),
                        },
                    }
                }
                stop.map_or_else(|| Ok(Some(Value::string(&out))), Err)
            }
            Template::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                let mut stop = None;
                for item in items {
                    match self.leaf(item, locals) {
                        Ok(value) => values.extend(value),
                        Err(found) => stop = worse(stop, found),
                    }
                }
                stop.map_or_else(|| self.built(|| Value::list(values)).map(Some), Err)
            }
            Template::Map(fields) => {
                let mut entries: BTreeMap<Key, Value> = BTreeMap::new();
                let mut stop = None;
                for (key, field) in fields {
                    match self.leaf(field, locals) {
                        Ok(Some(value)) => {
                            entries.insert(key.clone(), value);
                        }
                        Ok(None) => {}
                        Err(found) => stop = worse(stop, found),
                    }
                }
                stop.map_or_else(|| self.built(|| Value::map(entries)).map(Some), Err)
            }
        }
    }

    fn text_part(
        &mut self,
        expression: &'g Expression,
        locals: &[(Arc<str>, Value)],
    ) -> Result<String, Stop> {
        let value = self.evaluate(expression, locals)?;
        if let Some(text) = cel::display_scalar(&value) {
            return Ok(text);
        }
        let problem = match &value {
            Value::Pending(pending) => expression.problem(&cel::status_read(pending)),
            other => {
                let message = format!(
                    "text can hold strings, numbers and booleans, not {}",
                    other.type_name()
                );
                let problem = expression.wrong(Class::EvalError, message, expression.expr.offset);
                problem.hint(Some(match other {
                    Value::Optional(_) => "give it a value with `.orValue(…)`",
                    Value::List(_) | Value::Map(_) => "json.marshal() writes it as JSON",
                    _ => "convert it with string()",
                }))
            }
        };
        Err(self.fail(problem))
    }

    fn evaluate(
        &mut self,
        expression: &'g Expression,
        locals: &[(Arc<str>, Value)],
    ) -> Result<Value, Stop> {
        if expression.broken.load(Ordering::Relaxed) {
            return Err(Stop::Failed);
        }
        let given = self.budget.share(EACH.0, EACH.1);
        let mut left = given.clone();
        let names = Names {
            graph: self.graph,
            states: &self.states,
            schema: &self.schema,
            locals,
        };
        let result = cel::evaluate(&expression.expr, &names, &mut left);
        self.budget.settle(&given, &left);
        match result {
            Ok(value) => Ok(value),
            Err(fault) if fault.kind() == FaultKind::LeftOut => Err(Stop::LeftOut),
            Err(fault) => Err(self.fail(expression.problem(&fault))),
        }
    }

    /// Writes a spec out and notes the flows into it.
    fn write(&mut self, spec: &Value, index: usize) -> Result<String, Stop> {
        let mut out = Vec::new();
        let left = MAX_OUTPUT_BYTES.saturating_sub(self.output_bytes);
        let flows = &mut self.flows;
        let written = json::write(spec, &mut out, left, &mut |pointer, pending| {
            let values = flows.entry((index, pending.child)).or_default();
            values.push((pointer.to_owned(), pending.pointer.clone()));
            Ok(())
        });
        self.output_bytes += out.len();
        match written.map(|()| String::from_utf8(out)) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(_)) => Err(self.fail(Problem::new(
                Class::NonJsonValue,
                "the spec is not valid text",
            ))),
            Err(fault) => Err(self.fail(Problem::new(Class::Limit, fault.to_string()).at("/spec"))),
        }
    }
}

fn class_of(value: &Value) -> Class {
    if matches!(value, Value::Pending(_)) {
        Class::StatusInExpression
    } else {
        Class::EvalError
    }
}

/// A failure outlives being left out: its message is wanted.
fn worse(before: Option<Stop>, found: Stop) -> Option<Stop> {
    match (before, found) {
        (Some(Stop::Failed), _) | (_, Stop::Failed) => Some(Stop::Failed),
        _ => Some(Stop::LeftOut),
    }
}
