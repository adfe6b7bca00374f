//! Why TLS with a broker failed, and what to do about it.
//!
//! The library says which check failed; a person wants to know which file or address to change.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

use crate::options::TlsFiles;

/// Says what failed and what to change. Never holds anything of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TlsFailure(String);

impl TlsFailure {
    /// What an error of the stream says of TLS; `None` if it is none of TLS's.
    pub(super) fn of(error: &io::Error, host: &str, files: &TlsFiles) -> Option<Self> {
        let error = error.get_ref()?.downcast_ref::<Error>()?;
        let text = match error {
            Error::InvalidCertificate(why) => certificate(why, host, files),
            Error::InvalidMessage(_) => {
                "what answers there speaks no TLS, and the broker's address says https://: check its port, or say http://".to_owned()
            }
            Error::AlertReceived(alert) => self::alert(*alert, files),
            Error::PeerIncompatible(why) => format!(
                "the broker and this worker have no version or cipher of TLS in common ({why:?}); TLS 1.2 and 1.3 are spoken here"
            ),
            Error::NoCertificatesPresented => {
                "the broker shows no certificate; check the port of its address".to_owned()
            }
            other => other.to_string(),
        };
        Some(Self(text))
    }

    /// The connection broke in the handshake.
    pub(super) fn io(error: &io::Error) -> Self {
        let ended = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        );
        if ended {
            return Self("what answers there ended the connection in the handshake of TLS: as a rule it speaks none (check the port of the broker's address, or say http://), or wants no client from here".to_owned());
        }
        Self(error.to_string())
    }

    /// The files on disk are newer than what was used, and cannot be used.
    pub(super) fn mention_stale(&mut self) {
        self.0.push_str(
            "; the TLS files have changed since and could not be used, see the warning about them",
        );
    }
}

fn certificate(why: &CertificateError, host: &str, files: &TlsFiles) -> String {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match &files.ca {
            Some(ca) => format!(
                "the broker's certificate is not signed by a CA in BROKER_CA_FILE={}: name the CA that signs it",
                ca.display()
            ),
            None => "the broker's certificate is not signed by a CA this system trusts: set BROKER_CA_FILE to the CA that signs it".to_owned(),
        },
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the broker's certificate has expired: renew it there, or set this machine's clock if it is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the broker's certificate is not valid yet: set this machine's clock if it is wrong".to_owned()
        }
        CertificateError::NotValidForName => name(host, ""),
        CertificateError::NotValidForNameContext { presented, .. } => {
            if presented.is_empty() {
                return name(host, " and names nothing else (a common name does not count)");
            }
            let shown: Vec<_> = presented.iter().take(8).map(|name| bare(name)).collect();
            name(host, &format!(" but for {}", shown.join(", ")))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the broker's certificate is not one for servers: issue one whose extended key usage is serverAuth".to_owned()
        }
        CertificateError::BadEncoding => "the broker's certificate is no X.509 certificate".to_owned(),
        other => format!("the broker's certificate is not accepted: {other}"),
    }
}

/// The library shows a name as `DnsName("a.example")` or `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> String {
    let inside = name.split_once('(').map_or(name, |(_, inside)| inside);
    let inside = inside.trim_end_matches(')').trim_matches('"');
    inside.escape_debug().to_string()
}

fn name(host: &str, instead: &str) -> String {
    format!(
        "the broker's certificate is not for {host}{instead}: use a name it is for in BROKER_ADDR, or issue one for {host}"
    )
}

fn alert(alert: AlertDescription, files: &TlsFiles) -> String {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked,
        CertificateUnknown, DecryptError, HandshakeFailure, NoApplicationProtocol, UnknownCA,
        UnsupportedCertificate,
    };
    match (alert, &files.client) {
        (CertificateRequired, _) | (HandshakeFailure | BadCertificate, None) => {
            "the broker demands a client certificate: set TLS_CERT_FILE and TLS_KEY_FILE to one that its CA for clients has signed".to_owned()
        }
        (CertificateExpired, Some((cert, _))) => format!(
            "the certificate in TLS_CERT_FILE={} has expired: renew it",
            cert.display()
        ),
        (
            UnknownCA | BadCertificate | CertificateRevoked | CertificateUnknown
            | UnsupportedCertificate | AccessDenied | DecryptError,
            Some((cert, _)),
        ) => format!(
            "the broker does not accept the certificate in TLS_CERT_FILE={} ({alert:?}): it must be signed by the CA the broker trusts for its clients, and be one for clients",
            cert.display()
        ),
        (NoApplicationProtocol, _) => {
            "what answers there speaks TLS but not HTTP/2, so it is no broker; check the port of the broker's address".to_owned()
        }
        (other, _) => format!("the broker ended TLS: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_shown_as_it_is_written() {
        for (shown, expected) in [
            ("DnsName(\"a.example\")", "a.example"),
            ("IpAddress(127.0.0.1)", "127.0.0.1"),
            ("a.example", "a.example"),
            ("DnsName(\"a\nb\")", "a\\nb"),
        ] {
            assert_eq!(bare(shown), expected);
        }
    }
}
