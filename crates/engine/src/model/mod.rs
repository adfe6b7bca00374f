//! The rows of the control plane, as the engine thinks of them; a store maps them to its own tables.
//!
//! Large documents (specs, statuses, bundles) are rows of their own, so that the row that is written at every step stays small.

mod claim;
mod config;
mod edge;
mod event;
mod manifest;
mod resource;
mod schedule;

pub use claim::{Claim, ClaimRef, Inputs, LeaseToken, Marks};
pub use config::{Bundle, Config, ConfigSweep, Digest};
pub use edge::{Edge, Flow};
pub use event::{Event, EventKind, History, Tombstone};
pub use manifest::{ManifestRow, Pair};
pub use resource::{
    Below, Contributed, Deletion, Derived, DocSlot, Failure, Finalizer, Orphan, OwnedCondition,
    Resource, Sums,
};
pub use schedule::{Class, Due, Hold, Look};

/// Milliseconds since the epoch, by the store's clock.
pub type Millis = i64;
