//! Where the server is and how to prove who is who; becomes the HTTP client.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::Url;
use rustls::crypto::ring;

use crate::error::OptionsError;
use crate::tls::Brought;

/// Where a server listens when nobody says otherwise.
pub const DEFAULT_SERVER: &str = "http://localhost:8080";

/// A token longer than this is not a token.
const TOKEN_LIMIT_BYTES: usize = 16 * 1024;

/// How to reach the server.
#[derive(Debug, Clone)]
pub struct Options {
    /// `http://host:port` or `https://host:port`; a path before `/api` is kept.
    pub server: String,
    /// PEM certificates that sign the server's; absent: those the system trusts.
    pub tls_ca: Option<PathBuf>,
    /// This client's certificate chain, PEM.
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    pub tls_key: Option<PathBuf>,
    /// Take any certificate.
    pub insecure: bool,
    /// A file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the server may stay silent within an answer.
    pub read_timeout: Duration,
    /// What the client calls itself.
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server: DEFAULT_SERVER.to_owned(),
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            insecure: false,
            token_file: None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(60),
            user_agent: concat!("converge-client/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// What [`Options`] becomes.
pub(crate) struct Parts {
    pub(crate) http: reqwest::Client,
    /// Ends in `/api/v1`.
    pub(crate) base: Url,
    /// As the person wrote it, for messages.
    pub(crate) server: String,
    pub(crate) token: Option<String>,
    pub(crate) brought: Brought,
}

impl Options {
    pub(crate) fn build(&self) -> Result<Parts, OptionsError> {
        let base = self.base()?;
        let mut builder = reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .connect_timeout(self.connect_timeout)
            .read_timeout(self.read_timeout)
            // The API never redirects; what does is something else, and must not be given a token or a spec.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&base) {
            builder = builder.no_proxy();
        }
        builder = if base.scheme() == "https" {
            self.tls(builder)?
        } else {
            // No system certificates are looked for: a plain connection must work on a machine that has none.
            builder.tls_backend_preconfigured(no_trust()?)
        };
        let http = builder.build().map_err(|source| self.no_tls(source))?;
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        let brought = Brought {
            ca: self.tls_ca.is_some(),
            identity: self.tls_cert.is_some(),
            is_tls: base.scheme() == "https",
        };
        Ok(Parts {
            http,
            base,
            brought,
            server: self.server.clone(),
            token,
        })
    }

    fn no_tls(&self, source: reqwest::Error) -> OptionsError {
        let cause = crate::tls::find(&source);
        match (cause, &self.tls_cert, &self.tls_key) {
            (Some(rustls::Error::InconsistentKeys(_)), Some(cert), Some(key)) => {
                OptionsError::OtherKey {
                    cert: cert.clone(),
                    key: key.clone(),
                }
            }
            _ => OptionsError::Tls { source },
        }
    }

    /// Whether the token would leave this machine in cleartext.
    #[must_use]
    pub fn exposes_token(&self) -> bool {
        let leaves = |base: Url| base.scheme() == "http" && !is_loopback(&base);
        self.token_file.is_some() && self.base().is_ok_and(leaves)
    }

    fn base(&self) -> Result<Url, OptionsError> {
        let wrong = |reason: &str| OptionsError::Server {
            // Whatever stands before the host may be a password.
            server: match self.server.rsplit_once('@') {
                Some((_, host)) => format!("(not shown)@{host}"),
                None => self.server.clone(),
            },
            reason: reason.to_owned(),
        };
        let mut url = Url::parse(&self.server)
            .map_err(|_| wrong("it must look like http://localhost:8080 or https://host:port"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("it must start with http:// or https://"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it names no host"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it must not have a query or a fragment"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it must not carry a password; use --token-file"));
        }
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]);
        }
        Ok(url)
    }

    fn tls(&self, builder: reqwest::ClientBuilder) -> Result<reqwest::ClientBuilder, OptionsError> {
        // Fails only when the process has a provider already, and then that one serves.
        let _ = ring::default_provider().install_default();
        let mut builder = builder.tls_danger_accept_invalid_certs(self.insecure);
        if let Some(path) = &self.tls_ca {
            let certs = reqwest::Certificate::from_pem_bundle(&read(path)?)
                .map_err(|_| pem(path, "it holds no PEM certificates"))?;
            if certs.is_empty() {
                return Err(pem(path, "it holds no PEM certificates"));
            }
            builder = builder.tls_certs_only(certs);
        }
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => {
                let mut both = read(cert)?;
                both.push(b'\n');
                both.extend(read(key)?);
                let identity = reqwest::Identity::from_pem(&both).map_err(|_| {
                    pem(
                        cert,
                        "together with its key it is not a PEM certificate and private key",
                    )
                })?;
                builder = builder.identity(identity);
            }
            (None, None) => {}
            _ => return Err(OptionsError::HalfIdentity),
        }
        Ok(builder)
    }
}

fn no_trust() -> Result<rustls::ClientConfig, OptionsError> {
    let config = rustls::ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|source| OptionsError::TlsVersions { source })?;
    Ok(config
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth())
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost"
        || bare.ends_with(".localhost")
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

fn read(path: &Path) -> Result<Vec<u8>, OptionsError> {
    fs::read(path).map_err(|source| OptionsError::File {
        path: path.to_owned(),
        source,
    })
}

fn pem(path: &Path, reason: &str) -> OptionsError {
    OptionsError::Content {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

fn read_token(path: &Path) -> Result<String, OptionsError> {
    let bytes = read(path)?;
    let token = String::from_utf8(bytes)
        .map_err(|_| pem(path, "the token is not text"))?
        .trim()
        .to_owned();
    if token.is_empty() {
        return Err(pem(path, "the token is empty"));
    }
    if token.len() > TOKEN_LIMIT_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(pem(path, "the token is not one word of printable ASCII"));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(server: &str) -> Result<String, String> {
        let options = Options {
            server: server.to_owned(),
            ..Options::default()
        };
        options
            .base()
            .map(String::from)
            .map_err(|err| err.to_string())
    }

    #[test]
    fn the_base_keeps_a_path_and_ends_in_the_api_version() {
        assert_eq!(
            server("http://localhost:8080").unwrap(),
            "http://localhost:8080/api/v1"
        );
        assert_eq!(
            server("https://h/behind/").unwrap(),
            "https://h/behind/api/v1"
        );
    }

    #[test]
    fn a_server_that_cannot_be_one_is_refused_with_a_reason() {
        for (given, reason) in [
            ("localhost:8080", "must start with http"),
            ("ftp://x", "must start with http"),
            ("nonsense", "must look like"),
            ("http://u:p@h", "must not carry a password"),
            ("http://h/?a=b", "must not have a query"),
        ] {
            let err = server(given).unwrap_err();
            assert!(err.contains(reason), "{given}: {err}");
            assert!(!err.contains("u:p"), "{given}: {err}");
        }
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let options = Options {
            server: "https://localhost:1".to_owned(),
            tls_cert: Some("/nowhere/cert.pem".into()),
            ..Options::default()
        };
        assert!(matches!(options.build(), Err(OptionsError::HalfIdentity)));
    }

    #[test]
    fn a_token_is_exposed_where_others_may_listen() {
        for (server, exposed) in [
            ("http://control.example", true),
            ("https://control.example", false),
            ("http://127.0.0.1:8080", false),
        ] {
            let with = |token_file| Options {
                server: server.to_owned(),
                token_file,
                ..Options::default()
            };
            let token = Some("token".into());
            assert_eq!(with(token).exposes_token(), exposed, "{server}");
            assert!(!with(None).exposes_token());
        }
    }

    #[test]
    fn only_loopback_hosts_go_around_the_proxy() {
        for (url, loopback) in [
            ("http://localhost:1", true),
            ("http://[::1]:1", true),
            ("http://127.9.9.9", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example.com", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), loopback, "{url}");
        }
    }
}
