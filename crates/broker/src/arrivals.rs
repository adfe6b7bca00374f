//! Connections as they come: so many at a time, and each says within its limit that it speaks HTTP/2.
//!
//! The library waits for that without end, and asks again at once when no connection can be accepted. What is silent later is found by
//! its pings.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The first words of HTTP/2 must have arrived after this.
const GREETING: Duration = Duration::from_secs(10);
/// How many bytes they have.
const GREETING_BYTES: usize = 24;
/// How long to wait when no connection can be accepted, for example for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts for ever, at most `limit` at a time; more wait in the kernel's queue.
pub(crate) fn arrivals(
    listener: TcpListener,
    limit: usize,
) -> impl Stream<Item = io::Result<Arrival>> {
    let places = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
    futures::stream::unfold((listener, places), async |(listener, places)| {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let arrival = Arrival::new(stream, place);
                    return Some((Ok(arrival), (listener, places)));
                }
                Err(error) if is_one_connections(&error) => {}
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "no worker's connection can be accepted; trying on");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    })
}

/// The connection was gone before it was accepted: nothing is wrong with the listener.
fn is_one_connections(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// A connection, and its place among those there may be.
pub(crate) struct Arrival {
    stream: TcpStream,
    /// Until it has greeted: what is left of the greeting, and of the time for it.
    awaited: Option<(usize, Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

impl Arrival {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit) -> Self {
        // Messages are written whole; waiting to join them to more only adds latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        Self {
            stream,
            awaited: Some((GREETING_BYTES, Box::pin(sleep(GREETING)))),
            _place: place,
        }
    }
}

impl Connected for Arrival {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Arrival {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if let Some((left, limit)) = &mut self.awaited {
            *left = left.saturating_sub(into.filled().len() - before);
            if *left == 0 {
                self.awaited = None;
            } else if read.is_pending() && limit.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "it did not say that it speaks HTTP/2",
                )));
            }
        }
        read
    }
}

impl AsyncWrite for Arrival {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
