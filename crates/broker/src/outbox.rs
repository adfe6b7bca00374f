//! What waits to be handed to the transport of one stream.
//!
//! A queue the response stream is polled from, so that when a stream ends it is known exactly which tasks were never handed over: their
//! claims are given back at once. Bounded by construction: a session puts no more tasks than its stream has slots, and one config per pair.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tonic::Status;

use converge_engine::model::ClaimRef;

use crate::generated::WorkStreamServerMsg;

/// One message, and the claim it carries.
pub(crate) struct Item {
    pub(crate) message: WorkStreamServerMsg,
    pub(crate) claim: Option<ClaimRef>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    end: Option<Option<Status>>,
    waker: Option<Waker>,
    dropped: bool,
}

/// The session's end.
#[derive(Clone, Default)]
pub(crate) struct Outbox {
    queue: Arc<Mutex<Queue>>,
    closed: Arc<Notify>,
}

impl Outbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues messages in order.
    pub(crate) fn push(&self, items: impl IntoIterator<Item = Item>) {
        let mut queue = self.queue();
        queue.items.extend(items);
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
    }

    /// Ends the stream: what is queued is dropped and its claims are returned.
    pub(crate) fn end(&self, status: Option<Status>) -> Vec<ClaimRef> {
        let mut queue = self.queue();
        queue.end.get_or_insert(status);
        let undelivered = queue
            .items
            .drain(..)
            .filter_map(|item| item.claim)
            .collect();
        if let Some(waker) = queue.waker.take() {
            waker.wake();
        }
        undelivered
    }

    /// Completes when the transport dropped the stream.
    pub(crate) async fn closed(&self) {
        loop {
            let notified = self.closed.notified();
            if self.queue().dropped {
                return;
            }
            notified.await;
        }
    }

    /// The transport's end.
    pub(crate) fn stream(&self) -> OutStream {
        OutStream(self.clone())
    }
}

/// What the transport polls.
pub(crate) struct OutStream(Outbox);

impl futures::Stream for OutStream {
    type Item = Result<WorkStreamServerMsg, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.0.queue();
        if let Some(item) = queue.items.pop_front() {
            return Poll::Ready(Some(Ok(item.message)));
        }
        match &mut queue.end {
            Some(status) => Poll::Ready(status.take().map(Err)),
            None => {
                queue.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for OutStream {
    fn drop(&mut self) {
        self.0.queue().dropped = true;
        self.0.closed.notify_waiters();
    }
}
