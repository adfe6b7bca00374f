//! Reactor bindings: which transitions of which resources are told to a reactor kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// The body of `POST /reactor-bindings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReactorBindingApply {
    /// `reactorbinding`, when present.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The name.
    pub name: String,
    /// The kind whose resources are watched.
    pub watch_kind: String,
    /// Only this version of it; absent: every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_kind_version: Option<i64>,
    /// `created`, `synced`, `degraded`, `failed` or `deleted`.
    pub transition: String,
    /// Only resources with all of these labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub label_match: BTreeMap<String, String>,
    /// The reactor kind.
    pub reactor: String,
    /// Its version; absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reactor_version: Option<i64>,
    /// Whether it delivers; absent: true for a new binding, kept for an existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// A reactor binding as the API answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReactorBinding {
    /// Always `reactorbinding`, so that the answer tells itself apart from a resource.
    #[serde(rename = "type")]
    pub type_: String,
    /// The name.
    pub name: String,
    /// Its identity, the first part of every dedup token.
    pub uid: String,
    /// The kind whose resources are watched.
    pub watch_kind: String,
    /// Only this version of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch_kind_version: Option<i64>,
    /// The transition.
    pub transition: String,
    /// Only resources with all of these labels.
    #[serde(default)]
    pub label_match: BTreeMap<String, String>,
    /// The reactor kind.
    pub reactor: String,
    /// Its version.
    pub reactor_version: i64,
    /// Whether it delivers.
    pub enabled: bool,
    /// Deliveries not made yet.
    pub pending: u64,
    /// Deliveries that failed for good.
    pub dead_letters: u64,
    /// When it was created; earlier transitions are not delivered.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
