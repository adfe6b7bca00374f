//! The fleet, the server's version and its health.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// One item of `GET /cluster-members`: a broker and the workers connected to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterMember {
    /// Its identity, new with every start.
    pub id: String,
    /// `all`, `control` or `broker`.
    pub role: String,
    /// Where workers reach it.
    #[serde(default)]
    pub address: String,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it last said that it lives.
    pub last_heartbeat: Timestamp,
    /// The workers connected to it.
    #[serde(default)]
    pub workers: Vec<WorkerInfo>,
}

/// One connected worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerInfo {
    /// The name it gave itself.
    pub id: String,
    /// Who its certificate says it is, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The kinds it serves.
    #[serde(default)]
    pub kinds: Vec<WorkerKind>,
    /// How many more tasks it asked for.
    pub credit: u32,
    /// How many tasks it has.
    pub in_flight: u32,
    /// Whether it finishes what it has and takes nothing new.
    #[serde(default)]
    pub draining: bool,
    /// When it connected.
    pub connected_at: Timestamp,
    /// When it last said that it lives.
    pub last_heartbeat: Timestamp,
}

/// One kind and version that a worker serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerKind {
    /// The kind.
    pub kind: String,
    /// Its version.
    pub kind_version: i64,
    /// Whether the worker takes tasks of it now.
    pub ready: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The answer of `GET /version`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// Always `converge`.
    pub name: String,
    /// The release.
    pub version: String,
    /// The commit it was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The version in the routes: `v1`.
    pub api_version: String,
    /// `sqlite` or `postgres`.
    pub store: String,
}

/// The answer of `/livez`, `/healthz` and `/readyz`: 200 when all is well, 503 otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `unavailable`.
    pub status: String,
    /// What was looked at.
    #[serde(default)]
    pub checks: Vec<HealthCheck>,
}

/// One thing that health depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HealthCheck {
    /// What was looked at, such as `store`.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
