//! The spec of one resource, decoded with every problem told at once.
//!
//! Owns `source`, `vars`, `tf_version`. Must hold: the values of `vars` keep their bytes; the message of a wrong spec quotes none of them.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::document::{Object, Problems};
use crate::source::Source;
use crate::version::Wanted;

/// Variables by name, each with the bytes of its value.
pub(crate) type Vars = BTreeMap<String, Box<RawValue>>;

/// A valid spec.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) source: Source,
    pub(crate) vars: Vars,
    pub(crate) tf_version: Option<Wanted>,
}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// All problems in one message.
    pub(crate) fn parse(raw: &[u8], plain_http: bool) -> Result<Self, String> {
        let mut problems = Problems::default();
        let mut object = Object::read("", raw, &mut problems);
        if !object.has("source") {
            problems.add("/source", "is required");
        }
        let source = object.text("source", &mut problems).and_then(|text| {
            Source::parse(&text, plain_http)
                .map_err(|problem| problems.add("/source", problem))
                .ok()
        });
        let vars = object
            .object("vars", &mut problems)
            .map(|vars| read_vars(vars, &mut problems))
            .unwrap_or_default();
        let tf_version = object.text("tf_version", &mut problems).and_then(|text| {
            Wanted::parse(&text)
                .map_err(|problem| problems.add("/tf_version", problem))
                .ok()
        });
        object.finish(&mut problems);
        match (problems.into_message("the spec"), source) {
            (None, Some(source)) => Ok(Self {
                source,
                vars,
                tf_version,
            }),
            (Some(message), _) => Err(message),
            (None, None) => Err("the spec is not valid: /source: is required".to_owned()),
        }
    }
}

fn read_vars(vars: Object, problems: &mut Problems) -> Vars {
    let mut read = Vars::new();
    for (name, value) in vars.into_members() {
        // Terraform silently ignores a key that is no identifier; a person would look for the reason for long.
        if is_identifier(&name) {
            read.insert(name, value);
        } else {
            let shown: String = name.chars().take(64).collect();
            problems.add("/vars", format_args!("{shown:?} cannot name a variable"));
        }
    }
    read
}

/// An HCL identifier: a letter or `_`, then letters, digits, `_` and `-`.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|c| c.is_alphabetic() || c == '_')
        && characters.all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// The variable file: one key a line, every value with its bytes less the space between tokens.
///
/// One line each, because Terraform prints the whole line of a value it refuses. It ignores a key `//`, which no identifier is.
pub(crate) fn variable_file(vars: &Vars) -> String {
    let mut text = String::from("{\n");
    for (index, (name, value)) in vars.iter().enumerate() {
        let comma = if index + 1 == vars.len() { "" } else { "," };
        let key = serde_json::Value::String(name.clone());
        text.push_str(&format!("  {key}: {}{comma}\n", compact(value.get())));
    }
    text.push_str("}\n");
    text
}

/// JSON text without the space between its tokens; what stands inside strings and numbers is untouched.
fn compact(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for character in json.chars() {
        if in_string {
            out.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
        } else if !matches!(character, ' ' | '\t' | '\n' | '\r') {
            in_string = character == '"';
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_of_a_spec_come_at_once() {
        let error = Spec::parse(
            br#"{"source":"ftp://x","vars":{"a b":1,"":2},"tf_version":"1.7","colour":1}"#,
            false,
        )
        .unwrap_err();
        for part in [
            "/source:",
            "\"a b\" cannot name",
            "\"\" cannot name",
            "/tf_version:",
            "/colour: unknown field",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert_eq!(
            Spec::parse(b"{}", false).unwrap_err(),
            "the spec is not valid: /source: is required"
        );
        assert!(
            Spec::parse(
                br#"{"source":"s3://b/k.tar.gz","vars":{"a":1,"a":2}}"#,
                false
            )
            .unwrap_err()
            .contains("/vars/a: the field is given twice")
        );
    }

    #[test]
    fn nothing_that_reaches_a_program_holds_a_nul() {
        for (text, at) in [
            (r#"{"source":"s3://b/\u0000.tar.gz"}"#, "/source:"),
            (r#"{"source":"git::https://h/r?ref=%00"}"#, "/source:"),
            (
                r#"{"source":"s3://b/k.tar.gz","tf_version":"1.7.5\u0000"}"#,
                "/tf_version:",
            ),
            (
                r#"{"source":"s3://b/k.tar.gz","vars":{"a\u0000":1}}"#,
                "/vars:",
            ),
        ] {
            let error = Spec::parse(text.as_bytes(), false).expect_err(text);
            assert!(error.contains(at) && !error.contains('\0'), "{error:?}");
        }
    }

    #[test]
    fn the_variable_file_keeps_every_byte_of_a_value() {
        let raw = br#"{"source":"s3://b/k.tar.gz","vars":{
            "big": 9007199254740993, "exact": 1.10, "exp": 1e400, "text": "a \"q\" ${x} %{y} \u00e9 \ud83d\ude00 \\",
            "list": [ 1, [ true , null ], { "k  k": "v\tv" } ], "none": null, "empty": {}, "neg": -0}}"#;
        let raw = String::from_utf8(raw.to_vec())
            .unwrap()
            .replace("v\tv", "v\\tv");
        let spec = Spec::parse(raw.as_bytes(), false).unwrap();
        let want = concat!(
            "{\n",
            "  \"big\": 9007199254740993,\n",
            "  \"empty\": {},\n",
            "  \"exact\": 1.10,\n",
            "  \"exp\": 1e400,\n",
            "  \"list\": [1,[true,null],{\"k  k\":\"v\\tv\"}],\n",
            "  \"neg\": -0,\n",
            "  \"none\": null,\n",
            "  \"text\": \"a \\\"q\\\" ${x} %{y} \\u00e9 \\ud83d\\ude00 \\\\\"\n",
            "}\n",
        );
        assert_eq!(variable_file(&spec.vars), want);
        assert_eq!(variable_file(&Vars::new()), "{\n}\n");
    }

    #[test]
    fn identifiers_are_those_of_hcl() {
        for good in ["a", "_x", "a-b", "ünï", "x9"] {
            assert!(is_identifier(good), "{good}");
        }
        for bad in ["", "9a", "-a", "a.b", "a b", "//", "a\n"] {
            assert!(!is_identifier(bad), "{bad}");
        }
    }
}
