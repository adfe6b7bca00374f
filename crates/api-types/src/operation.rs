//! Operations: named verbs run on one resource, beside its reconciling.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, Timestamp};

/// The body of `POST …/ops`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OperationRequest {
    /// A verb that the kind's manifest declares.
    pub verb: String,
    /// What the verb takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input: Option<Json>,
}

/// An operation as the API answers it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its identity.
    pub uid: String,
    /// The verb.
    pub verb: String,
    /// How far it is.
    pub state: OperationState,
    /// How often it was handed to a worker.
    pub attempts: u32,
    /// What it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input: Option<Json>,
    /// What it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub output: Option<Json>,
    /// Why it failed, or why its last attempt did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<OperationFailure>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was first handed to a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Who asked, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum OperationState {
    /// Waits for its turn.
    Pending,
    /// A worker has it.
    Running,
    /// It is done.
    Succeeded,
    /// It will not be tried again.
    Failed,
}

impl OperationState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperationFailure {
    /// What went wrong.
    pub message: String,
    /// Whether it is given up.
    pub terminal: bool,
}
