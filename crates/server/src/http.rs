//! Serving the API: connections with HTTP/1.1 keep-alive or HTTP/2, in cleartext or TLS, and their end.
//!
//! Nobody holds a connection by doing nothing: a head must arrive, an answer must be taken. How long a body may take is the API's to say.
//! When told to stop, the listener closes at once, idle connections too, requests under way get the grace; then whatever is left is cut.

mod refusals;
mod unstuck;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, Response};
use converge_api::ClientCertificate;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::tls::TlsConfigs;
use refusals::Refusals;
use unstuck::Unstuck;

/// Connections at a time; more wait in the kernel's queue.
const CONNECTIONS: usize = 8_192;
/// How long to wait when no connection can be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long the server waits for its clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Hands must have been shaken after this, where TLS is spoken.
    pub(crate) handshake: Duration,
    /// A request's head must have arrived whole after this; the next one on a connection, too.
    pub(crate) head: Duration,
    /// A client must take something of an answer within this.
    pub(crate) answer: Duration,
    /// How long requests under way may go on once the server stops.
    pub(crate) grace: Duration,
}

/// Serves until `stop`, then up to the grace longer; in TLS if there are settings for it.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsConfigs>,
    router: Router,
    stop: CancellationToken,
    patience: Patience,
) {
    let mut connections = JoinSet::new();
    let refusals = Arc::new(Refusals::default());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    // Answers are written whole; waiting to join them to more only adds latency.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "no TCP_NODELAY");
                    }
                    let caller = Caller { peer, refusals: Arc::clone(&refusals), certificate: None };
                    let (router, stop) = (router.clone(), stop.clone());
                    match &tls {
                        None => connections.spawn(connection(stream, caller, router, patience, stop)),
                        Some(configs) => {
                            let acceptor = TlsAcceptor::from(Arc::clone(&configs.borrow()));
                            connections.spawn(secured(stream, acceptor, caller, router, patience, stop))
                        }
                    };
                }
                Err(error) if is_one_connections(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(patience.grace, all).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            "requests were cut: their grace is over"
        );
        connections.shutdown().await;
    }
}

/// The other side of a connection.
struct Caller {
    peer: SocketAddr,
    refusals: Arc<Refusals>,
    certificate: Option<ClientCertificate>,
}

/// Shakes hands first. Requests of a client that showed a certificate say so.
async fn secured(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    mut caller: Caller,
    router: Router,
    patience: Patience,
    stop: CancellationToken,
) {
    let peer = caller.peer;
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(patience.handshake, acceptor.accept(stream)) => shaken,
        () = stop.cancelled() => return,
    };
    match shaken {
        Err(_) => tracing::debug!(%peer, "connection closed: no handshake of TLS in time"),
        Ok(Err(error)) => caller.refusals.handshake(peer, &error),
        Ok(Ok(stream)) => {
            caller.certificate = certificate(&stream);
            connection(stream, caller, router, patience, stop).await;
        }
    }
}

/// One that was not accepted ended the handshake.
fn certificate(stream: &TlsStream<TcpStream>) -> Option<ClientCertificate> {
    let shown = stream.get_ref().1.peer_certificates()?;
    (!shown.is_empty()).then_some(ClientCertificate)
}

impl Caller {
    fn asks<B>(&self, mut request: Request<B>) -> Request<B> {
        if let Some(shown) = self.certificate {
            request.extensions_mut().insert(shown);
        }
        request
    }

    fn hears<B>(&self, response: Response<B>) -> Response<B> {
        self.refusals.answered(self.peer, response.status());
        response
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    caller: Caller,
    router: Router,
    patience: Patience,
    stop: CancellationToken,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(patience.head)
        .max_concurrent_streams(1_024);
    // Which protocol it is shows in the first bytes, and nothing below limits how long those may take.
    let asked = Arc::new(AtomicBool::new(false));
    let ask = Arc::clone(&asked);
    let caller = Arc::new(caller);
    let hearer = Arc::clone(&caller);
    let router = router
        .map_request(move |request| {
            ask.store(true, Ordering::Relaxed);
            caller.asks(request)
        })
        .map_response(move |response| hearer.hears(response));
    let service = TowerToHyperService::new(router);
    let stream = TokioIo::new(Unstuck::new(stream, patience.answer));
    let connection = builder.serve_connection(stream, service);
    let mut connection = std::pin::pin!(connection);
    let first_head = tokio::time::sleep(patience.head);
    let mut first_head = std::pin::pin!(first_head);
    let mut waits = true;
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                }
                return;
            }
            () = &mut first_head, if waits => {
                waits = false;
                if !asked.load(Ordering::Relaxed) {
                    tracing::debug!("connection closed: no request came");
                    return;
                }
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The connection was gone before it was accepted: nothing is wrong with the listener.
fn is_one_connections(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

#[cfg(test)]
mod tests;
