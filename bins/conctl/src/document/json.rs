//! JSON in its bytes: documents of a text, one level of a value at a time, and places by pointer.
//!
//! Positions come for free: a borrowed raw value is a slice of the text, so where it starts is where it is.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Document, Origin, Place, SyntaxError, WANTED};

/// One level of a JSON value.
#[derive(Debug)]
pub(crate) enum Shape<'a> {
    /// Members, in order.
    Object(Vec<(String, &'a RawValue)>),
    /// Elements.
    Array(Vec<&'a RawValue>),
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// `null`, `true`, `false` or a number, as written.
    Literal(&'a str),
}

/// Looks one level into a value. `None` only for what no JSON text is.
pub(crate) fn shape(raw: &RawValue) -> Option<Shape<'_>> {
    let text = raw.get();
    match text.trim_start().as_bytes().first()? {
        b'{' => serde_json::from_str::<Members<'_>>(text)
            .ok()
            .map(|members| Shape::Object(members.0)),
        b'[' => serde_json::from_str(text).ok().map(Shape::Array),
        b'"' => serde_json::from_str::<String>(text)
            .ok()
            .map(|text| Shape::Text(text.into())),
        _ => Some(Shape::Literal(text.trim())),
    }
}

/// The documents of a JSON text: one value, or several after each other; a list and an answer with `items` are their
/// elements.
pub(super) fn documents(file: &Rc<str>, text: &str) -> Result<Vec<Document>, SyntaxError> {
    let text: Rc<str> = text.into();
    // First for the whole text: syntax and duplicate keys, with their places.
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Strict>() {
        value.map_err(|err| syntax(&err))?;
    }
    let mut found = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>() {
        let value = value.map_err(|err| syntax(&err))?;
        for object in objects(&text, value)? {
            found.push(document(file, &text, object)?);
        }
    }
    Ok(found)
}

/// What a JSON reader says, and where; its columns count from 0 at the start of a line.
pub(super) fn syntax(err: &serde_json::Error) -> SyntaxError {
    let message = err.to_string();
    // The place is said in front of the message already.
    let bare = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(bare, _)| bare);
    SyntaxError::new(
        Place {
            line: err.line().max(1),
            column: err.column().max(1),
        },
        bare,
    )
}

fn objects<'a>(text: &str, value: &'a RawValue) -> Result<Vec<&'a RawValue>, SyntaxError> {
    let elements = match shape(value) {
        Some(Shape::Array(elements)) => elements,
        Some(Shape::Object(members)) if is_list(members.iter().map(|(key, _)| key.as_str())) => {
            match members
                .into_iter()
                .find(|(key, _)| key == "items")
                .and_then(|(_, v)| shape(v))
            {
                Some(Shape::Array(elements)) => elements,
                _ => return Err(wanted(text, value)),
            }
        }
        Some(Shape::Object(_)) => vec![value],
        _ => return Err(wanted(text, value)),
    };
    Ok(elements)
}

/// Whether an object with these keys is a list answer rather than a document.
pub(super) fn is_list<'a>(keys: impl Iterator<Item = &'a str>) -> bool {
    let keys: HashSet<&str> = keys.collect();
    keys.contains("items") && !keys.contains("kind") && !keys.contains("name")
}

fn wanted(text: &str, value: &RawValue) -> SyntaxError {
    SyntaxError::new(place_at(text, offset_in(text, value)), WANTED)
}

fn document(file: &Rc<str>, text: &Rc<str>, object: &RawValue) -> Result<Document, SyntaxError> {
    let Some(Shape::Object(members)) = shape(object) else {
        return Err(wanted(text, object));
    };
    let start = offset_in(text, object);
    Ok(Document {
        file: file.clone(),
        place: place_at(text, start),
        fields: members
            .into_iter()
            .map(|(key, value)| (key, value.to_owned()))
            .collect(),
        origin: Origin::Json {
            text: text.clone(),
            start,
            end: start + object.get().len(),
        },
    })
}

/// Where `part`, which was borrowed from `text`, starts in it.
fn offset_in(text: &str, part: &RawValue) -> usize {
    (part.get().as_ptr() as usize)
        .saturating_sub(text.as_ptr() as usize)
        .min(text.len())
}

/// The offset of the value at `pointer`, or of the deepest value on the way that exists.
pub(super) fn offset_of(text: &str, pointer: &str) -> Option<usize> {
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return None;
    }
    let mut value: &RawValue = serde_json::from_str(text).ok()?;
    for token in pointer.split('/').skip(1) {
        let token = unescape(token);
        let next = match shape(value)? {
            Shape::Object(members) => members
                .into_iter()
                .find(|(key, _)| *key == token)
                .map(|(_, v)| v),
            Shape::Array(elements) => token
                .parse::<usize>()
                .ok()
                .and_then(|index| elements.get(index).copied()),
            _ => None,
        };
        let Some(next) = next else { break };
        value = next;
    }
    Some(offset_in(text, value))
}

/// One token of a JSON pointer.
pub(super) fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// The line and column of a byte.
pub(super) fn place_at(text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place {
        line: before.bytes().filter(|byte| *byte == b'\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

/// The members of an object in order, values in their bytes.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

/// A value without duplicate keys anywhere.
struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Strict;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON value")
            }

            fn visit_unit<E>(self) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_str<E>(self, _: &str) -> Result<Strict, E> {
                Ok(Strict)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
                while seq.next_element::<Strict>()?.is_some() {}
                Ok(Strict)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
                let mut seen = HashSet::new();
                while let Some(key) = map.next_key::<String>()? {
                    // Exact numbers come as a map of one private key, whose value is a string.
                    if key == "$serde_json::private::Number" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    if seen.contains(&key) {
                        return Err(de::Error::custom(format!("the key {key:?} is there twice")));
                    }
                    map.next_value::<Strict>()?;
                    seen.insert(key);
                }
                Ok(Strict)
            }
        }
        deserializer.deserialize_any(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        documents(&"f.json".into(), text)
            .map(|found| found.iter().map(Document::body).collect())
            .map_err(|err| format!("{}:{}: {}", err.place.line, err.place.column, err.message))
    }

    #[test]
    fn numbers_keep_every_digit() {
        let text = r#"{"n":123456789012345678901234567890,"f":1.10,"e":1e400}"#;
        assert_eq!(read(text).unwrap(), [text]);
    }

    #[test]
    fn a_stream_a_list_and_an_answer_are_their_objects() {
        for text in [
            r#"{"a":1}{"b":2}"#,
            r#"[{"a":1}, {"b":2}]"#,
            r#"{"items":[{"a":1},{"b":2}],"revision":3}"#,
        ] {
            assert_eq!(read(text).unwrap(), [r#"{"a":1}"#, r#"{"b":2}"#], "{text}");
        }
    }

    #[test]
    fn a_document_with_a_field_named_items_is_itself() {
        let text = r#"{"kind":"k","name":"n","items":[]}"#;
        assert_eq!(read(text).unwrap(), [text]);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, wanted) in [
            (
                "{\"a\": 1,\n \"a\": 2}",
                "2:4: the key \"a\" is there twice",
            ),
            (
                "{\"s\": {\"x\": 1,\n   \"x\": 1}}",
                "2:6: the key \"x\" is there twice",
            ),
            ("{\"a\": ]}", "1:7: expected value"),
            ("{\"a\": 1", "1:7: EOF while parsing an object"),
            (
                "\n  3",
                "2:3: expected an object, a list of objects, or an answer with items",
            ),
        ] {
            assert_eq!(read(text).unwrap_err(), wanted, "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        let err = read(&"[".repeat(200_000)).unwrap_err();
        assert!(err.contains("recursion limit"), "{err}");
    }

    #[test]
    fn a_pointer_finds_its_place() {
        let text = "{\n  \"spec\": {\"a/b\": [1,\n 22]}\n}";
        let found = documents(&"f.json".into(), text).unwrap();
        let place = |pointer| {
            found[0]
                .place_of(pointer)
                .map(|place| (place.line, place.column))
        };
        assert_eq!(place("/spec/a~1b/1"), Some((3, 2)));
        assert_eq!(place("/spec"), Some((2, 11)));
        assert_eq!(
            place("/spec/missing"),
            Some((2, 11)),
            "the deepest that exists"
        );
        assert_eq!(place("header"), None);
    }
}
