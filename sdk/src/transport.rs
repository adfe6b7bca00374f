//! One connection to a broker, and how to leave it.
//!
//! A client library's ordinary drop ends the request stream cleanly, which on this wire means "I have drained". So the
//! connection keeps a second handle of its socket: [`Link::cut`] shuts the socket first, and nothing that is dropped later can
//! reach the peer. The same place watches the peer's frames: a connection counts only once the peer has answered, and a
//! peer that finds our pings too frequent says so in a frame that the library reports only if nothing else fails first.
//! A peer that is no broker is told by what it says first. TLS is beneath all that: the frames are watched above it, and a cut
//! goes to the socket below it, so that not even TLS ends in order. Not here: certificates (`tls.rs`), what is sent
//! (`worker/session.rs`).

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::transport::{Channel, Endpoint};

use crate::options::{BrokerAddr, RunOptions};
use crate::tls::{Tls, TlsFailure, Wire};

/// The stream window: how much of one stream may be under way.
const STREAM_WINDOW: u32 = 4 << 20;
/// Well above the stream window, so that one unread stream never stalls the others.
const CONNECTION_WINDOW: u32 = 64 << 20;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("could not reach the broker")]
    Tcp(#[source] io::Error),
    #[error("could not set up TLS with the broker")]
    Tls(#[source] TlsFailure),
    #[error("the TLS files were not read before the broker was dialled: a defect of this crate")]
    NoTls,
    #[error("could not speak HTTP/2 with the broker")]
    Http(#[source] tonic::transport::Error),
    #[error("the broker did not answer within {0:?}")]
    Timeout(Duration),
}

/// A connection that was dialled.
pub(crate) struct Connection {
    pub(crate) channel: Channel,
    pub(crate) link: Arc<Link>,
    /// When it was dialled: all of it together has one limit.
    pub(crate) began: Instant,
}

/// What is known of a connection beneath the library that speaks HTTP/2 on it.
pub(crate) struct Link {
    socket: std::net::TcpStream,
    answered: AtomicBool,
    calm: AtomicBool,
    stranger: OnceLock<Stranger>,
    refusal: OnceLock<TlsFailure>,
    notify: Notify,
}

/// What answers although it is no broker: as a rule `BROKER_ADDR` names another port, and the library's own words for that
/// lead nobody there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error(
        "what answers there is no broker: it does not speak HTTP/2; check the port of the broker's address"
    )]
    NoHttp2,
    #[error("what answers there speaks TLS, and the broker's address says http://; check its port")]
    Tls,
    #[error(
        "what answers there is no broker: it speaks HTTP but not gRPC; check the port of the broker's address"
    )]
    NoGrpc,
}

impl Link {
    /// Ends the connection without ending the stream on it.
    pub(crate) fn cut(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// True once the peer has answered a frame of ours.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    /// True if the peer has ended the connection because we ping too often.
    pub(crate) fn asks_for_calm(&self) -> bool {
        self.calm.load(Ordering::Acquire)
    }

    /// What the peer is, if it is known to be no broker.
    pub(crate) fn stranger(&self) -> Option<Stranger> {
        self.stranger.get().copied()
    }

    /// The peer is no broker.
    pub(crate) fn is_stranger(&self, stranger: Stranger) {
        // The first thing it said tells best what it is.
        let _ = self.stranger.set(stranger);
    }

    /// Why the peer has ended TLS after the handshake, if it has: it learns who we are only then.
    pub(crate) fn refusal(&self) -> Option<&TlsFailure> {
        self.refusal.get()
    }

    /// Whether it is known why the peer is of no use.
    fn is_explained(&self) -> bool {
        self.refusal().is_some() || self.stranger().is_some()
    }

    /// Resolves once the peer has answered a frame of ours.
    pub(crate) async fn answered(self: Arc<Self>) {
        while !self.has_answered() {
            let notified = self.notify.notified();
            if self.has_answered() {
                break;
            }
            notified.await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Dials the broker. Resolves once bytes can be sent; the peer need not have said anything yet.
pub(crate) async fn dial(
    options: &RunOptions,
    keepalive_interval: Duration,
) -> Result<Connection, DialError> {
    let limit = options.connect_timeout;
    match tokio::time::timeout(limit, connect(&options.broker, options, keepalive_interval)).await {
        Ok(result) => result,
        Err(_) => Err(DialError::Timeout(limit)),
    }
}

async fn connect(
    broker: &BrokerAddr,
    options: &RunOptions,
    keepalive: Duration,
) -> Result<Connection, DialError> {
    let began = Instant::now();
    let tls = match (broker.is_tls(), &options.tls_loaded) {
        (true, Some(tls)) => Some(Arc::clone(tls)),
        (true, None) => return Err(DialError::NoTls),
        (false, _) => None,
    };
    let stream = TcpStream::connect((broker.host(), broker.port()))
        .await
        .map_err(DialError::Tcp)?;
    stream.set_nodelay(true).map_err(DialError::Tcp)?;
    // A second descriptor of the same socket: the library owns the first.
    let stream = stream.into_std().map_err(DialError::Tcp)?;
    let link = Arc::new(Link {
        socket: stream.try_clone().map_err(DialError::Tcp)?,
        answered: AtomicBool::new(false),
        calm: AtomicBool::new(false),
        stranger: OnceLock::new(),
        refusal: OnceLock::new(),
        notify: Notify::new(),
    });
    let stream = TcpStream::from_std(stream).map_err(DialError::Tcp)?;
    let stream = match &tls {
        Some(tls) => tls.connect(stream).await.map_err(DialError::Tls)?,
        None => Wire::Plain(stream),
    };
    let watched = Watched {
        stream,
        tls,
        link: Arc::clone(&link),
        frames: Frames::default(),
    };
    let mut once = Some(watched);
    let connector = tower::service_fn(move |_| {
        // The library would dial again behind our back; a lost connection is ours to replace.
        let stream = once
            .take()
            .map(hyper_util::rt::TokioIo::new)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection is lost"));
        std::future::ready(stream)
    });
    let refused = |error| match link.refusal() {
        Some(refusal) => DialError::Tls(refusal.clone()),
        None => DialError::Http(error),
    };
    // What requests name. The library must not see https:// itself: it would set up TLS of its own.
    let origin = Endpoint::from_shared(broker.to_string()).map_err(DialError::Http)?;
    let channel = Endpoint::from_shared(format!("http://{}", broker.authority()))
        .map_err(DialError::Http)?
        .origin(origin.uri().clone())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(keepalive)
        .keep_alive_timeout(options.keepalive_timeout)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(refused)?;
    Ok(Connection {
        channel,
        link,
        began,
    })
}

/// A stream that looks at the frames that come in.
struct Watched {
    stream: Wire,
    /// Explains what goes wrong beneath.
    tls: Option<Arc<Tls>>,
    link: Arc<Link>,
    frames: Frames,
}

/// Finds the borders of HTTP/2 frames in a stream of bytes.
#[derive(Default)]
struct Frames {
    /// A frame's header and the first bytes of its payload, as far as they are needed.
    head: [u8; HEADER + GOAWAY],
    filled: usize,
    skip: usize,
    /// The first bytes were looked at.
    greeted: bool,
}

/// So many bytes tell HTTP/2, which begins with SETTINGS, from what is none; an alert of TLS has no more than seven.
const GREETING: usize = 5;
/// The length of a frame's header.
const HEADER: usize = 9;
/// The part of a GOAWAY that is fixed: the last stream and the reason.
const GOAWAY: usize = 8;

/// What a frame can tell us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The peer has read what we sent: it acknowledges our SETTINGS or a PING.
    Answer,
    /// The peer ends the connection because we ping too often.
    Calm,
    /// The first bytes are not those of a broker.
    Stranger(Stranger),
}

impl Frames {
    /// Goes on with these bytes; calls back for every sign in them.
    fn read(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Sign)) {
        const KIND_SETTINGS: u8 = 4;
        const KIND_PING: u8 = 6;
        const KIND_GOAWAY: u8 = 7;
        const ACK: u8 = 1;
        const ENHANCE_YOUR_CALM: u32 = 11;
        const TLS_ALERT: u8 = 21;
        const TLS_MAJOR: u8 = 3;
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let is_goaway = self.filled >= HEADER;
            let wanted = if is_goaway { HEADER + GOAWAY } else { HEADER };
            let taken = (wanted - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if !self.greeted && self.filled >= GREETING {
                self.greeted = true;
                match self.head {
                    [TLS_ALERT, TLS_MAJOR, ..] => seen(Sign::Stranger(Stranger::Tls)),
                    [_, _, _, KIND_SETTINGS, ..] => {}
                    _ => seen(Sign::Stranger(Stranger::NoHttp2)),
                }
            }
            if self.filled < wanted {
                continue;
            }
            let [a, b, c, kind, flags, ..] = self.head;
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if is_goaway {
                let [.., d, e, f, g] = self.head;
                if u32::from_be_bytes([d, e, f, g]) == ENHANCE_YOUR_CALM {
                    seen(Sign::Calm);
                }
                self.skip = length - GOAWAY;
                self.filled = 0;
            } else if kind == KIND_GOAWAY && length >= GOAWAY {
                // The reason follows.
            } else {
                if matches!(kind, KIND_SETTINGS | KIND_PING) && flags & ACK != 0 {
                    seen(Sign::Answer);
                }
                self.skip = length;
                self.filled = 0;
            }
        }
    }
}

impl Watched {
    fn note(&self, error: &io::Error) {
        if let Some(failure) = self.tls.as_ref().and_then(|tls| tls.explain(error)) {
            // The first one tells best what it was.
            let _ = self.link.refusal.set(failure);
        }
    }

    /// A write may fail because the peer has closed, and what it said before is still to be read: that it takes no cleartext, or, to
    /// a worker that TLS tells only once it writes, that its certificate is not taken. A socket that takes nothing any more always
    /// has an end to read, and a connection that never answered has its limit, so waiting for it is safe.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = &result else {
            return result;
        };
        self.note(error);
        let mut scratch = [0; 1024];
        while !self.link.has_answered() && !self.link.is_explained() {
            let mut buf = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut *self).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => {}
                _ => break,
            }
        }
        result
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let mut result = Pin::new(&mut self.stream).poll_read(cx, buf);
        let this = &mut *self;
        if let Poll::Ready(Err(error)) = &mut result {
            this.note(error);
            if error.kind() == io::ErrorKind::UnexpectedEof {
                // The library refers to its manual. A broker that is killed says no good-bye; what is cut short shows in HTTP/2.
                *error = io::Error::new(error.kind(), "the broker broke off the connection");
            }
        }
        this.frames
            .read(&buf.filled()[before..], |sign| match sign {
                Sign::Answer => {
                    if !this.link.answered.swap(true, Ordering::AcqRel) {
                        this.link.notify.notify_waiters();
                    }
                }
                Sign::Calm => this.link.calm.store(true, Ordering::Release),
                Sign::Stranger(stranger) => this.link.is_stranger(stranger),
            });
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.written(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.written(cx, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(bytes: &[u8], size: usize) -> Vec<Sign> {
        let mut frames = Frames::default();
        let mut signs = Vec::new();
        for chunk in bytes.chunks(size) {
            frames.read(chunk, |sign| signs.push(sign));
        }
        signs
    }

    #[test]
    fn signs_are_found_however_the_bytes_are_cut() {
        let mut bytes = vec![0, 0, 6, 4, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6]; // SETTINGS of the peer
        bytes.extend([0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 1, 0, 0, 0, 0]); // DATA that looks like an answer inside
        assert_eq!(signs(&bytes, 3), []);
        bytes.extend([0, 0, 0, 4, 1, 0, 0, 0, 0]); // SETTINGS ACK
        bytes.extend([0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]); // GOAWAY, no error
        bytes.extend([
            0, 0, 12, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 11, 98, 121, 101, 33,
        ]); // GOAWAY, calm
        bytes.extend([0, 0, 4, 7, 0, 0, 0, 0, 0, 0, 0, 0, 11]); // GOAWAY that is too short
        bytes.extend([0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]); // PING ACK
        for size in 1..=bytes.len() {
            assert_eq!(
                signs(&bytes, size),
                [Sign::Answer, Sign::Calm, Sign::Answer],
                "{size}"
            );
        }
    }

    #[test]
    fn what_is_no_http2_is_told_by_its_first_bytes() {
        let http1 = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        let alert = [21, 3, 1, 0, 2, 2, 70];
        for size in 1..=7 {
            assert_eq!(
                signs(http1, size).first(),
                Some(&Sign::Stranger(Stranger::NoHttp2)),
                "{size}"
            );
            assert_eq!(
                signs(&alert, size),
                [Sign::Stranger(Stranger::Tls)],
                "{size}"
            );
        }
    }
}
