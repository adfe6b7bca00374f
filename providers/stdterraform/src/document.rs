//! Reading a JSON object by hand, so that one answer names every problem of a document.
//!
//! Owns: field lookup, types, unknown and duplicate names, pointers. What a value *means* is the caller's. A `null` counts as absent,
//! as it does in the merge of configs. Numbers and opaque values keep their bytes.

use std::fmt;

use converge_sdk::Json;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Every problem found so far, in the order of discovery.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    /// Adds one; `pointer` is where in the document (empty for the whole).
    pub(crate) fn add(&mut self, pointer: &str, problem: impl fmt::Display) {
        let place = if pointer.is_empty() {
            "the document"
        } else {
            pointer
        };
        self.0.push(format!("{place}: {problem}"));
    }

    /// One sentence with all of them, or nothing when there is none.
    pub(crate) fn into_message(self, what: &str) -> Option<String> {
        match self.0.as_slice() {
            [] => None,
            [one] => Some(format!("{what} is not valid: {one}")),
            many => Some(format!(
                "{what} has {} problems: {}",
                many.len(),
                many.join("; ")
            )),
        }
    }
}

/// The members of one object in their order, duplicates kept so that they can be refused.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push(entry);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// One object of the document, its fields taken one by one; [`Object::finish`] refuses what is left.
#[derive(Debug)]
pub(crate) struct Object {
    at: String,
    members: Vec<(String, Box<RawValue>)>,
    asked: Vec<&'static str>,
}

impl Object {
    /// Reads the object at `at`. What is no object is a problem, and reads as an empty one.
    pub(crate) fn read(at: &str, raw: &[u8], problems: &mut Problems) -> Self {
        let members = match serde_json::from_slice::<Members>(raw) {
            Ok(Members(members)) => members,
            Err(error) => {
                let found = kind_of(raw);
                match found {
                    Some(found) if found != "an object" => {
                        problems.add(at, format_args!("expected an object, found {found}"));
                    }
                    _ => {
                        let place = Json::parse(raw.to_vec())
                            .err()
                            .map(|place| place.to_string());
                        let what = place.unwrap_or_else(|| error.to_string());
                        problems.add(at, format_args!("not readable as JSON: {what}"));
                    }
                }
                Vec::new()
            }
        };
        let object = Self {
            at: at.to_owned(),
            members,
            asked: Vec::new(),
        };
        let mut seen = std::collections::BTreeSet::new();
        for (name, _) in &object.members {
            if !seen.insert(name.as_str()) {
                problems.add(&object.pointer(name), "the field is given twice");
            }
        }
        object
    }

    /// The pointer of one of its fields.
    pub(crate) fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.at, name.replace('~', "~0").replace('/', "~1"))
    }

    /// Whether a field is given and not `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members
            .iter()
            .any(|(member, value)| member == name && value.get() != "null")
    }

    /// Takes a field as it stands; `null` is absent.
    pub(crate) fn raw(&mut self, name: &'static str) -> Option<Box<RawValue>> {
        self.asked.push(name);
        let index = self.members.iter().position(|(member, _)| member == name)?;
        let (_, value) = self.members.remove(index);
        (value.get() != "null").then_some(value)
    }

    /// Takes a field of type `T`; another type is a problem that says what was `expected`.
    fn typed<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &'static str,
        expected: &str,
        problems: &mut Problems,
    ) -> Option<T> {
        let raw = self.raw(name)?;
        let value = serde_json::from_str(raw.get()).ok();
        if value.is_none() {
            problems.add(
                &self.pointer(name),
                format_args!("expected {expected}, found {}", shown(raw.get())),
            );
        }
        value
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, name: &'static str, problems: &mut Problems) -> Option<String> {
        self.typed(name, "a string", problems)
    }

    /// Takes a string that may not be blank.
    pub(crate) fn text(&mut self, name: &'static str, problems: &mut Problems) -> Option<String> {
        let value = self.string(name, problems)?;
        if value.trim().is_empty() || value.contains('\0') {
            problems.add(&self.pointer(name), "must not be blank nor hold a NUL");
            return None;
        }
        Some(value)
    }

    /// Takes `true` or `false`.
    pub(crate) fn bool(&mut self, name: &'static str, problems: &mut Problems) -> Option<bool> {
        self.typed(name, "true or false", problems)
    }

    /// Takes a whole number within `range`.
    pub(crate) fn whole(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<u64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let value: u64 = self.typed(name, &expected, problems)?;
        if !range.contains(&value) {
            problems.add(
                &self.pointer(name),
                format_args!("expected {expected}, found {value}"),
            );
            return None;
        }
        Some(value)
    }

    /// Takes a list of strings.
    pub(crate) fn strings(
        &mut self,
        name: &'static str,
        problems: &mut Problems,
    ) -> Option<Vec<String>> {
        self.typed(name, "a list of strings", problems)
    }

    /// Takes an object.
    pub(crate) fn object(&mut self, name: &'static str, problems: &mut Problems) -> Option<Object> {
        let raw = self.raw(name)?;
        Some(Object::read(
            &self.pointer(name),
            raw.get().as_bytes(),
            problems,
        ))
    }

    /// All members, whatever their names, for an object whose keys are the user's.
    pub(crate) fn into_members(self) -> Vec<(String, Box<RawValue>)> {
        self.members
    }

    /// Refuses every field that nobody asked for.
    pub(crate) fn finish(self, problems: &mut Problems) {
        for (name, _) in &self.members {
            let known = self.asked.join(", ");
            problems.add(
                &self.pointer(name),
                format_args!("unknown field; known here: {known}"),
            );
        }
    }
}

/// What sort of JSON value `raw` is, when it is one.
fn kind_of(raw: &[u8]) -> Option<&'static str> {
    let value: &RawValue = serde_json::from_slice(raw).ok()?;
    Some(match value.get().as_bytes().first()? {
        b'{' => "an object",
        b'[' => "a list",
        b'"' => "a string",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    })
}

/// A value for a message. A string is named by its type alone: it may be a secret in the wrong place.
fn shown(raw: &str) -> String {
    match kind_of(raw.as_bytes()) {
        Some("a number" | "a boolean") if raw.len() <= 40 => raw.to_owned(),
        Some(kind) => kind.to_owned(),
        None => "something else".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_with_its_pointer() {
        let mut problems = Problems::default();
        let raw = br#"{"a":1,"b":"x","b":"y","c":{"d/e":true},"n":3000}"#;
        let mut object = Object::read("", raw, &mut problems);
        assert_eq!(object.string("a", &mut problems), None);
        assert_eq!(object.whole("n", 1..=256, &mut problems), None);
        let inner = object.object("c", &mut problems).unwrap();
        inner.finish(&mut problems);
        object.raw("b");
        object.raw("b");
        object.finish(&mut problems);
        let message = problems.into_message("the spec").unwrap();
        for part in [
            "/a: expected a string, found 1",
            "/n: expected",
            "/c/d~1e: unknown field",
            "/b: the field is given twice",
        ] {
            assert!(message.contains(part), "{part} in {message}");
        }
        assert!(message.starts_with("the spec has 4 problems"), "{message}");
    }

    #[test]
    fn null_is_absent_and_a_wrong_string_is_not_quoted() {
        let mut problems = Problems::default();
        let mut object = Object::read("", br#"{"a":null,"b":"hunter2"}"#, &mut problems);
        assert_eq!(object.string("a", &mut problems), None);
        assert_eq!(object.bool("b", &mut problems), None);
        let message = problems.into_message("the config").unwrap();
        assert_eq!(
            message,
            "the config is not valid: /b: expected true or false, found a string"
        );
    }

    #[test]
    fn what_is_no_object_says_what_it_is() {
        for (raw, found) in [
            ("[]", "a list"),
            ("3", "a number"),
            ("\"x\"", "a string"),
            ("{", "not readable"),
        ] {
            let mut problems = Problems::default();
            Object::read("/vars", raw.as_bytes(), &mut problems);
            assert!(problems.into_message("it").unwrap().contains(found));
        }
    }
}
