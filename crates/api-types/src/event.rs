//! Events of a resource, and the messages of `GET /watch`.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{Resource, Timestamp};

/// One thing that happened to a resource. Repeats in a row are one event with a count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its place in the resource's history; only grows.
    pub seq: u64,
    /// When it happened, the last time.
    pub at: Timestamp,
    /// What happened, in a word or two.
    #[serde(rename = "type")]
    pub type_: String,
    /// The generation it happened at.
    pub generation: u64,
    /// The reaction it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reaction: Option<String>,
    /// A sentence for people.
    #[serde(default)]
    pub message: String,
    /// How many times in a row.
    pub count: u64,
    /// Who did it, where that is known: a person, a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// Parameters of `GET …/events`; oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, default)]
pub struct EventQuery {
    /// The events of a resource that is gone.
    pub deleted: bool,
    /// Items per page, at most 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 500)]
    #[schema(minimum = 1, maximum = 500)]
    pub limit: Option<u32>,
    /// Where the next page starts, from `X-Next-Cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The data of one server-sent event of `GET /watch`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WatchEvent {
    /// What happened to the resource.
    #[serde(rename = "type")]
    pub type_: WatchEventType,
    /// The change number; also the event's id, so that a client resumes from it.
    pub revision: u64,
    /// The resource as it is now, or was when it went; like a list item.
    pub resource: Resource,
}

/// What happened to a watched resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchEventType {
    /// It is new or changed.
    Changed,
    /// It is gone.
    Removed,
}
