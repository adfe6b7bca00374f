//! Where a state is: which backend, which of its settings tell one place from another, which key.
//!
//! Owns the form in which a status records it and the comparison that keeps a config edit from moving a state. Must hold: nothing secret
//! is ever part of a place. Not here: the file that makes Terraform use it (`backend`).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// Settings that may be recorded. Anything else of a raw backend file stays out: it may be a credential.
const RECORDED: [&str; 17] = [
    "address",
    "bucket",
    "container",
    "endpoint",
    "hostname",
    "namespace",
    "organization",
    "path",
    "prefix",
    "region",
    "resource_group",
    "schema_name",
    "secret_suffix",
    "storage_account",
    "use_azuread_auth",
    "workspace",
    "workspace_key_prefix",
];
/// Settings that change how a place is reached, not which it is.
const REACH_ONLY: [&str; 3] = ["region", "resource_group", "use_azuread_auth"];

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The backend's type as Terraform names it.
    pub(crate) backend: String,
    /// Its settings under the names of the config (`storage_account`, not `storage_account_name`).
    pub(crate) settings: BTreeMap<String, String>,
    /// The state's key, path or prefix in it.
    pub(crate) key: String,
    /// Whether it came from a raw backend file, so that the settings alone may not rebuild it.
    pub(crate) raw: bool,
}

impl Place {
    /// A place with the settings that are fit to be recorded.
    pub(crate) fn new<S: Into<String>>(
        backend: &str,
        key: &str,
        settings: impl IntoIterator<Item = (S, String)>,
    ) -> Self {
        let settings = settings
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .filter(|(name, _)| RECORDED.contains(&name.as_str()))
            .map(|(name, value)| (name, without_login(&value)))
            .collect();
        Self {
            backend: backend.to_owned(),
            settings,
            key: key.to_owned(),
            raw: false,
        }
    }

    /// A setting.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Whether both name the same place.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        fn telling(place: &Place) -> BTreeMap<&str, &str> {
            let telling = place
                .settings
                .iter()
                .filter(|(name, _)| !REACH_ONLY.contains(&name.as_str()));
            telling
                .map(|(name, value)| (name.as_str(), value.trim_end_matches('/')))
                .collect()
        }
        self.backend == other.backend && self.key == other.key && telling(self) == telling(other)
    }

    /// The place as a status records it.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("backend".to_owned(), Value::String(self.backend.clone()));
        for (name, value) in &self.settings {
            object.insert(name.clone(), Value::String(value.clone()));
        }
        if self.raw {
            object.insert("raw".to_owned(), Value::Bool(true));
        }
        object.insert("key".to_owned(), Value::String(self.key.clone()));
        Value::Object(object)
    }

    /// Reads what [`Place::to_json`] wrote; `None` when a field is missing.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let object = value.as_object()?;
        let text = |name: &str| object.get(name).and_then(Value::as_str);
        let settings = RECORDED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), text(name)?.to_owned())))
            .collect();
        Some(Self {
            backend: text("backend")?.to_owned(),
            settings,
            key: text("key")?.to_owned(),
            raw: object.get("raw").and_then(Value::as_bool).unwrap_or(false),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.backend)?;
        for (name, value) in &self.settings {
            write!(f, "{name} {value}, ")?;
        }
        write!(f, "key {})", self.key)
    }
}

/// A URL without its login; other text as it is.
pub(crate) fn without_login(value: &str) -> String {
    match url::Url::parse(value) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            // Both fail only for URLs that cannot have a login.
            let _ = url.set_username("");
            let _ = url.set_password(None);
            url.to_string()
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s3(bucket: &str, region: &str, endpoint: Option<&str>) -> Place {
        let mut settings = vec![("bucket", bucket.to_owned()), ("region", region.to_owned())];
        settings.extend(endpoint.map(|endpoint| ("endpoint", endpoint.to_owned())));
        Place::new("s3", "terraform/x/u.tfstate", settings)
    }

    #[test]
    fn what_reaches_a_place_does_not_move_it() {
        assert!(s3("a", "eu-west-1", None).is_same(&s3("a", "us-east-1", None)));
        assert!(s3("a", "r", Some("http://h:9000")).is_same(&s3("a", "r", Some("http://h:9000/"))));
        assert!(!s3("a", "r", None).is_same(&s3("b", "r", None)));
        assert!(!s3("a", "r", None).is_same(&s3("a", "r", Some("http://h"))));
    }

    #[test]
    fn a_place_survives_the_status() {
        let place = s3("a", "r", Some("http://h"));
        assert_eq!(Place::from_json(&place.to_json()).unwrap(), place);
        assert_eq!(
            place.to_string(),
            "s3 (bucket a, endpoint http://h, region r, key terraform/x/u.tfstate)"
        );
        assert_eq!(
            Place::from_json(&serde_json::json!({"backend": "s3"})),
            None
        );
    }

    #[test]
    fn nothing_secret_is_recorded() {
        let settings = [
            ("address", "https://me:hunter2@h/state".to_owned()),
            ("password", "hunter2".to_owned()),
        ];
        let place = Place::new("http", "k", settings);
        assert!(!place.to_json().to_string().contains("hunter2"));
        assert_eq!(place.setting("address"), Some("https://h/state"));
    }
}
