//! YAML in and out, as far as rendering needs it: one document of the core schema to JSON, and JSON to YAML.
//!
//! Numbers keep their digits and keys their order in both directions. Merge keys, tags and aliases beyond a bound are
//! refused rather than guessed at.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::Value;

/// What a document may become with its aliases written out.
const MAX_BYTES: usize = 64 << 20;
const MAX_DEPTH: usize = 126;

/// A list or map that is not closed yet.
struct Open {
    json: String,
    anchor: usize,
    map: bool,
    /// In a map: whether a key was written and its value comes next.
    key_written: bool,
    keys: Vec<String>,
}

/// The one document of a YAML text, as JSON.
///
/// # Errors
/// What is wrong, with line and column.
pub(super) fn to_json(text: &str) -> Result<String, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, String> = HashMap::new();
    let mut root: Option<String> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|err| {
            format!(
                "line {} column {}: {}",
                err.marker().line(),
                err.marker().col() + 1,
                err.info()
            )
        })?;
        let wrong = |message: &str| {
            Err(format!(
                "line {} column {}: {message}",
                span.start.line(),
                span.start.col() + 1
            ))
        };
        let done = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some() {
                    return wrong("tags have no meaning here");
                }
                if let Some(parent) = open
                    .last_mut()
                    .filter(|parent| parent.map && !parent.key_written)
                {
                    if &*text == "<<" && style == ScalarStyle::Plain {
                        return wrong("merge keys (<<) are not part of YAML 1.2");
                    }
                    if parent.keys.iter().any(|key| **key == *text) {
                        return wrong(&format!("the key `{text}` is there twice"));
                    }
                    parent.begin();
                    parent.json.push_str(&quoted(&text));
                    parent.json.push(':');
                    parent.keys.push(text.into_owned());
                    parent.key_written = true;
                    continue;
                }
                let json = match plain(&text).filter(|_| style == ScalarStyle::Plain) {
                    Some(literal) => literal,
                    None if style == ScalarStyle::Plain && is_special(&text) => {
                        return wrong("this number has no JSON form");
                    }
                    None => quoted(&text),
                };
                (json, anchor)
            }
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(json) => (json.clone(), 0),
                None => return wrong("this alias is inside of what it refers to"),
            },
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag)
                if tag.is_some() && anchor < usize::MAX =>
            {
                return wrong("tags have no meaning here");
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open::new("[", anchor, false));
                if open.len() > MAX_DEPTH {
                    return wrong("nested too deep");
                }
                continue;
            }
            Event::MappingStart(anchor, _) => {
                if open
                    .last()
                    .is_some_and(|parent| parent.map && !parent.key_written)
                {
                    return wrong("a key must be a plain word or a string");
                }
                open.push(Open::new("{", anchor, true));
                if open.len() > MAX_DEPTH {
                    return wrong("nested too deep");
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(mut closed) => {
                    closed.json.push(if closed.map { '}' } else { ']' });
                    (closed.json, closed.anchor)
                }
                None => continue,
            },
            Event::DocumentStart(_) if root.is_some() => {
                return wrong("one document is wanted, not several");
            }
            _ => continue,
        };
        let (json, anchor) = done;
        if anchor != 0 {
            anchors.insert(anchor, json.clone());
        }
        match open.last_mut() {
            None => root = Some(json),
            Some(parent) => {
                if parent.json.len() + json.len() > MAX_BYTES {
                    return wrong("the document is too large with its aliases written out");
                }
                if parent.map && !parent.key_written {
                    return wrong("a key must be a plain word or a string");
                }
                if !parent.map {
                    parent.begin();
                }
                parent.key_written = false;
                parent.json.push_str(&json);
            }
        }
    }
    root.ok_or_else(|| "there is no document".to_owned())
}

impl Open {
    fn new(bracket: &str, anchor: usize, map: bool) -> Self {
        Self {
            json: bracket.to_owned(),
            anchor,
            map,
            key_written: false,
            keys: Vec::new(),
        }
    }

    fn begin(&mut self) {
        if self.json.len() > 1 {
            self.json.push(',');
        }
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_special(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['+', '-']);
    unsigned.eq_ignore_ascii_case(".inf") || text.eq_ignore_ascii_case(".nan")
}

/// A plain scalar that is no string, as JSON.
fn plain(text: &str) -> Option<String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some("null".to_owned()),
        "true" | "True" | "TRUE" => return Some("true".to_owned()),
        "false" | "False" | "FALSE" => return Some("false".to_owned()),
        _ => {}
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return u128::from_str_radix(digits, radix)
                .ok()
                .map(|number| number.to_string());
        }
    }
    let (sign, unsigned) = text
        .strip_prefix('-')
        .map_or(("", text.strip_prefix('+').unwrap_or(text)), |rest| {
            ("-", rest)
        });
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.contains(|c: char| c.is_ascii_digit())
    {
        return None;
    }
    // The forms that JSON lacks: leading zeros, a dot at either end.
    let whole_end = unsigned
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let whole = unsigned[..whole_end].trim_start_matches('0');
    let rest = unsigned[whole_end..].to_owned();
    let rest = if rest == "." || rest.starts_with(".e") || rest.starts_with(".E") {
        rest.replacen('.', ".0", 1)
    } else {
        rest
    };
    let candidate = format!("{sign}{}{rest}", if whole.is_empty() { "0" } else { whole });
    candidate
        .parse::<serde_json::Number>()
        .is_ok()
        .then_some(candidate)
}

/// JSON as YAML that reads back as the same JSON.
pub(super) fn from_json(value: &Value) -> String {
    let mut out = String::new();
    push(&mut out, value, 0, false);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Writes a value; `inline`: after a key or a dash, on the same line.
fn push(out: &mut String, value: &Value, depth: usize, inline: bool) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (at, (key, field)) in fields.iter().enumerate() {
                if at > 0 || (inline && !out.ends_with("- ")) {
                    out.push('\n');
                    out.push_str(&"  ".repeat(depth));
                }
                push_text(out, key);
                out.push(':');
                child(out, field, depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (at, item) in items.iter().enumerate() {
                if at > 0 || (inline && !out.ends_with("- ")) {
                    out.push('\n');
                    out.push_str(&"  ".repeat(depth));
                }
                out.push_str("- ");
                push(out, item, depth + 1, true);
            }
        }
        Value::String(text) => push_text(out, text),
        other => out.push_str(&other.to_string()),
    }
}

fn child(out: &mut String, value: &Value, depth: usize) {
    let block = matches!(value, Value::Object(fields) if !fields.is_empty())
        || matches!(value, Value::Array(items) if !items.is_empty());
    if !block {
        out.push(' ');
    }
    push(out, value, depth + 1, true);
}

/// A text without quotes where nothing else could be meant, else as JSON writes it.
fn push_text(out: &mut String, text: &str) {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let safe = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(word)
        && plain(text).is_none()
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if safe {
        out.push_str(text)
    } else {
        out.push_str(&quoted(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json_with_its_digits_and_its_order() {
        let yaml = "b: 12345678901234567890123\na: [1.50, -0x, 0x1F, .5, 1., ~, yes, 'true', true]\nc: &x {k: v}\nd: *x\n";
        let json = r#"{"b":12345678901234567890123,"a":[1.50,"-0x",31,0.5,1.0,null,"yes","true",true],"c":{"k":"v"},"d":{"k":"v"}}"#;
        assert_eq!(to_json(yaml).as_deref(), Ok(json));
        assert_eq!(to_json(json).as_deref(), Ok(json), "JSON is YAML");
    }

    #[test]
    fn what_would_be_a_guess_is_refused() {
        for yaml in [
            "",
            "a: 1\na: 2",
            "a: .inf",
            "a: !!str 1",
            "<<: {a: 1}",
            "--- 1\n--- 2",
            "a: [",
            "? [a]\n: 1",
            "a: *x",
        ] {
            assert!(to_json(yaml).is_err(), "{yaml:?}");
        }
        let bomb = (1..30).fold("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, at| {
            let aliases = vec![format!("*a{}", at - 1); 10].join(",");
            format!("{text}a{at}: &a{at} [{aliases}]\n")
        });
        assert!(to_json(&bomb).is_err());
        assert!(to_json(&"[".repeat(10_000)).is_err());
    }

    #[test]
    fn json_written_as_yaml_reads_back() {
        let json = r##"{"a":[],"b":{},"c":[[1,[2]],{"x":{"y":[{"z":null}]}}],"d":"multi\nline","e":"yes","f":"1","g":1.50,"k: y":"- v","t":"#c"}"##;
        let value: Value = serde_json::from_str(json).expect("JSON");
        let yaml = from_json(&value);
        let back: Value = serde_json::from_str(&to_json(&yaml).expect("YAML")).expect("JSON");
        assert_eq!(back, value, "{yaml}");
        assert!(yaml.starts_with("a: []\nb: {}\nc:\n"), "{yaml}");
    }
}
