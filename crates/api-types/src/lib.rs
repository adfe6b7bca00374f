//! What travels over the REST API: every request and answer body, written down once for the server and its clients.
//!
//! What must hold:
//! - Documents that belong to people (`spec`, `status`, schemas, operation input and output) ride as [`Json`], the bytes
//!   as they came, so that a number keeps every digit. No type here is `flatten`ed, untagged or internally tagged, because
//!   all of those go through a buffer that re-encodes numbers.
//! - Request bodies refuse fields they do not know (a typo is an error); answers accept them, so that an older client can
//!   read a newer server.
//! - The field order is the order on the wire; the files in `tests/golden` are the contract.
//!
//! Not here: rules about the values (legality of manifests, names, limits) are the server's, and so is every conversion
//! from the engine's types.

mod cluster;
mod common;
mod config;
mod event;
mod graph;
mod kind;
mod operation;
mod reactor;
mod resource;

pub use cluster::{ClusterMember, Health, HealthCheck, Version, WorkerInfo, WorkerKind};
pub use common::{
    ApplyResult, Json, List, MAX_PAGE, ObjectRef, Problem, ProblemItem, Timestamp, header,
};
pub use config::{Bundle, ProviderConfig, ProviderConfigApply, ProviderConfigQuery};
pub use event::{Event, EventQuery, WatchEvent, WatchEventType};
pub use graph::{Dependencies, Dependency, DependencyFlow, Graph, GraphEdge, GraphNode, ValueFlow};
pub use kind::{
    Kind, KindQuery, KindReconciled, KindSchema, Manifest, ManifestApply, Policy, PolicyApply,
    Reaction,
};
pub use operation::{Operation, OperationFailure, OperationRequest, OperationState};
pub use reactor::{ReactorBinding, ReactorBindingApply};
pub use resource::{
    Condition, ConditionStatus, DeleteQuery, Failure, KindCount, Phase, Resource, ResourceApply,
    ResourceQuery, RollbackRequest, Root, ScopeQuery, SpecRevision, Summary,
};
