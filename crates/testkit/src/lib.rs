//! The whole system in a test: a real `converge dev`, real workers, the REST API between them.
//!
//! Programs are those of this build (`cargo xtask test` builds them before any test runs); each plane has a data directory of its own and
//! ports nobody chose. Everything a test starts ends with the value that holds it. Nothing here sleeps to wait: [`wait::until`] asks
//! again until it holds or a limit is over.

pub mod plane;
pub mod process;
pub mod wait;
pub mod worker;

pub use plane::Plane;
pub use worker::Worker;
