//! Connections: HTTP/1, one request each, bounded in number, size and time.
//!
//! A probe is a connection of a few milliseconds. So when there are too many the oldest is cut, and not the newest made to wait:
//! those who open connections and say nothing cannot keep a probe from its answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Exposed, answer};

/// The largest head of a request, in bytes: the least that the library takes.
const MAX_HEAD: usize = 8 << 10;
/// How long to wait when no connection can be accepted, for example for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What connections may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at a time.
    pub(super) connections: usize,
    /// From the first byte of a request's head to its last.
    pub(super) head: Duration,
    /// The whole life of a connection.
    pub(super) life: Duration,
    /// How long what is being answered may go on when the endpoint stops.
    pub(super) grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            head: Duration::from_secs(5),
            life: Duration::from_secs(15),
            grace: Duration::from_millis(100),
        }
    }
}

/// Serves until `stop`, then up to the grace longer.
pub(super) async fn serve(
    listener: TcpListener,
    exposed: Arc<Exposed>,
    stop: CancellationToken,
    limits: Limits,
) {
    let mut connections = JoinSet::new();
    let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    by_age.retain(|connection| !connection.is_finished());
                    while connections.len() >= limits.connections {
                        if let Some(oldest) = by_age.pop_front() {
                            oldest.abort();
                        }
                        // The one that was cut, if no other has ended by itself.
                        connections.join_next().await;
                    }
                    by_age.push_back(connections.spawn(connection(stream, Arc::clone(&exposed), limits)));
                }
                Err(error) if is_one_connections(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "the health endpoint could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    // Whoever is slow is cut.
    let _ = timeout(limits.grace, all).await;
}

async fn connection(stream: TcpStream, exposed: Arc<Exposed>, limits: Limits) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer::to(request.method(), request.uri().path(), &exposed);
        ready(Ok::<_, Infallible>(answer))
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false);
    let served = http.serve_connection(TokioIo::new(stream), service);
    match timeout(limits.life, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the health endpoint ended"),
        Err(_) => tracing::debug!("a connection to the health endpoint was cut: it took too long"),
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
