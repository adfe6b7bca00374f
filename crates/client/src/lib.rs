//! A client for the REST API.
//!
//! What must hold:
//! - An answer keeps its bytes beside its typed form ([`Answer::body`]), so that a caller can show exactly what came.
//! - Three things never look alike: the server said no ([`Error::Refused`], with its problem document), the server could
//!   not be reached ([`Error::Unreachable`], or [`Error::Tls`] where trying again is of no use), and what answered is not this API ([`Error::NotThisApi`]).
//! - Nothing is retried here, and an answer is bounded in size.
//!
//! Not here: exit codes, formats, waiting (they belong to `conctl`).

mod answer;
mod calls;
mod error;
mod options;
mod path;
mod tls;
mod transport;

pub use answer::{Answer, Page};
pub use converge_api_types as types;
pub use error::{Error, OptionsError};
pub use options::{DEFAULT_SERVER, Options};
pub use transport::{Client, Precondition};
