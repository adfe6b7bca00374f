//! TLS of the two listeners: what each shows and asks for, read from files and kept fresh.
//!
//! The files are read before anything is bound and again at an interval. Listeners take what was last read whole, for the next connection;
//! a file caught half-written, or a key beside the certificate it does not fit yet, costs a warning and nothing else. What a file holds
//! never reaches a log or an error. Not here: handshakes (`http`, `converge-broker`), flags (`options::tls`).

mod pem;
mod validity;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use validity::{Reminder, Validity};

/// The newest settings of one listener.
pub(crate) type TlsConfigs = watch::Receiver<Arc<ServerConfig>>;

/// A path as it may be said: what was given in its place may be what the file was to hold.
pub(crate) fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let is_a_word = text.len() >= 16 && !text.contains(['/', '.']);
    if is_a_word || text.contains('\n') || text.contains("-----BEGIN") {
        return "(not shown: it wants a path, and this may be what the file holds)".to_owned();
    }
    text
}

/// Where one listener's certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the flags of the same names say it")]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}

/// Which listener it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Workers speak HTTP/2 only.
    Broker,
    /// A client that shows no certificate is let in only to show something else.
    Api { token: Token },
}

/// Whether a token stands in for a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    No,
    Instead,
}

impl Listener {
    fn flag(self, name: &str) -> String {
        match self {
            Self::Broker => format!("--broker-tls-{name}"),
            Self::Api { .. } => format!("--tls-{name}"),
        }
    }

    fn protocols(self) -> Vec<Vec<u8>> {
        match self {
            Self::Broker => vec![b"h2".to_vec()],
            Self::Api { .. } => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }
}

/// One listener's TLS, kept fresh.
pub(crate) struct Tls {
    source: Source,
    configs: watch::Sender<Arc<ServerConfig>>,
    /// Of what was last read, good or not: the same contents are looked at once.
    print: u64,
    /// Of what is in use.
    validity: Validity,
    reminder: Reminder,
}

/// What was made of the files.
struct Built {
    config: ServerConfig,
    validity: Validity,
}

#[derive(Clone)]
struct Source {
    listener: Listener,
    files: TlsFiles,
}

impl Tls {
    /// Reads the files; everything that is wrong with them, one line each. Blocks.
    pub(crate) fn read(listener: Listener, files: TlsFiles) -> Result<Self, Vec<String>> {
        let source = Source { listener, files };
        let contents = source.contents();
        let print = pem::print(&contents);
        let Built { config, validity } = source.build(&contents)?;
        let mut tls = Self {
            source,
            configs: watch::Sender::new(Arc::new(config)),
            print,
            validity,
            reminder: Reminder::default(),
        };
        tls.remind();
        Ok(tls)
    }

    /// Says that the certificate ends soon, or has ended.
    fn remind(&mut self) {
        // A clock before the epoch is one nobody has set; by it no certificate holds yet.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if let Some(concern) = self.reminder.due(self.validity, now) {
            concern.log(&self.source.cert());
        }
    }

    /// Where the newest settings are found.
    pub(crate) fn configs(&self) -> TlsConfigs {
        self.configs.subscribe()
    }

    /// Reads the files again at this interval until `stop`.
    pub(crate) async fn keep_fresh(mut self, every: Duration, stop: CancellationToken) {
        let mut tick = interval_at(Instant::now() + every, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            let (source, last) = (self.source.clone(), self.print);
            // Files may be on a disk that hangs.
            let read = tokio::task::spawn_blocking(move || {
                let contents = source.contents();
                let print = pem::print(&contents);
                (print != last).then(|| (print, source.build(&contents)))
            });
            let cert = self.source.cert();
            match read.await {
                Ok(None) => {}
                Ok(Some((print, Ok(Built { config, validity })))) => {
                    self.print = print;
                    self.validity = validity;
                    self.reminder = Reminder::default();
                    self.configs.send_replace(Arc::new(config));
                    tracing::info!(
                        cert,
                        "TLS files have changed; the next connection is shown them"
                    );
                }
                Ok(Some((print, Err(wrong)))) => {
                    self.print = print;
                    tracing::warn!(
                        cert,
                        error = wrong.join("; "),
                        "TLS files have changed and cannot be used; what was read before stays in use"
                    );
                }
                Err(_) => tracing::warn!(cert, "reading the TLS files again panicked"),
            }
            self.remind();
        }
    }
}

/// Certificate, key and authority of clients, as they were read.
type Contents = [Option<pem::Bytes>; 3];

impl Source {
    fn contents(&self) -> Contents {
        let TlsFiles {
            cert,
            key,
            client_ca,
        } = &self.files;
        [
            Some(pem::file(cert)),
            Some(pem::file(key)),
            client_ca.as_deref().map(pem::file),
        ]
    }

    /// By which flag and path it is known.
    fn cert(&self) -> String {
        let path = shown(&self.files.cert);
        format!("{} {path}", self.listener.flag("cert"))
    }

    fn line(&self, name: &str, path: &Path, why: &str) -> String {
        format!("{} {}: {why}", self.listener.flag(name), shown(path))
    }

    fn build(&self, [cert, key, ca]: &Contents) -> Result<Built, Vec<String>> {
        let files = &self.files;
        let mut wrong = Vec::new();
        let absent = Err("it was not read".to_owned());
        let chain = pem::certificates(cert.as_ref().unwrap_or(&absent));
        let chain = chain.map_err(|why| wrong.push(self.line("cert", &files.cert, &why)));
        let secret = pem::private_key(key.as_ref().unwrap_or(&absent));
        let secret = secret.map_err(|why| wrong.push(self.line("key", &files.key, &why)));
        let mut roots = None;
        if let (Some(bytes), Some(path)) = (ca, &files.client_ca) {
            match pem::roots(bytes) {
                Ok(found) => roots = Some(found),
                Err(why) => wrong.push(self.line("client-ca", path, &why)),
            }
        }
        let (Ok(chain), Ok(secret), true) = (chain, secret, wrong.is_empty()) else {
            return Err(wrong);
        };
        let validity = Validity::of(&chain);
        let broken = |what: &str| vec![format!("TLS cannot be set up: {what}")];
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| broken(&error.to_string()))?;
        let builder = match roots {
            Some(roots) => builder.with_client_cert_verifier(
                self.verifier(roots, provider)
                    .map_err(|error| broken(&error.to_string()))?,
            ),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain, secret)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => vec![self.line(
                    "key",
                    &files.key,
                    &format!(
                        "it is not the key of the certificate in {} {}",
                        self.listener.flag("cert"),
                        shown(&files.cert)
                    ),
                )],
                rustls::Error::InvalidCertificate(_) => vec![self.line(
                    "cert",
                    &files.cert,
                    "the first certificate in it is no X.509 certificate",
                )],
                _ => vec![self.line(
                    "key",
                    &files.key,
                    "the key in it cannot be used here; RSA, ECDSA (P-256, P-384) and Ed25519 can",
                )],
            })?;
        config.alpn_protocols = self.listener.protocols();
        // Each connection proves anew who it is: nobody stays in on a certificate that has ended or an authority that is gone.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Built { config, validity })
    }

    fn verifier(
        &self,
        roots: RootCertStore,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> Result<
        Arc<dyn rustls::server::danger::ClientCertVerifier>,
        rustls::server::VerifierBuilderError,
    > {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        match self.listener {
            Listener::Api {
                token: Token::Instead,
            } => builder.allow_unauthenticated().build(),
            Listener::Api { token: Token::No } | Listener::Broker => builder.build(),
        }
    }
}

#[cfg(test)]
pub(crate) mod pki;
#[cfg(test)]
mod tests;
