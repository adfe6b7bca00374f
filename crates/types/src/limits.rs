//! The bounds that hold everywhere: at the API, in the store, on the wire and in a provider's result.
//!
//! Over one of the sizes an apply is refused and a result becomes a terminal failure. One number per thing, here only.

use std::time::Duration;

/// Largest spec, in bytes as written.
pub const SPEC_BYTES: usize = 16 << 20;
/// Largest provider config (the JSON part), in bytes as written.
pub const CONFIG_BYTES: usize = 16 << 20;
/// Largest status, in bytes as written.
pub const STATUS_BYTES: usize = 64 << 20;
/// Largest bundle of a provider config, in bytes.
pub const BUNDLE_BYTES: usize = 10 << 20;
/// Most labels on one resource.
pub const LABELS: usize = 64;
/// Largest value of one label, in bytes.
pub const LABEL_VALUE_BYTES: usize = 256;
/// Largest error message that is kept, in bytes; see [`truncate_message`].
pub const ERROR_MESSAGE_BYTES: usize = 8 << 10;
/// Largest message on the wire after decompression, in bytes.
pub const WIRE_MESSAGE_BYTES: usize = 512 << 20;
/// Largest manifest, in bytes as written.
pub const MANIFEST_BYTES: usize = 4 << 20;

/// Most children in one compose result.
pub const CHILDREN_PER_RESULT: usize = 20_000;
/// Most resources under one root.
pub const RESOURCES_PER_ROOT: usize = 200_000;
/// Most levels of ownership, the root included.
pub const OWNER_LEVELS: usize = 32;

/// Deepest nesting of arrays and objects in a document.
///
/// Below serde_json's own bound of 128, so that whatever parses here also parses wherever serde_json reads it again.
pub const DOCUMENT_DEPTH: usize = 120;

/// Authored states kept per resource for rollback.
pub const SPEC_HISTORY: usize = 20;
/// Event rows kept per resource.
pub const EVENTS_PER_RESOURCE: usize = 200;
/// Most resource rows one step of a sweep touches.
pub const SWEEP_BATCH: usize = 1_000;
/// Longest page of a list.
pub const PAGE_ITEMS: usize = 500;
/// Events a watcher may leave unread before it is disconnected.
pub const WATCH_BACKLOG: usize = 1_000;
/// How many causes a `ChildrenReady` message names.
pub const CHILDREN_READY_CAUSES: usize = 3;
/// Lost leases in a row, at the same inputs, from which on each counts as an attempt.
pub const LOST_LEASES_BEFORE_ATTEMPT: u32 = 3;
/// Lost leases in a row from which on a task is a suspect and runs as the only one of its kind on a stream.
pub const LOST_LEASES_BEFORE_SUSPECT: u32 = 2;
/// In this many claims in a row of a kind, each dispatch class with something waiting gets one.
pub const FAIR_CLAIMS: u32 = 10;

/// Silence after which a claim is lost.
pub const LEASE: Duration = Duration::from_secs(30);
/// How often a worker names its claims unless told otherwise.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// First wait after a transient failure.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest wait after a transient failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Wait before a task that was given back (`interrupted: …`) is dispatched again.
pub const INTERRUPTED_RETRY: Duration = Duration::from_secs(1);
/// First wait before a success that is not `Ready` is looked at again.
pub const SECOND_LOOK_MIN: Duration = Duration::from_secs(10);
/// Longest wait between two second looks, unless the kind's resync interval is longer.
pub const SECOND_LOOK_MAX: Duration = Duration::from_secs(300);
/// Least time between two rollups of one composite after the first.
pub const ROLLUP_INTERVAL: Duration = Duration::from_secs(1);
/// How often a teardown that failed terminally is tried again by itself.
pub const TEARDOWN_RETRY: Duration = Duration::from_secs(3_600);
/// How long a removed resource's tombstone and events are kept.
pub const TOMBSTONE: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Cuts `message` to [`ERROR_MESSAGE_BYTES`] at a character boundary and says that it did.
pub fn truncate_message(message: &str) -> std::borrow::Cow<'_, str> {
    const MARK: &str = " … (truncated)";
    if message.len() <= ERROR_MESSAGE_BYTES {
        return message.into();
    }
    let end = message.floor_char_boundary(ERROR_MESSAGE_BYTES - MARK.len());
    let kept = message.get(..end).unwrap_or_default();
    format!("{kept}{MARK}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_a_character_and_says_so() {
        assert_eq!(truncate_message("short"), "short");
        let exact = "x".repeat(ERROR_MESSAGE_BYTES);
        assert_eq!(truncate_message(&exact), exact);
        for shift in 0..4 {
            let long = format!("{}{}", "x".repeat(shift), "€".repeat(ERROR_MESSAGE_BYTES));
            let cut = truncate_message(&long);
            assert!(
                cut.len() <= ERROR_MESSAGE_BYTES && cut.len() > ERROR_MESSAGE_BYTES - 8,
                "{}",
                cut.len()
            );
            assert!(cut.ends_with("(truncated)"));
        }
    }
}
