//! Why TLS with the server failed, and which flag helps.
//!
//! The library says which check failed; a person wants to know what to change. Not here: the files (`options`).

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// What this client brought along, as far as it explains a failure.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Brought {
    /// A file of certificates that sign the server's.
    pub(crate) ca: bool,
    /// A certificate of its own.
    pub(crate) identity: bool,
    /// `https://` was asked for.
    pub(crate) is_tls: bool,
}

/// What TLS has to do with a call that failed; `None` if nothing.
pub(crate) fn explain(error: &(dyn StdError + 'static), brought: Brought) -> Option<String> {
    match find(error) {
        Some(error) => Some(reason(error, brought)),
        // What came is no HTTP: that of TLS begins with bytes which no version of HTTP begins with.
        None if !brought.is_tls && is_no_http(error) => Some(
            "what came is no HTTP; if it speaks TLS, say https:// (--server, CONVERGE_SERVER)"
                .to_owned(),
        ),
        None => None,
    }
}

/// The error of TLS somewhere beneath. An [`io::Error`] leaves out of its sources what it was made of.
pub(crate) fn find<'a>(mut error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    loop {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        let inside = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        error = match inside {
            Some(inside) => inside,
            None => error.source()?,
        };
    }
}

fn is_no_http(mut error: &(dyn StdError + 'static)) -> bool {
    loop {
        if error.to_string().contains("invalid HTTP version") {
            return true;
        }
        match error.source() {
            Some(inner) => error = inner,
            None => return false,
        }
    }
}

fn reason(error: &Error, brought: Brought) -> String {
    match error {
        Error::InvalidCertificate(why) => certificate(why, brought),
        Error::InvalidMessage(_) => {
            "what answers there speaks no TLS: check the port, or say http://".to_owned()
        }
        Error::AlertReceived(alert) => self::alert(*alert, brought),
        other => format!("TLS failed: {other}"),
    }
}

fn certificate(why: &CertificateError, brought: Brought) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature if brought.ca => {
            "its certificate is not signed by a CA in the file of --tls-ca (TLS_CA_FILE)".to_owned()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is not signed by a CA this system trusts; name its CA with --tls-ca (TLS_CA_FILE)".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired: renew it there, or set this machine's clock if it is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet: set this machine's clock if it is wrong".to_owned()
        }
        CertificateError::NotValidForName => {
            "its certificate is for another name: use a name it is for in --server".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let shown: Vec<_> = presented.iter().take(8).map(|name| bare(name)).collect();
            format!(
                "its certificate is for another name: use one it is for in --server (it is for: {})",
                if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
            )
        }
        other => format!("its certificate is not accepted: {other}"),
    }
}

/// The library shows a name as `DnsName("a.example")` or `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> String {
    let inside = name.split_once('(').map_or(name, |(_, inside)| inside);
    let inside = inside.trim_end_matches(')').trim_matches('"');
    inside.escape_debug().to_string()
}

fn alert(alert: AlertDescription, brought: Brought) -> String {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, HandshakeFailure, UnknownCA, UnsupportedCertificate,
    };
    match (alert, brought.identity) {
        (CertificateRequired, _) | (HandshakeFailure | BadCertificate, false) => {
            "it demands a client certificate: name one that its CA for clients has signed with --tls-cert and --tls-key (TLS_CERT_FILE, TLS_KEY_FILE)".to_owned()
        }
        (CertificateExpired, true) => {
            "the certificate in the file of --tls-cert (TLS_CERT_FILE) has expired: renew it".to_owned()
        }
        (
            UnknownCA | BadCertificate | CertificateRevoked | CertificateUnknown
            | UnsupportedCertificate | AccessDenied | DecryptError,
            true,
        ) => format!(
            "it does not accept the certificate in the file of --tls-cert (TLS_CERT_FILE): {alert:?}"
        ),
        (AlertDescription::NoApplicationProtocol, _) => {
            "what answers there speaks TLS but not HTTP as a browser does; is it the port of the broker?".to_owned()
        }
        (other, _) => format!("it ended TLS: {other:?}"),
    }
}
