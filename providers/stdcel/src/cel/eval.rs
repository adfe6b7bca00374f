//! Tree to value.
//!
//! Every node costs a step and everything built costs its bytes, both taken from one [`Budget`]; an empty budget ends the
//! evaluation and nothing absorbs that. A [`Value::Pending`] is handed on by selections, branches and bindings, which only
//! move it; whatever would have to look at it fails with [`FaultKind::StatusRead`].

use std::collections::BTreeMap;

use super::ast::{Element, Entry, Expr, Link, Node, Operator, Step, StepKind};
use super::fault::{Fault, FaultKind};
use super::value::{Key, Pending, Value};
use super::{functions, ops};

/// What outside names stand for.
pub(crate) trait Env {
    /// The value of a name, a fault if asking for it is one, `None` if nothing has that name.
    fn variable(&self, name: &str) -> Option<Result<Value, Fault>>;
}

/// What evaluation may still use.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    steps: u64,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(steps: u64, bytes: u64) -> Self {
        Self { steps, bytes }
    }

    /// The smaller of both on each count: a share of a larger budget.
    pub(crate) fn share(&self, steps: u64, bytes: u64) -> Self {
        Self {
            steps: self.steps.min(steps),
            bytes: self.bytes.min(bytes),
        }
    }

    /// Takes from this budget what a share of it has used.
    pub(crate) fn settle(&mut self, given: &Self, left: &Self) {
        self.steps = self.steps.saturating_sub(given.steps - left.steps);
        self.bytes = self.bytes.saturating_sub(given.bytes - left.bytes);
    }

    /// Pays for work.
    pub(crate) fn steps(&mut self, count: u64) -> Result<(), Fault> {
        match self.steps.checked_sub(count) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => {
                self.steps = 0;
                Err(
                    Fault::limit("the evaluation takes more steps than a composition may use")
                        .with_hint(
                            "loop over fewer elements, or split the work over several resources",
                        ),
                )
            }
        }
    }

    /// Pays for memory, before it is taken.
    pub(crate) fn bytes(&mut self, count: u64) -> Result<(), Fault> {
        // Copying is work too; this keeps huge copies from being free in time.
        self.steps(count / 64)?;
        match self.bytes.checked_sub(count) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => {
                self.bytes = 0;
                Err(
                    Fault::limit("the evaluation builds more data than a composition may hold")
                        .with_hint("build smaller values"),
                )
            }
        }
    }
}

/// Evaluates an expression.
pub(crate) fn evaluate(expr: &Expr, env: &dyn Env, budget: &mut Budget) -> Result<Value, Fault> {
    Machine {
        env,
        locals: Vec::new(),
        budget,
    }
    .eval(expr)
}

pub(super) struct Machine<'a> {
    env: &'a dyn Env,
    locals: Vec<(&'a str, Value)>,
    pub(super) budget: &'a mut Budget,
}

impl<'a> Machine<'a> {
    pub(super) fn eval(&mut self, expr: &'a Expr) -> Result<Value, Fault> {
        self.budget.steps(1)?;
        match &expr.node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Name(name) => self.name(name).map_err(|fault| fault.at(expr.offset)),
            Node::List(elements) => self.list(elements).map_err(|fault| fault.at(expr.offset)),
            Node::Map(entries) => self.map(entries).map_err(|fault| fault.at(expr.offset)),
            Node::Not { odd, operand } => {
                let value = self.eval(operand)?;
                ops::not(&value)
                    .map(|negated| Value::Bool(negated == *odd))
                    .map_err(|fault| fault.at(expr.offset))
            }
            Node::Negate { odd, operand } => {
                let value = self.eval(operand)?;
                ops::negate(value, *odd).map_err(|fault| fault.at(expr.offset))
            }
            Node::Chain { first, rest } => self.chain(first, rest),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Ternary { arms, otherwise } => self.ternary(arms, otherwise),
            Node::Path { base, steps } => self.path(base, steps),
            Node::Call { function, args } => self
                .call(function, None, args)
                .map_err(|fault| fault.at(expr.offset)),
            Node::Has { operand, field } => {
                let value = self.eval(operand)?;
                has(&value, field)
                    .map(Value::Bool)
                    .map_err(|fault| fault.at(expr.offset))
            }
            Node::Bind { name, value, body } => {
                let value = self.eval(value)?;
                self.with(name, value, |machine| machine.eval(body))
            }
        }
    }

    /// Evaluates with one more local name.
    pub(super) fn with<T>(
        &mut self,
        name: &'a str,
        value: Value,
        body: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.locals.push((name, value));
        let result = body(self);
        self.locals.pop();
        result
    }

    fn name(&self, name: &str) -> Result<Value, Fault> {
        if let Some((_, value)) = self.locals.iter().rev().find(|(local, _)| *local == name) {
            return Ok(value.clone());
        }
        match self.env.variable(name) {
            Some(found) => found,
            None => match functions::type_named(name) {
                Some(type_name) => Ok(Value::Type(type_name)),
                None => Err(Fault::missing(format!("`{name}` is not known here"))),
            },
        }
    }

    fn list(&mut self, elements: &'a [Element]) -> Result<Value, Fault> {
        let mut items = Vec::with_capacity(elements.len());
        for element in elements {
            let value = self.eval(&element.value)?;
            refuse_pending(&value).map_err(|fault| fault.at(element.value.offset))?;
            match (element.optional, value) {
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(inner))) => items.push((*inner).clone()),
                (true, other) => return Err(not_optional(&other).at(element.value.offset)),
                (false, value) => items.push(value),
            }
        }
        self.build_list(items)
    }

    /// A list out of parts, paid for.
    pub(super) fn build_list(&mut self, items: Vec<Value>) -> Result<Value, Fault> {
        self.budget.bytes(32 * (items.len() as u64 + 1))?;
        Value::list(items)
    }

    fn map(&mut self, entries: &'a [Entry]) -> Result<Value, Fault> {
        let mut map = BTreeMap::new();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let key = to_key(&key).map_err(|fault| fault.at(entry.key.offset))?;
            let value = self.eval(&entry.value)?;
            refuse_pending(&value).map_err(|fault| fault.at(entry.value.offset))?;
            let value = match (entry.optional, value) {
                (true, Value::Optional(None)) => continue,
                (true, Value::Optional(Some(inner))) => (*inner).clone(),
                (true, other) => return Err(not_optional(&other).at(entry.value.offset)),
                (false, value) => value,
            };
            if map.insert(key, value).is_some() {
                return Err(Fault::domain("the map has the same key twice").at(entry.key.offset));
            }
        }
        self.build_map(map)
    }

    /// A map out of parts, paid for.
    pub(super) fn build_map(&mut self, map: BTreeMap<Key, Value>) -> Result<Value, Fault> {
        self.budget.bytes(64 * (map.len() as u64 + 1))?;
        Value::map(map)
    }

    fn chain(&mut self, first: &'a Expr, rest: &'a [Link]) -> Result<Value, Fault> {
        let mut left = self.eval(first)?;
        let mut rest = rest.iter();
        while let Some(link) = rest.next() {
            let right = self.eval(&link.operand)?;
            // A long sum of strings would copy what it has at every plus; one growing buffer does not.
            if let (Operator::Add, Value::String(a), Value::String(b)) =
                (link.operator, &left, &right)
                && !rest.as_slice().is_empty()
            {
                self.budget.bytes((a.len() + b.len()) as u64)?;
                let mut text = format!("{a}{b}");
                let mut pending = None;
                for link in rest.by_ref() {
                    let right = self.eval(&link.operand)?;
                    match (link.operator, right) {
                        (Operator::Add, Value::String(more)) => {
                            self.budget.bytes(more.len() as u64)?;
                            text.push_str(&more);
                        }
                        (_, right) => {
                            pending = Some((link, right));
                            break;
                        }
                    }
                }
                left = Value::string(text);
                if let Some((link, right)) = pending {
                    left = ops::binary(link.operator, left, right, self.budget)
                        .map_err(|f| f.at(link.offset))?;
                }
                continue;
            }
            left = ops::binary(link.operator, left, right, self.budget)
                .map_err(|fault| fault.at(link.offset))?;
        }
        Ok(left)
    }

    /// `&&` and `||`: decided by any operand that decides, whatever the others are.
    fn logic(&mut self, terms: &'a [Expr], decisive: bool) -> Result<Value, Fault> {
        let mut fault = None;
        for term in terms {
            let outcome = self.eval(term).and_then(|value| match value {
                Value::Bool(value) => Ok(value),
                other => {
                    refuse_pending(&other)?;
                    let operator = if decisive { "||" } else { "&&" };
                    Err(Fault::of_type(format!(
                        "`{operator}` needs bools, not {}",
                        other.type_name()
                    )))
                }
            });
            match outcome {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(problem) if problem.absorbable() => {
                    fault.get_or_insert(problem.at(term.offset));
                }
                Err(problem) => return Err(problem),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn ternary(&mut self, arms: &'a [(Expr, Expr)], otherwise: &'a Expr) -> Result<Value, Fault> {
        for (condition, value) in arms {
            match self.eval(condition)? {
                Value::Bool(true) => return self.eval(value),
                Value::Bool(false) => {}
                other => {
                    refuse_pending(&other).map_err(|fault| fault.at(condition.offset))?;
                    let message = format!(
                        "the condition before `?` must be a bool, not {}",
                        other.type_name()
                    );
                    return Err(Fault::of_type(message).at(condition.offset));
                }
            }
        }
        self.eval(otherwise)
    }

    fn path(&mut self, base: &'a Expr, steps: &'a [Step]) -> Result<Value, Fault> {
        let mut value = self.eval(base)?;
        for step in steps {
            self.budget.steps(1)?;
            value = self
                .step(value, step)
                .map_err(|fault| fault.at(step.offset))?;
        }
        Ok(value)
    }

    fn step(&mut self, value: Value, step: &'a Step) -> Result<Value, Fault> {
        match &step.kind {
            StepKind::Field { name, optional } => {
                select(&value, &Selector::Field(name), *optional, self.budget)
            }
            StepKind::Index { index, optional } => {
                let index = self.eval(index)?;
                refuse_pending(&index)?;
                select(&value, &Selector::Index(&index), *optional, self.budget)
            }
            StepKind::Method { function, args } => self.call(function, Some(value), args),
            StepKind::Macro(body) => self.comprehension(&value, body),
        }
    }

    fn call(
        &mut self,
        function: &'static functions::Function,
        receiver: Option<Value>,
        args: &'a [Expr],
    ) -> Result<Value, Fault> {
        let mut values = Vec::with_capacity(args.len() + 1);
        values.extend(receiver);
        for arg in args {
            values.push(self.eval(arg)?);
        }
        // `dyn` is the identity and `optional` wrappers only carry; everything else would look.
        if !function.moves {
            values.iter().try_for_each(refuse_pending)?;
        }
        // Whatever a function does with text, it reads it once at least.
        let read: usize = values
            .iter()
            .map(|value| match value {
                Value::String(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            })
            .sum();
        self.budget.steps(1 + read as u64 / 64)?;
        (function.run)(self.budget, &values)
    }
}

enum Selector<'s> {
    Field(&'s str),
    Index(&'s Value),
}

fn select(
    value: &Value,
    by: &Selector<'_>,
    optional: bool,
    budget: &mut Budget,
) -> Result<Value, Fault> {
    match value {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => {
            Ok(find(inner, by, budget)?.map_or(Value::Optional(None), Value::some))
        }
        // Whether it will be there is as unknown as what it will be.
        Value::Pending(pending) if optional => Err(status_read(pending)),
        _ if optional => Ok(find(value, by, budget)?.map_or(Value::Optional(None), Value::some)),
        _ => find(value, by, budget)?.ok_or_else(|| absent(value, by)),
    }
}

fn find(value: &Value, by: &Selector<'_>, budget: &mut Budget) -> Result<Option<Value>, Fault> {
    let name_length = match by {
        Selector::Field(name) => name.len(),
        Selector::Index(Value::String(name)) => name.len(),
        Selector::Index(_) => 0,
    };
    budget.steps(name_length as u64 / 64)?;
    match (value, by) {
        (Value::Map(map), Selector::Field(name)) => Ok(map.get(name).cloned()),
        (Value::Map(map), Selector::Index(key)) => match key {
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::String(_)
            | Value::Double(_)
            | Value::Decimal(_) => Ok(map.get_value(key).cloned()),
            other => Err(Fault::of_type(format!(
                "a map has no keys of type {}",
                other.type_name()
            ))),
        },
        (Value::List(list), Selector::Index(index)) => {
            let index = match index {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                other => match other.as_double() {
                    Some(index) if index.fract() == 0.0 && (0.0..9e15).contains(&index) => {
                        Some(index as usize)
                    }
                    Some(_) => return Err(Fault::of_type("a list index must be a whole number")),
                    None => {
                        return Err(Fault::of_type(format!(
                            "a list index must be an int, not {}",
                            other.type_name()
                        )));
                    }
                },
            };
            Ok(index.and_then(|index| list.items().get(index)).cloned())
        }
        (Value::Pending(pending), by) => {
            let segment = match by {
                Selector::Field(name) => escape(name),
                Selector::Index(Value::String(name)) => escape(name),
                Selector::Index(Value::Int(index)) if *index >= 0 => index.to_string(),
                Selector::Index(Value::Uint(index)) => index.to_string(),
                Selector::Index(_) => {
                    return Err(Fault::of_type(
                        "a status is indexed by names and whole numbers",
                    ));
                }
            };
            budget.bytes((pending.pointer.len() + segment.len() + 64) as u64)?;
            let pointer = format!("{}/{segment}", pending.pointer);
            let next = Pending {
                child: pending.child,
                id: std::sync::Arc::clone(&pending.id),
                pointer,
            };
            Ok(Some(Value::Pending(std::sync::Arc::new(next))))
        }
        (other, Selector::Field(name)) => Err(null_hint(
            Fault::of_type(format!(
                "{} has no fields; `{name}` was asked of it",
                describe(other)
            )),
            other,
        )),
        (other, Selector::Index(_)) => Err(null_hint(
            Fault::of_type(format!("{} cannot be indexed", describe(other))),
            other,
        )),
    }
}

fn null_hint(fault: Fault, value: &Value) -> Fault {
    match value {
        Value::Null => fault.with_hint("use `.?` to step through what may be null or absent"),
        _ => fault,
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => format!("a value of type {}", other.type_name()),
    }
}

fn absent(value: &Value, by: &Selector<'_>) -> Fault {
    match (value, by) {
        (Value::List(list), Selector::Index(index)) => {
            let shown = super::display_scalar(index).unwrap_or_default();
            Fault::missing(format!(
                "index {shown} is outside a list of {}",
                list.items().len()
            ))
        }
        (_, Selector::Index(key)) => {
            let shown = super::display_scalar(key).unwrap_or_default();
            Fault::missing(format!("there is no key `{shown}`"))
        }
        (Value::Map(map), Selector::Field(name)) => {
            let known = map.entries().keys().filter_map(|key| match key {
                Key::String(text) => Some(&**text),
                _ => None,
            });
            let fault = Fault::missing(format!("there is no field `{name}`"));
            match crate::nearest::nearest(name, known) {
                Some(near) => fault.with_hint(format!("did you mean `{near}`?")),
                None => fault.with_hint(format!("`.?{name}` reads a field that may be absent")),
            }
        }
        (_, Selector::Field(name)) => Fault::missing(format!("there is no field `{name}`")),
    }
}

fn has(value: &Value, field: &str) -> Result<bool, Fault> {
    match value {
        Value::Map(map) => Ok(map.get(field).is_some()),
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(inner)) => has(inner, field),
        Value::Pending(_) => refuse_pending(value).map(|()| false),
        other => Err(Fault::of_type(format!(
            "{} has no fields to ask for",
            describe(other)
        ))),
    }
}

pub(super) fn to_key(value: &Value) -> Result<Key, Fault> {
    refuse_pending(value)?;
    match value {
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_) => Key::lookup(value),
        _ => None,
    }
    .ok_or_else(|| Fault::of_type(format!("{} cannot be a map key", describe(value))))
}

fn not_optional(value: &Value) -> Fault {
    Fault::of_type(format!(
        "`?` before an entry needs an optional, not {}",
        value.type_name()
    ))
}

/// Fails for a status that is not known yet.
pub(super) fn refuse_pending(value: &Value) -> Result<(), Fault> {
    match value {
        Value::Pending(pending) => Err(status_read(pending)),
        Value::Optional(Some(inner)) => refuse_pending(inner),
        _ => Ok(()),
    }
}

/// The fault of reading a status.
pub(crate) fn status_read(pending: &Pending) -> Fault {
    unknown_status(&format!(
        "{}.status{}",
        pending.id,
        pending.pointer.replace('/', ".")
    ))
}

/// The fault of reading a status, by the text that reads it.
pub(crate) fn unknown_status(read: &str) -> Fault {
    let message =
        format!("`{read}` is not known while composing, so it cannot be used inside an expression");
    Fault::new(FaultKind::StatusRead, message).with_hint(
        "a status can only be a whole leaf, \"${id.status.field}\", which flows in once that resource is ready; \
         combine values in the resource that consumes them, or read them in the graph's `status`",
    )
}

/// One segment of a JSON pointer.
pub(crate) fn escape(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}
