//! Bytes on a stream: while a message is still arriving, the claims last named on that stream count as named.
//!
//! A large result takes longer to send than a lease lasts, and its worker cannot get a heartbeat in between. The body of each request is
//! wrapped; every data frame leaves its time here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::body::Body;

/// When bytes last arrived on one stream. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    origin: Instant,
    /// Milliseconds since `origin`.
    last: Arc<AtomicU64>,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            last: Arc::default(),
        }
    }

    fn mark(&self) {
        let ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(ms, Ordering::Relaxed);
    }

    /// When bytes last arrived.
    pub(crate) fn last(&self) -> Instant {
        self.origin + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }
}

/// Puts an [`Activity`] into the extensions of every request and feeds it.
#[derive(Debug, Clone)]
pub(crate) struct Watched<S>(pub(crate) S);

impl<S> tower::Service<http::Request<Body>> for Watched<S>
where
    S: tower::Service<http::Request<Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let activity = Activity::new();
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(activity.clone());
        let body = Body::new(WatchedBody { body, activity });
        self.0.call(http::Request::from_parts(parts, body))
    }
}

impl<S: tonic::server::NamedService> tonic::server::NamedService for Watched<S> {
    const NAME: &'static str = S::NAME;
}

struct WatchedBody {
    body: Body,
    activity: Activity,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, tonic::Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(_))) = &polled {
            self.activity.mark();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}
