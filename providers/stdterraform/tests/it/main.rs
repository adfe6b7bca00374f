//! The provider against a real Terraform, real servers on loopback and real signals.
//!
//! Modules hold only what is built into Terraform (`terraform_data`), so that no registry is needed. What must be installed: terraform, git,
//! curl, openssl, python3, and for s3 `moto_server` and `aws`; a missing one fails the tests that need it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod basics;
mod drift;
mod killed;
mod local;
mod s3;
mod secrets;
mod signals;
mod sources;
mod support;
mod tools;
mod versions;
