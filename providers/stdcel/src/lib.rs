//! stdcel: a resource graph as data.
//!
//! A providerconfig holds resources whose specs refer to each other in `${…}` expressions; each instance becomes the
//! children that the graph describes, in the order that the references demand, with flows for the values that only exist
//! once a child is ready.
//!
//! ```
//! let graph = stdcel::Graph::parse(br#"{"resources": [
//!   {"id": "net", "template": {"kind": "network", "name": "${schema.metadata.name}-net", "spec": {"cidr": "${schema.spec.cidr}"}}},
//!   {"id": "vm", "template": {"kind": "machine", "name": "${schema.metadata.name}-vm", "spec": {"net": "${net.status.id}"}}}
//! ]}"#);
//! let instance = stdcel::Instance { spec: br#"{"cidr": "10.0.0.0/16"}"#, name: "demo", ..Default::default() };
//! let composition = graph.compose(&instance).map_err(|problems| stdcel::summary(&problems))?;
//! assert_eq!(composition.children[1].spec, r#"{"net":null}"#);
//! assert_eq!(composition.edges[0].values, [("/net".to_owned(), "/id".to_owned())]);
//! # Ok::<(), String>(())
//! ```

mod cel;
mod compose;
mod composition;
mod graph;
mod inputs;
mod json;
mod names;
mod nearest;
mod order;
#[doc(hidden)]
pub mod probe;
mod problem;
mod provider;
mod references;
mod rollup;
mod template;

pub use composition::{Child, Composition, Edge, Instance};
pub use graph::Graph;
pub use problem::{Class, Problem, summary};
pub use provider::{KIND, Stdcel, outcome};
pub use rollup::{Observed, Rollup};

/// The manifest of the kind.
pub const MANIFEST: &str = include_str!("../stdcel.kind.json");
