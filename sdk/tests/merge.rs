//! The rule of default ⊕ override, by the table that the control plane's own copy of it must pass too.

use converge_sdk::{Json, merge_config};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    default: Box<RawValue>,
    #[serde(rename = "override")]
    over: Box<RawValue>,
    /// Compared by bytes once insignificant spaces are out.
    merged: Option<Box<RawValue>>,
    /// A part of the error message.
    error: Option<String>,
}

#[test]
fn every_case_of_the_table_holds() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("merge.json")).unwrap();
    assert!(cases.len() >= 20);
    for case in cases {
        let merged = merge_config(&Json::from(case.default), &Json::from(case.over));
        match (merged, case.merged, case.error) {
            (Ok(merged), Some(expected), None) => {
                assert_eq!(merged.as_str().unwrap(), expected.get(), "{}", case.name);
            }
            (Err(error), None, Some(part)) => {
                assert!(error.to_string().contains(&part), "{}: {error}", case.name);
            }
            (got, _, _) => panic!("{}: {got:?}", case.name),
        }
    }
}

#[test]
fn text_that_is_no_json_is_an_error_that_names_the_key() {
    let good = Json::parse(r#"{"a":1}"#).unwrap();
    let bad = Json::from_bytes_unchecked(r#"{"a":{"b":[1,}}}"#);
    let error = merge_config(&good, &bad).unwrap_err().to_string();
    assert!(
        error.contains("override") && error.contains("/a/b"),
        "{error}"
    );
    let error = merge_config(&bad, &good).unwrap_err().to_string();
    assert!(
        error.contains("default") && error.contains("/a/b"),
        "{error}"
    );
    assert!(merge_config(&good, &Json::from_bytes_unchecked("")).is_err());
}

#[test]
fn deep_nesting_is_an_error_and_no_crash() {
    let deep = |n: usize| {
        Json::from_bytes_unchecked(format!("{}1{}", r#"{"a":"#.repeat(n), "}".repeat(n)))
    };
    let error = merge_config(&deep(200), &deep(200))
        .unwrap_err()
        .to_string();
    assert!(error.contains("deeper"), "{error}");
    assert!(merge_config(&deep(100), &deep(100)).is_ok());
    assert!(merge_config(&deep(100_000), &deep(100_000)).is_err());
}
