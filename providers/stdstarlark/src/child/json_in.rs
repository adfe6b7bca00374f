//! From JSON text to Starlark values, exactly and under budgets.
//!
//! Works on the raw text of each value, so whole numbers keep every digit and nothing depends on how `serde_json` was
//! built (its `arbitrary_precision` turns numbers into maps for generic readers). Objects keep the document's order.

use std::borrow::Cow;
use std::str::FromStr;

use num_bigint::BigInt;
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
    // One strict pass decides whether it is JSON at all; what follows walks text that is known to be well-formed.
    let raw: &RawValue = serde_json::from_str(text).map_err(|err| format!("is not JSON: {err}"))?;
    let mut reader = Reader {
        build,
        text: raw.get(),
        at: 0,
        nodes: 0,
        path: Vec::new(),
    };
    reader.value(0).map_err(|problem| {
        let path = super::json_out::joined(&reader.path);
        if path.is_empty() {
            problem
        } else {
            format!("{path} {problem}")
        }
    })
}

/// Walks a well-formed document once, from left to right.
struct Reader<'b, 't, B> {
    build: &'b B,
    text: &'t str,
    at: usize,
    nodes: usize,
    /// Filled while an error travels outwards: the innermost part first.
    path: Vec<String>,
}

impl<'t, B: Build> Reader<'_, 't, B> {
    fn value(&mut self, depth: usize) -> Result<B::Value, String> {
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
        match self.peek() {
            b'"' => {
                let string = self.string()?;
                Ok(self.build.string(&string))
            }
            b'[' => {
                let mut values = Vec::new();
                while self.goes_on(b']') {
                    let value = self
                        .value(depth + 1)
                        .inspect_err(|_| self.path.push(format!("[{}]", values.len())))?;
                    values.push(value);
                }
                Ok(self.build.list(values))
            }
            b'{' => {
                let mut values = Vec::new();
                while self.goes_on(b'}') {
                    self.peek();
                    let key = self.string()?;
                    self.peek();
                    self.at += 1; // the colon
                    let value = self
                        .value(depth + 1)
                        .inspect_err(|_| self.path.push(super::json_out::member(&key)))?;
                    values.push((key.into_owned(), value));
                }
                Ok(self.build.object(values))
            }
            _ => match self.word() {
                "null" => Ok(self.build.none()),
                "true" => Ok(self.build.bool(true)),
                "false" => Ok(self.build.bool(false)),
                number => self.number(number),
            },
        }
    }

    /// The next byte that is not white space; 0 at the end, where a well-formed document has nothing to read.
    fn peek(&mut self) -> u8 {
        let rest = &self.text.as_bytes()[self.at..];
        let blank = rest
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        self.at += blank;
        rest.get(blank).copied().unwrap_or(0)
    }

    /// Steps over an opening bracket or a comma; `false` when it was the closing bracket, or the container is empty.
    fn goes_on(&mut self, close: u8) -> bool {
        if self.peek() != close {
            self.at += 1;
            if self.peek() != close {
                return true;
            }
        }
        self.at += 1;
        false
    }

    fn string(&mut self) -> Result<Cow<'t, str>, String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut plain = true;
        while bytes.get(end).is_some_and(|byte| *byte != b'"') {
            let escape = bytes[end] == b'\\';
            plain &= !escape;
            end += if escape { 2 } else { 1 };
        }
        self.at = (end + 1).min(bytes.len());
        let quoted = &self.text[start..self.at];
        if plain && quoted.len() >= 2 {
            return Ok(Cow::Borrowed(&quoted[1..quoted.len() - 1]));
        }
        serde_json::from_str::<String>(quoted)
            .map(Cow::Owned)
            .map_err(|err| format!("is not JSON: {err}"))
    }

    /// A literal or a number: everything up to what cannot be part of one.
    fn word(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let length = rest
            .bytes()
            .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
            .count();
        self.at += length;
        &rest[..length]
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
            .map_err(|_| format!("is not a number: {}", clip(text)))?;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Builds the same document again, to compare with what another reader makes of it.
    struct Text;

    impl Build for Text {
        type Value = String;
        fn none(&self) -> String {
            "null".into()
        }
        fn bool(&self, value: bool) -> String {
            value.to_string()
        }
        fn small(&self, value: i64) -> String {
            value.to_string()
        }
        fn big(&self, value: BigInt) -> String {
            value.to_string()
        }
        fn float(&self, value: f64) -> String {
            value.to_string()
        }
        fn string(&self, value: &str) -> String {
            serde_json::to_string(value).expect("a string is JSON")
        }
        fn list(&self, items: Vec<String>) -> String {
            format!("[{}]", items.join(","))
        }
        fn object(&self, entries: Vec<(String, String)>) -> String {
            let entries: Vec<String> = entries
                .iter()
                .map(|(k, v)| format!("{}:{v}", self.string(k)))
                .collect();
            format!("{{{}}}", entries.join(","))
        }
    }

    #[test]
    fn white_space_and_nothing_in_between() {
        for (text, wanted) in [
            (" [ ] ", "[]"),
            ("{ }", "{}"),
            (
                "\n[ 1 , [ ] ,{ \"a\" : { } , \"b\":[2]}\t]\r\n",
                r#"[1,[],{"a":{},"b":[2]}]"#,
            ),
            (r#"{"\u0061\"":"\\"}"#, r#"{"a\"":"\\"}"#),
            ("\"\"", "\"\""),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1E+2", "100"),
        ] {
            assert_eq!(read(&Text, text).as_deref(), Ok(wanted), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_document_reads_as_serde_json_reads_it(text in document()) {
            let value: serde_json::Value = serde_json::from_str(&text).expect("made to be JSON");
            let ours = read(&Text, &text).expect("within bounds");
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&ours).expect("still JSON"), value);
        }

        #[test]
        fn any_text_gives_an_answer(text in ".{0,40}|[\\[\\]{}\":,0-9a\\\\ ]{0,30}") {
            let theirs = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            prop_assert!(read(&Text, &text).is_err() || theirs);
        }
    }

    fn document() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|truth| truth.to_string()),
            any::<i128>().prop_map(|whole| whole.to_string()),
            ".{0,8}"
                .prop_map(|text: String| serde_json::to_string(&text).expect("a string is JSON")),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5)
                    .prop_map(|items| format!("[{}]", items.join(" , "))),
                prop::collection::btree_map("[a-z\"é]{0,4}", inner, 0..5).prop_map(|entries| {
                    let entries: Vec<String> = entries
                        .iter()
                        .map(|(key, value)| {
                            format!("{} : {value}", serde_json::to_string(key).expect("is JSON"))
                        })
                        .collect();
                    format!("{{ {} }}", entries.join(","))
                }),
            ]
        })
    }
}
