//! The composition graph below a resource, and the dependencies of one resource.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, ObjectRef, Phase};

/// The answer of `GET …/graph`: the resource, everything below it, and the edges between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Graph {
    /// Every owner comes before what it owns; children in the order of their composition's kinds and names.
    pub nodes: Vec<GraphNode>,
    /// `from` needs `to`.
    pub edges: Vec<GraphEdge>,
}

/// One resource in a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphNode {
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// How it is doing.
    pub phase: Phase,
    /// The resource that composed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ObjectRef>,
}

/// One dependency in a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GraphEdge {
    /// The dependent.
    pub from: ObjectRef,
    /// What it depends on.
    pub to: ObjectRef,
    /// The values that flow along it.
    #[serde(default)]
    pub values: Vec<ValueFlow>,
}

/// One value that flows from the status of a dependency into the spec of its dependent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ValueFlow {
    /// JSON pointer into the dependent's spec.
    pub dependent_field: String,
    /// JSON pointer into the dependency's status.
    pub source_field: String,
}

/// The answer of `GET …/dependencies`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Dependencies {
    /// What the resource needs.
    pub items: Vec<Dependency>,
    /// What needs the resource.
    #[serde(default)]
    pub dependents: Vec<Dependency>,
    /// The store-wide change number this was read at.
    pub revision: u64,
}

/// One edge, seen from one of its ends.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Dependency {
    /// The kind of the other end.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// How it is doing.
    pub phase: Phase,
    /// The values that flow along the edge.
    #[serde(default)]
    pub values: Vec<DependencyFlow>,
}

/// One flow and whether its value has arrived.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DependencyFlow {
    /// JSON pointer into the dependent's spec.
    pub dependent_field: String,
    /// JSON pointer into the dependency's status.
    pub source_field: String,
    /// Whether a value has been delivered.
    pub delivered: bool,
    /// The value last delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub value: Option<Json>,
}
