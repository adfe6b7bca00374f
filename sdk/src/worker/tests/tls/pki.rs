//! Authorities and certificates that live as long as a test.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SerialNumber,
    date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

/// The secret lines of every key that was made, so that none shows anywhere.
static SECRETS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether a text holds a line of a key.
pub(super) fn shows_keys(text: &str) -> bool {
    let secrets = SECRETS.lock().unwrap();
    secrets.iter().any(|line| text.contains(line.as_str()))
}

/// A certificate and its key.
pub(super) struct Pair {
    pub(super) pem: String,
    pub(super) der: Vec<u8>,
    pub(super) key: String,
    key_der: Vec<u8>,
}

impl Pair {
    /// Whether a text holds the secret number of the key, be it as PEM, as hex or as a list.
    pub(super) fn is_shown_in(&self, text: &str) -> bool {
        // Where PKCS#8 has it for ECDSA on P-256.
        let secret = &self.key_der[36..68];
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let list = format!("{secret:?}");
        shows_keys(text)
            || text.to_lowercase().contains(&hex)
            || text.contains(list.trim_matches(['[', ']']))
    }
}

/// An authority, and a directory for files.
pub(super) struct Pki {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority {:x}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let pki = Self {
            dir: TempDir::new().unwrap(),
            authority,
        };
        std::fs::write(pki.ca(), pki.authority_pem()).unwrap();
        pki
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    pub(super) fn authority_pem(&self) -> String {
        self.authority.pem()
    }

    fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(fastrand::u64(..)));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.authority).unwrap();
        let pem = key.serialize_pem();
        let lines = pem.lines().filter(|line| !line.starts_with("-----"));
        SECRETS.lock().unwrap().extend(lines.map(str::to_owned));
        Pair {
            pem: cert.pem(),
            der: cert.der().to_vec(),
            key: pem,
            key_der: key.serialize_der(),
        }
    }

    /// For a broker on loopback.
    pub(super) fn server(&self) -> Pair {
        self.issue(&["localhost", "127.0.0.1"], |_| {})
    }

    /// For this name alone.
    pub(super) fn client(&self, name: &str) -> Pair {
        self.issue(&[name], |_| {})
    }

    pub(super) fn expired(&self, name: &str) -> Pair {
        self.issue(&[name], |params| {
            params.not_before = date_time_ymd(2019, 1, 1);
            params.not_after = date_time_ymd(2020, 1, 1);
        })
    }

    /// Writes a pair; the paths of its certificate and its key.
    pub(super) fn files(&self, name: &str, pair: &Pair) -> (PathBuf, PathBuf) {
        let cert = self.path(&format!("{name}.pem"));
        let key = self.path(&format!("{name}.key"));
        std::fs::write(&cert, &pair.pem).unwrap();
        std::fs::write(&key, &pair.key).unwrap();
        (cert, key)
    }

    /// A server that shows `pair` and takes clients of this authority alone.
    pub(super) fn mutual(&self, pair: &Pair) -> Arc<ServerConfig> {
        self.front(self, pair)
    }

    /// A server that shows `pair` and takes clients of `clients` alone.
    pub(super) fn front(&self, clients: &Pki, pair: &Pair) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(clients.authority.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .unwrap();
        let chain = vec![CertificateDer::from(pair.der.clone())];
        let key = PrivateKeyDer::try_from(pair.key_der.clone()).unwrap();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}
