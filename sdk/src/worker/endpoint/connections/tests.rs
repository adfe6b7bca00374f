use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::KindVersion;
use crate::worker::health::Health;
use crate::worker::metrics::Metrics;

/// What a test waits at the most.
const LIMIT: Duration = Duration::from_secs(60);
/// Longer than any test waits.
const NEVER: Duration = Duration::from_secs(3600);
const PATIENT: Limits = Limits {
    connections: 64,
    head: NEVER,
    life: NEVER,
    grace: Duration::ZERO,
};

struct Served {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Served {
    async fn with(limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kinds = [KindVersion::new("demo", 1)];
        let exposed = Exposed {
            health: Arc::new(Health::new(kinds.iter(), NEVER)),
            metrics: Metrics::new(kinds.iter(), 1).1,
        };
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::new(exposed), stop.clone(), limits));
        Self {
            address,
            stop,
            serving,
        }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// What is said to somebody who sends this, until the connection ends.
    async fn told(&self, sent: &[u8]) -> String {
        let mut stream = self.dial().await;
        // It may have been closed in the middle of it.
        let _ = stream.write_all(sent).await;
        said(&mut stream).await
    }
}

async fn said(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A reset is an end as well.
    let ended = timeout(LIMIT, stream.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "open after {LIMIT:?}");
    String::from_utf8_lossy(&said).into_owned()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn paths_and_methods_are_answered_as_they_should_be() {
    let served = Served::with(PATIENT).await;
    for (request, status, part) in [
        ("GET /livez", 200, "{\"status\":\"ok\""),
        ("GET /healthz", 200, "{\"status\":\"ok\""),
        ("GET /readyz?verbose", 503, "none has been up yet"),
        ("GET /readyz", 503, "cache-control: no-store"),
        (
            "GET /metrics",
            200,
            "content-type: text/plain; version=0.0.4; charset=utf-8",
        ),
        ("GET /livez", 200, "content-type: application/json"),
        ("GET /livez", 200, "connection: close"),
        ("POST /livez", 405, "allow: GET, HEAD"),
        ("DELETE /metrics", 405, "allow: GET, HEAD"),
        ("BREW /readyz", 405, "allow: GET, HEAD"),
        ("GET /", 404, "/livez, /healthz, /readyz and /metrics"),
        ("GET /livez/", 404, ""),
        ("GET //metrics", 404, ""),
        ("OPTIONS *", 404, ""),
        ("POST /nothing", 404, ""),
    ] {
        let sent = format!("{request} HTTP/1.1\r\nHost: a\r\n\r\n");
        let said = served.told(sent.as_bytes()).await;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {said}"
        );
        assert!(said.contains(part), "{request}: {said}");
    }
    let said = served.told(b"GET /livez HTTP/1.0\r\n\r\n").await;
    assert!(
        said.contains(" 200 ") && said.contains("{\"status\""),
        "{said}"
    );
}

#[tokio::test]
async fn the_answer_to_head_is_that_to_get_without_its_body() {
    let served = Served::with(PATIENT).await;
    for path in ["/livez", "/readyz", "/metrics", "/nothing"] {
        let whole = served.told(&get(path)).await;
        let (head, body) = whole.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
        let sent = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let said = served.told(sent.as_bytes()).await;
        let undated = |head: &str| {
            let lines = head.lines().filter(|line| !line.starts_with("date:"));
            // How long something lasts is a part of the text.
            lines
                .filter(|line| path != "/readyz" || !line.starts_with("content-length"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (head_of, body_of) = said.split_once("\r\n\r\n").unwrap();
        assert_eq!((undated(head_of), body_of), (undated(head), ""));
    }
}

#[tokio::test]
async fn garbage_is_refused_and_hurts_nobody() {
    let served = Served::with(PATIENT).await;
    let long = "x".repeat(2 * MAX_HEAD);
    for (sent, answer) in [
        (&b"\0\0\0\0\r\n\r\n"[..], "HTTP/1.1 400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
            "HTTP/1.1 400",
        ),
        (
            b"GET /livez HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            "HTTP/1.1 400",
        ),
        (b"GET /livez HTTP/1.1\r\n: \r\n\r\n", "HTTP/1.1 400"),
        (b"GET \xff\xfe HTTP/1.1\r\n\r\n", ""),
        (
            format!("GET /livez HTTP/1.1\r\nA: {long}\r\n\r\n").as_bytes(),
            "HTTP/1.1 431",
        ),
        (
            format!("GET /{long} HTTP/1.1\r\n\r\n").as_bytes(),
            "HTTP/1.1 4",
        ),
        (
            format!("GET /livez HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200)).as_bytes(),
            "HTTP/1.1 431",
        ),
    ] {
        let said = served.told(sent).await;
        assert!(said.starts_with(answer), "{sent:?}: {said}");
        assert!(!said.contains(" 200 "), "{sent:?}: {said}");
    }
    // A body is not waited for.
    let sent = b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nx";
    assert!(served.told(sent).await.contains(" 200 "));
    assert!(served.told(&get("/livez")).await.contains(" 200 "));
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let served = Served::with(Limits {
        head: Duration::from_millis(100),
        ..PATIENT
    })
    .await;
    for sent in ["", "G", "GET /livez HTTP/1.1\r\nHos"] {
        assert_eq!(served.told(sent.as_bytes()).await, "", "{sent}");
    }
}

#[tokio::test]
async fn no_connection_outlives_its_time() {
    let served = Served::with(Limits {
        life: Duration::from_millis(200),
        ..PATIENT
    })
    .await;
    let mut stream = served.dial().await;
    let began = Instant::now();
    // A byte now and then does not keep it.
    let cut = timeout(LIMIT, async {
        while stream.write_all(b"G").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(cut.await.is_ok(), "open after {:?}", began.elapsed());
}

#[tokio::test]
async fn of_too_many_connections_the_oldest_is_cut_and_a_probe_is_answered() {
    let served = Served::with(Limits {
        connections: 3,
        ..PATIENT
    })
    .await;
    let mut silent = VecDeque::new();
    for _ in 0..9 {
        silent.push_back(served.dial().await);
        let said = timeout(LIMIT, served.told(&get("/livez"))).await.unwrap();
        assert!(said.contains(" 200 "), "{said}");
    }
    let mut first = silent.pop_front().unwrap();
    assert_eq!(said(&mut first).await, "", "the oldest was cut");
    let mut last = silent.pop_back().unwrap();
    last.write_all(&get("/livez")).await.unwrap();
    assert!(
        said(&mut last).await.contains(" 200 "),
        "the newest was not"
    );
}

#[tokio::test]
async fn it_ends_when_told_to_whoever_is_connected() {
    let mut served = Served::with(PATIENT).await;
    let mut silent = served.dial().await;
    assert!(served.told(&get("/livez")).await.contains(" 200 "));
    served.stop.cancel();
    timeout(LIMIT, served.serving.join_next()).await.unwrap();
    assert_eq!(said(&mut silent).await, "");
    assert!(TcpStream::connect(served.address).await.is_err());
}
