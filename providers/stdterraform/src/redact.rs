//! Secrets out of everything a person may read.
//!
//! Owns the list of secret values of one task and the forms in which they show up: as they are, line by line, escaped for JSON and HCL,
//! in base64 at any alignment, URL-encoded, in hex. Must hold: no text leaves this crate (log, message, status) without passing here,
//! and before it is cut: whoever reads in pieces puts whole lines together first (`follow`). Not here: which values are secret (`module`, `environment`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

/// What stands where a secret was.
pub(crate) const MARK: &str = "(sensitive)";

/// Shorter values are left alone: masking every `on` or `42` would hide the message and not the secret.
const SHORTEST: usize = 4;
/// From this length on the encoded forms are looked for at every alignment.
const SHORTEST_ENCODED: usize = 6;
/// A longer value is looked for by its lines and its first and last kilobytes.
const LONGEST: usize = 64 * 1024;
/// Words that are a secret's value by accident only.
const TOO_COMMON: [&str; 5] = ["true", "false", "null", "none", "default"];

/// What `encodeURIComponent` and Go's `PathEscape` leave alone besides letters and digits.
const URL_LOOSE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');
/// What every URL encoder leaves alone.
const URL_STRICT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The secret values known so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Secrets {
    forms: BTreeSet<String>,
}

impl Secrets {
    /// Adds one value with all its forms.
    pub(crate) fn add(&mut self, value: &str) {
        let trimmed = value.trim();
        if trimmed.len() < SHORTEST || TOO_COMMON.contains(&trimmed) {
            return;
        }
        if value.len() > LONGEST {
            let head = (0..=LONGEST)
                .rev()
                .find(|at| value.is_char_boundary(*at))
                .unwrap_or(0);
            self.add_forms(&value[..head]);
        } else {
            self.add_forms(value);
            if trimmed != value {
                self.add_forms(trimmed);
            }
        }
        if value.contains('\n') {
            for line in value.lines().map(str::trim) {
                if line.len() >= SHORTEST && !TOO_COMMON.contains(&line) {
                    self.add_forms(line);
                }
            }
        }
    }

    /// Adds every string and number inside a JSON value.
    pub(crate) fn add_json(&mut self, value: &Value) {
        let mut left = vec![value];
        while let Some(value) = left.pop() {
            match value {
                Value::String(text) => self.add(text),
                Value::Number(number) => self.add(&number.to_string()),
                Value::Array(items) => left.extend(items),
                Value::Object(members) => left.extend(members.values()),
                Value::Null | Value::Bool(_) => {}
            }
        }
    }

    /// Adds everything another list holds.
    pub(crate) fn extend(&mut self, other: &Secrets) {
        self.forms.extend(other.forms.iter().cloned());
    }

    /// The searcher for what is known now.
    pub(crate) fn redactor(&self) -> Redactor {
        let search = if self.forms.is_empty() {
            None
        } else {
            // The contiguous automaton is small; a build can fail for absurd sizes only, and then nothing may be shown.
            AhoCorasick::builder()
                .kind(Some(AhoCorasickKind::ContiguousNFA))
                .build(&self.forms)
                .ok()
                .map(Some)
                .unwrap_or(None)
        };
        let blind = search.is_none() && !self.forms.is_empty();
        Redactor {
            search: search.map(Arc::new),
            blind,
        }
    }

    fn add_form(&mut self, form: impl Into<String>) {
        let form = form.into();
        if form.len() >= SHORTEST {
            self.forms.insert(form);
        }
    }

    fn add_forms(&mut self, value: &str) {
        self.add_form(value);
        let once = json_escaped(value);
        self.add_form(json_escaped(&once));
        let go = once
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026");
        self.add_form(hcl_escaped(&once));
        self.add_form(json_escaped(&go));
        self.add_form(go);
        self.add_form(once);
        for set in [URL_LOOSE, URL_STRICT] {
            let upper = utf8_percent_encode(value, set).to_string();
            self.add_form(lower_hex_digits(&upper));
            self.add_form(upper.replace("%20", "+"));
            self.add_form(upper);
        }
        if value.len() >= SHORTEST_ENCODED {
            for alignment in 0..3 {
                for form in base64_cores(value.as_bytes(), alignment) {
                    self.add_form(form);
                }
            }
            // What `base64` and PEM writers wrap at 76 and 64 columns.
            for width in [57, 48] {
                if value.len() > width {
                    for chunk in value.as_bytes().chunks(width) {
                        if chunk.len() >= SHORTEST_ENCODED {
                            self.add_form(STANDARD_NO_PAD.encode(chunk));
                        }
                    }
                }
            }
            let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
            self.add_form(hex.to_uppercase());
            self.add_form(hex);
        }
    }
}

/// The characters of the base64 of `value` that do not depend on what stands before (`alignment` bytes of it) and after it.
fn base64_cores(value: &[u8], alignment: usize) -> [String; 2] {
    let mut padded = vec![0; alignment];
    padded.extend_from_slice(value);
    let first = (8 * alignment).div_ceil(6);
    let last = (8 * padded.len()) / 6;
    [
        STANDARD_NO_PAD.encode(&padded),
        URL_SAFE_NO_PAD.encode(&padded),
    ]
    .map(|text| text.get(first..last).unwrap_or_default().to_owned())
}

/// The inside of the JSON string for `value`.
fn json_escaped(value: &str) -> String {
    let quoted = Value::String(value.to_owned()).to_string();
    quoted
        .get(1..quoted.len() - 1)
        .unwrap_or_default()
        .to_owned()
}

/// What HCL makes of an already JSON-escaped text: its template openers doubled.
fn hcl_escaped(escaped: &str) -> String {
    escaped.replace("${", "$${").replace("%{", "%%{")
}

/// `%2F` as `%2f`.
fn lower_hex_digits(encoded: &str) -> String {
    let mut out = String::with_capacity(encoded.len());
    let mut left = 0;
    for character in encoded.chars() {
        if character == '%' {
            left = 3;
        }
        if left > 0 {
            left -= 1;
            out.push(character.to_ascii_lowercase());
        } else {
            out.push(character);
        }
    }
    out
}

/// Replaces the secrets of one moment; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redactor {
    search: Option<Arc<AhoCorasick>>,
    blind: bool,
}

impl Redactor {
    /// `text` without secrets.
    pub(crate) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let spans = self.spans(text.as_bytes());
        if spans.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        for (start, end) in spans {
            // Every form is valid UTF-8 and so begins and ends on a character of a valid text.
            out.push_str(text.get(at..start).unwrap_or_default());
            out.push_str(MARK);
            at = end;
        }
        out.push_str(text.get(at..).unwrap_or_default());
        Cow::Owned(out)
    }

    /// Whether `text` holds a secret.
    pub(crate) fn finds(&self, text: &str) -> bool {
        !self.spans(text.as_bytes()).is_empty()
    }

    /// Replaces the secrets in every string (keys too) and number of a JSON value.
    pub(crate) fn redact_json(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text).into_owned()),
            Value::Number(number) => {
                if self.finds(&number.to_string()) {
                    Value::String(MARK.to_owned())
                } else {
                    Value::Number(number)
                }
            }
            Value::Array(items) => items
                .into_iter()
                .map(|item| self.redact_json(item))
                .collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, value)| (self.redact(&key).into_owned(), self.redact_json(value)))
                .collect(),
            other @ (Value::Null | Value::Bool(_)) => other,
        }
    }

    /// Where secrets are, overlapping ones joined, in order.
    fn spans(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        if self.blind {
            return if bytes.is_empty() {
                Vec::new()
            } else {
                vec![(0, bytes.len())]
            };
        }
        let Some(search) = &self.search else {
            return Vec::new();
        };
        let mut found: Vec<_> = search
            .find_overlapping_iter(bytes)
            .map(|found| (found.start(), found.end()))
            .collect();
        found.sort_unstable();
        join(found)
    }
}

/// Joins spans that touch the same bytes; `found` is sorted.
fn join(found: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    let mut joined: Vec<(usize, usize)> = Vec::with_capacity(found.len());
    for (start, end) in found {
        match joined.last_mut() {
            Some(last) if start < last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(values: &[&str]) -> Redactor {
        let mut secrets = Secrets::default();
        for value in values {
            secrets.add(value);
        }
        secrets.redactor()
    }

    #[test]
    fn every_form_of_a_secret_is_found() {
        let secret = "p@ss/\"wörd\"<&>\\ ${x}\nsecond line";
        let redactor = redactor(&[secret]);
        let json = serde_json::to_string(secret).unwrap();
        let forms = [
            secret.to_owned(),
            json.clone(),
            serde_json::to_string(&json).unwrap(),
            json.replace('<', "\\u003c")
                .replace('>', "\\u003e")
                .replace('&', "\\u0026"),
            json.replace("${", "$${"),
            base64::engine::general_purpose::STANDARD.encode(secret),
            base64::engine::general_purpose::STANDARD.encode(format!("user:{secret}")),
            base64::engine::general_purpose::URL_SAFE.encode(format!("x{secret}y")),
            utf8_percent_encode(secret, NON_ALPHANUMERIC)
                .to_string()
                .replace("%20", "+")
                .replace("%2E", "."),
            lower_hex_digits(&utf8_percent_encode(secret, URL_STRICT).to_string()),
            "only second line here".to_owned(),
        ];
        for form in forms {
            let shown = redactor.redact(&form);
            assert!(shown.contains(MARK), "{form} gave {shown}");
            for part in ["p@ss", "second", "c2Vjb25k", "p%40ss", "p%40SS"] {
                assert!(!shown.contains(part), "{form} gave {shown}");
            }
        }
    }

    #[test]
    fn overlapping_secrets_leave_no_rest() {
        let redactor = redactor(&["abcdef", "defghi"]);
        assert_eq!(redactor.redact("<abcdefghi>"), format!("<{MARK}>"));
    }

    #[test]
    fn short_and_common_words_stay_readable() {
        let redactor = redactor(&["on", "true", "abc", "  \n "]);
        assert_eq!(redactor.redact("true: on abc"), "true: on abc");
    }

    #[test]
    fn json_values_lose_secrets_and_keep_digits() {
        let redactor = redactor(&["hunter2", "123456789"]);
        let value: Value = serde_json::from_str(
            r#"{"a":["x hunter2"],"n":9007199254740993.10,"m":123456789,"hunter2":null}"#,
        )
        .unwrap();
        let shown = redactor.redact_json(value).to_string();
        assert!(
            !shown.contains("hunter2") && !shown.contains("123456789"),
            "{shown}"
        );
        assert!(shown.contains("9007199254740993.10"), "{shown}");
    }

    #[test]
    fn numbers_and_nested_values_count_as_secrets() {
        let mut secrets = Secrets::default();
        secrets.add_json(
            &serde_json::json!({"user": "someone", "pins": [98765, {"deep": "very-deep"}]}),
        );
        let redactor = secrets.redactor();
        assert_eq!(redactor.redact("98765 very-deep"), format!("{MARK} {MARK}"));
    }
}
