//! After composing: whether an instance is ready, and its status.
//!
//! The graph's `readyWhen` and `status` are evaluated over the children as they are. What is not there yet leaves a field
//! out and counts as not ready; an expression that fails for another reason does the same and is reported, so that one
//! wrong field never hides the rest of a status.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cel::value::Key;
use crate::cel::{self, Budget, Env, Fault, FaultKind, Value};
use crate::compose::Run;
use crate::graph::{Graph, Resource};
use crate::inputs::State;
use crate::json;
use crate::problem::{Class, Problem};
use crate::template::{Expression, Part, Template};
use crate::{Child, Instance, compose};

/// A child as it is now.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'o> {
    /// Its kind.
    pub kind: &'o str,
    /// Its name.
    pub name: &'o str,
    /// Its spec with the values that have flowed in, as JSON.
    pub spec: &'o [u8],
    /// Its status, as JSON.
    pub status: Option<&'o [u8]>,
}

/// What an instance adds up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollup {
    /// The status: a JSON object with sorted keys.
    pub status: String,
    /// What keeps it from being ready, one entry per resource. Empty: every `readyWhen` holds.
    pub unready: Vec<String>,
    /// Expressions that failed for another reason than that something is not there yet.
    pub problems: Vec<Problem>,
}

/// Most bytes of a status.
const MAX_STATUS_BYTES: usize = 16 << 20;
const TOTAL: (u64, u64) = (20_000_000, 256 << 20);

impl Graph {
    /// Evaluates `readyWhen` and `status` over the children of an instance.
    ///
    /// # Errors
    /// As [`Graph::compose`]: without knowing which children there should be, nothing can be said about them.
    pub fn rollup(
        &self,
        instance: &Instance<'_>,
        observed: &[Observed<'_>],
    ) -> Result<Rollup, Vec<Problem>> {
        let run = self.run(instance)?;
        let seen: HashMap<(&str, &str), &Observed<'_>> = observed
            .iter()
            .map(|child| ((child.kind, child.name), child))
            .collect();
        let children: Vec<Option<Value>> = run
            .composition
            .children
            .iter()
            .map(|child| actual(child, &seen))
            .collect();
        let values = self.values(&run, &children);
        let mut rollup = Evaluation {
            graph: self,
            schema: &run.schema,
            values: &values,
            budget: Budget::new(TOTAL.0, TOTAL.1),
            result: Rollup::default(),
        };
        for (index, resource) in self.resources.iter().enumerate() {
            if let State::Composed(composed) = &run.states[index] {
                rollup.ready(resource, &children[composed.children.clone()]);
            }
        }
        let status = rollup.leaf(&self.status).unwrap_or_else(Value::empty_map);
        let mut out = Vec::new();
        let written = json::write(&status, &mut out, MAX_STATUS_BYTES, &mut |_, _| Ok(()));
        if let Err(fault) = written {
            out = b"{}".to_vec();
            rollup
                .result
                .problems
                .push(Problem::new(Class::Limit, fault.to_string()).at("/status"));
        }
        rollup.result.status = String::from_utf8(out).unwrap_or_else(|_| "{}".to_owned());
        Ok(rollup.result)
    }

    /// What each id stands for; `None`: not there, or not all of it.
    fn values(&self, run: &Run, children: &[Option<Value>]) -> Vec<Option<Value>> {
        let value = |(index, state): (usize, &State)| {
            let State::Composed(composed) = state else {
                return None;
            };
            let all: Option<Vec<&Value>> = children[composed.children.clone()]
                .iter()
                .map(Option::as_ref)
                .collect();
            let all = all?;
            if self.resources[index].for_each.is_empty() {
                return all.first().map(|value| (*value).clone());
            }
            let column = |name: &str| {
                let part = |value: &&Value| match value {
                    Value::Map(map) => map.get(name).cloned().unwrap_or(Value::Null),
                    _ => Value::Null,
                };
                Value::list(all.iter().map(part).collect())
            };
            Value::object([
                ("spec", column("spec").ok()?),
                ("status", column("status").ok()?),
                ("metadata", column("metadata").ok()?),
            ])
            .ok()
        };
        run.states.iter().enumerate().map(value).collect()
    }
}

/// A child as expressions see it: what is there, not what was asked for.
fn actual(child: &Child, seen: &HashMap<(&str, &str), &Observed<'_>>) -> Option<Value> {
    let found = seen.get(&(child.kind.as_str(), child.name.as_str()))?;
    let read = |bytes: &[u8]| {
        json::Doc::parse(bytes)
            .ok()
            .and_then(|doc| doc.value().ok())
    };
    let labels = child
        .labels
        .iter()
        .map(|(name, value)| (name.as_str(), Value::string(value)));
    let metadata = Value::object([
        ("name", Value::string(found.name)),
        ("labels", Value::object(labels).ok()?),
    ]);
    Value::object([
        ("spec", read(found.spec).unwrap_or_else(Value::empty_map)),
        (
            "status",
            found.status.and_then(read).unwrap_or_else(Value::empty_map),
        ),
        ("metadata", metadata.ok()?),
    ])
    .ok()
}

struct Evaluation<'r> {
    graph: &'r Graph,
    schema: &'r Value,
    values: &'r [Option<Value>],
    budget: Budget,
    result: Rollup,
}

impl Evaluation<'_> {
    fn ready(&mut self, resource: &Resource, children: &[Option<Value>]) {
        for condition in &resource.ready_when {
            for child in children {
                let held = match child {
                    None => Err("it is not there yet".to_owned()),
                    Some(child) => match self.evaluate(condition, Some(child)) {
                        Ok(Value::Bool(true)) => Ok(()),
                        Ok(Value::Bool(false)) => {
                            Err(format!("`{}` does not hold", shown(&condition.source)))
                        }
                        Ok(other) => {
                            let message =
                                format!("`readyWhen` must give a bool, not {}", other.type_name());
                            self.report(resource, condition.wrong(Class::EvalError, &message, 0));
                            Err(message)
                        }
                        Err(fault) => {
                            if fault.kind() != FaultKind::Missing {
                                self.report(resource, condition.problem(&fault));
                            }
                            Err(format!("`{}`: {fault}", shown(&condition.source)))
                        }
                    },
                };
                if let Err(message) = held {
                    self.result
                        .unready
                        .push(format!("{}: {message}", resource.id));
                    return;
                }
            }
        }
    }

    fn report(&mut self, resource: &Resource, problem: Problem) {
        self.result.problems.push(problem.in_resource(&resource.id));
    }

    /// Evaluates a template; `None`: not there.
    fn leaf(&mut self, template: &Template) -> Option<Value> {
        match template {
            Template::Literal(value) => Some(value.clone()),
            // Composing has failed before this is reached.
            Template::Broken => None,
            Template::Whole(expression) => {
                let result = self.evaluate(expression, None).and_then(json::plain);
                self.known(expression, result).flatten()
            }
            Template::Text(text) => {
                let mut out = String::new();
                for part in &text.parts {
                    match part {
                        Part::Text(text) => out.push_str(text),
                        Part::Broken => return None,
                        Part::Expression(expression) => {
                            let result = self.evaluate(expression, None).and_then(|value| {
                                let other = || {
                                    Fault::of_type(format!(
                                        "text cannot hold {}",
                                        value.type_name()
                                    ))
                                };
                                match value {
                                    // Null is what a status holds before it has a value.
                                    Value::Null => Err(Fault::missing("the value is null")),
                                    ref value => cel::display_scalar(value).ok_or_else(other),
                                }
                            });
                            out.push_str(&self.known(expression, result)?);
                        }
                    }
                }
                Some(Value::string(&out))
            }
            Template::List(items) => {
                let items = items.iter().filter_map(|item| self.leaf(item)).collect();
                Value::list(items).ok()
            }
            Template::Map(fields) => {
                let entries: BTreeMap<Key, Value> = fields
                    .iter()
                    .filter_map(|(key, field)| Some((key.clone(), self.leaf(field)?)))
                    .collect();
                Value::map(entries).ok()
            }
        }
    }

    fn known<T>(&mut self, expression: &Expression, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                if fault.kind() != FaultKind::Missing {
                    self.result.problems.push(expression.problem(&fault));
                }
                None
            }
        }
    }

    fn evaluate(&mut self, expression: &Expression, each: Option<&Value>) -> Result<Value, Fault> {
        let given = self.budget.share(compose::EACH.0, compose::EACH.1);
        let mut left = given.clone();
        let names = Names {
            graph: self.graph,
            schema: self.schema,
            values: self.values,
            each,
        };
        let result = cel::evaluate(&expression.expr, &names, &mut left);
        self.budget.settle(&given, &left);
        result
    }
}

fn shown(source: &Arc<str>) -> String {
    source.chars().take(80).collect()
}

struct Names<'n> {
    graph: &'n Graph,
    schema: &'n Value,
    values: &'n [Option<Value>],
    each: Option<&'n Value>,
}

impl Env for Names<'_> {
    fn variable(&self, name: &str) -> Option<Result<Value, Fault>> {
        match (name, self.each) {
            ("schema", _) => return Some(Ok(self.schema.clone())),
            ("each", Some(each)) => return Some(Ok(each.clone())),
            _ => {}
        }
        let index = self.graph.ids.get(name)?;
        Some(match &self.values[*index] {
            Some(value) => Ok(value.clone()),
            None => Err(Fault::missing(format!("`{name}` is not there"))),
        })
    }
}
