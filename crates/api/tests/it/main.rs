//! The router, driven in process over the reference store.
#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test, as the test itself may"
)]

mod access;
mod answers;
mod arrival;
mod conditions;
mod harness;
mod malformed;
mod resources;
