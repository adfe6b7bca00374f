//! `format`: the printf of CEL.

use super::super::eval::{Budget, refuse_pending};
use super::super::fault::Fault;
use super::super::text;
use super::super::time;
use super::super::value::{Key, Value};
use super::{Function, items, method, string};

pub(super) static FUNCTIONS: &[Function] = &[method("format", 1, 1, format)];

/// More decimals than any double has.
const MAX_PRECISION: usize = 1_000;

fn format(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let mut rest = super::text("format", args, 0)?;
    let values = items("format", args, 1)?;
    budget.bytes(rest.len() as u64)?;
    let mut out = String::new();
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('%') {
            out.push('%');
            rest = tail;
            continue;
        }
        let mut precision = 6;
        if let Some(tail) = rest.strip_prefix('.') {
            let length = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            precision = tail[..length].parse().unwrap_or(usize::MAX);
            if precision > MAX_PRECISION {
                return Err(Fault::domain(format!(
                    "a precision may be at most {MAX_PRECISION}"
                )));
            }
            rest = &tail[length..];
        }
        let Some(clause) = rest.chars().next() else {
            return Err(Fault::domain("the format ends after `%`"));
        };
        rest = &rest[clause.len_utf8()..];
        let value = values.get(next).ok_or_else(|| {
            Fault::domain(format!(
                "the format asks for more than the {} values given",
                values.len()
            ))
        })?;
        next += 1;
        let before = out.len();
        refuse_pending(value)?;
        one(budget, &mut out, clause, precision, value)?;
        budget.bytes((out.len() - before) as u64)?;
    }
    out.push_str(rest);
    string(budget, out)
}

fn one(
    budget: &mut Budget,
    out: &mut String,
    clause: char,
    precision: usize,
    value: &Value,
) -> Result<(), Fault> {
    let wrong = || Fault::of_type(format!("`%{clause}` does not take {}", value.type_name()));
    let special = |number: f64| (!number.is_finite()).then(|| double(number));
    let formatted = match (clause, value) {
        ('s', value) => return show(budget, out, value, clause),
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('d', value) => match value.as_double() {
            Some(number) => special(number).unwrap_or_else(|| double(number)),
            None => return Err(wrong()),
        },
        ('f', value) => match value {
            Value::Int(value) => format!("{:.precision$}", *value as f64),
            Value::Uint(value) => format!("{:.precision$}", *value as f64),
            value => {
                let number = value.as_double().ok_or_else(wrong)?;
                special(number).unwrap_or_else(|| format!("{number:.precision$}"))
            }
        },
        ('e', value) => {
            let number = match value {
                Value::Int(value) => *value as f64,
                Value::Uint(value) => *value as f64,
                value => value.as_double().ok_or_else(wrong)?,
            };
            special(number).unwrap_or_else(|| exponent(number, precision))
        }
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b' | 'o' | 'x' | 'X', Value::Int(value)) => {
            let sign = if *value < 0 { "-" } else { "" };
            format!("{sign}{}", radix(clause, value.unsigned_abs()))
        }
        ('b' | 'o' | 'x' | 'X', Value::Uint(value)) => radix(clause, *value),
        ('x' | 'X', Value::String(text)) => hex(budget, clause, text.as_bytes())?,
        ('x' | 'X', Value::Bytes(bytes)) => hex(budget, clause, bytes)?,
        ('b' | 'o' | 'x' | 'X', _) => return Err(wrong()),
        _ => {
            return Err(Fault::domain(format!("`%{clause}` is no format"))
                .with_hint("the formats are %s %d %f %e %b %o %x %X and %%"));
        }
    };
    out.push_str(&formatted);
    Ok(())
}

fn radix(clause: char, value: u64) -> String {
    match clause {
        'b' => format!("{value:b}"),
        'o' => format!("{value:o}"),
        'x' => format!("{value:x}"),
        _ => format!("{value:X}"),
    }
}

fn hex(budget: &mut Budget, clause: char, bytes: &[u8]) -> Result<String, Fault> {
    use std::fmt::Write as _;
    budget.bytes(2 * bytes.len() as u64)?;
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a String cannot fail.
        let _ = if clause == 'x' {
            write!(out, "{byte:02x}")
        } else {
            write!(out, "{byte:02X}")
        };
    }
    Ok(out)
}

/// Two digits of exponent at least, and always its sign.
fn exponent(number: f64, precision: usize) -> String {
    let plain = format!("{number:.precision$e}");
    let (mantissa, exponent) = plain.split_once('e').unwrap_or((&plain, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn double(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        n => text::double(n),
    }
}

/// `%s`. Values are shallower than the stack.
fn show(budget: &mut Budget, out: &mut String, value: &Value, clause: char) -> Result<(), Fault> {
    budget.steps(1)?;
    let before = out.len();
    match value {
        Value::Null => out.push_str("null"),
        Value::Double(number) => out.push_str(&double(*number)),
        Value::Bytes(bytes) => out.push_str(&String::from_utf8_lossy(bytes)),
        Value::Type(name) => out.push_str(name),
        Value::Timestamp(nanos) => out.push_str(&time::format_timestamp(*nanos)),
        Value::Duration(nanos) => out.push_str(&time::format_duration(*nanos)),
        Value::Opaque(opaque) => out.push_str(&opaque.to_string()),
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.items().iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                show(budget, out, item, clause)?;
            }
            out.push(']');
            return budget.bytes(2 * (list.items().len() as u64 + 1));
        }
        Value::Map(map) => {
            let key = |key: &Key| text::display_scalar(&key.value()).unwrap_or_default();
            let mut entries: Vec<_> = map
                .entries()
                .iter()
                .map(|(name, value)| (key(name), value))
                .collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            out.push('{');
            for (at, (name, value)) in entries.into_iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                budget.bytes(name.len() as u64 + 4)?;
                out.push_str(&name);
                out.push_str(": ");
                show(budget, out, value, clause)?;
            }
            out.push('}');
            return Ok(());
        }
        other => match text::display_scalar(other) {
            Some(text) => out.push_str(&text),
            None => {
                refuse_pending(other)?;
                return Err(Fault::of_type(format!(
                    "`%{clause}` does not take {}",
                    other.type_name()
                )));
            }
        },
    }
    budget.bytes((out.len() - before) as u64)
}
