//! The status document: what a module gave, where its state is, what was applied.
//!
//! Owns its form and its bounds. Must hold: no sensitive value is in it; values keep their JSON type and every digit. A status written by
//! another version is read leniently: a part that cannot be read counts as absent, never as a failure.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::place::Place;
use crate::redact::{Redactor, Secrets};
use crate::spec::{Vars, is_identifier};

/// Most bytes of all outputs together; larger ones are named instead.
const LARGEST_OUTPUTS: usize = 256 * 1024;
/// Most warnings kept.
const MOST_WARNINGS: usize = 20;

/// What was applied last.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    /// The source as it may be shown.
    pub(crate) source: String,
    /// `sha256:…` of the archive, or `git:COMMIT`.
    pub(crate) digest: String,
    /// The version that ran.
    pub(crate) tf_version: String,
    /// The variables that may be shown.
    pub(crate) vars: Vars,
}

/// The whole status.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    pub(crate) outputs: Map<String, Value>,
    pub(crate) sensitive_outputs: Vec<String>,
    /// Outputs that are too large for a status.
    pub(crate) omitted_outputs: Vec<String>,
    pub(crate) state: Option<Place>,
    pub(crate) applied: Option<Applied>,
    pub(crate) warnings: Vec<String>,
}

impl Status {
    /// Reads a status so far.
    pub(crate) fn read(raw: Option<&[u8]>) -> Self {
        let value = raw
            .and_then(|raw| serde_json::from_slice::<Value>(raw).ok())
            .unwrap_or_default();
        let names = |name: &str| -> Vec<String> {
            let list = value.get(name).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            outputs: value
                .get("outputs")
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
            sensitive_outputs: names("sensitive_outputs"),
            omitted_outputs: names("omitted_outputs"),
            state: value.get("state").and_then(Place::from_json),
            applied: raw.and_then(read_applied),
            warnings: names("warnings"),
        }
    }

    /// Takes what `terraform output -json` printed; gives the sensitive values.
    ///
    /// # Errors
    /// When that is no such document.
    pub(crate) fn set_outputs(&mut self, json: &[u8]) -> Result<Secrets, String> {
        let Value::Object(outputs) = serde_json::from_slice(json)
            .map_err(|error| format!("the outputs cannot be read: {error}"))?
        else {
            return Err("the outputs are no object".to_owned());
        };
        let mut secrets = Secrets::default();
        let mut plain = Vec::new();
        self.sensitive_outputs.clear();
        for (name, output) in outputs {
            let Value::Object(mut output) = output else {
                continue;
            };
            let value = output.remove("value").unwrap_or_default();
            if output.get("sensitive") == Some(&Value::Bool(false)) {
                plain.push((value.to_string().len() + name.len(), name, value));
            } else {
                secrets.add_json(&value);
                self.sensitive_outputs.push(name);
            }
        }
        // The small ones first, so that one large output costs no other its place.
        plain.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        self.outputs.clear();
        self.omitted_outputs.clear();
        let mut left = LARGEST_OUTPUTS;
        for (size, name, value) in plain {
            if let Some(rest) = left.checked_sub(size) {
                left = rest;
                self.outputs.insert(name, value);
            } else {
                self.omitted_outputs.push(name);
            }
        }
        self.outputs.sort_keys();
        self.sensitive_outputs.sort();
        Ok(secrets)
    }

    /// Sets the warnings, bounded.
    pub(crate) fn set_warnings(&mut self, warnings: impl IntoIterator<Item = String>) {
        self.warnings = warnings.into_iter().take(MOST_WARNINGS).collect();
    }

    /// The document, with secrets out of everything that is not the user's own spec.
    pub(crate) fn to_json(&self, redactor: &Redactor) -> String {
        let mut document = Map::new();
        document.insert(
            "outputs".to_owned(),
            redactor.redact_json(Value::Object(self.outputs.clone())),
        );
        document.insert(
            "sensitive_outputs".to_owned(),
            self.sensitive_outputs.clone().into(),
        );
        if !self.omitted_outputs.is_empty() {
            document.insert(
                "omitted_outputs".to_owned(),
                self.omitted_outputs.clone().into(),
            );
        }
        if let Some(state) = &self.state {
            document.insert("state".to_owned(), state.to_json());
        }
        if !self.warnings.is_empty() {
            let warnings = self
                .warnings
                .iter()
                .map(|warning| Value::String(redactor.redact(warning).into_owned()));
            document.insert("warnings".to_owned(), warnings.collect());
        }
        let mut text = Value::Object(document).to_string();
        if let Some(applied) = &self.applied {
            // By hand, so that the variables keep their bytes.
            text.pop();
            text.push_str(",\"applied\":");
            text.push_str(&applied.to_json(redactor));
            text.push('}');
        }
        text
    }
}

impl Applied {
    fn to_json(&self, redactor: &Redactor) -> String {
        let string = |text: &str| Value::String(text.to_owned()).to_string();
        let vars: Vec<_> = self
            .vars
            .iter()
            .filter(|(_, value)| !redactor.finds(value.get()))
            .map(|(name, value)| format!("{}:{}", string(name), value.get()))
            .collect();
        format!(
            "{{\"source\":{},\"digest\":{},\"tf_version\":{},\"vars\":{{{}}}}}",
            string(&redactor.redact(&self.source)),
            string(&self.digest),
            string(&self.tf_version),
            vars.join(",")
        )
    }
}

fn read_applied(raw: &[u8]) -> Option<Applied> {
    #[derive(serde::Deserialize)]
    struct Document {
        applied: Option<Record>,
    }
    #[derive(serde::Deserialize)]
    struct Record {
        source: String,
        #[serde(default)]
        digest: String,
        #[serde(default)]
        tf_version: String,
        #[serde(default)]
        vars: std::collections::BTreeMap<String, Box<RawValue>>,
    }
    let record = serde_json::from_slice::<Document>(raw).ok()?.applied?;
    let vars = record
        .vars
        .into_iter()
        .filter(|(name, _)| is_identifier(name))
        .collect();
    Some(Applied {
        source: record.source,
        digest: record.digest,
        tf_version: record.tf_version,
        vars,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_keep_their_types_and_sensitive_ones_are_only_named() {
        let mut status = Status::default();
        let secrets = status
            .set_outputs(
                br#"{"n":{"sensitive":false,"type":"number","value":9007199254740993},"e":{"sensitive":false,"value":1e400},
                     "l":{"sensitive":false,"value":[1,"a",null,true]},"s":{"sensitive":true,"value":{"k":"hunter2"}},"odd":{"value":"unsaid"}}"#,
            )
            .unwrap();
        let text = status.to_json(&secrets.redactor());
        assert!(
            text.contains(r#""n":9007199254740993"#)
                && text.contains("1e+400")
                && text.contains(r#"[1,"a",null,true]"#),
            "{text}"
        );
        assert!(
            !text.contains("hunter2") && !text.contains("unsaid"),
            "{text}"
        );
        assert_eq!(status.sensitive_outputs, ["odd", "s"]);
    }

    #[test]
    fn a_large_output_is_named_and_costs_the_others_nothing() {
        let mut status = Status::default();
        let large = "x".repeat(LARGEST_OUTPUTS);
        let json = format!(
            r#"{{"a":{{"sensitive":false,"value":"{large}"}},"b":{{"sensitive":false,"value":1}}}}"#
        );
        status.set_outputs(json.as_bytes()).unwrap();
        assert_eq!(status.omitted_outputs, ["a"]);
        assert_eq!(status.outputs.len(), 1);
    }

    #[test]
    fn a_status_survives_itself_byte_for_byte() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let status = Status {
            state: Some(Place::new("s3", "k", [("bucket", "b".to_owned())])),
            applied: Some(Applied {
                source: "s3://b/k.tar.gz".into(),
                digest: "sha256:00".into(),
                tf_version: "1.11.4".into(),
                vars: [
                    ("n".to_owned(), raw("1.10")),
                    ("t".to_owned(), raw(r#""\u00e9""#)),
                ]
                .into(),
            }),
            warnings: vec!["w".into()],
            ..Status::default()
        };
        let text = status.to_json(&Redactor::default());
        let again = Status::read(Some(text.as_bytes())).to_json(&Redactor::default());
        assert_eq!(text, again);
        assert!(text.contains(r#"{"n":1.10,"t":"\u00e9"}"#), "{text}");
    }

    #[test]
    fn a_variable_that_holds_a_secret_is_left_out() {
        let mut secrets = Secrets::default();
        secrets.add("hunter2");
        let vars = [(
            "url".to_owned(),
            RawValue::from_string("\"x hunter2\"".into()).unwrap(),
        )]
        .into();
        let applied = Applied {
            source: "s".into(),
            digest: "d".into(),
            tf_version: "v".into(),
            vars,
        };
        let status = Status {
            applied: Some(applied),
            ..Status::default()
        };
        assert!(status.to_json(&secrets.redactor()).contains("\"vars\":{}"));
    }

    #[test]
    fn what_cannot_be_read_is_absent() {
        for raw in [
            &b"null"[..],
            b"[1]",
            b"{\"state\":3,\"applied\":{\"source\":1},\"outputs\":[]}",
            b"garbage",
        ] {
            let status = Status::read(Some(raw));
            assert!(
                status.state.is_none() && status.applied.is_none() && status.outputs.is_empty()
            );
        }
    }
}
