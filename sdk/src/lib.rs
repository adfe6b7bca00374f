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

#![doc(html_root_url = "https://docs.rs/converge-sdk/0.1.0")]

mod config;
mod context;
mod error;
mod json;
mod kind;
mod merge;
mod outcome;
#[cfg(feature = "process")]
pub mod process;
mod provider;
mod request;
pub mod settings;
mod stage;
mod uid;
mod wire;

pub use async_trait::async_trait;
pub use bytes::Bytes;
pub use config::ProviderConfig;
pub use context::{CancelReason, LeaseState, TaskContext, TaskContextBuilder, TaskControl};
pub use error::TaskError;
pub use json::{DecodeError, Json};
pub use kind::{KindVersion, KindVersionError};
pub use merge::{MergeError, merge_config};
pub use outcome::{
    Child, Condition, ConditionStatus, ConfigOut, Edge, Outcome, ResourceRef,
    UnknownConditionStatus, ValueFlow,
};
pub use provider::Provider;
pub use request::{Operation, ReactionRequest, ReactionRequestBuilder, Resource};
pub use stage::{Stage, Transition, Trigger};
pub use uid::{Uid, UidError};
