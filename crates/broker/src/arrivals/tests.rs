//! Handshakes: who is let in and by which name, and that nobody waits for anybody else's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Instant;

use futures::StreamExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(1);
const PREFACE: &[u8; GREETING_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

struct Pki(CertifiedIssuer<'static, KeyPair>);

impl Pki {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn issue(&self, uris: &[&str]) -> Identity {
        self.issue_as(uris, |_| {})
    }

    fn issue_as(&self, uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        params.subject_alt_names.push(SanType::IpAddress(loopback));
        for uri in uris {
            let uri = SanType::URI((*uri).try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![cert.der().clone()], key)
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    fn server(&self) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots(), Arc::clone(&provider));
        let (chain, key) = self.issue(&[]);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(chain, key);
        Arc::new(config.unwrap())
    }
}

/// What became of each connection: the name of who was on it, or why it ended.
type Ends = Arc<Mutex<Vec<Result<String, io::ErrorKind>>>>;

struct Served {
    address: SocketAddr,
    ends: Ends,
    configs: watch::Sender<Arc<ServerConfig>>,
    _serving: JoinSet<()>,
}

impl Served {
    async fn new(pki: &Pki, greeting: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let configs = watch::Sender::new(pki.server());
        let terms = Terms {
            greeting,
            ..Terms::new(8, Some(configs.subscribe()))
        };
        let ends = Ends::default();
        let kept = Arc::clone(&ends);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut all = JoinSet::new();
            let mut arrivals = std::pin::pin!(arrivals(listener, terms));
            while let Some(Ok(mut arrival)) = arrivals.next().await {
                let kept = Arc::clone(&kept);
                all.spawn(async move {
                    let peer = arrival.connect_info();
                    let mut greeting = [0; GREETING_BYTES];
                    let end = match arrival.read_exact(&mut greeting).await {
                        Ok(_) => {
                            assert_eq!(greeting, *PREFACE);
                            arrival.write_all(b"welcome").await.unwrap();
                            arrival.flush().await.unwrap();
                            Ok(peer.identity())
                        }
                        Err(error) => Err(error.kind()),
                    };
                    kept.lock().unwrap().push(end);
                    // Until the client goes.
                    let _ = arrival.read(&mut greeting).await;
                });
            }
        });
        Self {
            address,
            ends,
            configs,
            _serving: serving,
        }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn shake(
        &self,
        pki: &Pki,
        identity: Option<Identity>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(pki.roots());
        let config = match identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, self.dial().await).await
    }

    /// Greets; what it was answered.
    async fn greet(&self, pki: &Pki, identity: Option<Identity>) -> io::Result<Vec<u8>> {
        let mut stream = self.shake(pki, identity).await?;
        stream.write_all(PREFACE).await?;
        let mut answer = vec![0; 7];
        timeout(LIMIT, stream.read_exact(&mut answer))
            .await
            .unwrap()?;
        Ok(answer)
    }

    async fn next_end(&self) -> Result<String, io::ErrorKind> {
        let started = Instant::now();
        let mut pause = tokio::time::interval(Duration::from_millis(2));
        loop {
            pause.tick().await;
            if let Some(end) = self.ends.lock().unwrap().pop() {
                return end;
            }
            assert!(started.elapsed() < LIMIT, "no connection ended");
        }
    }
}

#[tokio::test]
async fn the_one_spiffe_id_of_a_certificate_names_its_worker_and_nothing_else_does() {
    let pki = Pki::new("ours");
    let served = Served::new(&pki, LIMIT).await;
    let id = "spiffe://example.org/worker/a";
    let cases = [
        (&[id][..], Some(id)),
        (&["https://example.org", id][..], Some(id)),
        (&[id, "spiffe://example.org/b"][..], None),
        (&["https://example.org"][..], None),
        (&["spiffe:///worker/a"][..], None),
        (&["spiffe://"][..], None),
        (&[][..], None),
    ];
    for (uris, expected) in cases {
        let answer = served.greet(&pki, Some(pki.issue(uris))).await.unwrap();
        assert_eq!(answer, b"welcome");
        let name = served.next_end().await.unwrap();
        match expected {
            Some(id) => assert_eq!(name, id),
            None => assert!(name.starts_with("127.0.0.1:"), "{name}"),
        }
    }
}

#[tokio::test]
async fn who_shows_no_certificate_or_one_that_does_not_hold_is_turned_away() {
    let (pki, other) = (Pki::new("ours"), Pki::new("other"));
    let served = Served::new(&pki, LIMIT).await;
    let id = &["spiffe://example.org/a"];
    let expired = pki.issue_as(id, |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let early = pki.issue_as(id, |params| params.not_before = date_time_ymd(2999, 1, 1));
    let for_servers = pki.issue_as(id, |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let identities = [other.issue(id), expired, early, for_servers].map(Some);
    for identity in std::iter::once(None).chain(identities) {
        assert!(served.greet(&pki, identity).await.is_err());
        assert!(served.next_end().await.is_err());
    }
}

#[tokio::test]
async fn a_client_in_cleartext_is_told_nothing_of_the_broker_and_closed() {
    let pki = Pki::new("ours");
    let served = Served::new(&pki, LIMIT).await;
    let mut stream = served.dial().await;
    stream.write_all(PREFACE).await.unwrap();
    let mut said = Vec::new();
    // A reset is an end as well.
    let _ = timeout(LIMIT, stream.read_to_end(&mut said)).await.unwrap();
    // At the most an alert of TLS, by which our worker knows what it met.
    assert!(
        said.is_empty() || (said[0] == 21 && said.len() == 7),
        "{said:?}"
    );
    assert_eq!(served.next_end().await, Err(io::ErrorKind::InvalidData));
}

#[tokio::test]
async fn a_handshake_that_stalls_is_cut_in_time_and_holds_up_nobody() {
    let pki = Pki::new("ours");
    let served = Served::new(&pki, SHORT).await;
    let mut silent = served.dial().await;
    let mut halting = served.dial().await;
    // The head of a record of which the rest never comes.
    halting.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let started = Instant::now();
    let identity = Some(pki.issue(&["spiffe://example.org/a"]));
    assert_eq!(served.greet(&pki, identity).await.unwrap(), b"welcome");
    let mut ends = vec![served.next_end().await];
    for stream in [&mut silent, &mut halting] {
        let mut said = Vec::new();
        let _ = timeout(LIMIT, stream.read_to_end(&mut said)).await.unwrap();
        assert!(said.is_empty(), "{said:?}");
        ends.push(served.next_end().await);
    }
    assert!(started.elapsed() >= SHORT / 2);
    let timed_out = ends
        .iter()
        .filter(|end| **end == Err(io::ErrorKind::TimedOut));
    assert_eq!(timed_out.count(), 2, "{ends:?}");
    // After the handshake too, the greeting must come.
    let mut mute = served.shake(&pki, Some(pki.issue(&[]))).await.unwrap();
    let mut said = Vec::new();
    let _ = timeout(LIMIT, mute.read_to_end(&mut said)).await.unwrap();
    assert_eq!(served.next_end().await, Err(io::ErrorKind::TimedOut));
}

#[tokio::test]
async fn the_next_connection_is_shown_a_renewed_certificate() {
    let pki = Pki::new("ours");
    let served = Served::new(&pki, LIMIT).await;
    let shown = async || {
        let stream = served.shake(&pki, Some(pki.issue(&[]))).await.unwrap();
        let chain = stream.get_ref().1.peer_certificates().unwrap();
        chain[0].clone()
    };
    let first = shown().await;
    assert_eq!(shown().await, first);
    served.configs.send_replace(pki.server());
    assert_ne!(shown().await, first);
}
