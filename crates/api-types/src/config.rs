//! Providerconfigs: operator-owned configuration of a kind, a JSON spec plus opaque bundle bytes.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Json, ObjectRef, Timestamp};

/// The body of `POST /providerconfigs`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfigApply {
    /// `providerconfig`, when present.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The name, unique over all kinds.
    pub name: String,
    /// The kind it configures.
    pub kind: String,
    /// The version of the kind; absent: 1 for a new config, the stored version for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind_version: Option<i64>,
    /// Whether it is the default of its pair; absent keeps what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_default: Option<bool>,
    /// The configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec: Option<Json>,
    /// The bundle in base64; absent keeps the stored one, `""` removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
}

/// Parameters of `POST /providerconfigs`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams,
)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfigQuery {
    /// Moves the default of the pair to this config.
    pub replace_default: bool,
}

/// A providerconfig as the API answers it. `data` is in the answer about one config only, never in lists.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProviderConfig {
    /// Always `providerconfig`, so that the answer tells itself apart from a resource.
    #[serde(rename = "type")]
    pub type_: String,
    /// The name.
    pub name: String,
    /// The kind it configures.
    pub kind: String,
    /// The version of the kind.
    pub kind_version: i64,
    /// Its identity for life.
    pub uid: String,
    /// Whether it is the default of its pair.
    pub is_default: bool,
    /// The configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub spec: Option<Json>,
    /// The bundle in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// What the bundle is, without its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// Changes with the spec and the bundle.
    pub digest: String,
    /// The composer it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ObjectRef>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// What a stored bundle is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bundle {
    /// SHA-256 of its bytes, in hex.
    pub sha256: String,
    /// How many bytes it has.
    pub size: u64,
}
