//! What is wrong with a schema: by the rules of JSON Schema, and by ours.

use serde_json::Value;

use super::Violation;
use crate::pointer::Pointer;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords whose value is data, not schemas, so that nothing in it is a keyword.
const DATA: &[&str] = &["const", "enum", "default", "examples"];
/// Keywords whose value maps names to schemas, so that its members are no keywords.
pub(crate) const NAMED: &[&str] = &[
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];

/// Everything wrong with the schema, as far as it can be said without compiling it.
pub(super) fn schema(schema: &Value) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !matches!(schema, Value::Object(_) | Value::Bool(_)) {
        violations.push(Violation::new(
            Pointer::root(),
            "a schema is an object or a boolean".to_owned(),
        ));
        return violations;
    }
    let validator = jsonschema::draft202012::meta::validator();
    violations.extend(
        validator
            .iter_errors(schema)
            .take(super::VIOLATIONS)
            .map(|error| {
                let at = Pointer::parse(error.instance_path().as_str()).unwrap_or_default();
                Violation::new(at, error.masked_with("this").to_string())
            }),
    );
    let has_id = has_id(schema);
    walk(schema, &Pointer::root(), &mut |keyword, value, at| {
        if let ("patternProperties", Value::Object(patterns)) = (keyword, value) {
            let bad = patterns.keys().filter(|pattern| !is_pattern(pattern));
            violations.extend(
                bad.map(|pattern| Violation::new(at.child(pattern), NO_PATTERN.to_owned())),
            );
        }
        let Some(text) = value.as_str() else { return };
        // With an `$id` further up, or with percent escapes, compiling finds out instead, one reference at a time.
        let dangles = !has_id
            && !text.contains('%')
            && text.strip_prefix('#').is_some_and(|fragment| {
                fragment.starts_with('/')
                    && Pointer::parse(fragment).is_ok_and(|to| to.get(schema).is_none())
            });
        let refused = match keyword {
            "$schema" if text.trim_end_matches('#') != DRAFT => {
                format!("only {DRAFT} is supported")
            }
            // Within the document, either by a fragment or by an `$id` it declares itself; compiling finds out whether
            // the latter is there. The draft's own schemas are built in and would be found, so they are refused here.
            "$ref" | "$dynamicRef"
                if !text.starts_with('#') && (!has_id || text.contains("//json-schema.org/")) =>
            {
                format!("the reference {text:?} leaves the document")
            }
            "$ref" | "$dynamicRef" if dangles => {
                format!("the reference {text:?} points at nothing")
            }
            "pattern" if !is_pattern(text) => NO_PATTERN.to_owned(),
            "$vocabulary" => "vocabularies are not supported".to_owned(),
            _ => return,
        };
        violations.push(Violation::new(at.clone(), refused));
    });
    violations
}

const NO_PATTERN: &str = "not a regular expression";

fn is_pattern(text: &str) -> bool {
    jsonschema::draft202012::options()
        .offline()
        .build(&serde_json::json!({"pattern": text}))
        .is_ok()
}

fn has_id(schema: &Value) -> bool {
    let mut found = false;
    walk(schema, &Pointer::root(), &mut |keyword, value, _| {
        found |= keyword == "$id" && value.is_string()
    });
    found
}

/// Calls `visit` for every keyword of the schema and of all schemas in it.
pub(crate) fn walk(schema: &Value, at: &Pointer, visit: &mut impl FnMut(&str, &Value, &Pointer)) {
    match schema {
        Value::Object(keywords) => {
            for (keyword, value) in keywords {
                let here = at.child(keyword);
                visit(keyword, value, &here);
                match value {
                    _ if DATA.contains(&keyword.as_str()) => {}
                    Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                        for (name, schema) in named {
                            walk(schema, &here.child(name), visit);
                        }
                    }
                    other => walk(other, &here, visit),
                }
            }
        }
        Value::Array(schemas) => {
            for (index, schema) in schemas.iter().enumerate() {
                walk(schema, &at.child(&index.to_string()), visit);
            }
        }
        _ => {}
    }
}
