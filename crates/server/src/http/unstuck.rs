//! A connection that fails when the other side takes nothing for too long, be it of what is written, flushed or said at the end.
//!
//! In cleartext only a write ever waits. TLS keeps a buffer of its own: a write goes into that, and it is the flush, or the last words of a
//! shutdown, that wait for a client that reads nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// See the module.
pub(super) struct Unstuck<S> {
    stream: S,
    patience: Duration,
    writing: Stuck,
    flushing: Stuck,
    ending: Stuck,
}

/// Runs while the other side takes nothing.
type Stuck = Option<Pin<Box<Sleep>>>;

impl<S> Unstuck<S> {
    pub(super) fn new(stream: S, patience: Duration) -> Self {
        Self {
            stream,
            patience,
            writing: None,
            flushing: None,
            ending: None,
        }
    }
}

fn judge<T>(
    stuck: &mut Stuck,
    patience: Duration,
    context: &mut Context<'_>,
    result: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if result.is_ready() {
        *stuck = None;
        return result;
    }
    let stuck = stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
    ready!(stuck.as_mut().poll(context));
    Poll::Ready(Err(io::Error::new(
        io::ErrorKind::TimedOut,
        "the client takes nothing of its answer",
    )))
}

impl<S: AsyncRead + Unpin> AsyncRead for Unstuck<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unstuck<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        judge(&mut this.writing, this.patience, context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        judge(&mut this.writing, this.patience, context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        judge(&mut this.flushing, this.patience, context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let shut = Pin::new(&mut this.stream).poll_shutdown(context);
        judge(&mut this.ending, this.patience, context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, BufWriter, duplex};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const LIMIT: Duration = Duration::from_secs(600);

    /// A buffer that takes what is written, as that of TLS does, before a client that reads nothing.
    fn buffered() -> (
        Unstuck<BufWriter<tokio::io::DuplexStream>>,
        tokio::io::DuplexStream,
    ) {
        let (near, far) = duplex(4);
        (Unstuck::new(BufWriter::new(near), PATIENCE), far)
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_and_is_not_taken_fails_the_flush() {
        let (mut stream, _far) = buffered();
        stream.write_all(b"an answer").await.unwrap();
        let flushed = timeout(LIMIT, stream.flush()).await.expect("it ends");
        let error = flushed.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_that_is_not_taken_fails_too() {
        let (mut stream, _far) = buffered();
        stream.write_all(b"an answer").await.unwrap();
        let ended = timeout(LIMIT, stream.shutdown()).await.expect("it ends");
        let error = ended.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
