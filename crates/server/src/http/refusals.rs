//! What is said of callers of the API that were turned away, so that somebody who looks for the reason finds it in the log.

use std::io;
use std::net::SocketAddr;

use axum::http::StatusCode;
use converge_broker::FewLines;
use rustls::Error;

const SORT: &str = "callers turned away";

/// Those of one listener.
#[derive(Debug, Default)]
pub(super) struct Refusals(FewLines);

impl Refusals {
    /// Hands were not shaken. What has nothing to do with certificates is what any open port gets to hear.
    pub(super) fn handshake(&self, peer: SocketAddr, error: &io::Error) {
        let say = |line: &dyn Fn()| self.0.say(SORT, line);
        let cause = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
        match cause {
            Some(Error::NoCertificatesPresented) => say(&|| {
                tracing::info!(%peer, "a caller of the API without a client certificate was turned away; conctl takes one with --tls-cert and --tls-key");
            }),
            Some(Error::InvalidCertificate(why)) => say(&|| {
                tracing::info!(%peer, error = %why, "a caller of the API was turned away: its client certificate is not accepted");
            }),
            Some(Error::AlertReceived(alert)) => say(&|| {
                tracing::info!(%peer, ?alert, "a caller of the API went away: it does not accept this server's certificate");
            }),
            _ => tracing::debug!(%peer, %error, "no handshake of TLS"),
        }
    }

    /// A request was answered.
    pub(super) fn answered(&self, peer: SocketAddr, status: StatusCode) {
        if status == StatusCode::UNAUTHORIZED {
            self.0.say(SORT, || {
                tracing::info!(%peer, "a caller of the API was turned away: it showed no token, or one that is not in --token-file");
            });
        } else if status == StatusCode::FORBIDDEN {
            self.0.say(SORT, || {
                tracing::info!(%peer, "a caller of the API was turned away: its Host or Origin is neither loopback nor given with --allowed-host");
            });
        }
    }
}
