//! From Starlark values to JSON text, exactly and under budgets.
//!
//! Dicts, structs and objects keep their order, so the same program gives the same bytes in every process. A value may
//! contain itself or be shared 2^30 times: depth, node and byte budgets end both.

use num_bigint::BigInt;
use starlark::values::dict::DictRef;
use starlark::values::float::UnpackFloat;
use starlark::values::list::ListRef;
use starlark::values::structs::StructRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{UnpackValue, Value};

use super::value::Object;
use crate::limits;

/// Why a value has no JSON form.
#[derive(Debug)]
pub(crate) struct Unfit {
    /// From the outermost value inwards: `.spec["a b"][3]`; empty for the value itself.
    pub(crate) path: String,
    /// A fragment that follows the path: "is a function, which has no JSON form".
    pub(crate) problem: String,
}

/// The order of the members of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// As the program made them.
    Insertion,
    /// Sorted by key, as Go's `json.encode` does.
    Sorted,
}

/// What is left for one conversion, or for all conversions of one result.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            nodes: limits::NODES,
            bytes: limits::OUTPUT_BYTES,
        }
    }
}

/// Writes a value as JSON.
///
/// # Errors
/// The first part of the value that has no JSON form or is over a budget.
pub(crate) fn write(value: Value<'_>, order: Order, budget: &mut Budget) -> Result<String, Unfit> {
    let mut writer = Writer {
        out: String::new(),
        order,
        budget,
        path: Vec::new(),
    };
    match writer.value(value, 0) {
        Ok(()) => {
            let Writer { out, budget, .. } = writer;
            budget.bytes = budget.bytes.saturating_sub(out.len());
            Ok(out)
        }
        Err(problem) => {
            let path = joined(&writer.path);
            Err(Unfit { path, problem })
        }
    }
}

/// The named members of a dict, struct or object, in order.
pub(crate) fn members<'v>(value: Value<'v>) -> Option<Vec<(Value<'v>, Value<'v>)>> {
    if let Some(dict) = DictRef::from_value(value) {
        return Some(dict.iter().collect());
    }
    StructRef::from_value(value).map(|fields| {
        fields
            .iter()
            .map(|(key, value)| (key.to_value(), value))
            .collect()
    })
}

struct Writer<'b> {
    out: String,
    order: Order,
    budget: &'b mut Budget,
    path: Vec<String>,
}

impl Writer<'_> {
    fn value(&mut self, value: Value<'_>, depth: usize) -> Result<(), String> {
        self.budget.nodes =
            self.budget.nodes.checked_sub(1).ok_or_else(|| {
                format!("is one value too many; a result may have {}", limits::NODES)
            })?;
        if depth > limits::DEPTH {
            return Err(format!(
                "nests deeper than {} levels (does a value contain itself?)",
                limits::DEPTH
            ));
        }
        if let Some(text) = value.unpack_str() {
            self.string(text)?;
        } else if value.is_none() {
            self.out.push_str("null");
        } else if let Some(truth) = value.unpack_bool() {
            self.out.push_str(if truth { "true" } else { "false" });
        } else if let Some(number) = value.unpack_i32() {
            self.out.push_str(&number.to_string());
        } else if value.get_type() == "int" {
            self.integer(value)?;
        } else if value.get_type() == "float" {
            self.float(value)?;
        } else if let Some(list) = ListRef::from_value(value) {
            self.list(list.content(), depth)?;
        } else if let Some(tuple) = TupleRef::from_value(value) {
            self.list(tuple.content(), depth)?;
        } else if let Some(object) = Object::from_value(value) {
            self.object(object.iter().collect(), depth)?;
        } else if let Some(entries) = members(value) {
            let mut named = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                let name = key.unpack_str().ok_or_else(|| {
                    format!(
                        "has a key of type {}; the keys of a JSON object are strings",
                        type_name(key)
                    )
                })?;
                named.push((name, value));
            }
            self.object(named, depth)?;
        } else {
            let hint = if value.get_type() == "range" {
                "; use list(…)"
            } else {
                ""
            };
            return Err(format!(
                "is a {}, which has no JSON form{hint}",
                type_name(value)
            ));
        }
        if self.out.len() > self.budget.bytes {
            return Err(format!(
                "goes beyond the {} bytes that a result may have",
                limits::OUTPUT_BYTES
            ));
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), String> {
        if text.len() > self.budget.bytes {
            return Err(format!(
                "is a string of {} bytes; a result may have {}",
                text.len(),
                limits::OUTPUT_BYTES
            ));
        }
        self.out
            .push_str(&serde_json::to_string(text).map_err(|err| err.to_string())?);
        Ok(())
    }

    fn integer(&mut self, value: Value<'_>) -> Result<(), String> {
        let big = BigInt::unpack_value(value)
            .ok()
            .flatten()
            .ok_or("is an integer that cannot be read")?;
        if big.bits() > limits::INTEGER_BITS {
            return Err(format!(
                "is a whole number of {} bits; at most {} fit",
                big.bits(),
                limits::INTEGER_BITS
            ));
        }
        self.out.push_str(&big.to_string());
        Ok(())
    }

    fn float(&mut self, value: Value<'_>) -> Result<(), String> {
        let float = UnpackFloat::unpack_value(value)
            .ok()
            .flatten()
            .ok_or("is a float that cannot be read")?
            .0;
        if !float.is_finite() {
            return Err(format!("is {float}, which has no JSON form"));
        }
        self.out
            .push_str(&serde_json::to_string(&float).map_err(|err| err.to_string())?);
        Ok(())
    }

    fn list(&mut self, items: &[Value<'_>], depth: usize) -> Result<(), String> {
        self.out.push('[');
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.value(*item, depth + 1)
                .inspect_err(|_| self.path.push(format!("[{index}]")))?;
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, mut entries: Vec<(&str, Value<'_>)>, depth: usize) -> Result<(), String> {
        if self.order == Order::Sorted {
            entries.sort_by_key(|(key, _)| *key);
        }
        self.out.push('{');
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            self.string(key)?;
            self.out.push(':');
            self.value(value, depth + 1)
                .inspect_err(|_| self.path.push(member(key)))?;
        }
        self.out.push('}');
        Ok(())
    }
}

/// The parts of a path, innermost first, as one text of bounded length.
pub(crate) fn joined(parts: &[String]) -> String {
    const ENDS: usize = 8;
    let whole = |parts: &[String]| parts.iter().rev().map(String::as_str).collect::<String>();
    if parts.len() <= 2 * ENDS {
        return whole(parts);
    }
    let (inner, outer) = (&parts[..ENDS], &parts[parts.len() - ENDS..]);
    format!("{}…{}", whole(outer), whole(inner))
}

/// How a member is written in a path: `.name`, or `["odd name"]`.
pub(crate) fn member(key: &str) -> String {
    let plain = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain {
        format!(".{key}")
    } else if key.chars().count() > 60 {
        format!("[{:?}…]", key.chars().take(60).collect::<String>())
    } else {
        format!("[{key:?}]")
    }
}

/// A type's name for messages.
pub(crate) fn type_name(value: Value<'_>) -> &'static str {
    match value.get_type() {
        "NoneType" => "None",
        "builtin_function_or_method" | "native_function" => "function",
        other => other,
    }
}
