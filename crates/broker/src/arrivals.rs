//! Connections as they come: so many at a time, and each says within its limit that it speaks HTTP/2.
//!
//! The library waits for that without end, and asks again at once when no connection can be accepted. What is silent later is found by
//! its pings. Where TLS is spoken, the handshake is part of that limit and of each connection's own work: one that stalls in it holds its
//! place and nobody up, and whoever fails in it is told what TLS tells and closed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

use crate::refusals::Refusals;
use crate::tls::{Peer, TlsConfigs};

/// Handshake of TLS and the first words of HTTP/2 must be over after this.
const GREETING: Duration = Duration::from_secs(10);
/// How many bytes they have.
const GREETING_BYTES: usize = 24;
/// How long to wait when no connection can be accepted, for example for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// What connections are taken on.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// So many at a time; more wait in the kernel's queue.
    places: usize,
    /// How long a greeting may take.
    greeting: Duration,
    /// What each newly accepted one shakes hands by; cleartext without.
    tls: Option<TlsConfigs>,
    refusals: Arc<Refusals>,
}

impl Terms {
    pub(crate) fn new(places: usize, tls: Option<TlsConfigs>) -> Self {
        Self {
            places,
            greeting: GREETING,
            tls,
            refusals: Arc::default(),
        }
    }
}

/// Accepts for ever.
pub(crate) fn arrivals(
    listener: TcpListener,
    terms: Terms,
) -> impl Stream<Item = io::Result<Arrival>> {
    let places = Arc::new(Semaphore::new(terms.places.min(Semaphore::MAX_PERMITS)));
    let begun = (listener, places, terms);
    futures::stream::unfold(begun, async |(listener, places, terms)| {
        let place = Arc::clone(&places).acquire_owned().await.ok()?;
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let arrival = Arrival::new(stream, place, &terms);
                    return Some((Ok(arrival), (listener, places, terms)));
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
    stream: Stage,
    peer: Peer,
    /// Until it has greeted: what is left of the greeting, and of the time for it.
    awaited: Option<(usize, Pin<Box<Sleep>>)>,
    _place: OwnedSemaphorePermit,
}

/// How far a connection has come.
enum Stage {
    Shaking(Box<tokio_rustls::Accept<TcpStream>>, Arc<Refusals>),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Plain(TcpStream),
    /// The handshake failed; there is nothing left to speak on.
    Gone,
}

/// Calls the same method of whatever stream there is by now.
macro_rules! delegate {
    ($self:ident, $context:ident, $method:ident($($argument:expr),*)) => {{
        let this = $self.get_mut();
        ready!(this.poll_shaken($context))?;
        match &mut this.stream {
            Stage::Plain(stream) => Pin::new(stream).$method($context $(, $argument)*),
            Stage::Tls(stream) => Pin::new(stream).$method($context $(, $argument)*),
            Stage::Shaking(..) | Stage::Gone => Poll::Ready(Err(gone())),
        }
    }};
}

impl Arrival {
    fn new(stream: TcpStream, place: OwnedSemaphorePermit, terms: &Terms) -> Self {
        // Messages are written whole; waiting to join them to more only adds latency.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let peer = Peer::new(stream.peer_addr().ok());
        let stream = match &terms.tls {
            Some(configs) => {
                let config = Arc::clone(&configs.borrow());
                let accept = TlsAcceptor::from(config).accept(stream);
                Stage::Shaking(Box::new(accept), Arc::clone(&terms.refusals))
            }
            None => Stage::Plain(stream),
        };
        Self {
            stream,
            peer,
            awaited: Some((GREETING_BYTES, Box::pin(sleep(terms.greeting)))),
            _place: place,
        }
    }

    /// Ready once there is something to read from and write to.
    fn poll_shaken(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (accept, refusals) = match &mut self.stream {
            Stage::Shaking(accept, refusals) => (accept, refusals),
            Stage::Gone => return Poll::Ready(Err(gone())),
            Stage::Plain(_) | Stage::Tls(_) => return Poll::Ready(Ok(())),
        };
        match Pin::new(accept.as_mut()).poll(context) {
            Poll::Ready(Ok(stream)) => {
                self.peer.is_known_by(stream.get_ref().1);
                self.stream = Stage::Tls(Box::new(stream));
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                refusals.log(&self.peer, &error);
                self.stream = Stage::Gone;
                Poll::Ready(Err(error))
            }
            Poll::Pending => self.poll_patience(context),
        }
    }

    /// Fails once the time for the greeting is over.
    fn poll_patience<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if let Some((_, limit)) = &mut self.awaited {
            ready!(limit.as_mut().poll(context));
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "it did not say that it speaks HTTP/2",
            )));
        }
        Poll::Pending
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "no hands were shaken")
}

impl Connected for Arrival {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Arrival {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = {
            let this = self.as_mut();
            delegate!(this, context, poll_read(into))
        };
        if let Some((left, _)) = &mut self.awaited {
            *left = left.saturating_sub(into.filled().len() - before);
            if *left == 0 {
                self.awaited = None;
            } else if read.is_pending() {
                return self.poll_patience(context);
            }
        }
        read
    }
}

impl AsyncWrite for Arrival {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, context, poll_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, context, poll_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        // TLS takes several buffers too; while it shakes hands nobody writes.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, context, poll_flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stage::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stage::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            // There is nothing to end in order.
            Stage::Shaking(..) | Stage::Gone => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests;
