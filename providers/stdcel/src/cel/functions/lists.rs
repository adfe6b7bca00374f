//! Lists and maps, beyond the macros.

use std::cmp::Ordering;

use super::super::ast::Operator;
use super::super::eval::{Budget, refuse_pending};
use super::super::fault::Fault;
use super::super::ops;
use super::super::value::Value;
use super::{Function, global, int, items, list, method, moving, no_overload};

pub(super) static FUNCTIONS: &[Function] = &[
    method("slice", 2, 2, slice),
    method("flatten", 0, 1, flatten),
    method("distinct", 0, 0, distinct),
    method("sort", 0, 0, sort),
    global("lists.range", 1, 1, range),
    moving(method("first", 0, 0, |_, args| {
        end("first", args, |items| items.first())
    })),
    moving(method("last", 0, 0, |_, args| {
        end("last", args, |items| items.last())
    })),
    method("isSorted", 0, 0, is_sorted),
    method("sum", 0, 0, sum),
    global("lists.sum", 1, 1, sum),
    method("min", 0, 0, |budget, args| {
        extreme(budget, "min", args, Ordering::Less)
    }),
    global("lists.min", 1, 1, |budget, args| {
        extreme(budget, "lists.min", args, Ordering::Less)
    }),
    method("max", 0, 0, |budget, args| {
        extreme(budget, "max", args, Ordering::Greater)
    }),
    global("lists.max", 1, 1, |budget, args| {
        extreme(budget, "lists.max", args, Ordering::Greater)
    }),
    method("merge", 1, 1, merge),
    global("sets.contains", 2, 2, |budget, args| {
        let (a, b) = (
            items("sets.contains", args, 0)?,
            items("sets.contains", args, 1)?,
        );
        subset(budget, b, a).map(Value::Bool)
    }),
    global("sets.equivalent", 2, 2, |budget, args| {
        let (a, b) = (
            items("sets.equivalent", args, 0)?,
            items("sets.equivalent", args, 1)?,
        );
        Ok(Value::Bool(subset(budget, a, b)? && subset(budget, b, a)?))
    }),
    global("sets.intersects", 2, 2, |budget, args| {
        let (a, b) = (
            items("sets.intersects", args, 0)?,
            items("sets.intersects", args, 1)?,
        );
        for item in a {
            if includes(budget, b, item)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }),
];

fn slice(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let all = items("slice", args, 0)?;
    let (from, to) = (int("slice", args, 1)?, int("slice", args, 2)?);
    let bounds = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    match bounds.and_then(|(from, to)| all.get(from..to)) {
        Some(part) => list(budget, part.to_vec()),
        None => Err(Fault::domain(format!(
            "slice {from}..{to} is outside a list of {}",
            all.len()
        ))),
    }
}

fn flatten(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let all = items("flatten", args, 0)?;
    let depth = if args.len() > 1 {
        int("flatten", args, 1)?
    } else {
        1
    };
    if depth < 0 {
        return Err(Fault::domain("`flatten` needs a depth of 0 or more"));
    }
    let mut out = Vec::new();
    flatten_into(budget, all, depth, &mut out)?;
    list(budget, out)
}

fn flatten_into(
    budget: &mut Budget,
    from: &[Value],
    depth: i64,
    out: &mut Vec<Value>,
) -> Result<(), Fault> {
    for item in from {
        budget.bytes(32)?;
        match item {
            // Values are shallower than the stack.
            Value::List(inner) if depth > 0 => flatten_into(budget, inner.items(), depth - 1, out)?,
            other => out.push(other.clone()),
        }
    }
    Ok(())
}

fn distinct(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let mut seen: std::collections::HashSet<String> = std::collections::HashSet::new();
    let mut out: Vec<Value> = Vec::new();
    for item in items("distinct", args, 0)? {
        refuse_pending(item)?;
        // Strings are by far the most common; everything else is compared pair by pair, and pays for it.
        let new = match item {
            Value::String(text) => {
                budget.bytes(text.len() as u64)?;
                seen.insert(text.to_string())
            }
            other => !includes(budget, &out, other)?,
        };
        if new {
            out.push(item.clone());
        }
    }
    list(budget, out)
}

fn includes(budget: &mut Budget, all: &[Value], wanted: &Value) -> Result<bool, Fault> {
    for item in all {
        if ops::equal(item, wanted, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn subset(budget: &mut Budget, part: &[Value], whole: &[Value]) -> Result<bool, Fault> {
    for item in part {
        if !includes(budget, whole, item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sort(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let keyed = items("sort", args, 0)?
        .iter()
        .map(|item| (item.clone(), item.clone()))
        .collect();
    let sorted = sorted(keyed, budget)?;
    list(budget, sorted)
}

/// Values in the order of their keys, which must be of one comparable type; equal keys keep their order.
pub(in super::super) fn sorted(
    mut keyed: Vec<(Value, Value)>,
    budget: &mut Budget,
) -> Result<Vec<Value>, Fault> {
    let count = keyed.len() as u64;
    if let Some((first, _)) = keyed.first() {
        let kind = first.type_name();
        for (key, _) in &keyed {
            refuse_pending(key)?;
            if key.type_name() != kind {
                let message = format!("a list of {kind} and {} cannot be sorted", key.type_name());
                return Err(Fault::of_type(message));
            }
            match ops::compare(key, key, budget)? {
                Some(Some(_)) => {}
                Some(None) => return Err(Fault::domain("NaN has no place in an order")),
                None => {
                    return Err(Fault::of_type(format!(
                        "values of type {kind} cannot be sorted"
                    )));
                }
            }
        }
    }
    // Paid for in advance, by the longest key: a sort that ran dry half way would break the order it promises.
    let longest = keyed.iter().map(|(key, _)| key.weight()).max().unwrap_or(0);
    let rounds = count.saturating_mul(u64::from(u64::BITS - count.leading_zeros()));
    budget.steps(rounds.saturating_mul(1 + longest / 64))?;
    let mut free = Budget::new(u64::MAX, u64::MAX);
    keyed.sort_by(|(a, _), (b, _)| {
        ops::compare(a, b, &mut free)
            .ok()
            .flatten()
            .flatten()
            .unwrap_or(Ordering::Equal)
    });
    Ok(keyed.into_iter().map(|(_, value)| value).collect())
}

fn range(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let count = int("lists.range", args, 0)?;
    let paid = u64::try_from(count).unwrap_or(0);
    budget.steps(paid)?;
    budget.bytes(paid.saturating_mul(32))?;
    Value::list((0..count).map(Value::Int).collect())
}

fn end(name: &str, args: &[Value], pick: fn(&[Value]) -> Option<&Value>) -> Result<Value, Fault> {
    refuse_pending(&args[0])?;
    Ok(pick(items(name, args, 0)?).map_or(Value::Optional(None), |item| Value::some(item.clone())))
}

fn is_sorted(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    for pair in items("isSorted", args, 0)?.windows(2) {
        match ops::compare(&pair[0], &pair[1], budget)? {
            Some(order) if order != Some(Ordering::Greater) => {}
            Some(_) => return Ok(Value::Bool(false)),
            None => return Err(no_overload("isSorted", pair)),
        }
    }
    Ok(Value::Bool(true))
}

fn sum(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let mut all = items("sum", args, 0)?.iter();
    let Some(first) = all.next() else {
        return Ok(Value::Int(0));
    };
    refuse_pending(first)?;
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Duration(_))
        && first.as_double().is_none()
    {
        return Err(Fault::of_type(format!(
            "`sum` adds numbers and durations, not {}",
            first.type_name()
        )));
    }
    all.try_fold(first.clone(), |total, item| {
        budget.steps(1)?;
        ops::binary(Operator::Add, total, item.clone(), budget)
    })
}

fn extreme(
    budget: &mut Budget,
    name: &str,
    args: &[Value],
    keep: Ordering,
) -> Result<Value, Fault> {
    let mut all = items(name, args, 0)?.iter();
    let Some(mut best) = all.next() else {
        return Err(Fault::domain(format!("`{name}` of an empty list")));
    };
    refuse_pending(best)?;
    for item in all {
        refuse_pending(item)?;
        match ops::compare(item, best, budget)? {
            Some(order) if order == Some(keep) => best = item,
            Some(_) => {}
            None => return Err(no_overload(name, &[item.clone(), best.clone()])),
        }
    }
    Ok(best.clone())
}

fn merge(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (Value::Map(a), Value::Map(b)) = (&args[0], &args[1]) else {
        return Err(no_overload("merge", args));
    };
    budget.bytes(64 * (a.entries().len() + b.entries().len()) as u64)?;
    let mut all = a.entries().clone();
    all.extend(
        b.entries()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Value::map(all)
}

/// `indexOf` and `lastIndexOf` of a list.
pub(super) fn index_of(
    budget: &mut Budget,
    all: &[Value],
    args: &[Value],
    last: bool,
) -> Result<Value, Fault> {
    let [_, wanted] = args else {
        return Err(no_overload("indexOf", args));
    };
    let mut found = None;
    for (at, item) in all.iter().enumerate() {
        if ops::equal(item, wanted, budget)? {
            found = Some(at);
            if !last {
                break;
            }
        }
    }
    Ok(Value::Int(
        found.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1),
    ))
}
