//! Optionals: values that may be absent.

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::value::Value;
use super::{Function, global, items, list, method, moving, no_overload};

pub(super) static FUNCTIONS: &[Function] = &[
    moving(global("optional.of", 1, 1, |_, args| {
        Ok(Value::some(args[0].clone()))
    })),
    global("optional.ofNonZeroValue", 1, 1, of_non_zero),
    global("optional.none", 0, 0, |_, _| Ok(Value::Optional(None))),
    method("hasValue", 0, 0, |_, args| match &args[0] {
        Value::Optional(inner) => Ok(Value::Bool(inner.is_some())),
        _ => Err(no_overload("hasValue", args)),
    }),
    moving(method("value", 0, 0, |_, args| match &args[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Err(Fault::missing("the optional has no value")),
        other => refuse("value", other, args),
    })),
    moving(method("or", 1, 1, |_, args| match &args[0] {
        Value::Optional(Some(_)) => Ok(args[0].clone()),
        Value::Optional(None) if matches!(args[1], Value::Optional(_)) => Ok(args[1].clone()),
        other => refuse("or", other, args),
    })),
    moving(method("orValue", 1, 1, |_, args| match &args[0] {
        Value::Optional(Some(inner)) => Ok((**inner).clone()),
        Value::Optional(None) => Ok(args[1].clone()),
        other => refuse("orValue", other, args),
    })),
    global("optional.unwrap", 1, 1, unwrap),
    method("unwrapOpt", 0, 0, unwrap),
];

fn refuse(name: &str, receiver: &Value, args: &[Value]) -> Result<Value, Fault> {
    super::super::eval::refuse_pending(receiver)?;
    Err(no_overload(name, args))
}

fn of_non_zero(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let zero = match &args[0] {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => {
            true
        }
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(list) => list.items().is_empty(),
        Value::Map(map) => map.entries().is_empty(),
        Value::Optional(inner) => inner.is_none(),
        other => other.as_double() == Some(0.0),
    };
    Ok(if zero {
        Value::Optional(None)
    } else {
        Value::some(args[0].clone())
    })
}

fn unwrap(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let mut out = Vec::new();
    for item in items("optional.unwrap", args, 0)? {
        match item {
            Value::Optional(inner) => out.extend(inner.as_deref().cloned()),
            _ => return Err(no_overload("optional.unwrap", std::slice::from_ref(item))),
        }
    }
    list(budget, out)
}
