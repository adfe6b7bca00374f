//! Rows to columns and back, one file per table where it is more than a few lines.
//!
//! Reading functions take any connection: the writer's inside its transaction, or a reader's snapshot.

pub(crate) mod config;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod manifest;
pub(crate) mod resource;
pub(crate) mod tally;

#[cfg(test)]
mod tests;
