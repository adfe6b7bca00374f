//! Labels: the rules for keys and values, and what the `converge.sh/` prefix means.
//!
//! A key is `[prefix/]name`, a value at most [`limits::LABEL_VALUE_BYTES`], and there are at most [`limits::LABELS`].
//! Keys under `converge.sh/` belong to the control plane and its tools: composers may set one of them,
//! [`PROVIDER_CONFIG_LABEL`]; the rest of theirs is left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::ids::{ConfigName, NameError, is_prefixed_name};
use crate::limits;

/// What keys of the control plane and its tools start with.
pub const RESERVED_PREFIX: &str = "converge.sh/";
/// On a child: the provider config it refers to.
pub const PROVIDER_CONFIG_LABEL: &str = "converge.sh/provider-config";
/// On a resource a directory sync applied: the application it belongs to.
pub const APP_LABEL: &str = "converge.sh/app";

/// Whether `key` is under [`RESERVED_PREFIX`].
pub fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED_PREFIX)
}

/// One thing wrong with a set of labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The key is none.
    #[error(transparent)]
    Key(#[from] NameError),
    /// The value is too long.
    #[error(
        "the value of label {key:?} has {bytes} bytes, more than {}",
        limits::LABEL_VALUE_BYTES
    )]
    Value {
        /// The label.
        key: String,
        /// The value's size.
        bytes: usize,
    },
    /// There are too many.
    #[error("{0} labels, more than {max}", max = limits::LABELS)]
    Count(usize),
}

/// Checks one label.
///
/// # Errors
/// Key or value break their rule; the key is named first.
pub fn check(key: &str, value: &str) -> Result<(), LabelError> {
    if !is_prefixed_name(key) {
        return Err(LabelError::Key(NameError::new(
            "label key",
            key,
            "[prefix/]name: each of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit, the name at most 63 bytes, the prefix at most 253",
        )));
    }
    if value.len() > limits::LABEL_VALUE_BYTES {
        return Err(LabelError::Value {
            key: key.to_owned(),
            bytes: value.len(),
        });
    }
    Ok(())
}

/// A checked set of labels, in the order of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Labels(BTreeMap<String, String>);

/// A composer's labels for a child, sorted by who may say what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposerLabels {
    /// What the child carries: everything not reserved, and [`PROVIDER_CONFIG_LABEL`].
    pub labels: Labels,
    /// The config the child refers to.
    pub provider_config_ref: Option<ConfigName>,
    /// Reserved keys that were left out.
    pub dropped: Vec<String>,
}

impl Labels {
    /// Checks `labels` and keeps them.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the keys, at most one error per label.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Labels, Vec<LabelError>> {
        if labels.len() > limits::LABELS {
            // Not one line per label: the count bounds the errors too.
            return Err(vec![LabelError::Count(labels.len())]);
        }
        let errors: Vec<_> = labels
            .iter()
            .filter_map(|(key, value)| check(key, value).err())
            .collect();
        if errors.is_empty() {
            Ok(Labels(labels))
        } else {
            Err(errors)
        }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every label of `wanted` is here with the same value.
    pub fn contains_all(&self, wanted: &Labels) -> bool {
        wanted
            .iter()
            .all(|(key, value)| self.get(key) == Some(value))
    }

    /// The labels as a map.
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// Sorts labels that came from a composer by who may say what.
    ///
    /// # Errors
    /// [`PROVIDER_CONFIG_LABEL`] is there and its value is no config name.
    pub fn of_composer(mut self) -> Result<ComposerLabels, NameError> {
        let provider_config_ref = self
            .get(PROVIDER_CONFIG_LABEL)
            .map(ConfigName::new)
            .transpose()?;
        let mut dropped = Vec::new();
        self.0.retain(|key, _| {
            let keep = !is_reserved(key) || key == PROVIDER_CONFIG_LABEL;
            if !keep {
                dropped.push(key.clone());
            }
            keep
        });
        Ok(ComposerLabels {
            labels: self,
            provider_config_ref,
            dropped,
        })
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Labels::new(BTreeMap::deserialize(deserializer)?).map_err(|errors| {
            de::Error::custom(
                errors
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join("; "),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn keys_and_values_have_their_rules() {
        for good in ["a", "a.b", "example.com/a", "converge.sh/app"] {
            check(good, "").expect(good);
        }
        for bad in ["", "/", "a/", "/a", "a/b/c", "a b", "-a", &"k".repeat(64)] {
            check(bad, "").expect_err(bad);
        }
        check("a", &"v".repeat(256)).expect("256 bytes");
        let error = check("a", &"v".repeat(257))
            .expect_err("257 bytes")
            .to_string();
        assert_eq!(
            error,
            "the value of label \"a\" has 257 bytes, more than 256"
        );
    }

    #[test]
    fn all_bad_labels_are_named_at_once() {
        let errors = Labels::new(map(&[("ok", "x"), ("b d", "x"), ("also bad", "x")]))
            .expect_err("two are bad");
        assert_eq!(errors.len(), 2);
    }

    #[test]
    fn sixty_four_labels_are_the_most() {
        let many = |n: usize| {
            (0..n)
                .map(|i| (format!("k{i}"), String::new()))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(Labels::new(many(64)).expect("64").len(), 64);
        assert_eq!(
            Labels::new(many(65)).expect_err("65"),
            vec![LabelError::Count(65)]
        );
    }

    #[test]
    fn a_composer_sets_the_config_reference_and_no_other_reserved_label() {
        let labels = Labels::new(map(&[
            ("team", "a"),
            (PROVIDER_CONFIG_LABEL, "prod"),
            (APP_LABEL, "x"),
        ]))
        .expect("valid");
        let sorted = labels.of_composer().expect("valid");
        assert_eq!(sorted.provider_config_ref.expect("set"), "prod");
        assert_eq!(sorted.dropped, [APP_LABEL]);
        assert_eq!(
            sorted.labels.iter().collect::<Vec<_>>(),
            [(PROVIDER_CONFIG_LABEL, "prod"), ("team", "a")]
        );

        let wrong =
            Labels::new(map(&[(PROVIDER_CONFIG_LABEL, "not a name")])).expect("valid as a label");
        wrong.of_composer().expect_err("no config name");
    }

    #[test]
    fn matching_needs_every_wanted_label() {
        let labels = |pairs| Labels::new(map(pairs)).expect("valid");
        let have = labels(&[("a", "1"), ("b", "2")]);
        assert!(have.contains_all(&Labels::default()));
        assert!(have.contains_all(&labels(&[("a", "1")])));
        assert!(!have.contains_all(&labels(&[("a", "2")])));
        assert!(!have.contains_all(&labels(&[("a", "1"), ("c", "")])));
    }

    #[test]
    fn serde_checks_labels() {
        let labels: Labels = serde_json::from_str(r#"{"b":"2","a":"1"}"#).expect("valid");
        assert_eq!(
            serde_json::to_string(&labels).expect("writes"),
            r#"{"a":"1","b":"2"}"#
        );
        serde_json::from_str::<Labels>(r#"{"b d":"2"}"#).expect_err("bad key");
    }
}
