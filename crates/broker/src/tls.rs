//! Who is on a connection: by the certificate its client showed, else by its address.
//!
//! A worker states no identity. A client certificate with exactly one SPIFFE id is that worker's name; two workers may share one, as
//! sessions are told apart by number. Not here: which certificates are accepted and where they come from (`converge-server`).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustls::{ServerConfig, ServerConnection};
use tokio::sync::watch;
use webpki::EndEntityCert;

/// The settings of TLS as they change: every connection takes the newest when it is accepted. They must offer `h2` and nothing else.
pub type TlsConfigs = watch::Receiver<Arc<ServerConfig>>;

const SCHEME: &str = "spiffe://";
/// The longest id that SPIFFE allows.
const ID_LIMIT_BYTES: usize = 2_048;

/// The other side of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    address: Option<SocketAddr>,
    /// Known once hands were shaken.
    id: Arc<OnceLock<String>>,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            id: Arc::default(),
        }
    }

    /// Takes the id from the certificate it showed, if there is one.
    pub(crate) fn is_known_by(&self, connection: &ServerConnection) {
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        if let Some(id) = shown.and_then(|shown| spiffe_id(shown)) {
            // Hands are shaken once.
            let _ = self.id.set(id);
        }
    }

    /// What it is called in the fleet and in logs.
    pub(crate) fn identity(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id.get(), self.address) {
            (Some(id), _) => f.write_str(id),
            (None, Some(address)) => address.fmt(f),
            (None, None) => f.write_str("unknown"),
        }
    }
}

/// The only SPIFFE id of a certificate.
fn spiffe_id(certificate: &rustls::pki_types::CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let mut ids = certificate
        .valid_uri_names()
        .filter(|name| name.starts_with(SCHEME));
    let (Some(id), None) = (ids.next(), ids.next()) else {
        return None;
    };
    // It names a trust domain at least, and is written into logs as it is.
    let names_domain = id.strip_prefix(SCHEME)?.bytes().next()? != b'/';
    let is_legal = id.len() <= ID_LIMIT_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic());
    (names_domain && is_legal).then(|| id.to_owned())
}
