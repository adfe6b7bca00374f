//! What is said of handshakes that failed.
//!
//! One that failed over a certificate is somebody's mistake and worth a line. The rest is what any open port gets to hear.

use std::io;

use rustls::Error;

use crate::few_lines::FewLines;
use crate::tls::Peer;

/// Those of one listener.
#[derive(Debug, Default)]
pub(crate) struct Refusals(FewLines);

impl Refusals {
    /// The handshake with this peer failed.
    pub(crate) fn log(&self, peer: &Peer, error: &io::Error) {
        let say = |line: &dyn Fn()| self.0.say("workers turned away", line);
        let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        match cause {
            Some(Error::NoCertificatesPresented) => say(&|| {
                tracing::info!(%peer, "a worker without a client certificate was turned away; its TLS_CERT_FILE and TLS_KEY_FILE name one");
            }),
            Some(Error::InvalidCertificate(why)) => say(&|| {
                tracing::info!(%peer, error = %why, "a worker was turned away: its client certificate is not accepted");
            }),
            Some(Error::AlertReceived(alert)) => say(&|| {
                tracing::info!(%peer, ?alert, "a worker went away: it does not accept this broker's certificate");
            }),
            _ => tracing::debug!(%peer, %error, "no handshake of TLS"),
        }
    }
}
