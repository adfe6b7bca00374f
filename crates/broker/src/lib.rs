//! The broker: the gRPC service workers dial.
//!
//! Owns sessions (one per stream), leases (in memory, on the monotonic clock) and config pushes. Everything that must survive a restart
//! is the store's: a claim is made and ended by commands alone, so a broker that dies loses connections and clocks, never work.
//! What must hold: a task is sent only after the commit that claimed it; on one stream a pair's config always precedes the tasks claimed
//! under it; a result that cannot be committed ends its stream; every queue has a bound.
//! Not here: what a result means and which task goes first (`converge-engine`).

mod activity;
mod arrivals;
mod convert;
mod few_lines;
mod leases;
mod outbox;
mod refusals;
mod registry;
mod service;
mod session;
mod tls;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated from the proto"
)]
mod generated {
    include!("generated/converge.worker.v1.rs");
}

pub use few_lines::FewLines;
pub use service::{Broker, BrokerError, Options};
pub use tls::TlsConfigs;
