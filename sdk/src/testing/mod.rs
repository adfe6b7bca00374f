//! Test a worker without a control plane (feature `testing`).
//!
//! [`MemoryBroker`] speaks the real wire on loopback and keeps just enough of a control plane to be a fair partner: claims
//! with epochs and leases, credit, config pushes, fencing. [`FnProvider`] makes a provider of a closure, [`Relay`] is a wire
//! that can be cut. [`scenarios`] holds what every broker must do, over [`BrokerUnderTest`]: this crate runs them against the
//! in-memory broker, a control plane against its own, so that the two cannot drift.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use converge_sdk::testing::{FnProvider, MemoryBroker};
//! use converge_sdk::{KindVersion, Outcome, RunOptions, run_worker};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let kind = KindVersion::new("greeting", 1);
//! let broker = MemoryBroker::start().await.expect("a loopback port is free");
//! let provider = FnProvider::new(kind.clone(), async |_ctx, request| {
//!     let name = request.resource.name;
//!     Ok(Outcome::new().with_status(json!({"text": format!("hello {name}")})))
//! });
//! let options = RunOptions::new(broker.addr().parse().expect("a broker address"));
//! let worker = run_worker(vec![Arc::new(provider)], options, std::future::pending());
//! broker.apply(&kind, "world", json!({}).into());
//! let done = broker.until(Duration::from_secs(10), "it is synced", |broker| {
//!     broker.look(&kind, "world").is_some_and(|seen| seen.synced_gen == seen.generation)
//! });
//! tokio::select! {
//!     ended = worker => panic!("the worker ended: {ended:?}"),
//!     () = done => {}
//! }
//! let status = broker.look(&kind, "world").and_then(|seen| seen.status);
//! assert_eq!(status.expect("a status").as_str(), Some(r#"{"text":"hello world"}"#));
//! # }
//! ```

mod broker;
mod fn_provider;
mod jobs;
mod raw;
mod relay;
pub mod scenarios;
mod service;

pub use broker::{BrokerOptions, Job, MemoryBroker};
pub use fn_provider::FnProvider;
pub use jobs::Look;
pub use relay::Relay;
pub use scenarios::BrokerUnderTest;
