use std::time::Instant;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::*;

mod secured;

const HEAD: Duration = Duration::from_millis(200);
/// What a test waits at the most.
const LIMIT: Duration = Duration::from_secs(60);

struct Served {
    address: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl Served {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = CancellationToken::new();
        let router = Router::new()
            .route("/", get(async || "here"))
            .route("/large", get(async || vec![b'x'; 64 << 20]))
            // As the API does: an answer although the body has not ended.
            .route(
                "/slow",
                post(async |_: axum::body::Body| StatusCode::REQUEST_TIMEOUT),
            )
            .route("/echo", post(async |body: Bytes| body));
        let patience = Patience {
            handshake: HEAD,
            head: HEAD,
            answer: HEAD,
            grace: Duration::ZERO,
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, None, router, stop.clone(), patience));
        Self {
            address,
            stop,
            serving,
        }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// It closes this connection, which has sent `sent`; gives what it said before.
    async fn is_closed(&self, sent: &[u8]) -> String {
        let mut stream = self.dial().await;
        stream.write_all(sent).await.expect("sent");
        let mut said = Vec::new();
        // A reset is an end as well.
        let ended = timeout(LIMIT, stream.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "open after {LIMIT:?}");
        String::from_utf8_lossy(&said).into_owned()
    }

    async fn end(mut self) {
        self.stop.cancel();
        timeout(LIMIT, self.serving.join_next())
            .await
            .expect("it ends");
    }
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let served = Served::new().await;
    for sent in [
        "",
        "P",
        "PRI * HTTP/2.0\r\n\r\nSM",
        "GET / HTTP/1.1\r\nHos",
        "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let said = served.is_closed(sent.as_bytes()).await;
        assert_eq!(
            said.ends_with("here"),
            sent.ends_with("a\r\n\r\n"),
            "{sent:?}"
        );
    }
    served.end().await;
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_body_is_heard_and_the_connection_ends() {
    let served = Served::new().await;
    let said = served
        .is_closed(b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n1")
        .await;
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    served.end().await;
}

#[tokio::test]
async fn a_request_may_take_longer_than_a_head() {
    let served = Served::new().await;
    let mut stream = served.dial().await;
    let began = Instant::now();
    stream
        .write_all(
            b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 30\r\n\r\n",
        )
        .await
        .expect("sent");
    for _ in 0..30 {
        tokio::time::sleep(HEAD / 10).await;
        stream.write_all(b"x").await.expect("sent");
    }
    let mut said = String::new();
    timeout(LIMIT, stream.read_to_string(&mut said))
        .await
        .expect("in time")
        .expect("an answer");
    assert!(said.ends_with(&"x".repeat(30)), "{said}");
    assert!(began.elapsed() > HEAD * 2);
    served.end().await;
}

#[tokio::test]
async fn an_answer_nobody_takes_ends_the_connection() {
    let served = Served::new().await;
    let mut stream = served.dial().await;
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .expect("sent");
    // Nothing is read, so only a write can tell that the other side has gone.
    let gone = timeout(LIMIT, async {
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(HEAD / 10).await;
        }
    });
    assert!(gone.await.is_ok(), "open after {LIMIT:?}");
    served.end().await;
}
