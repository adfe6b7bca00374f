//! The effective config: a kind's default with a resource's override over it.
//!
//! Objects merge key by key and in depth, a null in the override removes the key, everything else replaces. The bundle
//! is replaced whole. Workers merge too, by their own copy of the rule; one table of cases binds both.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::json::{Digest, Doc, DocError, JsonType};

/// Why there is no effective config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// The override is not an object.
    #[error("a config override must be an object, not {0}")]
    NotObject(JsonType),
    /// One of the two is no document, or the result would be none.
    #[error("the effective config is not a document: {0}")]
    Doc(#[from] DocError),
}

fn type_of(value: &Value) -> JsonType {
    match value {
        Value::Null => JsonType::Null,
        Value::Bool(_) => JsonType::Boolean,
        Value::Number(_) => JsonType::Number,
        Value::String(_) => JsonType::String,
        Value::Array(_) => JsonType::Array,
        Value::Object(_) => JsonType::Object,
    }
}

/// Lays `over` over `default`. A default that is no object is replaced.
///
/// # Errors
/// The override is not an object.
pub fn merge(default: Value, over: Value) -> Result<Value, MergeError> {
    match over {
        Value::Object(_) => Ok(lay_over(default, over)),
        other => Err(MergeError::NotObject(type_of(&other))),
    }
}

fn lay_over(default: Value, over: Value) -> Value {
    let Value::Object(over) = over else {
        return over;
    };
    let mut merged = match default {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (key, value) in over {
        if value.is_null() {
            merged.remove(&key);
        } else {
            let below = merged.remove(&key).unwrap_or_default();
            merged.insert(key, lay_over(below, value));
        }
    }
    Value::Object(merged)
}

/// The effective spec. Without an override that is the default as it was written.
///
/// # Errors
/// The override is not an object.
pub fn effective_spec(
    default: Option<&Doc>,
    over: Option<&Doc>,
) -> Result<Option<Doc>, MergeError> {
    let Some(over) = over else {
        return Ok(default.cloned());
    };
    // An override alone still follows the rules for overrides: an object, its nulls removed.
    let default = default.map_or(Ok(Value::Object(Map::new())), Doc::to_value)?;
    Ok(Some(Doc::from_value(&merge(default, over.to_value()?)?)?))
}

/// The effective bundle: the override's, else the default's. An empty one is none.
pub fn effective_bundle<'a>(
    default: Option<&'a Bytes>,
    over: Option<&'a Bytes>,
) -> Option<&'a Bytes> {
    let some = |bundle: &&Bytes| !bundle.is_empty();
    over.filter(some).or(default.filter(some))
}

/// The digest of an effective config. Two that a handler cannot tell apart have the same; no config has one too.
pub fn effective_digest(spec: Option<&Doc>, bundle: Option<&Bytes>) -> Digest {
    // No document is empty, so an absent one has a digest of its own.
    let spec = spec.map(Doc::canonical).unwrap_or_default();
    Digest::of_parts(&[&spec, bundle.map_or(&[], |bundle| bundle)])
}

#[cfg(test)]
mod tests;
