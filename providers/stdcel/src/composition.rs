//! What goes into composing and what comes out.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The resource that a graph is composed for.
#[derive(Debug, Clone, Default)]
pub struct Instance<'i> {
    /// Its spec, as JSON; empty means `{}`.
    pub spec: &'i [u8],
    /// Its name: `schema.metadata.name`.
    pub name: &'i str,
    /// Its labels: `schema.metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// Its uid: `schema.metadata.uid`.
    pub uid: &'i str,
}

/// A child to create or keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Id of the graph's resource it comes from.
    pub id: Arc<str>,
    /// Its kind.
    pub kind: String,
    /// Its version, 1 or more.
    pub kind_version: i32,
    /// Its name.
    pub name: String,
    /// Its spec: JSON with sorted keys.
    pub spec: String,
    /// Its labels, `composed_by` and `graph_id` among them.
    pub labels: BTreeMap<String, String>,
}

/// Values of one child's status that another waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Index of the child that waits.
    pub from: usize,
    /// Index of the child whose status is waited for.
    pub to: usize,
    /// `(pointer into the spec of from, pointer into the status of to)`, by the first.
    pub values: Vec<(String, String)>,
}

/// What a graph makes of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composition {
    /// In the order of the graph.
    pub children: Vec<Child>,
    /// By `from`, then `to`.
    pub edges: Vec<Edge>,
}
