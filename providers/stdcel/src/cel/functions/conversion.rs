//! Type conversions, `size`, `type`, `dyn`.

use std::sync::Arc;

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::text::display_scalar;
use super::super::time;
use super::super::value::Value;
use super::{Function, global, method, moving, no_overload, string};

pub(super) static FUNCTIONS: &[Function] = &[
    global("size", 1, 1, size),
    method("size", 0, 0, size),
    global("int", 1, 1, to_int),
    global("uint", 1, 1, to_uint),
    global("double", 1, 1, to_double),
    global("string", 1, 1, to_string),
    global("bytes", 1, 1, to_bytes),
    global("bool", 1, 1, to_bool),
    global("type", 1, 1, |_, args| Ok(Value::Type(args[0].type_name()))),
    moving(global("dyn", 1, 1, |_, args| Ok(args[0].clone()))),
];

fn size(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let size = match &args[0] {
        Value::String(text) => {
            budget.steps(text.len() as u64 / 64)?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.items().len(),
        Value::Map(map) => map.entries().len(),
        _ => return Err(no_overload("size", args)),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn to_int(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let out_of_range = || Fault::domain("the number does not fit an int");
    match &args[0] {
        Value::Int(value) => Ok(Value::Int(*value)),
        Value::Uint(value) => i64::try_from(*value)
            .map(Value::Int)
            .map_err(|_| out_of_range()),
        Value::String(text) => text
            .parse()
            .map(Value::Int)
            .map_err(|_| not_a("an int", text)),
        Value::Timestamp(nanos) => Ok(Value::Int(time::seconds(*nanos))),
        other => match other.as_double() {
            // The bounds are exact doubles; what lies strictly between them fits.
            Some(value)
                if value > -9_223_372_036_854_775_808.0 && value < 9_223_372_036_854_775_808.0 =>
            {
                Ok(Value::Int(value as i64))
            }
            Some(_) => Err(out_of_range()),
            None => Err(no_overload("int", args)),
        },
    }
}

fn to_uint(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let out_of_range = || Fault::domain("the number does not fit a uint");
    match &args[0] {
        Value::Uint(value) => Ok(Value::Uint(*value)),
        Value::Int(value) => u64::try_from(*value)
            .map(Value::Uint)
            .map_err(|_| out_of_range()),
        Value::String(text) => text
            .parse()
            .map(Value::Uint)
            .map_err(|_| not_a("a uint", text)),
        other => match other.as_double() {
            Some(value) if (0.0..18_446_744_073_709_551_616.0).contains(&value) => {
                Ok(Value::Uint(value as u64))
            }
            Some(_) => Err(out_of_range()),
            None => Err(no_overload("uint", args)),
        },
    }
}

fn to_double(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        // Rounding to the nearest double is what the conversion means.
        Value::Int(value) => Ok(Value::Double(*value as f64)),
        Value::Uint(value) => Ok(Value::Double(*value as f64)),
        Value::String(text) => text
            .parse()
            .map(Value::Double)
            .map_err(|_| not_a("a double", text)),
        other => other
            .as_double()
            .map(Value::Double)
            .ok_or_else(|| no_overload("double", args)),
    }
}

fn to_string(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        value @ Value::String(_) => Ok(value.clone()),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => string(budget, text),
            Err(_) => Err(Fault::domain("the bytes are not UTF-8")),
        },
        Value::Timestamp(nanos) => Ok(Value::string(time::format_timestamp(*nanos))),
        Value::Duration(nanos) => Ok(Value::string(time::format_duration(*nanos))),
        Value::Opaque(opaque) => string(budget, opaque.to_string()),
        other => match display_scalar(other) {
            Some(text) => Ok(Value::string(text)),
            None => Err(no_overload("string", args)),
        },
    }
}

fn to_bytes(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        value @ Value::Bytes(_) => Ok(value.clone()),
        Value::String(text) => {
            budget.bytes(text.len() as u64)?;
            Ok(Value::Bytes(Arc::from(text.as_bytes())))
        }
        _ => Err(no_overload("bytes", args)),
    }
}

fn to_bool(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            other => Err(not_a("a bool", other)),
        },
        _ => Err(no_overload("bool", args)),
    }
}

fn not_a(what: &str, text: &str) -> Fault {
    let shown: String = text.chars().take(64).collect();
    Fault::domain(format!("`{shown}` is not {what}"))
}
