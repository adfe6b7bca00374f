//! The flags by which strangers are kept out: certificates of both listeners, and the token of the API.
//!
//! A listener that leaves loopback must ask whoever comes who it is, or be told that this is not wanted.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;
use crate::tls::TlsFiles;

/// The flags, as they were written.
#[derive(Debug, Default, Args)]
pub(super) struct TlsArgs {
    /// Certificate chain of the REST API, PEM; with it the API speaks https:// only
    #[arg(long, value_name = "FILE", env = "CONVERGE_TLS_CERT_FILE", help_heading = HEADING)]
    pub(super) tls_cert: Option<OsString>,
    /// The key of --tls-cert, PEM
    #[arg(long, value_name = "FILE", env = "CONVERGE_TLS_KEY_FILE", help_heading = HEADING)]
    pub(super) tls_key: Option<OsString>,
    /// Clients of the REST API must show a certificate that this CA has signed; with --token-file, that or the token
    ///
    /// Whoever has such a certificate may do everything: use another CA than that of the workers, whose scripts can read their files.
    #[arg(long, value_name = "FILE", env = "CONVERGE_TLS_CLIENT_CA_FILE", help_heading = HEADING)]
    pub(super) tls_client_ca: Option<OsString>,
    /// Requests to the REST API must bear the token in this file: Authorization: Bearer TOKEN (conctl --token-file)
    #[arg(long, value_name = "FILE", env = "CONVERGE_TOKEN_FILE", help_heading = HEADING)]
    pub(super) token_file: Option<OsString>,
    /// Certificate chain of the broker, PEM; with it workers must dial https:// (their BROKER_CA_FILE names its CA)
    #[arg(long, value_name = "FILE", env = "CONVERGE_BROKER_TLS_CERT_FILE", help_heading = HEADING)]
    pub(super) broker_tls_cert: Option<OsString>,
    /// The key of --broker-tls-cert, PEM
    #[arg(long, value_name = "FILE", env = "CONVERGE_BROKER_TLS_KEY_FILE", help_heading = HEADING)]
    pub(super) broker_tls_key: Option<OsString>,
    /// Workers must show a certificate that this CA has signed (their TLS_CERT_FILE and TLS_KEY_FILE); a SPIFFE id in it names them
    #[arg(long, value_name = "FILE", env = "CONVERGE_BROKER_TLS_CLIENT_CA_FILE", help_heading = HEADING)]
    pub(super) broker_tls_client_ca: Option<OsString>,
    /// How often all these files are read again; one caught half-written changes nothing [default: 30s]
    #[arg(long, value_name = "DURATION", env = "CONVERGE_TLS_RELOAD_INTERVAL", help_heading = HEADING)]
    pub(super) tls_reload_interval: Option<String>,
}

const HEADING: &str = "Who is let in";

/// Where the control plane's own secrets are: nothing for a worker, whose scripts see its environment.
pub(crate) const ENTRY_VARIABLES: [&str; 7] = [
    "CONVERGE_TLS_CERT_FILE",
    "CONVERGE_TLS_KEY_FILE",
    "CONVERGE_TLS_CLIENT_CA_FILE",
    "CONVERGE_TOKEN_FILE",
    "CONVERGE_BROKER_TLS_CERT_FILE",
    "CONVERGE_BROKER_TLS_KEY_FILE",
    "CONVERGE_BROKER_TLS_CLIENT_CA_FILE",
];

/// Who is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Certificates of the REST API.
    pub api: Option<TlsFiles>,
    /// Certificates of the broker.
    pub broker: Option<TlsFiles>,
    /// The token of the REST API.
    pub token_file: Option<PathBuf>,
    /// How often the files are read again.
    pub reload_interval: Duration,
}

impl TlsArgs {
    pub(super) fn read(self, wrong: &mut Vec<String>) -> Option<Entry> {
        let api = files(
            wrong,
            "--tls",
            "CONVERGE_TLS",
            self.tls_cert,
            self.tls_key,
            self.tls_client_ca,
        );
        let broker = files(
            wrong,
            "--broker-tls",
            "CONVERGE_BROKER_TLS",
            self.broker_tls_cert,
            self.broker_tls_key,
            self.broker_tls_client_ca,
        );
        let reload_interval = duration(
            wrong,
            "--tls-reload-interval (CONVERGE_TLS_RELOAD_INTERVAL)",
            self.tls_reload_interval.as_deref(),
            Duration::from_secs(30),
        )?;
        Some(Entry {
            api,
            broker,
            token_file: given(wrong, "--token-file (CONVERGE_TOKEN_FILE)", self.token_file),
            reload_interval,
        })
    }
}

/// An empty name is what an unset variable leaves, and would open a listener that was to be closed.
fn given(wrong: &mut Vec<String>, what: &str, file: Option<OsString>) -> Option<PathBuf> {
    if file.as_ref().is_some_and(|file| file.is_empty()) {
        wrong.push(format!("{what}: it is empty; name a file, or leave it out"));
    }
    file.map(PathBuf::from)
}

/// A certificate and its key come together, and who asks for certificates shows one.
fn files(
    wrong: &mut Vec<String>,
    flag: &str,
    variable: &str,
    cert: Option<OsString>,
    key: Option<OsString>,
    client_ca: Option<OsString>,
) -> Option<TlsFiles> {
    let one = |word: &str, name: &str| format!("{flag}-{word} ({variable}_{name}_FILE)");
    let cert = given(wrong, &one("cert", "CERT"), cert);
    let key = given(wrong, &one("key", "KEY"), key);
    let client_ca = given(wrong, &one("client-ca", "CLIENT_CA"), client_ca);
    let mut lacks = |lacking: String, given: &str| {
        wrong.push(format!("{lacking}: it is missing beside {flag}-{given}"));
        None
    };
    match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => Some(TlsFiles {
            cert,
            key,
            client_ca,
        }),
        (None, None, None) => None,
        (Some(_), None, _) => lacks(one("key", "KEY"), "cert"),
        (None, Some(_), _) => lacks(one("cert", "CERT"), "key"),
        (None, None, Some(_)) => lacks(one("cert", "CERT"), "client-ca"),
    }
}

impl Entry {
    /// What is wrong with listening there.
    pub(super) fn api_on(&self, address: SocketAddr) -> Option<String> {
        let asks = asks(self.api.as_ref()) || self.token_file.is_some();
        (!address.ip().is_loopback() && !asks).then(|| {
            format!("--listen (LISTEN_ADDR): {address} is not loopback, and whoever reaches it can run scripts here; listen on 127.0.0.1, or ask clients who they are with --tls-cert, --tls-key and --tls-client-ca or with --token-file, or say --insecure if the network around it is closed")
        })
    }

    /// What is wrong with listening there.
    pub(super) fn broker_on(&self, address: SocketAddr) -> Option<String> {
        (!address.ip().is_loopback() && !asks(self.broker.as_ref())).then(|| {
            format!("--broker-listen (BROKER_LISTEN_ADDR): {address} is not loopback, and whoever reaches it can take tasks with what is secret in them; listen on 127.0.0.1, or ask workers who they are with --broker-tls-cert, --broker-tls-key and --broker-tls-client-ca, or say --insecure if the network around it is closed")
        })
    }
}

/// Whether clients must show a certificate.
fn asks(files: Option<&TlsFiles>) -> bool {
    files.is_some_and(|files| files.client_ca.is_some())
}
