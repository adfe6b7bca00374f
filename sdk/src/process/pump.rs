//! Moves bytes between a program's pipes and memory, all three at once, on whatever thread polls.
//!
//! Nothing here decides anything: a broken stdin is not a failure (the program need not read it), an end of stdout is not an
//! exit. The one event besides "all outputs closed" is an output beyond its hard limit.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::Instant;

use super::Redactions;
use super::capture::{Captured, Tail, tail_text};
use super::command::{Capture, LineCallback};
use super::lines::{CALLBACK_LINE_LIMIT_BYTES, LineLogger, LineSplitter};

/// Read at once. On the stack, so that idle programs hold no buffers.
const BLOCK_BYTES: usize = 32 * 1024;

/// What a round of pumping came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pumped {
    /// Both outputs are closed.
    Closed,
    /// Stdout holds more than its hard limit.
    TooLarge,
}

/// The three pipes of one program.
pub(super) struct Pumps {
    stdin: Option<(ChildStdin, Bytes)>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    out: Sink,
    err: Sink,
    too_large: bool,
    last_data: Instant,
}

impl Pumps {
    pub(super) fn new(
        stdin: Option<(ChildStdin, Bytes)>,
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        out: Sink,
        err: Sink,
    ) -> Self {
        Pumps {
            stdin,
            stdout,
            stderr,
            out,
            err,
            too_large: false,
            last_data: Instant::now(),
        }
    }

    /// Pumps until both outputs are closed or one is too large. May be dropped and called again at any time.
    pub(super) async fn pump(&mut self) -> Pumped {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// Whether both outputs are closed.
    pub(super) fn is_closed(&self) -> bool {
        self.stdout.is_none() && self.stderr.is_none()
    }

    /// When the program last wrote something.
    pub(super) fn last_data(&self) -> Instant {
        self.last_data
    }

    /// Nobody reads it any more.
    pub(super) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Stops reading; gives what stdout and stderr delivered.
    pub(super) fn finish(self) -> (Captured, Captured) {
        (self.out.finish(), self.err.finish())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Pumped> {
        if let Some((pipe, rest)) = &mut self.stdin
            && poll_write(pipe, rest, cx).is_ready()
        {
            self.stdin = None;
        }
        if !self.too_large
            && poll_read(&mut self.stdout, &mut self.out, &mut self.last_data, cx).is_ready()
        {
            // Only full sinks and closed pipes are ready.
            self.too_large = self.stdout.is_some();
            if self.too_large {
                self.stdout = None;
                return Poll::Ready(Pumped::TooLarge);
            }
        }
        let _ = poll_read(&mut self.stderr, &mut self.err, &mut self.last_data, cx);
        if self.is_closed() {
            Poll::Ready(Pumped::Closed)
        } else {
            Poll::Pending
        }
    }
}

/// Ready when all is written or the program reads no more.
fn poll_write(pipe: &mut ChildStdin, rest: &mut Bytes, cx: &mut Context<'_>) -> Poll<()> {
    while !rest.is_empty() {
        match ready!(Pin::new(&mut *pipe).poll_write(cx, rest)) {
            Ok(written) if written > 0 => {
                let _ = rest.split_to(written);
            }
            _ => break,
        }
    }
    Poll::Ready(())
}

/// Ready when the pipe is closed (then `pipe` is `None`) or the sink takes no more.
fn poll_read<R: AsyncRead + Unpin>(
    pipe: &mut Option<R>,
    sink: &mut Sink,
    last_data: &mut Instant,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut block = [MaybeUninit::<u8>::uninit(); BLOCK_BYTES];
    while let Some(reader) = pipe {
        let mut buffer = ReadBuf::uninit(&mut block);
        match ready!(Pin::new(reader).poll_read(cx, &mut buffer)) {
            Ok(()) if !buffer.filled().is_empty() => {
                *last_data = Instant::now();
                if !sink.push(buffer.filled()) {
                    return Poll::Ready(());
                }
            }
            _ => *pipe = None,
        }
    }
    Poll::Ready(())
}

/// Where the bytes of one stream go: redacted first, then kept, logged and handed to the callback.
pub(super) struct Sink {
    redactions: Redactions,
    pending: Vec<u8>,
    kept: Kept,
}

struct Kept {
    tail: Tail,
    hard_limit: Option<u64>,
    logger: Option<LineLogger>,
    callback: Option<(LineSplitter, LineCallback)>,
}

impl Sink {
    pub(super) fn stdout(
        capture: Capture,
        callback: Option<LineCallback>,
        redactions: Redactions,
    ) -> Self {
        let (limit, hard_limit) = match capture {
            Capture::Tail(limit) => (limit, None),
            Capture::Whole(limit) => (limit, Some(limit as u64)),
        };
        let callback =
            callback.map(|callback| (LineSplitter::new(CALLBACK_LINE_LIMIT_BYTES), callback));
        let kept = Kept {
            tail: Tail::new(limit),
            hard_limit,
            logger: None,
            callback,
        };
        Sink {
            redactions,
            pending: Vec::new(),
            kept,
        }
    }

    pub(super) fn stderr(limit: usize, log: bool, redactions: Redactions) -> Self {
        let logger = log.then(LineLogger::new);
        let kept = Kept {
            tail: Tail::new(limit),
            hard_limit: None,
            logger,
            callback: None,
        };
        Sink {
            redactions,
            pending: Vec::new(),
            kept,
        }
    }

    /// `false` when the hard limit is passed.
    fn push(&mut self, chunk: &[u8]) -> bool {
        self.kept.tail.count(chunk.len());
        if self.redactions.is_empty() {
            self.kept.push(chunk);
        } else {
            self.pending.extend_from_slice(chunk);
            let kept = &mut self.kept;
            self.redactions
                .stream(&mut self.pending, false, |bytes| kept.push(bytes));
        }
        self.kept
            .hard_limit
            .is_none_or(|limit| self.kept.tail.total_bytes() <= limit)
    }

    fn finish(mut self) -> Captured {
        if !self.pending.is_empty() {
            let kept = &mut self.kept;
            self.redactions
                .stream(&mut self.pending, true, |bytes| kept.push(bytes));
        }
        if let Some(logger) = &mut self.kept.logger {
            logger.finish();
        }
        if let Some((splitter, callback)) = &mut self.kept.callback {
            splitter.finish(|line, _| callback(&line_text(line)));
        }
        self.kept.tail.finish()
    }
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.tail.push(bytes);
        if let Some(logger) = &mut self.logger {
            logger.push(bytes);
        }
        if let Some((splitter, callback)) = &mut self.callback {
            splitter.push(bytes, |line, _| callback(&line_text(line)));
        }
    }
}

fn line_text(line: &[u8]) -> String {
    tail_text(line.strip_suffix(b"\r").unwrap_or(line), usize::MAX)
}
