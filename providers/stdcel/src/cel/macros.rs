//! Comprehensions: the macros that bind a variable.

use std::collections::BTreeMap;

use super::ast::{Expr, Macro, MacroKind};
use super::eval::{Machine, refuse_pending, to_key};
use super::fault::Fault;
use super::functions;
use super::value::{Key, Value};

impl<'a> Machine<'a> {
    pub(super) fn comprehension(&mut self, range: &Value, body: &'a Macro) -> Result<Value, Fault> {
        match body.kind {
            MacroKind::OptMap | MacroKind::OptFlatMap => return self.optional(range, body),
            MacroKind::SortBy => return self.sort_by(range, body),
            _ => {}
        }
        refuse_pending(range)?;
        let pairs = pairs(range, body.second.is_some())?;
        self.budget.steps(pairs.len() as u64)?;
        match body.kind {
            MacroKind::All => self.decide(pairs, body, false),
            MacroKind::Exists => self.decide(pairs, body, true),
            MacroKind::ExistsOne => {
                let mut count = 0;
                for pair in pairs {
                    count +=
                        usize::from(self.each(pair, body, |machine| machine.truth(&body.body))?);
                }
                Ok(Value::Bool(count == 1))
            }
            MacroKind::Filter => {
                let mut kept = Vec::new();
                for pair in pairs {
                    let item = pair.0.clone();
                    if self.each(pair, body, |machine| machine.truth(&body.body))? {
                        kept.push(item);
                    }
                }
                self.build_list(kept)
            }
            MacroKind::TransformMap | MacroKind::TransformMapEntry => {
                self.transform_map(pairs, body)
            }
            _ => {
                let mut items = Vec::new();
                for pair in pairs {
                    items.extend(self.each(pair, body, |machine| machine.filtered(body))?);
                }
                self.build_list(items)
            }
        }
    }

    /// Evaluates with the variables bound to one element.
    fn each<T>(
        &mut self,
        (first, second): (Value, Option<Value>),
        body: &'a Macro,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.with(&body.first, first, |machine| match (&body.second, second) {
            (Some(name), Some(value)) => machine.with(name, value, run),
            _ => run(machine),
        })
    }

    fn filtered(&mut self, body: &'a Macro) -> Result<Option<Value>, Fault> {
        match &body.filter {
            Some(filter) if !self.truth(filter)? => Ok(None),
            _ => self.eval(&body.body).map(Some),
        }
    }

    fn truth(&mut self, expr: &'a Expr) -> Result<bool, Fault> {
        match self.eval(expr)? {
            Value::Bool(value) => Ok(value),
            other => {
                refuse_pending(&other).map_err(|fault| fault.at(expr.offset))?;
                Err(Fault::of_type(format!(
                    "a condition must be a bool, not {}",
                    other.type_name()
                ))
                .at(expr.offset))
            }
        }
    }

    /// `all` and `exists`: one element that decides is enough, whatever the others are.
    fn decide(
        &mut self,
        pairs: Vec<(Value, Option<Value>)>,
        body: &'a Macro,
        decisive: bool,
    ) -> Result<Value, Fault> {
        let mut fault = None;
        for pair in pairs {
            match self.each(pair, body, |machine| machine.truth(&body.body)) {
                Ok(value) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(problem) if problem.absorbable() => {
                    fault.get_or_insert(problem);
                }
                Err(problem) => return Err(problem),
            }
        }
        fault.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn transform_map(
        &mut self,
        pairs: Vec<(Value, Option<Value>)>,
        body: &'a Macro,
    ) -> Result<Value, Fault> {
        let mut out: BTreeMap<Key, Value> = BTreeMap::new();
        for pair in pairs {
            let key = pair.0.clone();
            let Some(value) = self.each(pair, body, |machine| machine.filtered(body))? else {
                continue;
            };
            if body.kind == MacroKind::TransformMap {
                out.insert(to_key(&key)?, value);
                continue;
            }
            let Value::Map(entries) = value else {
                return Err(Fault::of_type(
                    "`transformMapEntry` needs a map as its result",
                ));
            };
            self.budget.steps(entries.entries().len() as u64)?;
            for (key, value) in entries.entries() {
                if out.insert(key.clone(), value.clone()).is_some() {
                    return Err(Fault::domain(
                        "`transformMapEntry` makes the same key twice",
                    ));
                }
            }
        }
        self.build_map(out)
    }

    fn sort_by(&mut self, range: &Value, body: &'a Macro) -> Result<Value, Fault> {
        refuse_pending(range)?;
        let Value::List(list) = range else {
            return Err(Fault::of_type(format!(
                "`sortBy` needs a list, not {}",
                range.type_name()
            )));
        };
        let mut keyed = Vec::with_capacity(list.items().len());
        for item in list.items() {
            let key = self.with(&body.first, item.clone(), |machine| {
                machine.eval(&body.body)
            })?;
            refuse_pending(&key)?;
            keyed.push((key, item.clone()));
        }
        let sorted = functions::lists::sorted(keyed, self.budget)?;
        self.build_list(sorted)
    }

    fn optional(&mut self, value: &Value, body: &'a Macro) -> Result<Value, Fault> {
        let inner = match value {
            Value::Optional(Some(inner)) => (**inner).clone(),
            Value::Optional(None) => return Ok(Value::Optional(None)),
            other => {
                refuse_pending(other)?;
                return Err(Fault::of_type(format!(
                    "`optMap` needs an optional, not {}",
                    other.type_name()
                )));
            }
        };
        let result = self.with(&body.first, inner, |machine| machine.eval(&body.body))?;
        match (body.kind, result) {
            (MacroKind::OptMap, result) => Ok(Value::some(result)),
            (_, result @ Value::Optional(_)) => Ok(result),
            (_, other) => Err(Fault::of_type(format!(
                "`optFlatMap` needs an optional, not {}",
                other.type_name()
            ))),
        }
    }
}

/// What a macro runs over: elements, or keys of a map; with two variables index and element, or key and value.
fn pairs(range: &Value, both: bool) -> Result<Vec<(Value, Option<Value>)>, Fault> {
    match range {
        Value::List(list) if both => {
            let items = list.items().iter();
            Ok(items
                .zip(0_i64..)
                .map(|(item, index)| (Value::Int(index), Some(item.clone())))
                .collect())
        }
        Value::List(list) => Ok(list
            .items()
            .iter()
            .map(|item| (item.clone(), None))
            .collect()),
        Value::Map(map) => {
            let entries = map.entries().iter();
            Ok(entries
                .map(|(key, value)| (key.value(), both.then(|| value.clone())))
                .collect())
        }
        other => Err(Fault::of_type(format!(
            "a loop needs a list or a map, not {}",
            other.type_name()
        ))),
    }
}
