use serde_json::json;

use super::*;

/// The table that binds this copy of the rule and the SDK's.
#[test]
fn the_shared_table_of_cases_holds() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/tests/merge.json");
    let text = std::fs::read_to_string(path).expect("the SDK's table of merge cases");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("an array of cases");
    assert!(cases.len() >= 20, "{} cases", cases.len());
    for case in cases {
        let name = &case["name"];
        let merged = merge(case["default"].clone(), case["override"].clone());
        match (merged, &case["merged"], &case["error"]) {
            (Ok(merged), expected, Value::Null) => {
                let doc = |value: &Value| Doc::from_value(value).expect("a document");
                assert_eq!(doc(&merged), doc(expected), "{name}");
            }
            (Err(error), Value::Null, Value::String(expected)) => {
                assert!(error.to_string().contains(expected), "{name}: {error}")
            }
            (merged, ..) => panic!("{name}: {merged:?}"),
        }
    }
}

fn doc(value: Value) -> Doc {
    Doc::from_value(&value).expect("a document")
}

#[test]
fn a_default_alone_is_effective_as_it_was_written() {
    let default: Doc = "{ \"a\" : null }".parse().expect("a document");
    let effective = effective_spec(Some(&default), None)
        .expect("effective")
        .expect("some");
    assert_eq!(effective.as_bytes(), default.as_bytes());
    assert_eq!(effective_spec(None, None).expect("effective"), None);
}

#[test]
fn an_override_alone_loses_its_nulls() {
    let over = doc(json!({"a": null, "b": {"c": null}}));
    assert_eq!(
        effective_spec(None, Some(&over)).expect("effective"),
        Some(doc(json!({"b": {}})))
    );
    let error = effective_spec(None, Some(&doc(json!([]))))
        .expect_err("no object")
        .to_string();
    assert_eq!(error, "a config override must be an object, not an array");
}

#[test]
fn a_bundle_is_replaced_whole_and_an_empty_one_is_none() {
    let (a, b, empty) = (Bytes::from("a"), Bytes::from("b"), Bytes::new());
    assert_eq!(effective_bundle(Some(&a), Some(&b)), Some(&b));
    assert_eq!(effective_bundle(Some(&a), Some(&empty)), Some(&a));
    assert_eq!(effective_bundle(Some(&a), None), Some(&a));
    assert_eq!(effective_bundle(Some(&empty), None), None);
}

#[test]
fn a_digest_changes_with_the_value_and_not_with_its_spelling() {
    let spec = |text: &str| text.parse::<Doc>().expect("a document");
    let bundle = Bytes::from("zip");
    let digest = effective_digest(Some(&spec("{\"a\":1,\"b\":2}")), Some(&bundle));
    assert_eq!(
        digest,
        effective_digest(Some(&spec("{ \"b\":2.0, \"a\":1 }")), Some(&bundle))
    );
    let others = [
        effective_digest(Some(&spec("{\"a\":1}")), Some(&bundle)),
        effective_digest(Some(&spec("{\"a\":1,\"b\":2}")), None),
        effective_digest(None, Some(&bundle)),
        effective_digest(None, None),
        effective_digest(Some(&spec("{}")), None),
        effective_digest(Some(&spec("null")), None),
    ];
    for (i, other) in others.iter().enumerate() {
        assert_ne!(*other, digest, "{i}");
        assert!(!others[..i].contains(other), "{i}");
    }
}

#[test]
fn a_key_the_override_hides_does_not_change_the_digest() {
    let over = doc(json!({"a": 9}));
    let digest = |default: Value| {
        effective_digest(
            effective_spec(Some(&doc(default)), Some(&over))
                .expect("effective")
                .as_ref(),
            None,
        )
    };
    assert_eq!(digest(json!({"a": 1})), digest(json!({"a": 2})));
    assert_ne!(digest(json!({"a": 1})), digest(json!({"a": 1, "b": 1})));
}
