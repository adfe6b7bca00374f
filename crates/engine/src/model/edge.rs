//! Edges and the values that flow along them.

use converge_types::ids::Uid;
use converge_types::json::Doc;
use converge_types::pointer::Pointer;
use serde::{Deserialize, Serialize};

/// `from` needs `to`. Key: `(from, to)`; both are children of `owner`.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// The dependent.
    pub from: Uid,
    /// The dependency.
    pub to: Uid,
    /// The composite whose compose result holds the edge.
    pub owner: Uid,
    /// Position in the compose result; keeps what a composer is shown in its own order.
    pub position: u32,
    /// Dropped by a later compose result, kept until `from` has synced without it or is gone; orders the teardown of orphans.
    pub former: bool,
    /// Values copied from the status of `to` into the spec of `from`.
    pub flows: Vec<Flow>,
}

/// One value flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Where the value goes in the dependent's spec.
    pub dependent: Pointer,
    /// Where it comes from in the source's status.
    pub source: Pointer,
    /// The value last delivered from this very source; `None` while pending.
    pub value: Option<Doc>,
    /// The source is Ready and no longer has the value: the last stays in place and the dependent holds further changes.
    pub gone: bool,
}
