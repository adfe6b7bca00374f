//! The PEM files: what is in them, and what is wrong with them.
//!
//! The library's own errors quote lines of a file, which may be lines of a key: every reason here is in our words.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::options::TlsFiles;

const CERT: &str = "TLS_CERT_FILE";
const KEY: &str = "TLS_KEY_FILE";
const CA: &str = "BROKER_CA_FILE";
/// No file of certificates is larger; whatever is, was named by mistake.
const FILE_LIMIT: u64 = 4 << 20;

type Bytes = Result<Vec<u8>, String>;

/// The files as they were at one moment. Not `Debug`: there is a key in it.
#[derive(Hash)]
pub(super) struct Contents {
    client: Option<(Bytes, Bytes)>,
    ca: Option<Bytes>,
}

impl Contents {
    /// Blocks.
    pub(super) fn read(files: &TlsFiles) -> Self {
        let client = files.client.as_ref();
        Self {
            client: client.map(|(cert, key)| (file(cert), file(key))),
            ca: files.ca.as_deref().map(file),
        }
    }

    /// Tells these contents from others.
    pub(super) fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// What they make, or everything that is wrong with them.
    pub(super) fn build(
        &self,
        files: &TlsFiles,
        system: Option<&RootCertStore>,
    ) -> Result<ClientConfig, Vec<String>> {
        let mut wrong = Vec::new();
        let mut note = |variable: &str, path: &Path, why: String| {
            wrong.push(format!("{variable}={}: {why}", path.display()));
        };
        let mut trusted = system.cloned().unwrap_or_else(RootCertStore::empty);
        if let (Some(bytes), Some(path)) = (&self.ca, &files.ca) {
            match roots(bytes) {
                Ok(roots) => trusted = roots,
                Err(why) => note(CA, path, why),
            }
        }
        let mut identity = None;
        if let (Some((cert, key)), Some((cert_path, key_path))) = (&self.client, &files.client) {
            let chain = certificates(cert);
            let secret = private_key(key);
            match (chain, secret) {
                (Ok(chain), Ok(secret)) => identity = Some((chain, secret)),
                (chain, secret) => {
                    if let Err(why) = chain {
                        note(CERT, cert_path, why);
                    }
                    if let Err(why) = secret {
                        note(KEY, key_path, why);
                    }
                }
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| vec![format!("TLS cannot be set up: {error}")])?
            .with_root_certificates(trusted);
        let mut config = match (identity, &files.client) {
            (Some((chain, secret)), Some((cert_path, key_path))) => builder
                .with_client_auth_cert(chain, secret)
                .map_err(|error| vec![misfit(&error, cert_path, key_path)])?,
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Each connection proves anew who it is; there are few of them.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

/// The CAs this system trusts.
pub(super) fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(format!(
            "{CA} is not set, and this system has no CA certificates: name the CA that signs the broker, or install the system's (often a package ca-certificates)"
        ));
    }
    Ok(roots)
}

fn file(path: &Path) -> Bytes {
    let read = || -> io::Result<Result<Vec<u8>, String>> {
        // Asked first: opening a pipe waits for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Ok(Err("it is no regular file".to_owned()));
        }
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LIMIT {
            return Ok(Err(format!(
                "it is larger than {} MiB, so it holds something else",
                FILE_LIMIT >> 20
            )));
        }
        Ok(Ok(bytes))
    };
    read().unwrap_or_else(|error| Err(format!("it cannot be read: {error}")))
}

fn roots(bytes: &Bytes) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (at, cert) in certificates(bytes)?.into_iter().enumerate() {
        roots
            .add(cert)
            .map_err(|_| format!("certificate {} in it is no X.509 certificate", at + 1))?;
    }
    Ok(roots)
}

fn certificates(bytes: &Bytes) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = pem(bytes)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(|_| damaged())?;
    if found.is_empty() {
        let instead = if holds_key(bytes) {
            "; it holds a private key"
        } else {
            ""
        };
        return Err(format!("there is no certificate in it{instead}"));
    }
    Ok(found)
}

fn private_key(bytes: &Bytes) -> Result<PrivateKeyDer<'static>, String> {
    let bytes = pem(bytes)?;
    let found: Result<Vec<_>, _> = PrivateKeyDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(|_| damaged())?;
    found.into_iter().next().ok_or_else(|| {
        let instead = if contains(bytes, b"ENCRYPTED PRIVATE KEY") {
            "; the key in it is encrypted, and nobody can be asked for its password here"
        } else if contains(bytes, b"-----BEGIN CERTIFICATE-----") {
            "; it holds a certificate"
        } else {
            ""
        };
        format!("there is no private key in it (PKCS#8, PKCS#1 or SEC1){instead}")
    })
}

fn pem(bytes: &Bytes) -> Result<&[u8], String> {
    let bytes = bytes.as_deref().map_err(Clone::clone)?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".to_owned());
    }
    if !contains(bytes, b"-----BEGIN ") {
        return Err("it is not PEM: there is no -----BEGIN line in it".to_owned());
    }
    Ok(bytes)
}

fn damaged() -> String {
    "its PEM is damaged or ends in the middle".to_owned()
}

/// Certificate and key were read, and do not make an identity.
fn misfit(error: &rustls::Error, cert: &Path, key: &Path) -> String {
    let (cert_path, key_path) = (cert.display(), key.display());
    match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("{KEY}={key_path}: it is not the key of the certificate in {CERT}={cert_path}")
        }
        rustls::Error::InvalidCertificate(_) => {
            format!("{CERT}={cert_path}: the first certificate in it is no X.509 certificate")
        }
        _ => format!(
            "{KEY}={key_path}: the key in it cannot be used here; RSA, ECDSA (P-256, P-384) and Ed25519 can"
        ),
    }
}

fn holds_key(bytes: &[u8]) -> bool {
    contains(bytes, b"PRIVATE KEY-----")
}

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
