//! The generated code of the wire. Nothing of it is reachable from outside of this crate.
//!
//! Generated from `proto/` by `cargo xtask codegen`; do not edit.
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::large_futures,
    reason = "the code is generated"
)]

include!("generated/converge.worker.v1.rs");
