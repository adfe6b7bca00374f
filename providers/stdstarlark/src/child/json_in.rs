//! From JSON text to Starlark values, exactly and under budgets.
//!
//! Works on the raw text of each value, so whole numbers keep every digit and nothing depends on how `serde_json` was
//! built (its `arbitrary_precision` turns numbers into maps for generic readers). Objects keep the document's order.

use std::fmt;
use std::str::FromStr;

use num_bigint::BigInt;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use starlark::values::dict::AllocDict;
use starlark::values::list::AllocList;
use starlark::values::{FrozenHeap, FrozenValue, Heap, Value};

use super::value::Object;
use crate::limits;

/// Builds the values of one heap.
pub(crate) trait Build {
    type Value;
    fn none(&self) -> Self::Value;
    fn bool(&self, value: bool) -> Self::Value;
    fn small(&self, value: i64) -> Self::Value;
    fn big(&self, value: BigInt) -> Self::Value;
    fn float(&self, value: f64) -> Self::Value;
    fn string(&self, value: &str) -> Self::Value;
    fn list(&self, items: Vec<Self::Value>) -> Self::Value;
    fn object(&self, entries: Vec<(String, Self::Value)>) -> Self::Value;
}

/// Immutable values; objects are [`Object`]s.
pub(crate) struct Frozen<'a>(pub(crate) &'a FrozenHeap);

impl Build for Frozen<'_> {
    type Value = FrozenValue;
    fn none(&self) -> FrozenValue {
        FrozenValue::new_none()
    }
    fn bool(&self, value: bool) -> FrozenValue {
        FrozenValue::new_bool(value)
    }
    fn small(&self, value: i64) -> FrozenValue {
        self.0.alloc(value)
    }
    fn big(&self, value: BigInt) -> FrozenValue {
        self.0.alloc(value)
    }
    fn float(&self, value: f64) -> FrozenValue {
        self.0.alloc(value)
    }
    fn string(&self, value: &str) -> FrozenValue {
        self.0.alloc(value)
    }
    fn list(&self, items: Vec<FrozenValue>) -> FrozenValue {
        self.0.alloc(AllocList(items))
    }
    fn object(&self, entries: Vec<(String, FrozenValue)>) -> FrozenValue {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (self.0.alloc_str(&key), value));
        self.0.alloc(Object::new(entries))
    }
}

/// Ordinary lists and dicts, as a program would make them.
pub(crate) struct Plain<'v>(pub(crate) Heap<'v>);

impl<'v> Build for Plain<'v> {
    type Value = Value<'v>;
    fn none(&self) -> Value<'v> {
        Value::new_none()
    }
    fn bool(&self, value: bool) -> Value<'v> {
        Value::new_bool(value)
    }
    fn small(&self, value: i64) -> Value<'v> {
        self.0.alloc(value)
    }
    fn big(&self, value: BigInt) -> Value<'v> {
        self.0.alloc(value)
    }
    fn float(&self, value: f64) -> Value<'v> {
        self.0.alloc(value)
    }
    fn string(&self, value: &str) -> Value<'v> {
        self.0.alloc(value)
    }
    fn list(&self, items: Vec<Value<'v>>) -> Value<'v> {
        self.0.alloc(AllocList(items))
    }
    fn object(&self, entries: Vec<(String, Value<'v>)>) -> Value<'v> {
        self.0.alloc(AllocDict(entries))
    }
}

/// Reads one document.
///
/// # Errors
/// Says where in the document (`.a.b[3]`) and why: not JSON, too deep, too many values, a number out of range.
pub(crate) fn read<B: Build>(build: &B, text: &str) -> Result<B::Value, String> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|err| format!("is not JSON: {err}"))?;
    let mut reader = Reader {
        build,
        nodes: 0,
        path: Vec::new(),
    };
    reader.value(raw, 0).map_err(|problem| {
        let path = super::json_out::joined(&reader.path);
        if path.is_empty() {
            problem
        } else {
            format!("{path} {problem}")
        }
    })
}

struct Reader<'b, B> {
    build: &'b B,
    nodes: usize,
    /// Filled while an error travels outwards: the innermost part first.
    path: Vec<String>,
}

impl<B: Build> Reader<'_, B> {
    fn value(&mut self, raw: &RawValue, depth: usize) -> Result<B::Value, String> {
        self.nodes += 1;
        if self.nodes > limits::NODES {
            return Err(format!(
                "is value number {}; at most {} are taken",
                self.nodes,
                limits::NODES
            ));
        }
        if depth > limits::DEPTH {
            return Err(format!("nests deeper than {} levels", limits::DEPTH));
        }
        let text = raw.get().trim_ascii();
        let unread = |err: serde_json::Error| format!("is not JSON: {err}");
        Ok(match text.as_bytes().first() {
            Some(b'n') => self.build.none(),
            Some(b't') => self.build.bool(true),
            Some(b'f') => self.build.bool(false),
            Some(b'"') => {
                let string: std::borrow::Cow<'_, str> = read_string(text).map_err(unread)?;
                self.build.string(&string)
            }
            Some(b'[') => {
                let items = entries(text, false).map_err(unread)?;
                let mut values = Vec::with_capacity(items.len());
                for (index, (_, item)) in items.into_iter().enumerate() {
                    values.push(
                        self.value(item, depth + 1)
                            .inspect_err(|_| self.path.push(format!("[{index}]")))?,
                    );
                }
                self.build.list(values)
            }
            Some(b'{') => {
                let mut values = Vec::new();
                for (key, item) in entries(text, true).map_err(unread)? {
                    let value = self
                        .value(item, depth + 1)
                        .inspect_err(|_| self.path.push(format!(".{key}")))?;
                    values.push((key, value));
                }
                self.build.object(values)
            }
            _ => self.number(text)?,
        })
    }

    fn number(&self, text: &str) -> Result<B::Value, String> {
        /// Below this every whole number has one exact double, so `3.0` can only have meant 3.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if !text.contains(['.', 'e', 'E']) {
            if let Ok(small) = text.parse() {
                return Ok(self.build.small(small));
            }
            // Parsing is quadratic, so the length is looked at before (a digit is more than three bits).
            let big = (text.len() as u64 <= limits::INTEGER_BITS / 3)
                .then(|| BigInt::from_str(text).ok())
                .flatten()
                .filter(|big| big.bits() <= limits::INTEGER_BITS);
            return big.map(|big| self.build.big(big)).ok_or_else(|| {
                format!(
                    "is a whole number of {} digits, which is too long",
                    text.len()
                )
            });
        }
        let float: f64 = text
            .parse()
            .map_err(|_| format!("is not a number: {text}"))?;
        if !float.is_finite() {
            return Err(format!(
                "is a number beyond what a float can hold: {}",
                clip(text)
            ));
        }
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
        if float.fract() == 0.0 && float.abs() < EXACT {
            return Ok(self.build.small(float as i64));
        }
        Ok(self.build.float(float))
    }
}

fn clip(text: &str) -> &str {
    text.get(..40).unwrap_or(text)
}

fn read_string(text: &str) -> serde_json::Result<std::borrow::Cow<'_, str>> {
    if !text.contains('\\') && text.len() >= 2 {
        // Already checked by the outer reader; without escapes the text is the string.
        return Ok(std::borrow::Cow::Borrowed(&text[1..text.len() - 1]));
    }
    serde_json::from_str::<String>(text).map(std::borrow::Cow::Owned)
}

/// The members of an array (with empty keys) or object as raw text.
fn entries(text: &str, object: bool) -> serde_json::Result<Vec<(String, &RawValue)>> {
    struct Entries;
    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<(String, &'de RawValue)>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array or an object")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut out = Vec::new();
            while let Some(item) = seq.next_element::<&'de RawValue>()? {
                out.push((String::new(), item));
            }
            Ok(out)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut out = Vec::new();
            while let Some(entry) = map.next_entry::<String, &'de RawValue>()? {
                out.push(entry);
            }
            Ok(out)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    if object {
        reader.deserialize_map(Entries)
    } else {
        reader.deserialize_seq(Entries)
    }
}
