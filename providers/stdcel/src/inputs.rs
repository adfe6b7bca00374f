//! What expressions read: the instance, and the resources composed so far.

use std::sync::Arc;

use crate::cel::{Env, Fault, FaultKind, Value};
use crate::composition::Instance;
use crate::graph::Graph;
use crate::json;
use crate::problem::{Class, Problem};

/// The value of `schema`.
pub(crate) fn schema(instance: &Instance<'_>) -> Result<Value, Box<Problem>> {
    let wrong = |message: String| {
        let message = format!("the instance's spec: {message}");
        Box::new(Problem::new(Class::Malformed, message))
    };
    let spec = if instance.spec.is_empty() {
        b"{}"
    } else {
        instance.spec
    };
    let spec =
        json::Doc::parse(spec).map_err(|message| wrong(format!("it is not JSON: {message}")))?;
    if !matches!(spec, json::Doc::Object(_)) {
        return Err(wrong(format!("it must be an object, not {}", spec.kind())));
    }
    let build = || {
        let labels = instance
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), Value::string(value)));
        let metadata = Value::object([
            ("name", Value::string(instance.name)),
            ("uid", Value::string(instance.uid)),
            ("labels", Value::object(labels)?),
        ])?;
        Value::object([("spec", spec.value()?), ("metadata", metadata)])
    };
    build().map_err(|fault: Fault| wrong(fault.to_string()))
}

/// What is known of a resource while composing, and afterwards by the rollup.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// Not reached, or broken, or waiting for something broken.
    Unknown,
    /// `includeWhen` says no, here or in something it reads.
    LeftOut,
    Composed(Composed),
}

/// The children of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Composed {
    /// What its id stands for: a map of `spec`, `status` and `metadata`, each a list if there is a `forEach`.
    pub(crate) value: Value,
    /// Indices of its children.
    pub(crate) children: std::ops::Range<usize>,
}

/// What names stand for while composing.
pub(crate) struct Names<'n> {
    pub(crate) graph: &'n Graph,
    pub(crate) states: &'n [State],
    pub(crate) schema: &'n Value,
    pub(crate) locals: &'n [(Arc<str>, Value)],
}

impl Env for Names<'_> {
    fn variable(&self, name: &str) -> Option<Result<Value, Fault>> {
        if let Some((_, value)) = self.locals.iter().find(|(local, _)| **local == *name) {
            return Some(Ok(value.clone()));
        }
        if name == "schema" {
            return Some(Ok(self.schema.clone()));
        }
        match &self.states[*self.graph.ids.get(name)?] {
            State::Composed(composed) => Some(Ok(composed.value.clone())),
            State::LeftOut => Some(Err(Fault::new(
                FaultKind::LeftOut,
                format!("`{name}` is left out"),
            ))),
            State::Unknown => None,
        }
    }
}
