//! What is on the wire, below the library that speaks gRPC: the order of the first messages, and how a stream is left.

use bytes::{Buf, Bytes, BytesMut};
use h2::server::{Connection, SendResponse};
use h2::{RecvStream, SendStream};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::super::outbox::Outbox;
use super::super::session::Session;
use super::*;
use crate::transport::dial;
use crate::wire::work_stream_client_msg::Body;
use crate::wire::worker_service_client::WorkerServiceClient;
use crate::wire::{self, WorkStreamClientMsg};
use crate::{Outcome, TaskError};

/// The server's end of one stream, before any header was sent.
pub(super) struct Peer {
    connection: Connection<TcpStream, Bytes>,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    down: Option<SendStream<Bytes>>,
    buffer: BytesMut,
}

/// How the request stream of a peer ended.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    InOrder,
    Broken,
}

impl Peer {
    pub(super) async fn accept(listener: &TcpListener) -> Self {
        let (socket, _) = tokio::time::timeout(LIMIT, listener.accept())
            .await
            .unwrap()
            .unwrap();
        let mut connection = h2::server::handshake(socket).await.unwrap();
        loop {
            let (request, respond) = connection.accept().await.unwrap().unwrap();
            if request.uri().path().ends_with("/WorkStream") {
                return Self {
                    connection,
                    body: request.into_body(),
                    respond,
                    down: None,
                    buffer: BytesMut::new(),
                };
            }
        }
    }

    pub(super) fn respond(&mut self, grpc_status: Option<&str>) {
        let mut response = http::Response::builder().header("content-type", "application/grpc");
        if let Some(status) = grpc_status {
            response = response.header("grpc-status", status);
        }
        let response = response.body(()).unwrap();
        self.down = Some(
            self.respond
                .send_response(response, grpc_status.is_some())
                .unwrap(),
        );
    }

    pub(super) fn send(&mut self, body: wire::work_stream_server_msg::Body) {
        if self.down.is_none() {
            self.respond(None);
        }
        let message = wire::WorkStreamServerMsg { body: Some(body) }.encode_to_vec();
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend(message);
        assert!(self.send_raw(frame), "the stream is open");
    }

    /// Sends these bytes as they are; false if nobody takes them any more.
    pub(super) fn send_raw(&mut self, bytes: Vec<u8>) -> bool {
        if self.down.is_none() {
            self.respond(None);
        }
        let down = self.down.as_mut().unwrap();
        down.send_data(bytes.into(), false).is_ok()
    }

    /// Ends the stream with this status.
    pub(super) fn trail(&mut self, status: &str) {
        if self.down.is_none() {
            self.respond(None);
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        // The worker may have gone already.
        let _ = self.down.as_mut().unwrap().send_trailers(trailers);
    }

    /// The next message that is no heartbeat.
    async fn next_word(&mut self) -> Body {
        loop {
            match self.next().await.unwrap() {
                Body::Heartbeat(_) => {}
                body => return body,
            }
        }
    }

    /// Waits for a heartbeat that names these leases and no other.
    async fn names(&mut self, leases: &[&str]) {
        let names = async {
            loop {
                let Body::Heartbeat(mut beat) = self.next().await.unwrap() else {
                    continue;
                };
                beat.lease_token.sort_unstable();
                if beat.lease_token == leases {
                    break;
                }
            }
        };
        tokio::time::timeout(LIMIT, names)
            .await
            .unwrap_or_else(|_| panic!("no heartbeat names {leases:?}"));
    }

    /// The next message, or how the stream ended.
    pub(super) async fn next(&mut self) -> Result<Body, End> {
        loop {
            if self.buffer.len() >= 5 {
                let length = u32::from_be_bytes(self.buffer[1..5].try_into().unwrap()) as usize;
                if self.buffer.len() >= 5 + length {
                    assert_eq!(self.buffer[0], 0, "ours sends nothing compressed");
                    self.buffer.advance(5);
                    let message =
                        WorkStreamClientMsg::decode(self.buffer.split_to(length)).unwrap();
                    return Ok(message.body.unwrap());
                }
            }
            let data = tokio::time::timeout(LIMIT, async {
                tokio::select! {
                    data = self.body.data() => data,
                    // Pulls of configs come as further requests; nobody answers them.
                    () = async { while let Some(Ok(_)) = self.connection.accept().await {} } => Some(Err(h2::Reason::CANCEL.into())),
                }
            });
            match data.await.expect("something comes") {
                None => return Err(End::InOrder),
                Some(Err(_)) => return Err(End::Broken),
                Some(Ok(data)) => {
                    self.body
                        .flow_control()
                        .release_capacity(data.len())
                        .unwrap();
                    self.buffer.extend_from_slice(&data);
                }
            }
        }
    }

    pub(super) async fn end(&mut self) -> End {
        loop {
            if let Err(end) = self.next().await {
                return end;
            }
        }
    }
}

pub(super) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = format!("http://{}", listener.local_addr().unwrap());
    (listener, addr)
}

pub(super) fn config() -> wire::ProviderConfigUpdate {
    wire::ProviderConfigUpdate {
        kind: "a".to_owned(),
        kind_version: 2,
        ..wire::ProviderConfigUpdate::default()
    }
}

pub(super) fn task(n: u8) -> wire::StageTask {
    wire::StageTask {
        stage: 2,
        kind: "a".to_owned(),
        kind_version: 2,
        resource_id: vec![n; 16].into(),
        lease_token: format!("lease-{n}"),
        claim_epoch: n.into(),
        work_req: Some(wire::WorkRequest {
            resource: Some(wire::Resource {
                name: n.to_string(),
                ..wire::Resource::default()
            }),
            ..wire::WorkRequest::default()
        }),
        ..wire::StageTask::default()
    }
}

fn provider(kind: &str) -> FnProvider {
    FnProvider::new(KindVersion::new(kind, 2), async |_, _| Ok(Outcome::new()))
}

#[tokio::test]
async fn it_waits_for_no_header_and_says_first_what_it_serves_then_what_is_not_ready() {
    let (listener, addr) = listen().await;
    let unready = provider("unready").with_ready(|| false);
    let _worker = start(
        options(&addr),
        vec![Arc::new(provider("ready")), Arc::new(unready)],
    );
    let mut peer = Peer::accept(&listener).await;
    let Ok(Body::Subscribe(subscribe)) = peer.next().await else {
        panic!("Subscribe is the first message")
    };
    assert_eq!(subscribe.kinds, ["ready", "unready"]);
    assert_eq!(subscribe.kind_versions, [2, 2]);
    assert_eq!(subscribe.max_inflight, 16);
    assert_eq!(subscribe.resumed, []);
    let Ok(Body::Interest(interest)) = peer.next().await else {
        panic!("the pair that is not ready comes next")
    };
    assert_eq!(
        (&*interest.kind, interest.kind_version, interest.has_worker),
        ("unready", 2, false)
    );
    // No header was sent, and it goes on.
    assert!(matches!(peer.next().await, Ok(Body::Heartbeat(_))));
}

#[tokio::test]
async fn only_the_end_of_a_drain_ends_the_stream_in_order() {
    let (listener, addr) = listen().await;
    let worker = start(options(&addr), vec![Arc::new(provider("a"))]);
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    drop(worker);
    assert_eq!(
        peer.end().await,
        End::Broken,
        "a worker that goes away leaves a broken stream"
    );

    let worker = start(options(&addr), vec![Arc::new(provider("a"))]);
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    assert!(matches!(peer.next().await, Ok(Body::Heartbeat(_))));
    worker.stop.cancel();
    let mut last = None;
    let end = loop {
        match peer.next().await {
            Ok(body) => last = Some(body),
            Err(end) => break end,
        }
    };
    assert_eq!(end, End::InOrder);
    let Some(Body::Interest(interest)) = last else {
        panic!("{last:?} is not the word that it takes no more tasks")
    };
    assert!(!interest.has_worker);
}

#[tokio::test]
async fn a_task_that_crosses_the_half_close_is_left_to_the_broker() {
    let (listener, addr) = listen().await;
    let notes = Notes::default();
    let said = notes.clone();
    let runs = FnProvider::new(KindVersion::new("a", 2), move |_, _| {
        said.add("started");
        std::future::pending()
    });
    let configured = CancellationToken::new();
    let tell = configured.clone();
    let runs = runs.with_on_config(move |_| tell.cancel());
    let mut worker = start(options(&addr), vec![Arc::new(runs)]);
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    peer.send(wire::work_stream_server_msg::Body::Config(config()));
    while !configured.is_cancelled() {
        peer.next().await.unwrap();
    }
    worker.stop.cancel();
    assert_eq!(peer.end().await, End::InOrder);
    peer.send(wire::work_stream_server_msg::Body::Task(task(1)));
    // Long enough for a handler to start; the broker closes its side only then.
    let quiet = tokio::time::timeout(Duration::from_millis(200), async {
        tokio::select! {
            _ = notes.next() => {}
            () = async { while let Some(Ok(_)) = peer.connection.accept().await {} } => {}
        }
    });
    assert!(quiet.await.is_err(), "nothing starts");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
    peer.down.as_mut().unwrap().send_trailers(trailers).unwrap();
    let closing = async { while let Some(Ok(_)) = peer.connection.accept().await {} };
    let (ended, ()) = tokio::join!(worker.ended(), closing);
    ended.unwrap();
}

#[tokio::test]
async fn a_worker_that_drains_names_its_tasks_until_they_end_and_gives_back_what_waited() {
    let (listener, addr) = listen().await;
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let (said, go) = (notes.clone(), release.clone());
    let runs = FnProvider::new(KindVersion::new("a", 2), move |ctx, request| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(request.resource.name);
            ctx.cancelled().await;
            said.add("cut");
            go.cancelled().await;
            Err(TaskError::transient("half done"))
        }
    })
    .with_cleanup_grace(LIMIT);
    let mut options = options(&addr);
    options.max_parallel = 1;
    options.drain_timeout = Duration::from_millis(200);
    let worker = start(options, vec![Arc::new(runs)]);
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    peer.send(wire::work_stream_server_msg::Body::Config(config()));
    for n in 1..=2 {
        peer.send(wire::work_stream_server_msg::Body::Task(task(n)));
    }
    peer.names(&["lease-1", "lease-2"]).await;
    assert_eq!(notes.next().await, "1");
    worker.stop.cancel();
    assert!(matches!(peer.next_word().await, Body::Interest(interest) if !interest.has_worker));
    let mut beats = 0;
    let given_back = async {
        loop {
            match peer.next().await.unwrap() {
                Body::Heartbeat(beat) => {
                    assert_eq!(beat.lease_token.len(), 2, "both leases run on");
                    beats += 1;
                }
                Body::Complete(complete) => return complete,
                other => panic!("{other:?}"),
            }
        }
    };
    let given_back = tokio::time::timeout(LIMIT, given_back)
        .await
        .expect("what waits is given back");
    assert_eq!(given_back.lease_token, "lease-2");
    assert_eq!(
        given_back.error_message,
        "interrupted: the worker is shutting down"
    );
    assert!(beats > 0, "the budget is longer than the heartbeat");
    assert_eq!(notes.next().await, "cut");
    peer.names(&["lease-1"]).await;
    assert!(notes.is_empty(), "what waited did not start");
    release.cancel();
    let Body::Complete(cut) = peer.next_word().await else {
        panic!("the result of what was cut comes next")
    };
    assert_eq!(cut.lease_token, "lease-1");
    assert_eq!(peer.end().await, End::InOrder);
}

#[tokio::test]
async fn a_worker_that_leaves_a_stream_and_lives_on_breaks_it() {
    let (listener, addr) = listen().await;
    let _worker = start(options(&addr), vec![Arc::new(provider("a"))]);
    // However the broker ends its side, in order or not.
    for status in ["14", "0"] {
        let mut peer = Peer::accept(&listener).await;
        peer.next().await.unwrap();
        peer.respond(Some(status));
        assert_eq!(peer.end().await, End::Broken);
    }
}

#[tokio::test]
async fn what_runs_and_what_waits_is_resumed_and_results_come_before_new_work() {
    let (listener, addr) = listen().await;
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let (said, go) = (notes.clone(), release.clone());
    let runs = FnProvider::new(KindVersion::new("a", 2), move |_, request| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(&*request.resource.name);
            if request.resource.name == "1" {
                go.cancelled().await;
            } else {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::new().with_status(json!(request.resource.name)))
        }
    });
    let mut options = options(&addr);
    options.max_parallel = 2;
    let _worker = start(
        options,
        vec![Arc::new(runs), Arc::new(provider("b").with_ready(|| false))],
    );
    let mut peer = Peer::accept(&listener).await;
    peer.next().await.unwrap();
    peer.send(wire::work_stream_server_msg::Body::Config(config()));
    for n in 1..=3 {
        peer.send(wire::work_stream_server_msg::Body::Task(task(n)));
    }
    // The third waits for a slot; a heartbeat names it too.
    peer.names(&["lease-1", "lease-2", "lease-3"]).await;
    assert_eq!(
        (notes.next().await, notes.next().await),
        ("1".to_owned(), "2".to_owned())
    );
    drop(peer);
    release.cancel();
    // Until the first is a result, the worker may come back with it running still.
    loop {
        let mut peer = Peer::accept(&listener).await;
        let Body::Subscribe(subscribe) = peer.next_word().await else {
            panic!("Subscribe is the first message")
        };
        let mut resumed: Vec<_> = subscribe
            .resumed
            .iter()
            .map(|claim| (&*claim.lease_token, claim.claim_epoch))
            .collect();
        resumed.sort_unstable();
        assert_eq!(resumed, [("lease-1", 1), ("lease-2", 2), ("lease-3", 3)]);
        assert!(matches!(peer.next_word().await, Body::Interest(interest) if interest.kind == "b"));
        if let Body::Complete(complete) = peer.next_word().await {
            assert_eq!(
                (&*complete.lease_token, &complete.status[..]),
                ("lease-1", &br#""1""#[..])
            );
            return;
        }
    }
}

#[tokio::test]
async fn a_peer_that_finds_pings_too_frequent_is_understood() {
    let (listener, addr) = listen().await;
    let options = options(&addr);
    let serve = async {
        let (socket, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake::<_>(socket).await.unwrap();
        let _request = connection.accept().await;
        connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
        let _ = std::future::poll_fn(|cx| connection.poll_closed(cx)).await;
    };
    let call = async {
        let connection = dial(&options, options.keepalive_interval).await.unwrap();
        let link = Arc::clone(&connection.link);
        assert!(!link.asks_for_calm());
        let mut client = WorkerServiceClient::new(connection.channel);
        let request = wire::GetProviderConfigRequest::default();
        client.get_provider_config(request).await.unwrap_err();
        link
    };
    let ((), link) = tokio::join!(serve, call);
    assert!(link.asks_for_calm());
}

/// Why a session fails with whoever is behind the listener.
async fn why_it_fails(addr: &str, answer: impl Future<Output = ()>) -> String {
    let options = options(addr);
    let asked = async {
        let connection = dial(&options, options.keepalive_interval).await.unwrap();
        let outbox = Outbox::default();
        outbox.push(Body::Heartbeat(wire::WorkHeartbeat::default()));
        let mut session = Session::open(connection, outbox);
        let failed = std::future::poll_fn(|cx| session.poll_message(cx))
            .await
            .unwrap_err();
        session.why(&failed)
    };
    let both = async { tokio::join!(asked, answer).0 };
    tokio::time::timeout(LIMIT, both).await.expect("it fails")
}

#[tokio::test]
async fn a_server_that_is_no_broker_is_named_as_what_it_is() {
    let (listener, addr) = listen().await;
    let http1 = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        let answer = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\r\n";
        socket.write_all(answer).await.unwrap();
        // Until the worker hangs up.
        tokio::io::copy(&mut socket, &mut tokio::io::sink())
            .await
            .ok();
    };
    let why = Box::pin(why_it_fails(&addr, http1)).await;
    assert!(why.contains("no broker: it does not speak HTTP/2"), "{why}");

    let (listener, addr) = listen().await;
    let http2 = async {
        let mut peer = Peer::accept(&listener).await;
        let response = http::Response::builder()
            .status(404)
            .header("content-type", "application/problem+json")
            .body(())
            .unwrap();
        let mut body = peer.respond.send_response(response, false).unwrap();
        body.send_data(Bytes::from_static(b"{\"title\": \"Not Found\"}"), true)
            .unwrap();
        peer.end().await;
    };
    let why = Box::pin(why_it_fails(&addr, http2)).await;
    assert!(
        why.contains("no broker: it speaks HTTP but not gRPC"),
        "{why}"
    );
}

/// What is logged, line by line.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    pub(super) fn count(&self, text: &str) -> usize {
        self.text().matches(text).count()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(super) fn log() -> (Log, tracing::subscriber::DefaultGuard) {
    // While there is one subscriber alone, a line that another test's thread comes to first counts as heard by nobody, for good.
    static SECOND: std::sync::OnceLock<tracing::Dispatch> = std::sync::OnceLock::new();
    SECOND.get_or_init(|| tracing::Dispatch::new(tracing_subscriber::registry()));
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone());
    (log, tracing::subscriber::set_default(lines.finish()))
}

#[tokio::test]
async fn only_a_broker_is_said_to_be_connected() {
    let (log, _logged) = log();
    let (listener, addr) = listen().await;
    let _worker = start(options(&addr), vec![Arc::new(provider("a"))]);
    let failures = "no connection to the broker";
    // Another service of gRPC, another of HTTP/2: both take the connection before they refuse.
    for (times, kind, status) in [(1, "application/grpc", "12"), (2, "text/html", "")] {
        let mut peer = Peer::accept(&listener).await;
        peer.next().await.unwrap();
        let response = http::Response::builder()
            .header("content-type", kind)
            .header("grpc-status", status)
            .body(())
            .unwrap();
        peer.respond.send_response(response, true).unwrap();
        assert_eq!(peer.end().await, End::Broken);
        until(&format!("it fails\n{}", log.text()), || {
            log.count(failures) == times
        })
        .await;
    }
    assert_eq!(log.count("serving") + log.count("connected again"), 0);
    for (serving, again) in [(1, 0), (1, 1)] {
        let mut peer = Peer::accept(&listener).await;
        peer.next().await.unwrap();
        peer.respond(None);
        tokio::select! {
            () = until("it is said", || log.count("serving") + log.count("connected again") == serving + again) => {}
            end = peer.end() => panic!("it left: {end:?}"),
        }
        assert_eq!(
            (log.count("serving"), log.count("connected again")),
            (serving, again)
        );
    }
}
