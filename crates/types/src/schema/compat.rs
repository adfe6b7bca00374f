//! Which edits of a schema are safe: every document the old one accepts the new one accepts too.
//!
//! A short list, by keyword, walked down only where making a part wider makes the whole wider. Whatever is not on the
//! list is a breaking change, named with its place; that it may be harmless all the same is no reason to guess.
//!
//! One exception is deliberate: a new optional field is safe also where the old schema let unknown fields through, for
//! that is how schemas grow. Where the old one had a schema for unknown fields, that one counts as the field's before.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::check;
use crate::json::{Doc, compare_numbers};
use crate::pointer::Pointer;

/// Keywords that refuse nothing, so that any edit of them is safe.
const ANNOTATIONS: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "$schema",
];

/// Keywords that refuse something or name something; one that is not here and not above is unknown and refuses nothing.
const ASSERTIONS: &[&str] = &[
    "$id",
    "$anchor",
    "$dynamicAnchor",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "$recursiveAnchor",
    "$defs",
    "definitions",
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "prefixItems",
    "items",
    "additionalItems",
    "contains",
    "minContains",
    "maxContains",
    "maxItems",
    "minItems",
    "uniqueItems",
    "properties",
    "patternProperties",
    "additionalProperties",
    "propertyNames",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords under which a wider schema can make the whole narrower.
const TURNING: &[&str] = &[
    "not",
    "oneOf",
    "if",
    "contains",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// One edit of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edit {
    /// Where in the schema.
    pub(crate) at: Pointer,
    /// What was done.
    pub(crate) what: String,
    /// Whether what was accepted still is.
    pub(crate) safe: bool,
}

/// Everything that differs from `old` to `new`; nothing where the two have the same value.
pub(crate) fn edits(old: &Value, new: &Value) -> Vec<Edit> {
    let mut comparison = Comparison { edits: Vec::new() };
    comparison.schemas(old, new, &Pointer::root());
    // A reference from under a turning keyword reaches parts that are compared elsewhere as if wider were safe.
    if turns_references(old) || turns_references(new) {
        for edit in &mut comparison.edits {
            let annotation = edit
                .at
                .tokens()
                .next_back()
                .is_some_and(|keyword| !ASSERTIONS.contains(&keyword));
            if edit.safe && !(annotation && edit.what.ends_with("changed")) {
                edit.safe = false;
                edit.what
                    .push_str(" (in a schema where a negating keyword uses references)");
            }
        }
    }
    comparison.edits
}

fn turns_references(schema: &Value) -> bool {
    let mut found = false;
    check::walk(schema, &Pointer::root(), &mut |keyword, value, _| {
        if TURNING.contains(&keyword) {
            check::walk(value, &Pointer::root(), &mut |inner, _, _| {
                found |= matches!(inner, "$ref" | "$dynamicRef")
            });
        }
    });
    found
}

fn same(a: &Value, b: &Value) -> bool {
    a == b || matches!((Doc::from_value(a), Doc::from_value(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether the schema accepts everything.
fn accepts_all(schema: &Value) -> bool {
    match schema {
        Value::Bool(accepts) => *accepts,
        Value::Object(keywords) => !keywords
            .keys()
            .any(|keyword| ASSERTIONS.contains(&keyword.as_str())),
        _ => false,
    }
}

fn words(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(word) => Some(vec![word]),
        Value::Array(words) => words.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

struct Comparison {
    edits: Vec<Edit>,
}

impl Comparison {
    fn edit(&mut self, at: &Pointer, what: impl Into<String>, safe: bool) {
        self.edits.push(Edit {
            at: at.clone(),
            what: what.into(),
            safe,
        });
    }

    fn schemas(&mut self, old: &Value, new: &Value, at: &Pointer) {
        if same(old, new) {
            return;
        }
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.keywords(old, new, at),
            _ if accepts_all(new) => self.edit(at, "accepts everything now", true),
            (Value::Bool(false), _) => self.edit(at, "accepts something now", true),
            (Value::Bool(true), Value::Object(new)) => self.keywords(&Map::new(), new, at),
            _ => self.edit(at, "accepts less", false),
        }
    }

    fn keywords(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, at: &Pointer) {
        let differs = |keyword: &&str| match (old.get(*keyword), new.get(*keyword)) {
            (Some(was), Some(is)) => !same(was, is),
            (was, is) => was.is_some() != is.is_some(),
        };
        if let Some(keyword) = ["enum", "const"].into_iter().find(differs) {
            self.values(old, new, &at.child(keyword));
        }
        let keys = old
            .keys()
            .chain(new.keys().filter(|key| !old.contains_key(*key)));
        for keyword in keys {
            let (was, is) = (old.get(keyword), new.get(keyword));
            if let (Some(was), Some(is)) = (was, is)
                && same(was, is)
            {
                continue;
            }
            let here = at.child(keyword);
            if ANNOTATIONS.contains(&keyword.as_str()) || !ASSERTIONS.contains(&keyword.as_str()) {
                self.edit(&here, format!("{keyword} changed"), true);
                continue;
            }
            match keyword.as_str() {
                "properties" => self.properties(was, is, old, new, &here),
                "required" => self.required(was, is, &here),
                // Decided together, above.
                "enum" | "const" => {}
                _ => match (was, is) {
                    (Some(was), Some(is)) => self.changed(keyword, was, is, &here),
                    (Some(_), None) => self.removed(keyword, &here),
                    (None, Some(is)) => self.added(keyword, is, &here),
                    (None, None) => {}
                },
            }
        }
    }

    fn added(&mut self, keyword: &str, is: &Value, here: &Pointer) {
        let safe = match keyword {
            // Nothing uses them yet: what does is an edit of its own.
            "$defs" | "definitions" => true,
            "additionalProperties" | "items" | "propertyNames" => accepts_all(is),
            "uniqueItems" => *is == Value::Bool(false),
            _ => false,
        };
        self.edit(here, format!("{keyword} added"), safe);
    }

    fn removed(&mut self, keyword: &str, here: &Pointer) {
        let safe = matches!(
            keyword,
            "type"
                | "multipleOf"
                | "maximum"
                | "exclusiveMaximum"
                | "minimum"
                | "exclusiveMinimum"
                | "maxLength"
                | "minLength"
                | "pattern"
                | "maxItems"
                | "minItems"
                | "uniqueItems"
                | "additionalProperties"
                | "propertyNames"
                | "maxProperties"
                | "minProperties"
                | "dependentRequired"
        );
        self.edit(here, format!("{keyword} removed"), safe);
    }

    fn changed(&mut self, keyword: &str, was: &Value, is: &Value, here: &Pointer) {
        match keyword {
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties" => {
                self.bound(keyword, was, is, Ordering::Less, here);
            }
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties" => {
                self.bound(keyword, was, is, Ordering::Greater, here);
            }
            "type" => {
                let wider = match (words(was), words(is)) {
                    (Some(was), Some(is)) => was.iter().all(|word| {
                        is.contains(word) || *word == "integer" && is.contains(&"number")
                    }),
                    _ => false,
                };
                self.edit(
                    here,
                    if wider {
                        "type widened"
                    } else {
                        "type narrowed or changed"
                    },
                    wider,
                );
            }
            "uniqueItems" => self.edit(here, "uniqueItems changed", *is == Value::Bool(false)),
            "additionalProperties" | "items" | "propertyNames" => self.schemas(was, is, here),
            "$defs" | "definitions" | "patternProperties" => self.named(keyword, was, is, here),
            "allOf" | "anyOf" | "prefixItems" => self.in_order(keyword, was, is, here),
            _ => self.edit(here, format!("{keyword} changed"), false),
        }
    }

    fn bound(&mut self, keyword: &str, was: &Value, is: &Value, wider: Ordering, here: &Pointer) {
        let (Value::Number(was), Value::Number(is)) = (was, is) else {
            return self.edit(here, format!("{keyword} changed"), false);
        };
        let safe = compare_numbers(&is.to_string(), &was.to_string()) == wider;
        let how = if safe { "widened" } else { "narrowed" };
        self.edit(here, format!("{keyword} {how} from {was} to {is}"), safe);
    }

    fn required(&mut self, was: Option<&Value>, is: Option<&Value>, here: &Pointer) {
        let absent = Value::Array(Vec::new());
        let (Some(was), Some(is)) = (words(was.unwrap_or(&absent)), words(is.unwrap_or(&absent)))
        else {
            return self.edit(here, "required changed", false);
        };
        for name in was.iter().filter(|name| !is.contains(name)) {
            self.edit(here, format!("{name:?} is no longer required"), true);
        }
        for name in is.iter().filter(|name| !was.contains(name)) {
            self.edit(here, format!("{name:?} is required now"), false);
        }
    }

    /// The values that `enum` and `const` together allow.
    fn values(&mut self, old: &Map<String, Value>, new: &Map<String, Value>, here: &Pointer) {
        let allowed = |keywords: &Map<String, Value>| -> Option<Vec<Value>> {
            let list = match keywords.get("enum") {
                Some(Value::Array(values)) => Some(values.clone()),
                _ => None,
            };
            match (list, keywords.get("const")) {
                (None, None) => None,
                (None, Some(one)) => Some(vec![one.clone()]),
                (Some(list), None) => Some(list),
                (Some(list), Some(one)) => {
                    Some(list.into_iter().filter(|value| same(value, one)).collect())
                }
            }
        };
        match (allowed(old), allowed(new)) {
            (_, None) => self.edit(here, "any value is allowed now", true),
            (None, Some(_)) => self.edit(here, "only some values are allowed now", false),
            (Some(was), Some(is)) => {
                let gone: Vec<_> = was
                    .iter()
                    .filter(|value| !is.iter().any(|kept| same(value, kept)))
                    .collect();
                match gone.first() {
                    None => self.edit(here, "allowed values added", true),
                    Some(first) => {
                        let first: String = first.to_string().chars().take(80).collect();
                        self.edit(
                            here,
                            format!("{} allowed values removed, {first} for one", gone.len()),
                            false,
                        );
                    }
                }
            }
        }
    }

    fn properties(
        &mut self,
        was: Option<&Value>,
        is: Option<&Value>,
        old: &Map<String, Value>,
        new: &Map<String, Value>,
        here: &Pointer,
    ) {
        let none = Map::new();
        let fields = |value: Option<&Value>| match value {
            Some(Value::Object(fields)) => fields.clone(),
            _ => none.clone(),
        };
        let (was, is) = (fields(was), fields(is));
        for (name, schema) in &was {
            match is.get(name) {
                Some(now) => self.schemas(schema, now, &here.child(name)),
                None => self.edit(&here.child(name), "field removed", false),
            }
        }
        for (name, schema) in is.iter().filter(|(name, _)| !was.contains_key(*name)) {
            let at = here.child(name);
            let required = |keywords: &Map<String, Value>| {
                keywords
                    .get("required")
                    .and_then(words)
                    .is_some_and(|names| names.contains(&name.as_str()))
            };
            // A pattern may already say something about it.
            let patterns =
                old.contains_key("patternProperties") || new.contains_key("patternProperties");
            match old.get("additionalProperties") {
                _ if patterns && !accepts_all(schema) => {
                    self.edit(&at, "field added beside patternProperties", false)
                }
                // It had to be there before, with any value.
                _ if required(old) && !accepts_all(schema) => {
                    self.edit(&at, "a required field is restricted now", false)
                }
                _ if old
                    .get("unevaluatedProperties")
                    .is_some_and(Value::is_object) =>
                {
                    self.edit(
                        &at,
                        "field added that unevaluatedProperties was about",
                        false,
                    );
                }
                None | Some(Value::Bool(_)) if required(new) => {
                    self.edit(&at, "required field added", required(old))
                }
                None | Some(Value::Bool(_)) => self.edit(&at, "optional field added", true),
                Some(before) => {
                    let count = self.edits.len();
                    self.schemas(before, schema, &at);
                    if self.edits.len() == count {
                        self.edit(&at, "optional field added", true);
                    }
                }
            }
        }
    }

    /// Maps of names to schemas in which each applies by itself.
    fn named(&mut self, keyword: &str, was: &Value, is: &Value, here: &Pointer) {
        let (Value::Object(was), Value::Object(is)) = (was, is) else {
            return self.edit(here, format!("{keyword} changed"), false);
        };
        for (name, schema) in was {
            match is.get(name) {
                Some(now) => self.schemas(schema, now, &here.child(name)),
                None => self.edit(&here.child(name), "removed", false),
            }
        }
        for name in is.keys().filter(|name| !was.contains_key(*name)) {
            self.edit(&here.child(name), "added", keyword != "patternProperties");
        }
    }

    /// Lists of schemas of which the same place is compared with the same place.
    fn in_order(&mut self, keyword: &str, was: &Value, is: &Value, here: &Pointer) {
        let (Value::Array(was), Value::Array(is)) = (was, is) else {
            return self.edit(here, format!("{keyword} changed"), false);
        };
        if is.len() < was.len() || is.len() > was.len() && keyword != "anyOf" {
            return self.edit(
                here,
                format!(
                    "{keyword} has {} entries instead of {}",
                    is.len(),
                    was.len()
                ),
                false,
            );
        }
        for (index, (was, is)) in was.iter().zip(is).enumerate() {
            self.schemas(was, is, &here.child(&index.to_string()));
        }
        for index in was.len()..is.len() {
            self.edit(&here.child(&index.to_string()), "alternative added", true);
        }
    }
}

#[cfg(test)]
mod tests;
