//! TLS against a real server on loopback: who trusts whom, and that a refused handshake says which flag helps.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use converge_client::{Client, Error, Options, OptionsError};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

const ANSWER: &str = r#"{"name":"converge","version":"0.1.0","api_version":"v1","store":"sqlite"}"#;

/// An authority and files for a client it vouches for.
struct Pki {
    dir: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let pki = Self {
            dir: tempfile::tempdir().expect("a directory"),
            authority,
        };
        pki.write("ca.pem", &pki.authority.pem());
        let (cert, key) = pki.issue("client");
        pki.write("cert.pem", &cert.pem());
        pki.write("key.pem", &key.serialize_pem());
        pki
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let cert = params
            .signed_by(&key, &self.authority)
            .expect("a certificate");
        (cert, key)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Whether a server asks its clients for a certificate.
#[derive(Clone, Copy, PartialEq)]
enum Clients {
    Anyone,
    Known,
}

/// Serves one connection and gives its address.
fn serve(pki: &Pki, clients: Clients) -> (String, std::thread::JoinHandle<()>) {
    let (cert, key) = pki.issue("localhost");
    let builder = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = if clients == Clients::Known {
        let mut roots = RootCertStore::empty();
        roots.add(pki.authority.der().clone()).expect("a root");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), default_provider().into())
                .build()
                .expect("a verifier");
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let chain: Vec<CertificateDer<'static>> = vec![cert.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = Arc::new(builder.with_single_cert(chain, key).expect("a config"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().expect("a client");
        let mut stream =
            StreamOwned::new(ServerConnection::new(config).expect("a connection"), socket);
        let mut request = Vec::new();
        let mut chunk = [0; 1024];
        // A client that does not trust this server goes away: that ends the loop too.
        while !request.ends_with(b"\r\n\r\n") {
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return,
                Ok(n) => request.extend_from_slice(&chunk[..n]),
            }
        }
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            ANSWER.len()
        );
        let _ = stream.write_all((head + ANSWER).as_bytes());
        let _ = stream.flush();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    (format!("https://localhost:{port}"), thread)
}

fn ask(options: Options, clients: Clients, pki: &Pki) -> Result<String, Error> {
    let (server, thread) = serve(pki, clients);
    let client = Client::new(&Options { server, ..options }).expect("the options fit");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let answer = runtime
        .block_on(client.version())
        .map(|answer| answer.value.name);
    drop(runtime);
    thread.join().expect("the server ends");
    answer
}

#[test]
fn a_server_is_trusted_by_its_authority_or_not_at_all() {
    let pki = Pki::new();
    let trusting = Options {
        tls_ca: Some(pki.path("ca.pem")),
        ..Options::default()
    };
    assert_eq!(
        ask(trusting, Clients::Anyone, &pki).expect("it is trusted"),
        "converge"
    );
    let other = Pki::new();
    let wary = Options {
        tls_ca: Some(other.path("ca.pem")),
        ..Options::default()
    };
    let err = ask(wary, Clients::Anyone, &pki).expect_err("another authority");
    assert!(
        matches!(&err, Error::Tls { reason, .. } if reason.contains("not signed by a CA in the file of --tls-ca")),
        "{err}"
    );
    let careless = Options {
        insecure: true,
        ..Options::default()
    };
    assert_eq!(
        ask(careless, Clients::Anyone, &pki).expect("--insecure takes it"),
        "converge"
    );
}

#[test]
fn a_client_proves_who_it_is_with_its_certificate() {
    let pki = Pki::new();
    let named = Options {
        tls_ca: Some(pki.path("ca.pem")),
        tls_cert: Some(pki.path("cert.pem")),
        tls_key: Some(pki.path("key.pem")),
        ..Options::default()
    };
    assert_eq!(
        ask(named, Clients::Known, &pki).expect("it is known"),
        "converge"
    );
    let nameless = Options {
        tls_ca: Some(pki.path("ca.pem")),
        ..Options::default()
    };
    let err = ask(nameless, Clients::Known, &pki).expect_err("it showed no certificate");
    assert!(
        matches!(&err, Error::Tls { reason, .. } if reason.contains("--tls-cert and --tls-key")),
        "{err}"
    );
}

#[test]
fn a_key_of_another_certificate_is_named() {
    let (pki, other) = (Pki::new(), Pki::new());
    let options = Options {
        server: "https://localhost:1".to_owned(),
        tls_cert: Some(pki.path("cert.pem")),
        tls_key: Some(other.path("key.pem")),
        ..Options::default()
    };
    let err = Client::new(&options)
        .map(drop)
        .expect_err("they do not fit");
    assert!(matches!(err, OptionsError::OtherKey { .. }), "{err}");
}

/// What a client says when a server answers its first words with `answer` and closes.
fn meet(scheme: &str, answer: &'static [u8]) -> String {
    let pki = Pki::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let _ = socket.read(&mut [0; 4096]);
        let _ = socket.write_all(answer);
        // Until the client goes.
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let client = Client::new(&Options {
        server: format!("{scheme}://localhost:{port}"),
        tls_ca: Some(pki.path("ca.pem")),
        ..Options::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let err = runtime.block_on(client.expect("the options fit").version());
    drop(runtime);
    thread.join().expect("the server ends");
    err.expect_err("they do not understand each other")
        .to_string()
}

#[test]
fn tls_and_cleartext_that_meet_are_told_apart() {
    let said = meet("https", b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(said.contains("speaks no TLS"), "{said}");
    // An alert: "unexpected message".
    let said = meet("http", &[21, 3, 3, 0, 2, 2, 10]);
    assert!(said.contains("say https://"), "{said}");
}
