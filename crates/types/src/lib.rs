//! The words of the control plane as types: what a kind, a resource, a pointer, a document and a manifest are, and
//! which of them are legal.
//!
//! Everything here is pure: no I/O, no clock that is not asked for by name, no async. What a type accepts is what every
//! store, the API and the broker accept, so a value that exists has been checked once and is not checked again.
//!
//! - [`ids`], [`labels`]: kinds, names, identities and what may be written on a resource
//! - [`phase`]: how a resource is doing, and the closed sets around it (stages, triggers, emits, transitions)
//! - [`mod@pointer`]: places in a document, and the writing of value flows
//! - [`json`], [`merge`]: documents as written, equal by value, and a config override over a default
//! - [`manifest`], [`schema`]: what a kind is, which manifests are legal, which edits of one are safe
//! - [`limits`]: the sizes and counts that bound everything

pub mod ids;
pub mod json;
pub mod labels;
pub mod limits;
pub mod manifest;
pub mod merge;
pub mod phase;
pub mod pointer;
pub mod schema;
