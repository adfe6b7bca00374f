use serde_json::json;

use super::*;

fn compile(schema: Value) -> CompiledSchema {
    let doc = Doc::from_value(&schema).expect("a document");
    CompiledSchema::compile(&doc)
        .unwrap_or_else(|violations| panic!("{schema}: {}", list(&violations)))
}

fn refused(schema: Value) -> String {
    let doc = Doc::from_value(&schema).expect("a document");
    list(&CompiledSchema::compile(&doc).expect_err("not legal"))
}

#[test]
fn all_violations_are_named_with_their_places_and_without_the_values() {
    let schema = compile(json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "size": {"type": "integer", "maximum": 5}, "tags": {"items": {"maxLength": 2}}}
    }));
    let violations = schema.violations(
        &json!({"size": "secret", "tags": ["a", "secret"], "extra": "secret", "a/b": 1}),
    );
    let text = list(&violations);
    let pointers: Vec<_> = violations
        .iter()
        .map(|violation| violation.pointer.to_string())
        .collect();
    for pointer in ["", "/size", "/tags/1", "/extra", "/a~1b"] {
        assert!(
            pointers.iter().any(|found| found == pointer),
            "{pointer} in {text}"
        );
    }
    assert_eq!(violations.len(), 5, "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert!(
        text.contains("/extra: unknown field") && text.contains("\"name\" is a required property"),
        "{text}"
    );
    assert_eq!(schema.violations(&json!({"name": "x", "size": 5})), []);
}

#[test]
fn the_list_of_violations_has_an_end_and_says_so() {
    let schema = compile(json!({"items": {"type": "string"}}));
    let violations = schema.violations(&Value::Array(vec![json!(1); 5_000]));
    assert_eq!(violations.len(), VIOLATIONS + 1);
    assert!(violations[VIOLATIONS].message.contains("not listed"));
}

#[test]
fn no_schema_accepts_everything() {
    assert!(
        CompiledSchema::anything().accepts(&json!([1]))
            && CompiledSchema::anything().violations(&json!(1)).is_empty()
    );
}

#[test]
fn format_is_an_annotation() {
    assert!(compile(json!({"format": "email"})).accepts(&json!("nobody")));
}

#[test]
fn integers_of_thirty_digits_are_integers() {
    let schema = compile(json!({"type": "integer"}));
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("a number");
    assert!(
        schema.accepts(&value("123456789012345678901234567890")) && schema.accepts(&value("1.0"))
    );
    assert!(!schema.accepts(&value("1.5")));
}

#[test]
fn no_reference_leaves_the_document() {
    for reference in [
        "http://example.com/s.json",
        "https://json-schema.org/draft/2020-12/schema",
        "other.json",
        "file:///etc/passwd",
        "urn:x:y",
    ] {
        let text = refused(json!({"properties": {"a": {"$ref": reference}}}));
        assert!(
            text.starts_with("/properties/a/$ref: the reference")
                && text.contains("leaves the document"),
            "{text}"
        );
        // Nor when the document has a name of its own.
        refused(
            json!({"$id": "http://example.com/root", "properties": {"a": {"$ref": reference}}}),
        );
    }
    compile(
        json!({"$defs": {"a": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"$ref": "#"}}}),
    );
    compile(
        json!({"$id": "http://example.com/root", "$ref": "a", "$defs": {"a": {"$id": "a", "type": "string"}}}),
    );
    // A field of that name and data of that shape are no references.
    compile(
        json!({"properties": {"$ref": {"type": "string"}}, "const": {"$ref": "http://example.com"}}),
    );
}

#[test]
fn everything_wrong_with_a_schema_is_said_at_once() {
    let text = refused(json!({
        "type": "strin",
        "minLength": "x",
        "properties": {"a": {"$ref": "#/$defs/none"}, "b": {"pattern": "("}},
    }));
    for part in [
        "/type: ",
        "/minLength: ",
        "/properties/a/$ref: the reference \"#/$defs/none\" points at nothing",
        "/properties/b/pattern: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(
        refused(json!({"$schema": "http://json-schema.org/draft-07/schema#"}))
            .contains("/$schema: only")
    );
    assert!(refused(json!([])).contains("a schema is an object or a boolean"));
    compile(json!({"$schema": "https://json-schema.org/draft/2020-12/schema"}));
}

#[test]
fn what_a_pending_value_can_cure_is_no_violation_yet() {
    // (schema, document, pending pointer, exempt)
    let table = [
        // At or below a pending pointer.
        (
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"properties": {"a": {"required": ["x"]}}}),
            json!({"a": {"b": null}}),
            "/a",
            true,
        ),
        (
            json!({"properties": {"a": {"properties": {"b": {"type": "string"}}}}}),
            json!({"a": {"b": 1}}),
            "/a",
            true,
        ),
        // Beside or above one, by other keywords.
        (
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"a": 1, "b": null}),
            "/b",
            false,
        ),
        (json!({"required": ["x"]}), json!({"a": null}), "/a", false),
        (json!({"maxProperties": 0}), json!({"a": null}), "/a", false),
        (
            json!({"additionalProperties": false}),
            json!({"a": {"b": null}}),
            "/a/b",
            false,
        ),
        (
            json!({"properties": {"a": {"type": "string"}}}),
            json!({"a": {"b": null}}),
            "/a/b",
            false,
        ),
        // Above one, by a keyword whose verdict depends on what is below.
        (
            json!({"anyOf": [{"properties": {"a": {"type": "string"}}}]}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"not": {"properties": {"a": {"type": "null"}}}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"properties": {"l": {"contains": {"const": 1}}}}),
            json!({"l": [null]}),
            "/l/0",
            true,
        ),
        (
            json!({"properties": {"l": {"uniqueItems": true}}}),
            json!({"l": [null, null]}),
            "/l/0",
            true,
        ),
        (
            json!({"dependentRequired": {"a": ["z"]}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"dependentSchemas": {"a": {"required": ["z"]}}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"unevaluatedProperties": false}),
            json!({"a": {"b": null}}),
            "/a/b",
            true,
        ),
        (
            json!({"if": {"properties": {"a": {"type": "null"}}}, "then": {"required": ["z"]}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        (
            json!({"if": {"properties": {"a": {"const": 1}}}, "else": {"required": ["z"]}}),
            json!({"a": null}),
            "/a",
            true,
        ),
        // The violation is beside the pending pointer, the `if` that brought it is above.
        (
            json!({"if": {"properties": {"a": {"type": "null"}}}, "then": {"properties": {"b": {"type": "string"}}}}),
            json!({"a": null, "b": 1}),
            "/a",
            true,
        ),
        // The same keywords beside a pending pointer.
        (
            json!({"properties": {"x": {"anyOf": [{"type": "string"}]}}}),
            json!({"x": 1, "a": null}),
            "/a",
            false,
        ),
        (
            json!({"properties": {"x": {"if": true, "then": {"required": ["z"]}}}}),
            json!({"x": {}, "a": null}),
            "/a",
            false,
        ),
        // A field that is only called like a keyword.
        (
            json!({"properties": {"not": {"required": ["z"]}}}),
            json!({"not": {}, "a": null}),
            "/a",
            false,
        ),
        (
            json!({"properties": {"if": {"properties": {"y": {"type": "string"}}}}}),
            json!({"if": {"y": 1, "a": null}}),
            "/if/a",
            false,
        ),
        // Through a reference.
        (
            json!({"properties": {"q": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"if": true, "then": {"required": ["z"]}}}}),
            json!({"q": {"a": null}}),
            "/q/a",
            true,
        ),
        (
            json!({"properties": {"q": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"required": ["z"]}}}),
            json!({"q": {"a": null}}),
            "/q/a",
            false,
        ),
    ];
    for (schema, document, pending, exempt) in table {
        let compiled = compile(schema.clone());
        assert!(
            !compiled.violations(&document).is_empty(),
            "{schema} must refuse {document}"
        );
        let left =
            compiled.violations_while_pending(&document, &[pending.parse().expect("pointer")]);
        assert_eq!(
            left.is_empty(),
            exempt,
            "{schema} {document} {pending}: {}",
            list(&left)
        );
        let elsewhere = compiled
            .violations_while_pending(&document, &["/elsewhere/x".parse().expect("pointer")]);
        if document.get("if").is_some() || document.get("x").is_some() {
            assert!(!elsewhere.is_empty(), "{schema}");
        }
    }
}

#[test]
fn other_violations_stay_beside_an_exempt_one() {
    let schema = compile(json!({"required": ["z"], "properties": {"a": {"type": "string"}}}));
    let left =
        schema.violations_while_pending(&json!({"a": null}), &["/a".parse().expect("pointer")]);
    assert_eq!(list(&left), "\"z\" is a required property");
}
