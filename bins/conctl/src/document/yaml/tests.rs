//! YAML as JSON.

use super::*;

fn json(text: &str) -> Result<Vec<String>, String> {
    read(text)
        .map(|documents| documents.iter().map(|node| node.json()).collect())
        .map_err(|err| format!("{}:{}: {}", err.place.line, err.place.column, err.message))
}

fn one(text: &str) -> String {
    let mut documents = json(text).unwrap();
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

#[test]
fn numbers_keep_every_digit() {
    for number in [
        "9007199254740993",
        "123456789012345678901234567890",
        "-123456789012345678901234567890",
        "1.10",
        "3.14159265358979323846264338327950288",
        "1e400",
        "0",
        "-0",
    ] {
        assert_eq!(one(&format!("n: {number}")), format!("{{\"n\":{number}}}"));
    }
}

#[test]
fn forms_that_json_does_not_have_are_written_as_json() {
    for (yaml, number) in [
        ("+5", "5"),
        ("007", "7"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("-.5e3", "-0.5e3"),
        ("0x1F", "31"),
        ("0o17", "15"),
    ] {
        assert_eq!(
            one(&format!("n: {yaml}")),
            format!("{{\"n\":{number}}}"),
            "{yaml}"
        );
    }
}

#[test]
fn words_that_yaml_1_1_took_for_booleans_are_strings() {
    for word in [
        "yes",
        "no",
        "on",
        "off",
        "y",
        "N",
        "12:30:45",
        "1_000",
        "0b1",
        "2026-01-02",
        ".",
        "1.2.3",
        "e5",
    ] {
        assert_eq!(
            one(&format!("v: \"x\"\nw: [{word}]")),
            format!("{{\"v\":\"x\",\"w\":[\"{word}\"]}}")
        );
    }
}

#[test]
fn quoted_scalars_are_strings() {
    assert_eq!(one("[\"1\", 'true', \"~\"]"), r#"["1","true","~"]"#);
    assert_eq!(one("a: |\n  1\n"), r#"{"a":"1\n"}"#);
    assert_eq!(one("a: !!str 1"), r#"{"a":"1"}"#);
}

#[test]
fn several_documents_are_read_and_empty_ones_left_out() {
    let text = "# only a comment\n---\na: 1\n---\n---\nb: 2\n...\n";
    assert_eq!(json(text).unwrap(), [r#"{"a":1}"#, r#"{"b":2}"#]);
    assert_eq!(json("").unwrap(), Vec::<String>::new());
}

#[test]
fn keys_are_their_text() {
    assert_eq!(
        one("1: a\nyes: b\nnull: c"),
        r#"{"1":"a","yes":"b","null":"c"}"#
    );
}

#[test]
fn aliases_are_what_they_refer_to() {
    assert_eq!(
        one("a: &x {b: [1]}\nc: *x"),
        r#"{"a":{"b":[1]},"c":{"b":[1]}}"#
    );
}

#[test]
fn errors_name_line_and_column() {
    for (text, wanted) in [
        ("a: 1\nb: 2\na: 3", "3:1: the key \"a\" is there twice"),
        (
            "s:\n  x: 1\n  \"x\": 2",
            "3:3: the key \"x\" is there twice",
        ),
        (
            "a: .nan",
            "1:4: .nan has no JSON form; quote it to have it as a string",
        ),
        ("? [a]\n: b", "1:3: a key must be a plain word or a string"),
        ("a: !secret x", "1:4: the tag !secret has no meaning here"),
        ("a: !!int x", "1:4: \"x\" is not a int"),
        (
            "a: &x [*x]",
            "1:8: this alias is inside of what it refers to",
        ),
    ] {
        assert_eq!(json(text).unwrap_err(), wanted, "{text}");
    }
    assert!(json("a: [1, 2").is_err());
    assert!(
        json("x: &b {}\na:\n  <<: *b")
            .unwrap_err()
            .starts_with("3:3: merge keys")
    );
    assert!(json("a: *nobody").unwrap_err().starts_with("1:4: "));
}

#[test]
fn a_small_file_cannot_become_a_large_document() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = level - 1;
        text.push_str(&format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{before}"); 10].join(", ")
        ));
    }
    let err = json(&text).unwrap_err();
    assert!(err.contains("aliases expanded"), "{err}");
}

#[test]
fn deep_nesting_is_an_error_and_not_a_crash() {
    for text in [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "{a: ".repeat(100_000),
    ] {
        assert!(json(&text).is_err());
    }
    let mut text = String::from("a0: &a0 [1]\n");
    for level in 1..200 {
        text.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
    }
    let err = json(&text).unwrap_err();
    assert!(err.contains("nested deeper"), "{err}");
}

#[test]
fn a_pointer_finds_its_place() {
    let documents = read("spec:\n  list:\n    - a\n    - b: 1\n").unwrap();
    let place = |pointer| {
        documents[0]
            .at(pointer)
            .map(|node| (node.place.line, node.place.column))
    };
    assert_eq!(place("/spec/list/1/b"), Some((4, 10)));
    assert_eq!(place("/spec/missing"), place("/spec"));
    assert_eq!(place("not a pointer"), None);
}
