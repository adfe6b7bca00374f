//! Write a worker for Converge: the provider trait, the task loop and the wire, in one crate.
//!
//! Converge is a declarative orchestrator. People apply *resources* (a kind, a name, a spec); its control plane keeps the
//! world in step with them; *workers* do the actual work. A worker hosts one or more *providers*, each of which serves one
//! kind at one version. This crate takes care of everything else: the stream to the broker, heartbeats, configuration,
//! results that survive a lost connection, deadlines, and a shutdown that loses nothing.
//!
//! What an author touches: [`Provider`], [`ReactionRequest`] and [`TaskContext`] in; [`Outcome`] or [`TaskError`] out.
//!
//! Tasks run *at least once*: after a lost lease the same generation comes again, so running twice must end where running
//! once does.
//!
//! ```no_run
//! use std::path::PathBuf;
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use converge_sdk::{
//!     Condition, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError, async_trait, serve,
//! };
//! use serde::Deserialize;
//! use serde_json::json;
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Spec {
//!     text: String,
//! }
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct Config {
//!     directory: PathBuf,
//! }
//!
//! struct Motd;
//!
//! #[async_trait]
//! impl Provider for Motd {
//!     fn kind(&self) -> KindVersion {
//!         KindVersion::new("motd", 1)
//!     }
//!
//!     async fn work(&self, ctx: &TaskContext, request: ReactionRequest) -> Result<Outcome, TaskError> {
//!         let config: Config = ctx.config()?; // absent: transient; wrong: terminal, with pointer and column
//!         let path = config.directory.join(&request.resource.name);
//!         match (request.stage, &*request.reaction) {
//!             (Stage::Work, "work") => {
//!                 let spec: Spec = request.spec()?;
//!                 tokio::fs::write(&path, &spec.text).await?; // an I/O error is transient
//!                 Ok(Outcome::new()
//!                     .with_status(json!({"path": path, "bytes": spec.text.len()}))
//!                     .with_condition(Condition::ready("Written")))
//!             }
//!             (Stage::Delete, "teardown") => match tokio::fs::remove_file(&path).await {
//!                 Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
//!                 _ => Ok(Outcome::new()), // gone already is gone: a task may run twice
//!             },
//!             _ => Err(request.unknown_reaction()),
//!         }
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> ExitCode {
//!     match serve(vec![Arc::new(Motd)]).await {
//!         Ok(()) => ExitCode::SUCCESS,
//!         Err(error) => {
//!             eprintln!("{error}");
//!             ExitCode::from(error.exit_code())
//!         }
//!     }
//! }
//! ```
//!
//! Features: `testing` adds an in-memory broker that speaks the real wire on loopback; `process` runs programs under the rules
//! of a task.

#![doc(html_root_url = "https://docs.rs/converge-sdk/0.1.0")]

mod config;
mod context;
mod error;
mod json;
mod kind;
mod merge;
mod options;
mod outcome;
#[cfg(feature = "process")]
pub mod process;
mod provider;
mod request;
mod serve;
pub mod settings;
mod stage;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transport;
mod uid;
mod wire;
mod worker;

pub use async_trait::async_trait;
pub use bytes::Bytes;
pub use config::ProviderConfig;
pub use context::{CancelReason, LeaseState, TaskContext, TaskContextBuilder, TaskControl};
pub use error::TaskError;
pub use json::{DecodeError, Json};
pub use kind::{KindVersion, KindVersionError};
pub use merge::{MergeError, merge_config};
pub use options::{
    BrokerAddr, BrokerAddrError, LogFormat, OptionProblem, OptionsError, RunOptions, TlsFiles,
};
pub use outcome::{
    Child, Condition, ConditionStatus, ConfigOut, Edge, Outcome, ResourceRef,
    UnknownConditionStatus, ValueFlow,
};
pub use provider::Provider;
pub use request::{Operation, ReactionRequest, ReactionRequestBuilder, Resource};
pub use serve::{ServeError, serve, serve_with};
pub use stage::{Stage, Transition, Trigger};
pub use uid::{Uid, UidError};
pub use worker::{WorkerError, run_worker};

/// The README's example is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
