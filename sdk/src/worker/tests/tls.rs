//! TLS with a broker: who is let in, what is said of who is not, and files that change under a running worker.
//!
//! The in-memory broker speaks cleartext; a front of TLS stands before it.

mod pki;

use std::net::SocketAddr;
use std::path::PathBuf;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use self::pki::Pki;
use super::frames::{End, Log, Peer, listen, log};
use super::*;
use crate::Outcome;

const FAILED: &str = "no connection to the broker";

/// Ends TLS and forwards what is inside.
struct Front {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    config: Arc<ServerConfig>,
    /// The certificate that each client showed.
    clients: Vec<Option<Vec<u8>>>,
    /// How what came from each client ended.
    ends: Vec<Option<std::io::ErrorKind>>,
    cut: CancellationToken,
}

impl Front {
    async fn before(target: &str, config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            config,
            clients: Vec::new(),
            ends: Vec::new(),
            cut: CancellationToken::new(),
        }));
        let target = target.trim_start_matches("http://").to_owned();
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut pipes = JoinSet::new();
            loop {
                let (near, _) = listener.accept().await.unwrap();
                pipes.spawn(forward(near, target.clone(), Arc::clone(&shared)));
            }
        });
        Self {
            addr,
            state,
            _tasks: tasks,
        }
    }

    fn addr(&self, host: &str) -> String {
        format!("https://{host}:{}", self.addr.port())
    }

    fn clients(&self) -> Vec<Option<Vec<u8>>> {
        self.state.lock().unwrap().clients.clone()
    }

    /// From now on this is what it is; connections that are up end.
    fn becomes(&self, config: Arc<ServerConfig>) {
        let mut state = self.state.lock().unwrap();
        state.config = config;
        std::mem::take(&mut state.cut).cancel();
    }
}

async fn forward(near: TcpStream, target: String, state: Arc<Mutex<State>>) {
    let (config, cut) = {
        let state = state.lock().unwrap();
        (Arc::clone(&state.config), state.cut.clone())
    };
    let Ok(near) = TlsAcceptor::from(config).accept(near).await else {
        return;
    };
    assert_eq!(near.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let shown = near.get_ref().1.peer_certificates();
    let shown = shown.map(|chain| chain[0].to_vec());
    state.lock().unwrap().clients.push(shown);
    let far = TcpStream::connect(target).await.unwrap();
    let (mut from_near, mut to_near) = tokio::io::split(near);
    let (mut from_far, mut to_far) = far.into_split();
    let up = async {
        let copied = tokio::io::copy(&mut from_near, &mut to_far).await;
        let end = copied.err().map(|error| error.kind());
        state.lock().unwrap().ends.push(end);
    };
    tokio::select! {
        () = up => {}
        _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
        () = cut.cancelled() => {}
    }
}

fn tls_options(addr: &str, ca: Option<PathBuf>, client: Option<(PathBuf, PathBuf)>) -> RunOptions {
    let mut options = options(addr);
    options.tls.ca = ca;
    options.tls.client = client;
    options.tls_reload_interval = Duration::from_millis(20);
    options
}

fn ok() -> Vec<Arc<dyn Provider>> {
    vec![Arc::new(FnProvider::new(demo(), async |_, _| {
        Ok(Outcome::new())
    }))]
}

async fn serves(broker: &MemoryBroker, name: &str) {
    broker.apply(&demo(), name, empty());
    broker
        .until(LIMIT, "it is synced", |broker| is_synced(broker, name))
        .await;
}

async fn said(log: &Log, text: &str) {
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    while log.count(text) == 0 {
        pause.tick().await;
        assert!(
            started.elapsed() < LIMIT,
            "{text:?} is not said:\n{}",
            log.text()
        );
    }
}

#[tokio::test]
async fn a_worker_and_a_broker_that_know_each_other_work_over_tls() {
    let broker = broker().await;
    let pki = Pki::new();
    let front = Front::before(&broker.addr(), pki.mutual(&pki.server())).await;
    let client = pki.client("worker");
    for (host, name) in [("localhost", "a"), ("127.0.0.1", "b")] {
        let files = Some(pki.files("client", &client));
        let options = tls_options(&front.addr(host), Some(pki.ca()), files);
        let worker = start(options, ok());
        serves(&broker, name).await;
        worker.stop().await.unwrap();
    }
    assert_eq!(
        front.clients(),
        vec![Some(client.der.clone()), Some(client.der)]
    );
}

#[tokio::test]
async fn a_connection_that_is_left_ends_neither_the_stream_nor_tls() {
    let pki = Pki::new();
    let (listener, addr) = listen().await;
    let front = Front::before(&addr, pki.mutual(&pki.server())).await;
    let files = Some(pki.files("client", &pki.client("worker")));
    let options = tls_options(&front.addr("localhost"), Some(pki.ca()), files);
    let worker = start(options, ok());
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    drop(worker);
    assert_eq!(peer.end().await, End::Broken);
    until("the front sees the end", || {
        !front.state.lock().unwrap().ends.is_empty()
    })
    .await;
    let ends = std::mem::take(&mut front.state.lock().unwrap().ends);
    // A clean end of TLS reads as an end without an error.
    assert!(ends[0].is_some(), "{ends:?}");
}

#[tokio::test]
async fn what_is_wrong_between_two_ends_is_said_with_what_to_do() {
    let broker = broker().await;
    let pki = Pki::new();
    let other = Pki::new();
    let good = Some(pki.files("good", &pki.client("worker")));
    let foreign = Some(pki.files("foreign", &other.client("worker")));
    let old = Some(pki.files("old", &pki.expired("worker")));
    let server = pki.server();
    let ca = pki.ca();
    let cases = [
        (
            "localhost",
            pki.mutual(&other.server()),
            &good,
            "BROKER_CA_FILE=",
        ),
        (
            "localhost",
            pki.mutual(&pki.expired("localhost")),
            &good,
            "the broker's certificate has expired",
        ),
        (
            "127.0.0.1",
            pki.mutual(&pki.client("localhost")),
            &good,
            "the broker's certificate is not for 127.0.0.1",
        ),
        (
            "localhost",
            pki.mutual(&server),
            &None,
            "set TLS_CERT_FILE and TLS_KEY_FILE",
        ),
        (
            "localhost",
            pki.mutual(&server),
            &foreign,
            "does not accept the certificate in TLS_CERT_FILE=",
        ),
        (
            "localhost",
            pki.mutual(&server),
            &old,
            "has expired: renew it",
        ),
    ];
    for (host, config, client, expected) in cases {
        let (log, _logged) = log();
        let front = Front::before(&broker.addr(), config).await;
        let options = tls_options(&front.addr(host), Some(ca.clone()), client.clone());
        let worker = start(options, ok());
        said(&log, FAILED).await;
        assert!(log.text().contains(expected), "{expected}\n{}", log.text());
        assert_eq!(log.count("serving"), 0, "{expected}");
        worker.stop().await.unwrap();
    }
}

#[tokio::test]
async fn tls_and_cleartext_that_meet_are_told_apart() {
    let broker = broker().await;
    let pki = Pki::new();
    {
        let (log, _logged) = log();
        let addr = broker
            .addr()
            .replace("http://127.0.0.1", "https://localhost");
        let worker = start(tls_options(&addr, Some(pki.ca()), None), ok());
        said(
            &log,
            "speaks no TLS, and the broker's address says https://",
        )
        .await;
        worker.stop().await.unwrap();
    }
    let (log, _logged) = log();
    let front = Front::before(&broker.addr(), pki.mutual(&pki.server())).await;
    let addr = front.addr("127.0.0.1").replace("https://", "http://");
    let worker = start(tls_options(&addr, Some(pki.ca()), None), ok());
    said(&log, "speaks TLS, and the broker's address says http://").await;
    said(&log, "nothing is encrypted").await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_shakes_hands_is_given_up() {
    let (log, _logged) = log();
    let pki = Pki::new();
    let (_listener, addr) = listen().await;
    let addr = addr.replace("http://", "https://");
    let mut options = tls_options(&addr, Some(pki.ca()), None);
    options.connect_timeout = Duration::from_millis(100);
    let worker = start(options, ok());
    said(&log, "the broker did not answer within 100ms").await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_renewed_identity_is_shown_by_the_next_connection_and_a_half_written_one_is_not() {
    let (log, _logged) = log();
    // A task that is sent into a connection just cut is soon another's.
    let broker = broker_with(|options| options.lease = Duration::from_secs(1)).await;
    let pki = Pki::new();
    let front = Front::before(&broker.addr(), pki.mutual(&pki.server())).await;
    let first = pki.client("worker");
    let files = pki.files("client", &first);
    let options = tls_options(&front.addr("localhost"), Some(pki.ca()), Some(files));
    let worker = start(options, ok());
    serves(&broker, "a").await;

    // The certificate is there already, its key is not; then only half of it is.
    let second = pki.client("worker");
    std::fs::write(pki.path("client.pem"), &second.pem).unwrap();
    said(&log, "it is not the key of the certificate in").await;
    std::fs::write(pki.path("client.key"), &second.key[..second.key.len() / 2]).unwrap();
    said(&log, "its PEM is damaged or ends in the middle").await;
    front.becomes(pki.mutual(&pki.server()));
    until("it connects again", || front.clients().len() >= 2).await;
    serves(&broker, "b").await;

    std::fs::write(pki.path("client.key"), &second.key).unwrap();
    said(&log, "the next connection to the broker uses them").await;
    let before = front.clients().len();
    front.becomes(pki.mutual(&pki.server()));
    until("it connects again", || front.clients().len() > before).await;
    serves(&broker, "c").await;
    let shown = front.clients();
    assert_eq!(
        shown[..before],
        vec![Some(first.der); before],
        "the last good one"
    );
    assert_eq!(
        shown[before..],
        vec![Some(second.der); shown.len() - before]
    );

    // The broker moves to another CA: the file follows, and so does the worker.
    let other = Pki::new();
    front.becomes(other.front(&pki, &other.server()));
    said(&log, "is not signed by a CA in BROKER_CA_FILE").await;
    std::fs::write(pki.ca(), other.authority_pem()).unwrap();
    until("it connects again", || front.clients().len() > shown.len()).await;
    serves(&broker, "d").await;
    worker.stop().await.unwrap();
    assert!(!pki::shows_keys(&log.text()), "{}", log.text());
}

#[tokio::test]
async fn files_that_cannot_be_used_end_the_worker_before_it_dials() {
    let (listener, addr) = listen().await;
    let addr = addr.replace("http://", "https://");
    let pki = Pki::new();
    let client = pki.client("worker");
    let stranger = pki.client("stranger");
    let secret = client.key.replace("PRIVATE KEY", "PRIVATE  KEY");
    let files = [
        ("none.pem", "nothing of use"),
        ("empty.pem", "\n"),
        ("cert.pem", &client.pem),
        ("key.pem", &client.key),
        ("odd.pem", &secret),
        ("other.pem", &stranger.key),
        ("half.pem", &client.pem[..client.pem.len() / 2]),
        (
            "junk.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ),
    ];
    for (name, text) in files {
        std::fs::write(pki.path(name), text).unwrap();
    }
    let with = async |ca: &str, cert: &str, key: &str| {
        let client = Some((pki.path(cert), pki.path(key)));
        let options = tls_options(&addr, Some(pki.path(ca)), client);
        let error = run_worker(ok(), options, std::future::pending())
            .await
            .unwrap_err();
        assert!(matches!(error, WorkerError::Tls { .. }), "{error:?}");
        assert!(!pki::shows_keys(&format!("{error} {error:?}")), "{error:?}");
        error.to_string()
    };
    let text = with("none.pem", "key.pem", "missing.pem").await;
    for part in [
        "BROKER_CA_FILE=",
        "none.pem: it is not PEM",
        "TLS_CERT_FILE=",
        "there is no certificate in it; it holds a private key",
        "TLS_KEY_FILE=",
        "missing.pem: it cannot be read: No such file",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    for (ca, cert, key, expected) in [
        (
            "ca.pem",
            "cert.pem",
            "other.pem",
            "other.pem: it is not the key of the certificate in TLS_CERT_FILE=",
        ),
        ("ca.pem", "cert.pem", "cert.pem", "it holds a certificate"),
        (
            "ca.pem",
            "cert.pem",
            "odd.pem",
            "there is no private key in it",
        ),
        ("half.pem", "cert.pem", "key.pem", "ends in the middle"),
        ("empty.pem", "cert.pem", "key.pem", "it is empty"),
        ("junk.pem", "cert.pem", "key.pem", "no X.509 certificate"),
        ("ca.pem", "junk.pem", "key.pem", "no X.509 certificate"),
        (".", "cert.pem", "key.pem", "it is no regular file"),
    ] {
        let text = with(ca, cert, key).await;
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // Opening a pipe would wait for whoever writes into it.
    let made = std::process::Command::new("mkfifo")
        .arg(pki.path("pipe"))
        .status();
    assert!(made.unwrap().success());
    let text = with("ca.pem", "cert.pem", "pipe").await;
    assert!(text.contains("pipe: it is no regular file"), "{text}");
    assert!(
        futures_now(listener.accept()).is_none(),
        "nothing is dialled"
    );
}

#[tokio::test]
async fn what_was_read_shows_no_key() {
    let pki = Pki::new();
    let client = pki.client("worker");
    let files = Some(pki.files("client", &client));
    let mut options = tls_options("https://localhost:1", Some(pki.ca()), files);
    let tls = crate::tls::Tls::read(&options).await.unwrap();
    options.tls_loaded = Some(Arc::new(tls));
    let shown = format!("{options:?}");
    assert!(
        shown.contains("ClientConfig"),
        "the key is in there: {shown}"
    );
    assert!(!client.is_shown_in(&shown), "{shown}");
}

/// What a future gives without waiting.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
