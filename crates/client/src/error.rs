//! What can go wrong between a caller and the server.

use std::io;
use std::path::{Path, PathBuf};

use converge_api_types::Problem;

/// Why a call gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server looked at the request and said no.
    #[error("{}", refused(.0))]
    Refused(Problem),
    /// No server answered, or it went away in the middle. The same call may be repeated.
    #[error("cannot reach the server at {server}: {reason}")]
    Unreachable {
        /// The server as it was given.
        server: String,
        /// The innermost cause, which names what happened.
        reason: String,
    },
    /// A server answered, and there is no TLS with it: one of the two does not accept the other, or speaks none.
    #[error("no connection to the server at {server}: {reason}")]
    Tls {
        /// The server as it was given.
        server: String,
        /// What failed and what to change.
        reason: String,
    },
    /// Something answered that is not this API.
    #[error("what answers at {server} is not a converge server: {reason}")]
    NotThisApi {
        /// The server as it was given.
        server: String,
        /// What was wrong with the answer.
        reason: String,
    },
    /// It is this API, and has no such part: an older server, or one that leaves it out.
    #[error("the control plane at {server} does not serve {what}")]
    NotServed {
        /// The server as it was given.
        server: String,
        /// What was asked for.
        what: String,
    },
    /// The answer is larger than this client takes.
    #[error("the answer is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The most it takes.
        limit_bytes: usize,
    },
}

impl Error {
    /// The HTTP status, when the server refused.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(problem) => Some(problem.status),
            _ => None,
        }
    }

    /// Whether the server said that there is no such thing.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }
}

fn refused(problem: &Problem) -> &str {
    if problem.detail.is_empty() {
        &problem.title
    } else {
        &problem.detail
    }
}

/// A path as it may be said: what was given in its place may be what the file was to hold.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let is_a_word = text.len() >= 16 && !text.contains(['/', '.']);
    if is_a_word || text.contains('\n') || text.contains("-----BEGIN") {
        return "(not shown: it wants a path, and this may be what the file holds)".to_owned();
    }
    text
}

/// Why the options do not make a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The server's address is no address.
    #[error("the server {server:?} cannot be used: {reason}")]
    Server {
        /// As it was given.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read.
    #[error("cannot read {}", shown(path))]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("{} cannot be used: {reason}", shown(path))]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Certificate and key were read, and do not belong together.
    #[error(
        "the key in {} (--tls-key) is not that of the certificate in {} (--tls-cert)",
        shown(key),
        shown(cert)
    )]
    OtherKey {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// Only one of certificate and key was given.
    #[error("--tls-cert and --tls-key are used together: one of them is missing")]
    HalfIdentity,
    /// The TLS settings do not fit together.
    #[error("cannot set up TLS")]
    Tls {
        /// Why not.
        #[source]
        source: reqwest::Error,
    },
    /// The TLS library has no protocol version to offer.
    #[error("cannot set up TLS")]
    TlsVersions {
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}
