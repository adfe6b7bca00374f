//! Runs the CEL specification's conformance tests that need no protobuf messages.
//!
//! usage: conformance TESTS.json
//!
//! The tests are what `conformance/dump.mjs` prints. Counts per file go to stdout, then every failure by name. A failure
//! must be listed in `conformance/known.json` with its reason, and what is listed there must fail: exit 1 otherwise. An
//! answer that differs from the right one can never be listed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Map, Value, json};
use stdcel::probe;

/// How one test ended.
enum Verdict {
    Passed,
    /// Needs what this evaluator does not have, by design.
    Skipped(&'static str),
    /// It has no answer where one was expected, or one where an error was.
    Failed(String),
    /// Its answer is another one.
    Wrong(String),
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: conformance TESTS.json");
        return ExitCode::from(64);
    };
    match run(&path) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<bool, String> {
    let tests = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let tests: Vec<Value> =
        serde_json::from_slice(&tests).map_err(|error| format!("{path}: {error}"))?;
    let known: BTreeMap<String, String> =
        serde_json::from_str(include_str!("../conformance/known.json"))
            .map_err(|error| format!("known.json: {error}"))?;
    let mut counts: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut skipped: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut failures = BTreeMap::new();
    for test in &tests {
        let text = |field: &str| test[field].as_str().unwrap_or_default();
        let count = counts.entry(text("file").to_owned()).or_default();
        match judge(test) {
            Verdict::Passed => count[0] += 1,
            Verdict::Skipped(reason) => {
                count[2] += 1;
                *skipped.entry(reason).or_default() += 1;
            }
            Verdict::Failed(why) | Verdict::Wrong(why) => {
                count[1] += 1;
                let words: Vec<&str> = text("name").split_whitespace().collect();
                let name = format!("{}/{}/{}", text("file"), text("section"), words.join(" "));
                failures.insert(
                    name,
                    (
                        matches!(judge(test), Verdict::Wrong(_)),
                        why,
                        text("expr").to_owned(),
                    ),
                );
            }
        }
    }
    println!(
        "{:<16} {:>7} {:>7} {:>8}",
        "file", "passed", "failed", "skipped"
    );
    for (file, [passed, failed, skipped]) in &counts {
        println!("{file:<16} {passed:>7} {failed:>7} {skipped:>8}");
    }
    let total = counts.values().fold([0; 3], |sum, count| {
        [sum[0] + count[0], sum[1] + count[1], sum[2] + count[2]]
    });
    println!(
        "{:<16} {:>7} {:>7} {:>8}",
        "all", total[0], total[1], total[2]
    );
    for (reason, count) in skipped {
        println!("skipped {count}: {reason}");
    }
    let mut as_known = true;
    for (name, (wrong, why, expr)) in &failures {
        let reason = known.get(name).filter(|_| !wrong);
        as_known &= reason.is_some();
        let label = if *wrong { "WRONG ANSWER" } else { "failed" };
        println!(
            "{label}: {name}: {expr}\n    {why}\n    {}",
            reason.map_or("NOT LISTED in known.json", String::as_str)
        );
    }
    for name in known.keys().filter(|name| !failures.contains_key(*name)) {
        println!("listed in known.json, but it passes: {name}");
        as_known = false;
    }
    Ok(as_known)
}

fn judge(test: &Value) -> Verdict {
    let expr = test["expr"].as_str().unwrap_or_default();
    if let Some(reason) = out_of_scope(test, expr) {
        return Verdict::Skipped(reason);
    }
    let mut bindings = Map::new();
    for (name, binding) in test["bindings"].as_object().into_iter().flatten() {
        bindings.insert(name.clone(), binding["value"].clone());
    }
    let result = probe::evaluate(expr, &bindings);
    if test["parse_only"].as_bool() == Some(true) {
        let refused = matches!(&result, Err(message) if message.contains("(offset ") && !message.starts_with("unknown function") && !message.starts_with("unknown method"));
        return match (unparsable(test["parse_error"].as_str()), refused) {
            (true, false) => Verdict::Failed("it should not parse".to_owned()),
            (false, true) => Verdict::Failed(result.err().unwrap_or_default()),
            _ => Verdict::Passed,
        };
    }
    let typed = &test["typedResult"]["result"];
    let expected = match &test["value"] {
        value if value.is_object() => value.clone(),
        _ if typed.is_object() => typed.clone(),
        _ => json!({"boolValue": true}),
    };
    match (result, test["evalError"].is_object()) {
        (Err(_), true) => Verdict::Passed,
        (Ok(value), true) => Verdict::Failed(format!("an error was expected, not {value}")),
        (Err(message), false) => Verdict::Failed(message),
        (Ok(value), false) if same(&value, &expected) => Verdict::Passed,
        (Ok(value), false) => Verdict::Wrong(format!("expected {expected}, got {value}")),
    }
}

/// Whether the text itself is wrong. Other errors in that data come from the parser's switches and limits under test, and
/// from its type checker.
fn unparsable(error: Option<&str>) -> bool {
    const WORDS: [&str; 7] = [
        "Syntax error",
        "reserved identifier",
        "literal",
        "not an identifier",
        "simple name",
        "argument to has()",
        "unicode",
    ];
    error.is_some_and(|error| {
        WORDS.iter().any(|word| error.contains(word)) && !error.contains("unsupported syntax")
    })
}

fn out_of_scope(test: &Value, expr: &str) -> Option<&'static str> {
    let bindings = test["bindings"].to_string();
    let messages = [
        "TestAllTypes",
        "NestedTest",
        "google.protobuf.",
        "GlobalEnum",
        "NestedEnum",
        "proto.getExt",
        "proto.hasExt",
    ];
    let object = test["value"]["objectValue"]["@type"]
        .as_str()
        .unwrap_or_default();
    let plain_object =
        object.is_empty() || object.ends_with("Timestamp") || object.ends_with("Duration");
    if test["parse_only"].as_bool() == Some(true)
        && matches!(probe::evaluate(expr, &Map::new()), Err(message) if message.starts_with("message types"))
    {
        return Some("protobuf messages, enums and containers");
    }
    let bound = [
        "TestAllTypes",
        "Value\",",
        "google.protobuf.Any",
        "wrappers",
        "enumValue",
        "google.protobuf.Struct",
        "google.protobuf.Value",
    ]
    .iter()
    .any(|word| bindings.contains(word));
    let named = messages.iter().any(|word| expr.contains(word));
    let types_only = expr
        .replace("google.protobuf.Timestamp", "")
        .replace("google.protobuf.Duration", "");
    let named = named
        && (types_only.contains('{') || messages.iter().any(|word| types_only.contains(word)));
    if named || !plain_object || bound || test["container"].is_string() {
        return Some("protobuf messages, enums and containers");
    }
    if test["checkOnly"].as_bool() == Some(true) {
        return Some("static type checking");
    }
    if test["file"] == "block_ext" {
        return Some("cel.block, which only optimizers write");
    }
    if test["file"] == "parsing" && (expr.contains("noop_macro") || expr.contains("varargs")) {
        return Some("macros that only the parser's own tests define");
    }
    None
}

/// Equality of the JSON forms: map entries in any order, NaN like itself, an optional like its content.
fn same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match &value["doubleValue"] {
        Value::String(text) => text.parse::<f64>().ok(),
        other => other.as_f64(),
    };
    if let (Some(a), Some(b)) = (number(a), number(b)) {
        return a == b || (a.is_nan() && b.is_nan());
    }
    let list = |value: &Value| {
        value["listValue"].is_object().then(|| {
            value["listValue"]["values"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
    };
    if let (Some(a), Some(b)) = (list(a), list(b)) {
        return a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| same(a, b));
    }
    let map = |value: &Value| {
        value["mapValue"].is_object().then(|| {
            value["mapValue"]["entries"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        })
    };
    if let (Some(a), Some(b)) = (map(a), map(b)) {
        let found = |entry: &Value| {
            b.iter().any(|other| {
                same(&entry["key"], &other["key"]) && same(&entry["value"], &other["value"])
            })
        };
        return a.len() == b.len() && a.iter().all(found);
    }
    match a.get("optional") {
        Some(inner) if inner.is_object() => same(inner, b),
        _ => a == b,
    }
}
