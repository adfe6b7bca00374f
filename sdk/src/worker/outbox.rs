//! The upstream side of one session: a queue that the transport takes from.
//!
//! Its length is bounded by what may be in it: results (which the result buffer bounds), one heartbeat at a time per tick
//! taken, and interest edges. Messages are numbered, so that it can be told which the transport has taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio_stream::Stream;

use crate::wire::WorkStreamClientMsg;
use crate::wire::work_stream_client_msg::Body;

#[derive(Default)]
struct Queue {
    messages: VecDeque<Body>,
    /// How many were ever pushed and taken.
    pushed: u64,
    taken: u64,
    /// Heartbeats among `messages`: a stalled transport must not pile them up.
    heartbeats: usize,
    closed: bool,
    waker: Option<Waker>,
    /// Who waits until so many have been taken.
    watcher: Option<(u64, Waker)>,
}

/// The end that the worker fills.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<Mutex<Queue>>);

/// The end that the transport empties.
pub(crate) struct Upstream(Arc<Mutex<Queue>>);

impl Outbox {
    pub(crate) fn upstream(&self) -> Upstream {
        Upstream(Arc::clone(&self.0))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a message and returns its number, from 1. A heartbeat behind one that was not taken yet is left out.
    pub(crate) fn push(&self, body: Body) -> u64 {
        let mut queue = self.queue();
        if matches!(body, Body::Heartbeat(_)) {
            if queue.heartbeats > 0 {
                return queue.pushed;
            }
            queue.heartbeats += 1;
        }
        queue.messages.push_back(body);
        queue.pushed += 1;
        let number = queue.pushed;
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        number
    }

    /// The number of the last message that was appended.
    pub(crate) fn pushed(&self) -> u64 {
        self.queue().pushed
    }

    /// The number of the last message that the transport has taken.
    pub(crate) fn taken(&self) -> u64 {
        self.queue().taken
    }

    /// Ready once the transport has taken `number` messages, all that were pushed if it is `None`. One waits at a time.
    pub(crate) fn poll_taken(&self, number: Option<u64>, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.queue();
        let number = number.unwrap_or(queue.pushed);
        if queue.taken >= number {
            return Poll::Ready(());
        }
        queue.watcher = Some((number, cx.waker().clone()));
        Poll::Pending
    }

    /// Half-closes the stream once everything before has been taken.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Stream for Upstream {
    type Item = WorkStreamClientMsg;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = &mut *queue;
        match queue.messages.pop_front() {
            Some(body) => {
                queue.taken += 1;
                if matches!(body, Body::Heartbeat(_)) {
                    queue.heartbeats -= 1;
                }
                let taken = queue.taken;
                let reached = |(number, _): &mut (u64, Waker)| *number <= taken;
                if let Some((_, watcher)) = queue.watcher.take_if(reached) {
                    watcher.wake();
                }
                Poll::Ready(Some(WorkStreamClientMsg { body: Some(body) }))
            }
            None if queue.closed => Poll::Ready(None),
            None => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;
    use crate::wire::{Interest, WorkHeartbeat};

    #[tokio::test]
    async fn messages_are_numbered_and_heartbeats_do_not_pile_up() {
        let outbox = Outbox::default();
        let mut upstream = outbox.upstream();
        assert_eq!(outbox.push(Body::Heartbeat(WorkHeartbeat::default())), 1);
        assert_eq!(outbox.push(Body::Heartbeat(WorkHeartbeat::default())), 1);
        assert_eq!(outbox.push(Body::Interest(Interest::default())), 2);
        assert!(upstream.next().await.is_some());
        assert_eq!(outbox.taken(), 1);
        assert_eq!(outbox.push(Body::Heartbeat(WorkHeartbeat::default())), 3);
        outbox.close();
        assert!(upstream.next().await.is_some());
        assert!(upstream.next().await.is_some());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(outbox.poll_taken(None, &mut cx).is_ready());
        assert!(upstream.next().await.is_none());
    }
}
