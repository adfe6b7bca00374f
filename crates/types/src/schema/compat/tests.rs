use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::CompiledSchema;

fn breaking(old: &Value, new: &Value) -> Vec<String> {
    edits(old, new)
        .into_iter()
        .filter(|edit| !edit.safe)
        .map(|edit| format!("{}: {}", edit.at, edit.what))
        .collect()
}

#[test]
fn these_edits_are_safe() {
    let closed = |properties: Value| json!({"type": "object", "additionalProperties": false, "properties": properties});
    let table = [
        (
            json!({}),
            json!({"description": "x", "title": "y", "default": 1, "examples": [], "format": "email", "x-own": 1}),
        ),
        (
            json!({"type": "object", "properties": {"a": {}}}),
            json!({"type": "object", "properties": {"a": {}, "b": {"type": "string"}}}),
        ),
        (
            closed(json!({"a": {}})),
            closed(json!({"a": {}, "b": {"type": "string"}})),
        ),
        (
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"b": {"type": "string"}}}),
        ),
        (json!({"minimum": 5}), json!({"minimum": 4.5})),
        (json!({"minimum": 5}), json!({})),
        (
            json!({"maximum": 5, "maxLength": 3, "maxItems": 1}),
            json!({"maximum": 6, "maxLength": 4, "maxItems": 2}),
        ),
        (
            json!({"minLength": 2, "pattern": "a"}),
            json!({"minLength": 1}),
        ),
        (json!({"required": ["a", "b"]}), json!({"required": ["b"]})),
        (json!({"required": ["a"]}), json!({})),
        (json!({"type": "integer"}), json!({"type": "number"})),
        (
            json!({"type": "string"}),
            json!({"type": ["string", "null"]}),
        ),
        (json!({"type": "string"}), json!({})),
        (json!({"enum": [1, 2]}), json!({"enum": [2, 1.0, 3]})),
        (json!({"const": 1}), json!({"enum": [1, 2]})),
        (json!({"enum": [1, 2]}), json!({})),
        (closed(json!({})), json!({"type": "object"})),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            json!({"additionalProperties": {"type": "number"}}),
        ),
        (
            json!({"additionalProperties": {"type": "integer"}}),
            json!({"additionalProperties": {"type": "integer"}, "properties": {"n": {"type": "number"}}}),
        ),
        (
            json!({"properties": {"a": {"items": {"maximum": 1}}}}),
            json!({"properties": {"a": {"items": {"maximum": 2}}}}),
        ),
        (
            json!({"$defs": {"a": {"maximum": 1}}, "$ref": "#/$defs/a"}),
            json!({"$defs": {"a": {"maximum": 2}, "b": {}}, "$ref": "#/$defs/a"}),
        ),
        (
            json!({"anyOf": [{"type": "string"}]}),
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ),
        (json!({"uniqueItems": true}), json!({"uniqueItems": false})),
        (json!({"type": "object"}), json!(true)),
        (json!(false), json!({"type": "object"})),
        (
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}),
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}, "title": "x"}),
        ),
        (
            json!({"oneOf": [{"type": "string"}], "maximum": 1}),
            json!({"oneOf": [{"type": "string"}], "maximum": 2}),
        ),
    ];
    for (old, new) in table {
        assert_eq!(breaking(&old, &new), Vec::<String>::new(), "{old} -> {new}");
        assert!(!edits(&old, &new).is_empty(), "{old} -> {new}");
    }
}

#[test]
fn these_edits_break_and_are_named() {
    let table = [
        (json!({}), json!({"type": "object"}), "/type: type added"),
        (
            json!({"minimum": 5}),
            json!({"minimum": 6}),
            "/minimum: minimum narrowed from 5 to 6",
        ),
        (
            json!({"maximum": 123456789012345678_u64}),
            json!({"maximum": 123456789012345677_u64}),
            "/maximum: maximum narrowed from 123456789012345678 to 123456789012345677",
        ),
        (
            json!({}),
            json!({"maxLength": 6}),
            "/maxLength: maxLength added",
        ),
        (
            json!({}),
            json!({"required": ["a"]}),
            "/required: \"a\" is required now",
        ),
        (
            json!({"properties": {"a": {}}}),
            json!({"properties": {}}),
            "/properties/a: field removed",
        ),
        (
            json!({"properties": {"a": {}}}),
            json!({}),
            "/properties/a: field removed",
        ),
        (
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"properties": {"a": {"type": "integer"}}}),
            "/properties/a/type: type narrowed or changed",
        ),
        (
            json!({"type": "number"}),
            json!({"type": "integer"}),
            "/type: type narrowed or changed",
        ),
        (
            json!({"enum": [1, 2]}),
            json!({"enum": [1]}),
            "/enum: 1 allowed values removed, 2 for one",
        ),
        (
            json!({"enum": [1, 2]}),
            json!({"enum": [1, 2], "const": 1}),
            "/const: 1 allowed values removed, 2 for one",
        ),
        (
            json!({}),
            json!({"const": 1}),
            "/const: only some values are allowed now",
        ),
        (
            json!({}),
            json!({"additionalProperties": false}),
            "/additionalProperties: additionalProperties added",
        ),
        (
            json!({"additionalProperties": {"type": "string"}}),
            json!({"additionalProperties": {"type": "string"}, "properties": {"n": {"type": "integer"}}}),
            "/properties/n/type: type narrowed or changed",
        ),
        (
            json!({"required": ["n"]}),
            json!({"required": ["n"], "properties": {"n": {"type": "string"}}}),
            "/properties/n: a required field is restricted now",
        ),
        (
            json!({"patternProperties": {"^n": {}}}),
            json!({"patternProperties": {"^n": {}}, "properties": {"n": {"type": "string"}}}),
            "/properties/n: field added beside patternProperties",
        ),
        (
            json!({"pattern": "a"}),
            json!({"pattern": "b"}),
            "/pattern: pattern changed",
        ),
        (
            json!({"oneOf": [{"type": "string"}]}),
            json!({"oneOf": [{"type": "string"}, {"type": "null"}]}),
            "/oneOf: oneOf changed",
        ),
        (
            json!({"not": {"maximum": 1}}),
            json!({"not": {"maximum": 2}}),
            "/not: not changed",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!({"anyOf": [{"type": "string"}]}),
            "/anyOf: anyOf has 1 entries instead of 2",
        ),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {}, "b": {}}}),
            json!({"$ref": "#/$defs/b", "$defs": {"a": {}, "b": {}}}),
            "/$ref: $ref changed",
        ),
        (json!({}), json!(false), ": accepts less"),
        (
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"maximum": 1}}}),
            json!({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"maximum": 2}}}),
            "/$defs/a/maximum: maximum widened from 1 to 2 (in a schema where a negating keyword uses references)",
        ),
    ];
    for (old, new, message) in table {
        let found = breaking(&old, &new);
        assert!(
            found.iter().any(|text| text == message),
            "{old} -> {new}: {found:?}"
        );
    }
}

#[test]
fn equal_schemas_have_no_edits() {
    let old: Value =
        serde_json::from_str("{\"minimum\":1.0,\"enum\":[1e1],\"type\":\"number\"}").expect("json");
    let new: Value =
        serde_json::from_str("{\"type\":\"number\",\"enum\":[10],\"minimum\":1}").expect("json");
    assert_eq!(edits(&old, &new), []);
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!(true)),
        Just(json!(false)),
        proptest::sample::select(vec!["string", "integer", "number", "null"])
            .prop_map(|t| json!({"type": t})),
        (-2..3).prop_map(|n| json!({"minimum": n})),
        (-2..3).prop_map(|n| json!({"maximum": n})),
        (0..3).prop_map(|n| json!({"maxLength": n, "type": ["string", "null"]})),
        proptest::sample::subsequence(vec![json!(0), json!(1), json!("a"), json!(null)], 1..4)
            .prop_map(|v| json!({"enum": v})),
        (0..2).prop_map(|n| json!({"const": n})),
        (0..2).prop_map(|n| json!({"const": n, "enum": [0, 1]})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let names = proptest::sample::subsequence(vec!["a", "b", "c"], 0..3);
        // No schema here is open to unknown fields but by a schema for them, so that the deliberate exception is out of play.
        let additional = prop_oneof![Just(json!(false)), inner.clone()];
        let object = (proptest::collection::btree_map("[abc]", inner.clone(), 0..3), names, additional).prop_map(
            |(properties, required, additional)| {
                json!({"type": "object", "properties": properties, "required": required, "additionalProperties": additional})
            },
        );
        prop_oneof![
            3 => object,
            1 => inner.clone().prop_map(|s| json!({"type": "array", "items": s})),
            1 => proptest::collection::vec(inner.clone(), 1..3).prop_map(|s| json!({"anyOf": s})),
            1 => proptest::collection::vec(inner.clone(), 1..3).prop_map(|s| json!({"allOf": s})),
            1 => inner.clone().prop_map(|s| json!({"not": s})),
            1 => proptest::collection::vec(inner, 1..3).prop_map(|s| json!({"oneOf": s})),
        ]
    })
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        Just(json!("a")),
        Just(json!("abc")),
        (-3..4).prop_map(|n| json!(n)),
        Just(json!(0.5))
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            2 => proptest::collection::btree_map("[abc]", inner.clone(), 0..3).prop_map(|m| json!(m)),
            1 => proptest::collection::vec(inner, 0..3).prop_map(Value::Array),
        ]
    })
}

/// Changes one thing somewhere: most unrelated pairs of schemas are breaking, which would prove little.
fn mutate(schema: &Value, other: &Value, mut at: usize) -> Value {
    match schema {
        Value::Object(keywords) if !keywords.is_empty() => {
            let mut changed = keywords.clone();
            let index = at % keywords.len();
            at /= keywords.len();
            let Some((keyword, value)) = keywords.iter().nth(index) else {
                return schema.clone();
            };
            match (at % 4, value) {
                (0, _) => drop(changed.remove(keyword)),
                (1, _) => {
                    if let Value::Object(more) = other {
                        changed.extend(more.clone());
                    }
                }
                (_, Value::Number(number)) => {
                    let number = number.as_i64().unwrap_or(0) + if at % 8 < 4 { 1 } else { -1 };
                    changed.insert(keyword.clone(), json!(number.max(0)));
                }
                (_, below) => drop(changed.insert(keyword.clone(), mutate(below, other, at / 4))),
            }
            Value::Object(changed)
        }
        Value::Array(items) if !items.is_empty() => {
            let mut changed = items.clone();
            let index = at % items.len();
            match at % 3 {
                0 => drop(changed.remove(index)),
                _ => changed[index] = mutate(&items[index], other, at / items.len()),
            }
            Value::Array(changed)
        }
        Value::Bool(_) => other.clone(),
        same => same.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn after_a_safe_edit_everything_valid_is_still_valid(
        old in schema(), other in schema(), at: usize, documents in proptest::collection::vec(document(), 12)
    ) {
        let new = mutate(&old, &other, at);
        let compile = |schema: &Value| CompiledSchema::compile(&Doc::from_value(schema).expect("a document"));
        let (Ok(before), Ok(after)) = (compile(&old), compile(&new)) else { return Ok(()) };
        if breaking(&old, &new).is_empty() && !edits(&old, &new).iter().any(|edit| edit.what == "optional field added" && open(&old)) {
            for document in documents.iter().filter(|document| before.accepts(document)) {
                prop_assert!(after.accepts(document), "{} -> {} refuses {}", old, new, document);
            }
        }
    }

    #[test]
    fn a_schema_has_no_edits_against_itself(schema in schema()) {
        prop_assert_eq!(edits(&schema, &schema.clone()), []);
    }
}

/// Whether some object in the schema lets unknown fields through unseen, as the deliberate exception wants.
fn open(schema: &Value) -> bool {
    match schema {
        Value::Object(keywords) => {
            !keywords.contains_key("additionalProperties")
                || keywords.get("additionalProperties") == Some(&json!(true))
                || keywords.values().any(open)
        }
        Value::Array(items) => items.iter().any(open),
        Value::Bool(open) => *open,
        _ => false,
    }
}
