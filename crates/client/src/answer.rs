//! An answer: its typed form, its bytes and what its headers said.

use bytes::Bytes;
use converge_api_types::{ApplyResult, Json};

/// The answer to one call.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// The answer in its type.
    pub value: T,
    /// The body as it came.
    pub body: Bytes,
    /// The entity tag of what was read or written, for a conditional write.
    pub etag: Option<String>,
    /// What a write did.
    pub applied: Option<ApplyResult>,
}

/// One page of a list, its items still in their bytes.
#[derive(Debug, Clone)]
pub struct Page {
    /// The items.
    pub items: Vec<Json>,
    /// The change number the page was read at.
    pub revision: u64,
    /// Where the next page starts; absent on the last one.
    pub next_cursor: Option<String>,
}
