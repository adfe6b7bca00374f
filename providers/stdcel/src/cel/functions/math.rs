//! `math.*`.

use std::cmp::Ordering;

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::ops;
use super::super::value::Value;
use super::{Function, global, no_overload};

pub(super) static FUNCTIONS: &[Function] = &[
    global("math.greatest", 1, 64, |budget, args| {
        extreme(budget, "math.greatest", args, Ordering::Greater)
    }),
    global("math.least", 1, 64, |budget, args| {
        extreme(budget, "math.least", args, Ordering::Less)
    }),
    global("math.ceil", 1, 1, |_, args| {
        double("math.ceil", args, f64::ceil)
    }),
    global("math.floor", 1, 1, |_, args| {
        double("math.floor", args, f64::floor)
    }),
    global("math.round", 1, 1, |_, args| {
        double("math.round", args, f64::round)
    }),
    global("math.trunc", 1, 1, |_, args| {
        double("math.trunc", args, f64::trunc)
    }),
    global("math.sqrt", 1, 1, sqrt),
    global("math.abs", 1, 1, abs),
    global("math.sign", 1, 1, sign),
    global("math.isNaN", 1, 1, |_, args| {
        test("math.isNaN", args, f64::is_nan)
    }),
    global("math.isInf", 1, 1, |_, args| {
        test("math.isInf", args, f64::is_infinite)
    }),
    global("math.isFinite", 1, 1, |_, args| {
        test("math.isFinite", args, f64::is_finite)
    }),
    global("math.bitOr", 2, 2, |_, args| {
        bits("math.bitOr", args, |a, b| a | b)
    }),
    global("math.bitAnd", 2, 2, |_, args| {
        bits("math.bitAnd", args, |a, b| a & b)
    }),
    global("math.bitXor", 2, 2, |_, args| {
        bits("math.bitXor", args, |a, b| a ^ b)
    }),
    global("math.bitNot", 1, 1, |_, args| match &args[0] {
        Value::Int(value) => Ok(Value::Int(!value)),
        Value::Uint(value) => Ok(Value::Uint(!value)),
        _ => Err(no_overload("math.bitNot", args)),
    }),
    global("math.bitShiftLeft", 2, 2, |_, args| {
        shift("math.bitShiftLeft", args, true)
    }),
    global("math.bitShiftRight", 2, 2, |_, args| {
        shift("math.bitShiftRight", args, false)
    }),
];

fn number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_)) || value.as_double().is_some()
}

fn extreme(
    budget: &mut Budget,
    name: &str,
    args: &[Value],
    keep: Ordering,
) -> Result<Value, Fault> {
    let all = match args {
        [Value::List(list)] => list.items(),
        other => other,
    };
    let Some(first) = all.first() else {
        return Err(Fault::domain(format!("`{name}` of an empty list")));
    };
    let mut best = first;
    for item in all {
        if !number(item) {
            super::super::eval::refuse_pending(item)?;
            return Err(no_overload(name, all.get(..4).unwrap_or(all)));
        }
        if ops::compare(item, best, budget)?.flatten() == Some(keep) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn double(name: &str, args: &[Value], apply: fn(f64) -> f64) -> Result<Value, Fault> {
    args[0]
        .as_double()
        .map(|value| Value::Double(apply(value)))
        .ok_or_else(|| no_overload(name, args))
}

fn test(name: &str, args: &[Value], apply: fn(f64) -> bool) -> Result<Value, Fault> {
    args[0]
        .as_double()
        .map(|value| Value::Bool(apply(value)))
        .ok_or_else(|| no_overload(name, args))
}

fn sqrt(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let value = match &args[0] {
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        other => other
            .as_double()
            .ok_or_else(|| no_overload("math.sqrt", args))?,
    };
    Ok(Value::Double(value.sqrt()))
}

fn abs(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::Int(value) => value
            .checked_abs()
            .map(Value::Int)
            .ok_or_else(|| Fault::domain("the result does not fit 64 bits")),
        Value::Uint(value) => Ok(Value::Uint(*value)),
        other => other
            .as_double()
            .map(|value| Value::Double(value.abs()))
            .ok_or_else(|| no_overload("math.abs", args)),
    }
}

fn sign(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::Int(value) => Ok(Value::Int(value.signum())),
        Value::Uint(value) => Ok(Value::Uint(u64::from(*value > 0))),
        other => match other.as_double() {
            Some(value) if value == 0.0 || value.is_nan() => Ok(Value::Double(value)),
            Some(value) => Ok(Value::Double(value.signum())),
            None => Err(no_overload("math.sign", args)),
        },
    }
}

fn bits(name: &str, args: &[Value], apply: fn(u64, u64) -> u64) -> Result<Value, Fault> {
    match (&args[0], &args[1]) {
        // Two's complement there and back.
        (Value::Int(a), Value::Int(b)) => Ok(Value::Int(apply(*a as u64, *b as u64) as i64)),
        (Value::Uint(a), Value::Uint(b)) => Ok(Value::Uint(apply(*a, *b))),
        _ => Err(no_overload(name, args)),
    }
}

fn shift(name: &str, args: &[Value], left: bool) -> Result<Value, Fault> {
    let Value::Int(by) = args[1] else {
        return Err(no_overload(name, args));
    };
    let by = u32::try_from(by)
        .map_err(|_| Fault::domain(format!("`{name}` needs a shift of 0 or more")))?;
    let apply = |value: u64| {
        let shifted = if left {
            value.checked_shl(by)
        } else {
            value.checked_shr(by)
        };
        shifted.unwrap_or(0)
    };
    match &args[0] {
        Value::Int(value) => Ok(Value::Int(apply(*value as u64) as i64)),
        Value::Uint(value) => Ok(Value::Uint(apply(*value))),
        _ => Err(no_overload(name, args)),
    }
}
