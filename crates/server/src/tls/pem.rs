//! PEM files: what is in them, and what is wrong with them.
//!
//! The library's own errors quote lines of a file, which may be lines of a key: every reason here is in our words. A worker reads its files
//! by the same rules, in `converge-sdk`; neither may depend on the other.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// No file of certificates is larger; whatever is, was named by mistake.
const FILE_LIMIT: u64 = 4 << 20;

/// A file as it was at one moment, or why it was not read.
pub(super) type Bytes = Result<Vec<u8>, String>;

/// Blocks.
pub(super) fn file(path: &Path) -> Bytes {
    let read = || -> io::Result<Bytes> {
        // Asked first: opening a pipe waits for its writer.
        if !std::fs::metadata(path)?.is_file() {
            return Ok(Err("it is no regular file".to_owned()));
        }
        let file = File::open(path)?;
        let mut bytes = Vec::new();
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LIMIT {
            let limit = FILE_LIMIT >> 20;
            return Ok(Err(format!(
                "it is larger than {limit} MiB, so it holds something else"
            )));
        }
        Ok(Ok(bytes))
    };
    read().unwrap_or_else(|error| Err(format!("it cannot be read: {error}")))
}

/// Tells contents from others.
pub(super) fn print(contents: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    contents.hash(&mut hasher);
    hasher.finish()
}

pub(super) fn roots(bytes: &Bytes) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (at, certificate) in certificates(bytes)?.into_iter().enumerate() {
        let added = roots.add(certificate);
        added.map_err(|_| format!("certificate {} in it is no X.509 certificate", at + 1))?;
    }
    Ok(roots)
}

pub(super) fn certificates(bytes: &Bytes) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = pem(bytes)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let found = found.map_err(|_| damaged())?;
    if found.is_empty() {
        let instead = if contains(bytes, b"PRIVATE KEY-----") {
            "; it holds a private key"
        } else {
            ""
        };
        return Err(format!("there is no certificate in it{instead}"));
    }
    Ok(found)
}

pub(super) fn private_key(bytes: &Bytes) -> Result<PrivateKeyDer<'static>, String> {
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

fn contains(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}
