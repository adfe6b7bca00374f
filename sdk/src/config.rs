//! The configuration a provider works under: a JSON spec and opaque bundle bytes, both owned by the operator.

use std::sync::OnceLock;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::merge::{MergeError, merge_config};
use crate::{Json, KindVersion, TaskError};

/// A providerconfig: the kind's default, a resource's override, or the two merged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// The JSON part.
    pub spec: Option<Json>,
    /// The opaque part.
    pub bundle: Option<Bytes>,
}

impl ProviderConfig {
    /// No configuration at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the JSON part.
    #[must_use]
    pub fn with_spec(mut self, spec: impl Into<Json>) -> Self {
        self.spec = Some(spec.into());
        self
    }

    /// Sets the opaque part.
    #[must_use]
    pub fn with_bundle(mut self, bundle: impl Into<Bytes>) -> Self {
        self.bundle = Some(bundle.into());
        self
    }

    /// True if there is neither a spec nor a bundle: for a default this means that it was deleted, or never there.
    pub fn is_empty(&self) -> bool {
        self.spec.is_none() && self.bundle.is_none()
    }

    /// Decodes the JSON part; `None` if there is none.
    ///
    /// # Errors
    /// Terminal, with pointer and column.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<Option<T>, TaskError> {
        self.spec
            .as_ref()
            .map(|spec| spec.decode_as("config"))
            .transpose()
    }

    /// From the wire, where empty bytes mean none.
    pub(crate) fn from_wire(spec: Bytes, bundle: Bytes) -> Self {
        Self {
            spec: (!spec.is_empty()).then(|| Json::from_bytes_unchecked(spec)),
            bundle: (!bundle.is_empty()).then_some(bundle),
        }
    }
}

/// A default and an override, and what they come to, worked out when somebody asks.
#[derive(Debug)]
pub(crate) struct Effective {
    pub(crate) kind: KindVersion,
    pub(crate) default: ProviderConfig,
    pub(crate) over: ProviderConfig,
    merged: OnceLock<Result<Option<Json>, MergeError>>,
}

impl Effective {
    pub(crate) fn new(kind: KindVersion, default: ProviderConfig, over: ProviderConfig) -> Self {
        Self {
            kind,
            default,
            over,
            merged: OnceLock::new(),
        }
    }

    pub(crate) fn spec(&self) -> Result<Option<&Json>, TaskError> {
        let merged = self
            .merged
            .get_or_init(|| match (&self.default.spec, &self.over.spec) {
                (None, None) => Ok(None),
                (Some(default), None) => Ok(Some(default.clone())),
                // An override alone still follows the rules for overrides: an object, its nulls removed.
                (None, Some(over)) => merge_config(&Json::empty_object(), over).map(Some),
                (Some(default), Some(over)) => merge_config(default, over).map(Some),
            });
        match merged {
            Ok(spec) => Ok(spec.as_ref()),
            Err(error) => Err(TaskError::terminal(format!(
                "config of {}: {error}",
                self.kind
            ))),
        }
    }

    pub(crate) fn bundle(&self) -> Option<&Bytes> {
        self.over.bundle.as_ref().or(self.default.bundle.as_ref())
    }
}
