//! Documents in and out.
//!
//! [`Doc`] keeps what a value would lose: the order of keys (`forEach` combines its dimensions in listing order). Numbers
//! keep every digit they were written with, in both directions. The writer knows nothing of value flows: it tells its
//! caller about each pending place and leaves `null` there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::cel::value::{Key, Pending};
use crate::cel::{Fault, Value};

/// A JSON document as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Doc {
    Null,
    Bool(bool),
    Number(String),
    String(String),
    Array(Vec<Doc>),
    Object(Vec<(String, Doc)>),
}

impl Doc {
    /// Reads JSON; the message says line and column.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|err| {
            let (text, line, column) = (err.to_string(), err.line(), err.column());
            match text.strip_suffix(&format!(" at line {line} column {column}")) {
                // The library counts what it has read of the line, which at its start is nothing.
                Some(bare) => format!("{bare} at line {line} column {}", column.max(1)),
                None => text,
            }
        })
    }

    /// The same as a value of the expression language.
    pub(crate) fn value(&self) -> Result<Value, Fault> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(text) => Value::number(text),
            Self::String(text) => Value::string(text),
            Self::Array(items) => {
                Value::list(items.iter().map(Self::value).collect::<Result<_, _>>()?)?
            }
            Self::Object(fields) => {
                let mut entries = BTreeMap::new();
                for (name, field) in fields {
                    entries.insert(Key::String(Arc::from(name.as_str())), field.value()?);
                }
                Value::map(entries)?
            }
        })
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// A field of an object; the last one when it is there twice, as every JSON reader has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields
                .iter()
                .rev()
                .find(|(field, _)| field == name)
                .map(|(_, value)| value),
            _ => None,
        }
    }
}

/// What serde_json calls a number while `arbitrary_precision` is on.
const NUMBER: &str = "$serde_json::private::Number";

impl<'de> Deserialize<'de> for Doc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocVisitor)
    }
}

struct DocVisitor;

impl<'de> Visitor<'de> for DocVisitor {
    type Value = Doc;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Doc, E> {
        Ok(Doc::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Doc, E> {
        Ok(Doc::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Doc, E> {
        Ok(Doc::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Doc, E> {
        Ok(Doc::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Doc, E> {
        Ok(serde_json::Number::from_f64(value)
            .map_or(Doc::Null, |number| Doc::Number(number.to_string())))
    }

    fn visit_str<E>(self, value: &str) -> Result<Doc, E> {
        Ok(Doc::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Doc, E> {
        Ok(Doc::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Doc, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Doc::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Doc, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let value: Doc = map.next_value()?;
            match value {
                Doc::String(text) if fields.is_empty() && name == NUMBER && is_number(&text) => {
                    return Ok(Doc::Number(text));
                }
                value => fields.push((name, value)),
            }
        }
        Ok(Doc::Object(fields))
    }
}

/// Whether a text is a JSON number; somebody may have written the private key by hand.
fn is_number(text: &str) -> bool {
    text.parse::<serde_json::Number>().is_ok()
}

/// The value with absent optionals dropped and present ones unwrapped; `None` if it is an absent one itself.
///
/// # Errors
/// A part that has no JSON form, with the path to it.
pub(crate) fn plain(value: Value) -> Result<Option<Value>, Fault> {
    if value.is_plain() {
        return Ok(Some(value));
    }
    match &value {
        Value::Pending(_) => Ok(Some(value)),
        Value::Optional(None) => Ok(None),
        Value::Optional(Some(inner)) => plain((**inner).clone()),
        Value::List(list) => {
            let mut items = Vec::with_capacity(list.items().len());
            for item in list.items() {
                items.extend(plain(item.clone())?);
            }
            Value::list(items).map(Some)
        }
        Value::Map(map) => {
            let mut entries = BTreeMap::new();
            for (key, item) in map.entries() {
                if !matches!(key, Key::String(_)) {
                    let shown = crate::cel::display_scalar(&key.value()).unwrap_or_default();
                    let message = format!(
                        "a map with the key {shown} has no JSON form: keys must be strings"
                    );
                    return Err(Fault::domain(message).with_hint("convert the keys with string()"));
                }
                if let Some(item) = plain(item.clone())? {
                    entries.insert(key.clone(), item);
                }
            }
            Value::map(entries).map(Some)
        }
        Value::Double(number) => Err(Fault::domain(format!(
            "{} has no JSON form",
            crate::cel::display_scalar(&Value::Double(*number)).unwrap_or_default()
        ))),
        other => {
            let fault = Fault::domain(format!(
                "a value of type {} has no JSON form",
                other.type_name()
            ));
            Err(match other {
                Value::Bytes(_) => fault.with_hint("convert it with string() or base64.encode()"),
                Value::Type(_) => {
                    fault.with_hint("a bare type name is no value; is an id or a field missing?")
                }
                _ => fault.with_hint("convert it with string()"),
            })
        }
    }
}

/// Told about every pending place, with its JSON pointer.
pub(crate) type OnPending<'f> = dyn FnMut(&str, &Pending) -> Result<(), Fault> + 'f;

/// Writes a value that [`plain`] has passed, in key order.
///
/// # Errors
/// When `out` would grow beyond `limit_bytes`, or as `on_pending` says.
pub(crate) fn write(
    value: &Value,
    out: &mut Vec<u8>,
    limit_bytes: usize,
    on_pending: &mut OnPending<'_>,
) -> Result<(), Fault> {
    Writer {
        out,
        limit_bytes,
        pointer: String::new(),
        on_pending,
    }
    .value(value)
}

struct Writer<'w, 'f> {
    out: &'w mut Vec<u8>,
    limit_bytes: usize,
    pointer: String,
    on_pending: &'w mut OnPending<'f>,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value) -> Result<(), Fault> {
        if self.out.len() > self.limit_bytes {
            return Err(Fault::limit(format!(
                "the composition is larger than {} bytes",
                self.limit_bytes
            )));
        }
        match value {
            Value::Bool(value) => {
                self.out
                    .extend_from_slice(if *value { b"true" } else { b"false" })
            }
            Value::Int(value) => self.out.extend_from_slice(value.to_string().as_bytes()),
            Value::Uint(value) => self.out.extend_from_slice(value.to_string().as_bytes()),
            Value::Double(value) => match serde_json::Number::from_f64(*value) {
                Some(number) => self.out.extend_from_slice(number.to_string().as_bytes()),
                None => self.out.extend_from_slice(b"null"),
            },
            Value::Decimal(decimal) => self.out.extend_from_slice(decimal.text.as_bytes()),
            Value::String(text) => string(self.out, text),
            Value::List(list) => {
                self.out.push(b'[');
                for (at, item) in list.items().iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    self.within(&at.to_string(), item)?;
                }
                self.out.push(b']');
            }
            Value::Map(map) => {
                self.out.push(b'{');
                for (at, (key, item)) in map.entries().iter().enumerate() {
                    if at > 0 {
                        self.out.push(b',');
                    }
                    let Key::String(name) = key else { continue };
                    string(self.out, name);
                    self.out.push(b':');
                    self.within(name, item)?;
                }
                self.out.push(b'}');
            }
            Value::Pending(pending) => {
                (self.on_pending)(&self.pointer, pending)?;
                self.out.extend_from_slice(b"null");
            }
            _ => self.out.extend_from_slice(b"null"),
        }
        Ok(())
    }

    fn within(&mut self, segment: &str, item: &Value) -> Result<(), Fault> {
        // Only a pending place needs its pointer; most trees have none.
        if item.is_plain() {
            return self.value(item);
        }
        let before = self.pointer.len();
        push_segment(&mut self.pointer, segment);
        self.value(item)?;
        self.pointer.truncate(before);
        Ok(())
    }
}

/// Appends one segment to a JSON pointer.
pub(crate) fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// Writes a JSON string.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    if serde_json::to_writer(&mut *out, text).is_err() {
        // Writing a str into a Vec has no way to fail.
        out.extend_from_slice(b"\"\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        let value = Doc::parse(text.as_bytes()).unwrap().value().unwrap();
        let mut out = Vec::new();
        write(&value, &mut out, 1 << 20, &mut |_, _| Ok(())).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_count_from_one() {
        for text in ["", "{\n", "{\"a\":1,\n"] {
            let told = Doc::parse(text.as_bytes()).unwrap_err();
            assert!(!told.contains("column 0"), "{text:?}: {told}");
            assert_eq!(told.matches(" column ").count(), 1, "{told}");
        }
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = r#"[1.0,0.10,1e+400,-0,123456789012345678901234567890,18446744073709551615,-9223372036854775808]"#;
        assert_eq!(round_trip(text), text);
    }

    #[test]
    fn keys_are_sorted_and_text_is_escaped() {
        assert_eq!(
            round_trip(r#"{"b":"é\u0001\"","a":{}}"#),
            "{\"a\":{},\"b\":\"é\\u0001\\\"\"}"
        );
    }

    #[test]
    fn a_document_keeps_the_order_of_its_keys() {
        let Doc::Object(fields) = Doc::parse(br#"{"z":1,"a":2}"#).unwrap() else {
            panic!("an object")
        };
        assert_eq!(
            fields
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["z", "a"]
        );
    }

    #[test]
    fn the_private_number_key_by_hand_is_no_way_in() {
        let doc = Doc::parse(br#"{"$serde_json::private::Number":"x],["}"#).unwrap();
        assert!(matches!(doc, Doc::Object(_)));
    }
}
