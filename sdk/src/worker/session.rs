//! One session: a connection, the stream on it, and the pulls of configs beside it.
//!
//! A session is *up* once `Subscribe` has been taken by the transport and the peer has answered. It waits for no header and
//! no message before it sends. Dropping a session cuts its connection, so that the broker sees a broken stream; only
//! [`Session::half_close`] ends the stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio_stream::Stream;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Status, Streaming};

use super::convert::MAX_MESSAGE;
use super::outbox::Outbox;
use crate::transport::{Connection, Link, Stranger};
use crate::wire::worker_service_client::WorkerServiceClient;
use crate::wire::{GetProviderConfigRequest, GetProviderConfigResponse, WorkStreamServerMsg};

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Client = WorkerServiceClient<tonic::transport::Channel>;

enum Inbound {
    Opening(BoxFuture<Result<Streaming<WorkStreamServerMsg>, Status>>),
    Open(Box<Streaming<WorkStreamServerMsg>>),
    Ended,
}

/// Whether the other side has shown that it is a broker: by the headers of the stream, or by the answer to a pull.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    NotYet,
    Now,
    Told,
}

/// A pull of the default configs, and the pushes each pair had seen when it was sent.
pub(crate) struct Pull {
    pub(crate) pushes: Vec<u64>,
    future: BoxFuture<Result<GetProviderConfigResponse, Status>>,
}

pub(crate) struct Session {
    /// Cut when the session is dropped; first, before the stream goes.
    link: Arc<Link>,
    answered: Option<BoxFuture<()>>,
    pub(crate) outbox: Outbox,
    inbound: Inbound,
    client: Client,
    pub(crate) pull: Option<Pull>,
    /// Since when it is up.
    pub(crate) up_since: Option<Instant>,
    met: Met,
    pub(crate) half_closed: bool,
}

impl Session {
    /// Opens the stream. What is in the outbox goes out at once.
    pub(crate) fn open(connection: Connection, outbox: Outbox) -> Self {
        let client = WorkerServiceClient::new(connection.channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
            .accept_compressed(CompressionEncoding::Gzip);
        let upstream = outbox.upstream();
        let mut opening = client.clone();
        let link = Arc::clone(&connection.link);
        Self {
            answered: Some(Box::pin(Arc::clone(&connection.link).answered())),
            link: connection.link,
            outbox,
            inbound: Inbound::Opening(Box::pin(async move {
                let answer = opening.work_stream(upstream).await;
                let headers = match &answer {
                    Ok(response) => response.metadata(),
                    Err(status) => status.metadata(),
                };
                if speaks_otherwise(headers) {
                    link.is_stranger(Stranger::NoGrpc);
                    // What it says then is no message of ours.
                    return Err(Status::unknown(""));
                }
                answer.map(tonic::Response::into_inner)
            })),
            client,
            pull: None,
            up_since: None,
            met: Met::NotYet,
            half_closed: false,
        }
    }

    /// Asks for the default configs of these pairs.
    pub(crate) fn pull(
        &mut self,
        request: GetProviderConfigRequest,
        pushes: Vec<u64>,
        limit: Duration,
    ) {
        let mut client = self.client.clone();
        let link = Arc::clone(&self.link);
        self.pull = Some(Pull {
            pushes,
            future: Box::pin(async move {
                match tokio::time::timeout(limit, client.get_provider_config(request)).await {
                    Ok(Ok(response)) => Ok(response.into_inner()),
                    Ok(Err(status)) => {
                        if speaks_otherwise(status.metadata()) {
                            link.is_stranger(Stranger::NoGrpc);
                        }
                        Err(status)
                    }
                    Err(_) => Err(Status::deadline_exceeded(
                        "the broker did not answer in time",
                    )),
                }
            }),
        });
    }

    /// The answer to the pull that is under way.
    pub(crate) fn poll_pull(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(Vec<u64>, Result<GetProviderConfigResponse, Status>)> {
        let Some(pull) = &mut self.pull else {
            return Poll::Pending;
        };
        match pull.future.as_mut().poll(cx) {
            Poll::Ready(answer) => {
                let pushes = std::mem::take(&mut pull.pushes);
                self.pull = None;
                if answer.is_ok() {
                    self.meet();
                }
                Poll::Ready((pushes, answer))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ready once, when the session comes up.
    pub(crate) fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(answered) = &mut self.answered
            && answered.as_mut().poll(cx).is_ready()
        {
            self.answered = None;
        }
        if self.answered.is_none()
            && self.up_since.is_none()
            && self.outbox.poll_taken(Some(1), cx).is_ready()
        {
            self.up_since = Some(Instant::now());
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// The next message of the broker; `None` once it has closed its side in order.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<WorkStreamServerMsg>, Status>> {
        loop {
            match &mut self.inbound {
                Inbound::Opening(opening) => match opening.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(stream)) => {
                        self.inbound = Inbound::Open(Box::new(stream));
                        self.meet();
                    }
                    Poll::Ready(Err(status)) => {
                        self.inbound = Inbound::Ended;
                        return Poll::Ready(Err(status));
                    }
                },
                Inbound::Open(stream) => {
                    return match Pin::new(&mut **stream).poll_next(cx) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Some(Ok(message))) => Poll::Ready(Ok(Some(message))),
                        Poll::Ready(Some(Err(status))) => Poll::Ready(Err(status)),
                        Poll::Ready(None) => Poll::Ready(Ok(None)),
                    };
                }
                Inbound::Ended => return Poll::Ready(Ok(None)),
            }
        }
    }

    fn meet(&mut self) {
        if self.met == Met::NotYet {
            self.met = Met::Now;
        }
    }

    /// True once, when the other side has shown that it is a broker.
    pub(crate) fn is_met(&mut self) -> bool {
        let now = self.met == Met::Now;
        if now {
            self.met = Met::Told;
        }
        now
    }

    /// Why something of it failed, in one line.
    pub(crate) fn why(&self, status: &Status) -> String {
        match (self.link.stranger(), self.link.refusal()) {
            (Some(stranger), _) => stranger.to_string(),
            (None, Some(refusal)) => refusal.to_string(),
            (None, None) => said(status),
        }
    }

    /// True if the peer has ended the connection because we ping too often.
    pub(crate) fn asks_for_calm(&self) -> bool {
        self.link.asks_for_calm()
    }

    /// Ends the request stream once everything in the outbox has been taken: a drain is over.
    pub(crate) fn half_close(&mut self) {
        self.half_closed = true;
        self.outbox.close();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.cut();
    }
}

/// True for the headers of an answer that is not gRPC's.
fn speaks_otherwise(headers: &MetadataMap) -> bool {
    headers
        .get("content-type")
        .is_some_and(|found| !found.as_encoded_bytes().starts_with(b"application/grpc"))
}

/// What a status says, in one line. The library's own text says it twice over, as text and as a dump of its fields.
fn said(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(next) = cause.and_then(std::error::Error::source) {
        cause = Some(next);
    }
    if let Some(deepest) = cause.map(ToString::to_string)
        && !text.contains(&deepest)
    {
        text.push_str(": ");
        text.push_str(&deepest);
    }
    let code = status.code();
    if text.is_empty() {
        format!("{code:?}")
    } else {
        format!("{text} ({code:?})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_said_once_with_its_deepest_cause() {
        let plain = Status::unavailable("the broker is shutting down");
        assert_eq!(said(&plain), "the broker is shutting down (Unavailable)");
        assert_eq!(said(&Status::internal("")), "Internal");
        let cause = std::io::Error::other("the pipe is broken");
        let broken = Status::from_error(Box::new(cause));
        let text = said(&broken);
        assert_eq!(text.matches("the pipe is broken").count(), 1, "{text}");
    }
}
