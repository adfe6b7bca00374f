//! The file that makes Terraform keep the state where we say.
//!
//! Owns rendering the override file, reading a raw backend file, and the check after `init` that Terraform did what the file says.
//! Must hold: values are JSON strings, never pasted into HCL; the run fails closed when the effective backend is another one. Credentials
//! never appear here. Not here: comparing with the recorded place (`place`).

use std::collections::BTreeMap;

use hcl::Expression;
use serde_json::{Map, Value, json};

use crate::config::{Backend, Config};
use crate::place::Place;
use crate::redact::Secrets;

/// What a raw backend file must hold, once or more.
pub(crate) const STATE_KEY: &str = "__CONVERGE_STATE_KEY__";
/// A backend file is a few lines.
const LARGEST_RAW: usize = 64 * 1024;

/// A raw backend file of an operator, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawBackend {
    text: String,
    json: bool,
    kind: String,
    settings: BTreeMap<String, String>,
    secrets: Vec<String>,
}

impl RawBackend {
    /// Reads and checks a bundle.
    ///
    /// # Errors
    /// What is wrong, quoting nothing of it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LARGEST_RAW {
            return Err(format!(
                "is larger than {LARGEST_RAW} bytes; a backend file is expected"
            ));
        }
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.contains('\0'))
            .ok_or("is no text; a backend file is expected")?;
        if !text.contains(STATE_KEY) {
            return Err(format!(
                "must contain {STATE_KEY} where the state key belongs, else all states would share one place"
            ));
        }
        let json = text.trim_start().starts_with('{');
        let (kind, attributes) = if json {
            json_backend(text)?
        } else {
            hcl_backend(text)?
        };
        let mut settings = BTreeMap::new();
        let mut secrets = Vec::new();
        for (name, value) in attributes {
            if let Some(password) = crate::environment::password_of(&value) {
                secrets.push(password);
            }
            let lower = name.to_ascii_lowercase();
            let public = [
                "key",
                "kms_key_id",
                "storage_account_name",
                "secret_suffix",
                "workspace_key_prefix",
            ]
            .contains(&lower.as_str());
            let private = [
                "secret",
                "password",
                "token",
                "key",
                "credentials",
                "conn_str",
                "sas",
            ]
            .iter()
            .any(|word| lower.contains(word));
            if private && !public {
                secrets.push(value.clone());
            }
            settings.insert(config_name(&name).to_owned(), value);
        }
        Ok(Self {
            text: text.to_owned(),
            json,
            kind,
            settings,
            secrets,
        })
    }

    /// Its values that must not be shown.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        for value in &self.secrets {
            secrets.add(value);
        }
        secrets
    }
}

/// The name a setting has in our config.
fn config_name(name: &str) -> &str {
    match name {
        "storage_account_name" => "storage_account",
        "container_name" => "container",
        "resource_group_name" => "resource_group",
        "endpoints.s3" => "endpoint",
        "workspaces.name" => "workspace",
        other => other,
    }
}

type Attributes = Vec<(String, String)>;

const ONE_BACKEND: &str = "must hold exactly one `terraform` block with one `backend` block in it";

fn hcl_backend(text: &str) -> Result<(String, Attributes), String> {
    let body = hcl::parse(text)
        .map_err(|_| "cannot be read as HCL (a JSON backend file must begin with {)".to_owned())?;
    let blocks = body
        .blocks()
        .filter(|block| block.identifier() == "terraform")
        .flat_map(|block| block.body().blocks());
    let backends: Vec<_> = blocks
        .filter(|block| matches!(block.identifier(), "backend" | "cloud"))
        .collect();
    let [backend] = backends.as_slice() else {
        return Err(ONE_BACKEND.to_owned());
    };
    let Some(kind) = backend
        .labels()
        .first()
        .filter(|_| backend.identifier() == "backend")
    else {
        return Err(ONE_BACKEND.to_owned());
    };
    let mut attributes = Vec::new();
    for attribute in backend.body().attributes() {
        hcl_value(attribute.key(), attribute.expr(), &mut attributes);
    }
    for block in backend.body().blocks() {
        for attribute in block.body().attributes() {
            hcl_value(
                &format!("{}.{}", block.identifier(), attribute.key()),
                attribute.expr(),
                &mut attributes,
            );
        }
    }
    Ok((kind.as_str().to_owned(), attributes))
}

fn hcl_value(name: &str, value: &Expression, attributes: &mut Attributes) {
    match value {
        Expression::String(text) => attributes.push((name.to_owned(), text.clone())),
        Expression::Bool(value) => attributes.push((name.to_owned(), value.to_string())),
        Expression::Number(value) => attributes.push((name.to_owned(), value.to_string())),
        Expression::Object(members) => {
            for (key, value) in members {
                if let (key, Expression::String(text)) = (key.to_string(), value) {
                    attributes.push((format!("{name}.{}", key.trim_matches('"')), text.clone()));
                }
            }
        }
        _ => {}
    }
}

fn json_backend(text: &str) -> Result<(String, Attributes), String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("cannot be read as JSON: {error}"))?;
    let one = |value: &Value| match value {
        Value::Array(items) if items.len() == 1 => items.first().cloned(),
        Value::Object(_) => Some(value.clone()),
        _ => None,
    };
    let terraform = value
        .get("terraform")
        .and_then(one)
        .ok_or_else(|| ONE_BACKEND.to_owned())?;
    let backend = terraform
        .get("backend")
        .and_then(one)
        .filter(|_| terraform.get("cloud").is_none());
    let Some(Value::Object(backend)) = backend else {
        return Err(ONE_BACKEND.to_owned());
    };
    let mut kinds = backend.into_iter();
    let (Some((kind, body)), None) = (kinds.next(), kinds.next()) else {
        return Err(ONE_BACKEND.to_owned());
    };
    let mut attributes = Vec::new();
    for (name, value) in one(&body)
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        match value {
            Value::String(text) => attributes.push((name.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) => attributes.push((name.clone(), value.to_string())),
            Value::Object(members) => {
                for (key, value) in members {
                    if let Some(text) = value.as_str() {
                        attributes.push((format!("{name}.{key}"), text.to_owned()));
                    }
                }
            }
            Value::Array(_) | Value::Null => {}
        }
    }
    Ok((kind, attributes))
}

/// A backend for one state: where it is, and the file that says so.
#[derive(Debug, Clone)]
pub(crate) struct StateBackend {
    /// Where.
    pub(crate) place: Place,
    /// The override file's text.
    pub(crate) text: String,
    /// Its suffix, `.tf` or `.tf.json`.
    pub(crate) suffix: &'static str,
}

/// The key of one resource's state.
pub(crate) fn state_key(prefix: &str, kind: &str, uid: &str) -> String {
    format!("{prefix}{kind}/{uid}.tfstate")
}

impl StateBackend {
    /// The backend of the config for one resource.
    pub(crate) fn of(config: &Config, kind: &str, uid: &str) -> Self {
        let key = state_key(&config.state_prefix, kind, uid);
        let place = match &config.backend {
            Backend::S3 {
                bucket,
                region,
                endpoint,
            } => {
                let mut settings = vec![("bucket", bucket.clone())];
                settings.extend(region.clone().map(|region| ("region", region)));
                settings.extend(endpoint.clone().map(|endpoint| ("endpoint", endpoint)));
                Place::new("s3", &key, settings)
            }
            Backend::Azurerm {
                storage_account,
                container,
                resource_group,
                use_azuread_auth,
            } => {
                let mut settings = vec![
                    ("storage_account", storage_account.clone()),
                    ("container", container.clone()),
                ];
                settings.extend(
                    resource_group
                        .clone()
                        .map(|group| ("resource_group", group)),
                );
                if *use_azuread_auth {
                    settings.push(("use_azuread_auth", "true".to_owned()));
                }
                Place::new("azurerm", &key, settings)
            }
            Backend::Gcs { bucket } => {
                let prefix = key.strip_suffix(".tfstate").unwrap_or(&key);
                Place::new("gcs", prefix, [("bucket", bucket.clone())])
            }
            Backend::Local { path } => {
                let file = path.join(&key);
                Place::new("local", &file.to_string_lossy(), [] as [(&str, String); 0])
            }
            Backend::Raw(raw) => {
                let settings = raw
                    .settings
                    .iter()
                    .filter(|(name, _)| name.as_str() != "key");
                let mut place = Place::new(
                    &raw.kind,
                    &key,
                    settings.map(|(name, value)| (name.as_str(), value.replace(STATE_KEY, &key))),
                );
                place.raw = true;
                return Self {
                    place,
                    text: raw.text.replace(STATE_KEY, &key),
                    suffix: if raw.json { ".tf.json" } else { ".tf" },
                };
            }
        };
        Self {
            text: render(&place),
            place,
            suffix: ".tf.json",
        }
    }

    /// The backend of a recorded place.
    ///
    /// # Errors
    /// When the record is not enough to reach it.
    pub(crate) fn recorded(place: &Place) -> Result<Self, String> {
        if place.raw {
            return Err(format!(
                "the state is in a place that a raw backend file named, {place}, and the file is gone; put that file back, or copy the state by hand"
            ));
        }
        if !["s3", "azurerm", "gcs", "local"].contains(&place.backend.as_str()) {
            return Err(format!(
                "the state is in a backend that is not known here, {place}; copy it by hand"
            ));
        }
        Ok(Self {
            text: render(place),
            place: place.clone(),
            suffix: ".tf.json",
        })
    }

    /// Checks what `init` wrote to `.terraform/terraform.tfstate`.
    ///
    /// # Errors
    /// When the effective backend is another one, naming both.
    pub(crate) fn check_effective(&self, written: Option<&str>) -> Result<(), String> {
        let effective = written.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let Some(backend) = effective.as_ref().and_then(|value| value.get("backend")) else {
            return Err(format!(
                "init left no backend where {} was set",
                self.place.backend
            ));
        };
        let kind = backend
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if kind != self.place.backend {
            return Err(format!(
                "init ended on the backend {kind:?} instead of {:?}",
                self.place.backend
            ));
        }
        let config = backend.get("config").cloned().unwrap_or_default();
        let text = |name: &str| config.get(name).and_then(Value::as_str);
        let wanted: Vec<(&str, Option<&str>)> = match (kind, self.place.raw) {
            ("s3", false) => vec![
                ("bucket", self.place.setting("bucket")),
                ("key", Some(&self.place.key)),
            ],
            ("azurerm", false) => vec![
                (
                    "storage_account_name",
                    self.place.setting("storage_account"),
                ),
                ("container_name", self.place.setting("container")),
                ("key", Some(&self.place.key)),
            ],
            ("gcs", false) => vec![
                ("bucket", self.place.setting("bucket")),
                ("prefix", Some(&self.place.key)),
            ],
            ("local", false) => vec![("path", Some(&self.place.key))],
            _ => {
                return if holds(&config, &self.place.key) {
                    Ok(())
                } else {
                    Err(format!(
                        "no setting of the effective backend {kind:?} holds the state key {}",
                        self.place.key
                    ))
                };
            }
        };
        for (name, want) in wanted {
            if text(name) != want {
                return Err(format!(
                    "init ended with {name} {:?} instead of {:?}",
                    text(name).unwrap_or(""),
                    want.unwrap_or("")
                ));
            }
        }
        Ok(())
    }
}

/// Whether a string anywhere in `value` holds `needle`.
fn holds(value: &Value, needle: &str) -> bool {
    match value {
        Value::String(text) => text.contains(needle),
        Value::Array(items) => items.iter().any(|item| holds(item, needle)),
        Value::Object(members) => members.values().any(|member| holds(member, needle)),
        _ => false,
    }
}

/// The override file for a place that is not raw.
fn render(place: &Place) -> String {
    let mut body = Map::new();
    let copy = |body: &mut Map<String, Value>, from: &str, to: &str| {
        if let Some(value) = place.setting(from) {
            body.insert(to.to_owned(), Value::String(value.to_owned()));
        }
    };
    match place.backend.as_str() {
        "s3" => {
            copy(&mut body, "bucket", "bucket");
            body.insert("key".to_owned(), json!(place.key));
            copy(&mut body, "region", "region");
            body.insert("use_lockfile".to_owned(), json!(true));
            if let Some(endpoint) = place.setting("endpoint") {
                if place.setting("region").is_none() {
                    body.insert("region".to_owned(), json!("us-east-1"));
                }
                body.insert("endpoints".to_owned(), json!({ "s3": endpoint }));
                for flag in [
                    "use_path_style",
                    "skip_credentials_validation",
                    "skip_requesting_account_id",
                    "skip_metadata_api_check",
                    "skip_region_validation",
                ] {
                    body.insert(flag.to_owned(), json!(true));
                }
            }
        }
        "azurerm" => {
            copy(&mut body, "storage_account", "storage_account_name");
            copy(&mut body, "container", "container_name");
            copy(&mut body, "resource_group", "resource_group_name");
            body.insert("key".to_owned(), json!(place.key));
            if place.setting("use_azuread_auth") == Some("true") {
                body.insert("use_azuread_auth".to_owned(), json!(true));
            }
        }
        "gcs" => {
            copy(&mut body, "bucket", "bucket");
            body.insert("prefix".to_owned(), json!(place.key));
        }
        _ => {
            body.insert("path".to_owned(), json!(place.key));
        }
    }
    let document = json!({ "terraform": [{ "backend": { place.backend.as_str(): body } }] });
    format!("{document:#}\n")
}

/// A name for the override file that sorts after all of the module's own, because the last one wins.
pub(crate) fn override_name(overrides: &[String], suffix: &str) -> String {
    let mut stem = String::from("zzzz_converge");
    let highest = overrides.iter().max();
    while highest.is_some_and(|highest| *highest >= format!("{stem}_override{suffix}"))
        && stem.len() < 128
    {
        stem.insert(0, '~');
    }
    format!("{stem}_override{suffix}")
}

#[cfg(test)]
mod tests;
