//! Default ⊕ override: the rule by which two config documents become one.
//!
//! Objects merge key by key, arrays and scalars replace, a `null` in the override removes the key. Values that neither side
//! touches keep their bytes, keys their order (those of the default first). The control plane has its own copy of the rule,
//! for digests; `tests/merge.json` is the table of cases that both must pass.

use indexmap::IndexMap;
use serde_json::value::RawValue;

use crate::Json;
use crate::json::DecodeError;

/// Objects nested deeper than this are refused, as the JSON reader does.
const MAX_DEPTH: usize = 128;

/// Why two configs could not be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The default is not one JSON document.
    #[error("the default config is not valid JSON: {0}")]
    Default(DecodeError),
    /// The override is not one JSON document.
    #[error("the config override is not valid JSON: {0}")]
    Override(DecodeError),
    /// The override is JSON, but no object.
    #[error("the config override must be an object, not {found}")]
    NotAnObject {
        /// What it is instead.
        found: &'static str,
    },
    /// Objects are nested too deeply.
    #[error("the config nests deeper than 128 objects at {pointer}")]
    TooDeep {
        /// RFC 6901 pointer to the place.
        pointer: String,
    },
}

type Object<'a> = IndexMap<String, &'a RawValue>;

/// Merges an override over a default.
///
/// # Errors
/// When one of them is no JSON, naming the key, or the override is no object.
pub fn merge_config(default: &Json, over: &Json) -> Result<Json, MergeError> {
    let base: &RawValue = serde_json::from_slice(default.as_bytes())
        .map_err(|_| MergeError::Default(place(default)))?;
    let patch: &RawValue =
        serde_json::from_slice(over.as_bytes()).map_err(|_| MergeError::Override(place(over)))?;
    if !is_object(patch) {
        return Err(MergeError::NotAnObject {
            found: name_of(patch),
        });
    }
    let mut out = Vec::with_capacity(default.len() + over.len());
    merge(Some(base), patch, &mut out, &mut String::new(), 0)?;
    Ok(Json::from_bytes_unchecked(out))
}

/// Where a document stops being JSON.
fn place(document: &Json) -> DecodeError {
    match Json::parse(document.to_bytes()) {
        Err(error) => error,
        Ok(_) => DecodeError::new(
            String::new(),
            &serde::de::Error::custom("not one JSON document"),
        ),
    }
}

fn merge(
    base: Option<&RawValue>,
    patch: &RawValue,
    out: &mut Vec<u8>,
    pointer: &mut String,
    depth: usize,
) -> Result<(), MergeError> {
    if !is_object(patch) {
        out.extend_from_slice(patch.get().as_bytes());
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(MergeError::TooDeep {
            pointer: pointer.clone(),
        });
    }
    let base_keys = match base.filter(|base| is_object(base)) {
        Some(base) => object(base).map_err(MergeError::Default)?,
        None => Object::new(),
    };
    let mut patch_keys = object(patch).map_err(MergeError::Override)?;
    let mut first = true;
    let mut write_key = |key: &str, out: &mut Vec<u8>| {
        out.push(if std::mem::take(&mut first) {
            b'{'
        } else {
            b','
        });
        // A string always has a JSON form.
        out.extend_from_slice(serde_json::Value::from(key).to_string().as_bytes());
        out.push(b':');
    };
    for (key, value) in &base_keys {
        match patch_keys.get(key) {
            None => {
                write_key(key, out);
                out.extend_from_slice(value.get().as_bytes());
            }
            Some(over) if over.get() == "null" => {}
            Some(over) => {
                write_key(key, out);
                descend(Some(value), over, key, out, pointer, depth)?;
            }
        }
    }
    patch_keys.retain(|key, value| !base_keys.contains_key(key) && value.get() != "null");
    for (key, value) in &patch_keys {
        write_key(key, out);
        descend(None, value, key, out, pointer, depth)?;
    }
    if first {
        out.push(b'{');
    }
    out.push(b'}');
    Ok(())
}

fn descend(
    base: Option<&RawValue>,
    patch: &RawValue,
    key: &str,
    out: &mut Vec<u8>,
    pointer: &mut String,
    depth: usize,
) -> Result<(), MergeError> {
    let length = pointer.len();
    pointer.push('/');
    pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
    merge(base, patch, out, pointer, depth + 1)?;
    pointer.truncate(length);
    Ok(())
}

fn object(value: &RawValue) -> Result<Object<'_>, DecodeError> {
    serde_json::from_str(value.get()).map_err(|error| DecodeError::new(String::new(), &error))
}

fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

fn name_of(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}
