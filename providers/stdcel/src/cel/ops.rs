//! Operators: arithmetic, comparison, membership, equality.
//!
//! Arithmetic never crosses number types and never wraps; comparison and equality do cross them. Equality of values of
//! different kinds is false, not an error.

use std::cmp::Ordering;
use std::sync::Arc;

use super::ast::Operator;
use super::eval::{Budget, refuse_pending};
use super::fault::Fault;
use super::time;
use super::value::Value;

pub(super) fn not(value: &Value) -> Result<bool, Fault> {
    match value {
        Value::Bool(value) => Ok(!value),
        other => {
            refuse_pending(other)?;
            Err(Fault::of_type(format!(
                "`!` needs a bool, not {}",
                other.type_name()
            )))
        }
    }
}

pub(super) fn negate(value: Value, odd: bool) -> Result<Value, Fault> {
    refuse_pending(&value)?;
    match value {
        Value::Int(_) | Value::Double(_) | Value::Decimal(_) if !odd => Ok(value),
        Value::Int(number) => number.checked_neg().map(Value::Int).ok_or_else(overflow),
        Value::Double(number) => Ok(Value::Double(-number)),
        Value::Decimal(number) => Ok(Value::Double(-number.value)),
        other => Err(Fault::of_type(format!(
            "`-` needs an int or a double, not {}",
            other.type_name()
        ))),
    }
}

pub(super) fn binary(
    operator: Operator,
    left: Value,
    right: Value,
    budget: &mut Budget,
) -> Result<Value, Fault> {
    refuse_pending(&left)?;
    refuse_pending(&right)?;
    match operator {
        Operator::Equal => equal(&left, &right, budget).map(Value::Bool),
        Operator::NotEqual => equal(&left, &right, budget).map(|same| Value::Bool(!same)),
        Operator::In => contains(&right, &left, budget).map(Value::Bool),
        Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual => {
            let order = compare(&left, &right, budget)?
                .ok_or_else(|| no_overload(operator, &left, &right))?;
            // An unordered pair (NaN) is neither.
            Ok(Value::Bool(order.is_some_and(|order| match operator {
                Operator::Less => order.is_lt(),
                Operator::LessEqual => order.is_le(),
                Operator::Greater => order.is_gt(),
                _ => order.is_ge(),
            })))
        }
        Operator::Add => add(left, right, budget),
        _ => arithmetic(operator, &left, &right),
    }
}

fn add(left: Value, right: Value, budget: &mut Budget) -> Result<Value, Fault> {
    match (&left, &right) {
        (Value::String(a), Value::String(b)) => {
            budget.bytes((a.len() + b.len()) as u64)?;
            Ok(Value::string(format!("{a}{b}")))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.bytes((a.len() + b.len()) as u64)?;
            Ok(Value::Bytes(Arc::from([&**a, &**b].concat())))
        }
        (Value::List(a), Value::List(b)) => {
            budget.bytes(32 * (a.items().len() + b.items().len()) as u64)?;
            Value::list([a.items(), b.items()].concat())
        }
        (Value::Duration(a), Value::Duration(b)) => time::duration(a.checked_add(*b)),
        (Value::Timestamp(a), Value::Duration(b)) | (Value::Duration(b), Value::Timestamp(a)) => {
            time::timestamp(a.checked_add(*b))
        }
        _ => arithmetic(Operator::Add, &left, &right),
    }
}

fn arithmetic(operator: Operator, left: &Value, right: &Value) -> Result<Value, Fault> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => {
            if *b == 0 {
                match operator {
                    Operator::Divide => return Err(Fault::domain("division by zero")),
                    Operator::Remainder => {
                        return Err(Fault::domain("remainder of a division by zero"));
                    }
                    _ => {}
                }
            }
            let result = match operator {
                Operator::Add => a.checked_add(*b),
                Operator::Subtract => a.checked_sub(*b),
                Operator::Multiply => a.checked_mul(*b),
                Operator::Divide => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Value::Int).ok_or_else(overflow)
        }
        (Value::Uint(a), Value::Uint(b)) => {
            if *b == 0 {
                match operator {
                    Operator::Divide => return Err(Fault::domain("division by zero")),
                    Operator::Remainder => {
                        return Err(Fault::domain("remainder of a division by zero"));
                    }
                    _ => {}
                }
            }
            let result = match operator {
                Operator::Add => a.checked_add(*b),
                Operator::Subtract => a.checked_sub(*b),
                Operator::Multiply => a.checked_mul(*b),
                Operator::Divide => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Value::Uint).ok_or_else(overflow)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) if operator == Operator::Subtract => {
            time::duration(a.checked_sub(*b))
        }
        (Value::Timestamp(a), Value::Duration(b)) if operator == Operator::Subtract => {
            time::timestamp(a.checked_sub(*b))
        }
        (Value::Duration(a), Value::Duration(b)) if operator == Operator::Subtract => {
            time::duration(a.checked_sub(*b))
        }
        _ => match (left.as_double(), right.as_double()) {
            (Some(a), Some(b)) => Ok(Value::Double(match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
                _ => return Err(no_overload(operator, left, right)),
            })),
            _ => Err(no_overload(operator, left, right)),
        },
    }
}

fn overflow() -> Fault {
    Fault::domain("the result does not fit 64 bits")
}

fn no_overload(operator: Operator, left: &Value, right: &Value) -> Fault {
    let (a, b) = (left.type_name(), right.type_name());
    let fault = Fault::of_type(format!("`{}` does not take {a} and {b}", operator.symbol()));
    let number = |name: &str| matches!(name, "int" | "uint" | "double");
    match () {
        () if number(a) && number(b) && a != b => {
            fault.with_hint("convert one side with int(), uint() or double()")
        }
        () if a == "string" && number(b) || number(a) && b == "string" => {
            fault.with_hint("convert the number with string()")
        }
        () if a == "null_type" || b == "null_type" => fault.with_hint("one side is null"),
        () => fault,
    }
}

fn contains(container: &Value, value: &Value, budget: &mut Budget) -> Result<bool, Fault> {
    match container {
        Value::List(list) => {
            for item in list.items() {
                budget.steps(1)?;
                if equal(item, value, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(map.get_value(value).is_some()),
        other => Err(Fault::of_type(format!(
            "`in` needs a list or a map on the right, not {}",
            other.type_name()
        ))),
    }
}

/// Whether two values are the same. Values are shallower than the stack, so recursion is safe.
pub(super) fn equal(left: &Value, right: &Value, budget: &mut Budget) -> Result<bool, Fault> {
    refuse_pending(left)?;
    refuse_pending(right)?;
    budget.steps(1 + shared_length(left, right) / 64)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => {
            a == b
        }
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Opaque(a), Value::Opaque(b)) => a.same(b),
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, budget)?,
            (None, None) => true,
            _ => false,
        },
        (Value::List(a), Value::List(b)) => {
            if a.items().len() != b.items().len() {
                return Ok(false);
            }
            for (a, b) in a.items().iter().zip(b.items()) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.entries().len() != b.entries().len() {
                return Ok(false);
            }
            for ((a_key, a), (b_key, b)) in a.entries().iter().zip(b.entries()) {
                if a_key != b_key || !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => numbers(left, right).is_some_and(|order| order == Some(Ordering::Equal)),
    })
}

/// The order of two values: `None` if the types have none, `Some(None)` if just this pair has none.
pub(super) fn compare(
    left: &Value,
    right: &Value,
    budget: &mut Budget,
) -> Result<Option<Option<Ordering>>, Fault> {
    budget.steps(1 + shared_length(left, right) / 64)?;
    Ok(match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Some(Some(a.cmp(b))),
        (Value::String(a), Value::String(b)) => Some(Some(a.cmp(b))),
        (Value::Bytes(a), Value::Bytes(b)) => Some(Some(a.cmp(b))),
        (Value::Duration(a), Value::Duration(b)) | (Value::Timestamp(a), Value::Timestamp(b)) => {
            Some(Some(a.cmp(b)))
        }
        _ => numbers(left, right),
    })
}

/// How far two texts may have to be read to tell them apart.
fn shared_length(left: &Value, right: &Value) -> u64 {
    match (left, right) {
        (Value::String(a), Value::String(b)) => a.len().min(b.len()) as u64,
        (Value::Bytes(a), Value::Bytes(b)) => a.len().min(b.len()) as u64,
        _ => 0,
    }
}

/// Comparison across number types; `None` when one is no number.
///
/// Two integers compare exactly. An integer meets a double as a double: the specification's own tests have it that way.
fn numbers(left: &Value, right: &Value) -> Option<Option<Ordering>> {
    let integer = |value: &Value| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    if let (Some(a), Some(b)) = (integer(left), integer(right)) {
        return Some(Some(a.cmp(&b)));
    }
    let double = |value: &Value| {
        value
            .as_double()
            .or_else(|| integer(value).map(|value| value as f64))
    };
    Some(double(left)?.partial_cmp(&double(right)?))
}
