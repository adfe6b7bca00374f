//! TLS on both wires, with the real programs: everybody shows who it is, certificates are renewed, strangers stay out.

use std::path::PathBuf;
use std::time::Duration;

use converge_client::{Client, Options};
use converge_testkit::plane::Entry;
use converge_testkit::process::{Process, program};
use converge_testkit::{Plane, Worker, wait};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use tokio::process::Command;

const LEASE: Duration = Duration::from_secs(6);
const WORKER: &str = "spiffe://example.org/worker/shell";
const TOKEN: &str = "a-token-that-nobody-guesses";

/// An authority, and a directory for files.
struct Pki {
    dir: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let pki = Self {
            dir: TempDir::new().expect("a directory"),
            authority,
        };
        pki.write("ca.pem", &pki.authority.pem());
        pki
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes `NAME.pem` and `NAME.key` for loopback and this URI.
    fn issue(&self, name: &str, uri: Option<&str>) {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        if let Some(uri) = uri {
            let uri = SanType::URI(uri.try_into().expect("ASCII"));
            params.subject_alt_names.push(uri);
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params
            .signed_by(&key, &self.authority)
            .expect("a certificate");
        self.write(&format!("{name}.pem"), &cert.pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn client(&self, name: Option<&str>) -> Options {
        Options {
            tls_ca: Some(self.path("ca.pem")),
            tls_cert: name.map(|name| self.path(&format!("{name}.pem"))),
            tls_key: name.map(|name| self.path(&format!("{name}.key"))),
            ..Options::default()
        }
    }

    fn entry(&self) -> Entry {
        let flags = ["tls", "broker-tls"].into_iter().flat_map(|listener| {
            [
                format!("--{listener}-cert={}", self.text("server.pem")),
                format!("--{listener}-key={}", self.text("server.key")),
                format!("--{listener}-client-ca={}", self.text("ca.pem")),
            ]
        });
        let more = ["--tls-reload-interval=50ms".to_owned()];
        Entry {
            flags: flags.chain(more).collect(),
            client: self.client(Some("operator")),
        }
    }
}

#[tokio::test]
async fn worker_broker_and_client_know_each_other_and_renew() {
    let pki = Pki::new("ours");
    pki.issue("server", None);
    pki.issue("operator", None);
    pki.issue("worker", Some(WORKER));
    let plane = Plane::start_for(LEASE, pki.entry()).await;
    assert!(plane.api.starts_with("https://"), "{}", plane.api);
    assert!(plane.broker.starts_with("https://"), "{}", plane.broker);
    plane.kind("stdshell").await;
    let (ca, cert, key) = (
        pki.text("ca.pem"),
        pki.text("worker.pem"),
        pki.text("worker.key"),
    );
    let env = [
        ("BROKER_CA_FILE", ca.as_str()),
        ("TLS_CERT_FILE", cert.as_str()),
        ("TLS_KEY_FILE", key.as_str()),
    ];
    let worker = Worker::start_with(&plane, "stdshell", 2, &env).await;
    plane.script("a", "true").await;
    plane.wait_for("stdshell", "a", "Ready").await;
    let members = plane.client.list(&["cluster-members"], &[]).await;
    let members = format!("{:?}", members.expect("it answers").items);
    assert!(members.contains(WORKER), "{members}");

    // A broker that is renewed serves who is there, and shows the new certificate to who comes.
    pki.issue("server", None);
    wait::until("the new certificate to be taken", || {
        let said = plane.output();
        async move { (said.matches("TLS files have changed; the next").count() >= 2).then_some(()) }
    })
    .await;
    plane.script("b", "true").await;
    plane.wait_for("stdshell", "b", "Ready").await;
    let second = Worker::start_with(&plane, "stdshell", 2, &env).await;
    for worker in [worker, second] {
        let (code, said) = worker.drain().await;
        assert_eq!(code, Some(0), "{said}");
        assert!(!said.contains("PRIVATE KEY"), "{said}");
    }

    // Strangers: a client and a worker that show nothing.
    let stranger = Client::new(&Options {
        server: plane.api.clone(),
        ..pki.client(None)
    });
    let answer = stranger.expect("the options fit").version().await;
    let refused = answer.expect_err("the API lets anybody in").to_string();
    assert!(refused.contains("--tls-cert and --tls-key"), "{refused}");
    plane
        .says("a caller of the API without a client certificate was turned away")
        .await;
    let mut command = Command::new(program("stdworker"));
    command
        .env("BROKER_ADDR", &plane.broker)
        .env("BROKER_CA_FILE", &ca);
    let nobody = Process::start("stdworker", command);
    wait::until("a worker without a certificate to be told so", || {
        let said = nobody.output();
        async move {
            said.contains("set TLS_CERT_FILE and TLS_KEY_FILE")
                .then_some(())
        }
    })
    .await;
    nobody.kill().await;
    assert!(!plane.output().contains("PRIVATE KEY"));
    assert_eq!(plane.stop().await, Some(0));
}

#[tokio::test]
async fn a_token_lets_in_who_shows_no_certificate() {
    let pki = Pki::new("ours");
    pki.issue("server", None);
    pki.issue("operator", None);
    pki.write("token", TOKEN);
    let mut entry = pki.entry();
    entry
        .flags
        .push(format!("--token-file={}", pki.text("token")));
    let plane = Plane::start_for(LEASE, entry).await;
    plane.kind("stdshell").await;
    let with = |token: Option<&str>| {
        Client::new(&Options {
            server: plane.api.clone(),
            token_file: token.map(|token| pki.path(token)),
            ..pki.client(None)
        })
        .expect("the options fit")
    };
    with(Some("token"))
        .version()
        .await
        .expect("the token is right");
    let refused = with(None).version().await.expect_err("nothing is shown");
    assert_eq!(refused.status(), Some(401), "{refused}");
    pki.write("other", "a-token-that-somebody-guessed");
    let refused = with(Some("other"))
        .version()
        .await
        .expect_err("it is wrong");
    assert_eq!(refused.status(), Some(401), "{refused}");
    plane
        .says("a caller of the API was turned away: it showed no token, or one that is not in --token-file")
        .await;
    assert!(!plane.output().contains(TOKEN));
    assert_eq!(plane.stop().await, Some(0));
}

#[tokio::test]
async fn files_that_cannot_be_used_are_wrong_usage_before_anything_is_touched() {
    let pki = Pki::new("ours");
    pki.issue("server", None);
    pki.issue("other", None);
    let data = pki.path("data");
    let mut command = Command::new(program("converge"));
    command
        .args(["dev", "--listen=0.0.0.0:0", "--broker-listen=127.0.0.1:0"])
        .arg(format!("--tls-cert={}", pki.text("server.pem")))
        .arg(format!("--tls-key={}", pki.text("other.key")))
        .arg(format!("--token-file={}", pki.text("none")))
        .arg("--data-dir")
        .arg(&data);
    let mut process = Process::start("converge", command);
    assert_eq!(process.ended().await, Some(64));
    let said = process.output();
    for part in [
        "other.key: it is not the key of",
        "--token-file",
        "none: it cannot be read",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!data.exists(), "{said}");
}
