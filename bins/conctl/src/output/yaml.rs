//! JSON as YAML that reads back as the same JSON: numbers as written, strings quoted only where they must be, texts of
//! several lines as blocks.

use serde_json::value::RawValue;

use crate::document::{Place, Shape, plain_literal, push_json_string, shape};

/// What is deeper is written as JSON, which is YAML too; also what bounds the recursion.
const BLOCK_DEPTH_LIMIT: usize = 64;

/// `value` as a YAML document.
pub(crate) fn to_yaml(value: &RawValue) -> String {
    let mut yaml = String::new();
    push(&mut yaml, value, 0, Position::Start);
    if !yaml.ends_with('\n') {
        yaml.push('\n');
    }
    yaml
}

/// What stands before a value on its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Nothing.
    Start,
    /// `key:`.
    AfterKey,
    /// `- `.
    AfterDash,
}

fn push(yaml: &mut String, value: &RawValue, depth: usize, position: Position) {
    let space = if position == Position::AfterKey {
        " "
    } else {
        ""
    };
    if depth > BLOCK_DEPTH_LIMIT {
        yaml.push_str(space);
        yaml.push_str(&super::compact(value.get()));
        yaml.push('\n');
        return;
    }
    match shape(value) {
        Some(Shape::Object(members)) if !members.is_empty() => {
            if position == Position::AfterKey {
                yaml.push('\n');
            }
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 || position != Position::AfterDash {
                    indent(yaml, depth);
                }
                push_key(yaml, &key);
                yaml.push(':');
                push(yaml, member, depth + 1, Position::AfterKey);
            }
        }
        Some(Shape::Array(elements)) if !elements.is_empty() => {
            if position == Position::AfterKey {
                yaml.push('\n');
            }
            // The dashes stand under the key, as people write them.
            let depth = if position == Position::AfterKey {
                depth.saturating_sub(1)
            } else {
                depth
            };
            for (index, element) in elements.into_iter().enumerate() {
                if index > 0 || position != Position::AfterDash {
                    indent(yaml, depth);
                }
                yaml.push_str("- ");
                push(yaml, element, depth + 1, Position::AfterDash);
            }
        }
        Some(Shape::Text(text)) => {
            yaml.push_str(space);
            push_text(yaml, &text, depth);
            yaml.push('\n');
        }
        Some(Shape::Object(_)) => yaml.push_str(&format!("{space}{{}}\n")),
        Some(Shape::Array(_)) => yaml.push_str(&format!("{space}[]\n")),
        Some(Shape::Literal(literal)) => yaml.push_str(&format!("{space}{literal}\n")),
        None => yaml.push_str(&format!("{space}{}\n", super::compact(value.get()))),
    }
}

fn indent(yaml: &mut String, depth: usize) {
    for _ in 0..depth {
        yaml.push_str("  ");
    }
}

fn push_key(yaml: &mut String, key: &str) {
    if is_plain(key) {
        yaml.push_str(key);
    } else {
        push_quoted(yaml, key);
    }
}

fn push_text(yaml: &mut String, text: &str, depth: usize) {
    if is_plain(text) {
        yaml.push_str(text);
    } else if is_block(text) {
        push_block(yaml, text, depth.max(1));
    } else {
        push_quoted(yaml, text);
    }
}

/// Whether a text means itself without quotes, to readers of YAML 1.1 as well.
fn is_plain(text: &str) -> bool {
    let starts_well =
        text.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '.' | '$'));
    let harmless = |c: char| {
        c.is_alphanumeric()
            || matches!(
                c,
                ' ' | '_'
                    | '-'
                    | '.'
                    | '/'
                    | '+'
                    | '='
                    | '('
                    | ')'
                    | '@'
                    | '$'
                    | ';'
                    | '%'
                    | '~'
                    | '^'
                    | '<'
                    | '>'
            )
    };
    let old_words = ["yes", "no", "on", "off", "y", "n", "true", "false", "null"];
    starts_well
        && !text.ends_with(' ')
        && text.chars().all(|c| harmless(c) && (c.is_ascii() || !c.is_whitespace()))
        && !old_words.contains(&text.to_ascii_lowercase().as_str())
        // What starts like a number may be one to some reader: 1e5, 0x1F, 1_000, .5.
        && !text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && matches!(plain_literal(text, Place { line: 1, column: 1 }), Ok(None))
}

/// Whether a text of several lines can be a block: nothing in it that a block would lose.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with(['\n', ' ', '\t'])
        && text.lines().all(|line| !line.ends_with([' ', '\t']))
        && text
            .chars()
            .all(|c| c == '\n' || c == '\t' || is_printable(c))
        && !text.trim_end_matches('\n').is_empty()
}

fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{85}' | '\u{fffe}' | '\u{ffff}'
        )
}

fn push_block(yaml: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let line_ends = text.len() - body.len();
    yaml.push('|');
    match line_ends {
        0 => yaml.push('-'),
        1 => {}
        _ => yaml.push('+'),
    }
    for line in body.split('\n') {
        yaml.push('\n');
        if !line.is_empty() {
            indent(yaml, depth);
            yaml.push_str(line);
        }
    }
    // The caller ends the last line; what `|+` keeps comes before that.
    for _ in 1..line_ends {
        yaml.push('\n');
    }
}

fn push_quoted(yaml: &mut String, text: &str) {
    let mut quoted = String::new();
    push_json_string(&mut quoted, text);
    for c in quoted.chars() {
        // JSON leaves these as they are; YAML does not allow them, or folds them.
        if is_printable(c) {
            yaml.push(c);
        } else {
            yaml.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::read_yaml;
    use proptest::prelude::*;

    fn yaml(json: &str) -> String {
        to_yaml(serde_json::from_str(json).unwrap())
    }

    fn back(yaml: &str) -> String {
        let documents = read_yaml(yaml).unwrap_or_else(|err| panic!("{err:?} in:\n{yaml}"));
        assert_eq!(documents.len(), 1, "{yaml}");
        documents[0].json()
    }

    #[test]
    fn it_looks_as_people_write_it() {
        let json = r#"{"kind":"stdshell","spec":{"script":"set -e\necho hi\n","n":123456789012345678901234567890,
            "list":[1,{"a":"b","c":[]},[2,3]],"no":"no","empty":{},"v":"1.0","m":"x: y"}}"#;
        insta::assert_snapshot!(yaml(json), @r#"
        kind: stdshell
        spec:
          script: |
            set -e
            echo hi
          "n": 123456789012345678901234567890
          list:
          - 1
          - a: b
            c: []
          - - 2
            - 3
          "no": "no"
          empty: {}
          v: "1.0"
          m: "x: y"
        "#);
    }

    #[test]
    fn hard_strings_come_back() {
        for text in [
            "",
            " ",
            "a ",
            " a",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "yes",
            "~",
            "null",
            "1",
            "1e5",
            "0x1F",
            ".5",
            "-",
            "--- a",
            "a\n",
            "a\n\n",
            "\na",
            "a\n b\n",
            " a\nb",
            "a \nb",
            "a\tb",
            "\ta\nb",
            "a\u{85}b",
            "\u{feff}",
            "a\u{7f}",
            "\n",
            "\n\n",
            "é",
            "日本",
            "'",
            "\"",
            "%a",
            "@a",
            "`",
            "[",
            "{",
            "!a",
            "&a",
            "*a",
            "|",
            ">",
            "a\r\nb",
            "...",
            "a\n...\nb",
            "?",
            "a\n---\nb\n",
            "2026-01-02",
            "🦀",
            "\u{2028}",
            "=",
            "<<",
        ] {
            for json in [
                serde_json::json!({ "k": text }).to_string(),
                serde_json::json!([text, [text]]).to_string(),
                serde_json::json!({ text: { "x": [{ "y": text, "z": 1 }] } }).to_string(),
                serde_json::json!(text).to_string(),
            ] {
                if json == "null" {
                    continue;
                }
                let written = yaml(&json);
                let read: serde_json::Value = serde_json::from_str(&back(&written)).unwrap();
                let wanted: serde_json::Value = serde_json::from_str(&json).unwrap();
                assert_eq!(read, wanted, "{text:?} became:\n{written}");
            }
        }
    }

    #[test]
    fn deep_nesting_is_written_and_read() {
        let json = "[".repeat(100) + "1" + &"]".repeat(100);
        assert_eq!(back(&yaml(&json)), json);
        yaml(&("[".repeat(100_000) + &"]".repeat(100_000)));
    }

    proptest! {
        #[test]
        fn any_string_comes_back(text in "[ -~\n\t\u{80}-\u{9f}é日🦀:#-]{0,24}", other in any::<String>()) {
            for text in [text, other] {
                let json = serde_json::json!({ "a": [text.clone()], "b": { "c": text, "d": "x" } }).to_string();
                let read: serde_json::Value = serde_json::from_str(&back(&yaml(&json))).unwrap();
                let wanted: serde_json::Value = serde_json::from_str(&json).unwrap();
                prop_assert_eq!(read, wanted);
            }
        }
    }
}
