//! Results that may not have arrived yet.
//!
//! The wire has no acknowledgement. A result is kept until it has been with the transport for one lease while its stream was
//! up; when that stream ends it counts as unsent again and goes out on the next one, where the fence makes a repeat harmless.
//! The buffer is bounded: room is made by forgetting the oldest *sent* results, an unsent one is never dropped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use prost::Message;

use super::outbox::Outbox;
use crate::wire::work_stream_client_msg::Body;
use crate::wire::{ResumedTask, StageComplete};

struct Entry {
    complete: StageComplete,
    /// Kind and name, for the log.
    label: String,
    size: usize,
    /// Its number in the outbox of the current session.
    number: Option<u64>,
    /// It was given to a session once.
    tried: bool,
    /// When it was seen to have been taken.
    sent_at: Option<Instant>,
}

/// A result that was never sent, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) label: String,
    pub(crate) epoch: i64,
}

/// The buffer. Entries are in the order they were made and leave in that order.
pub(crate) struct Results {
    entries: VecDeque<Entry>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    /// Those that were sent and forgotten early, to make room.
    evicted: u64,
}

impl Results {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            max_entries,
            max_bytes,
            evicted: 0,
        }
    }

    /// Takes a result and sends it if there is a session.
    ///
    /// # Errors
    /// Gives it back if there is no room; a result larger than the whole buffer finds room when nothing else is in it.
    pub(crate) fn insert(
        &mut self,
        complete: StageComplete,
        label: String,
        outbox: Option<&Outbox>,
    ) -> Result<(), Box<(StageComplete, String)>> {
        let size = complete.encoded_len();
        if !self.fits(size) {
            let taken = outbox.map_or(0, Outbox::taken);
            while !self.fits(size) && self.front_is_sent(taken) {
                self.forget_front();
                self.evicted += 1;
            }
            if !self.fits(size) {
                return Err(Box::new((complete, label)));
            }
        }
        let number = outbox.map(|outbox| outbox.push(Body::Complete(complete.clone())));
        self.bytes += size;
        self.entries.push_back(Entry {
            complete,
            label,
            size,
            number,
            tried: number.is_some(),
            sent_at: None,
        });
        Ok(())
    }

    fn fits(&self, size: usize) -> bool {
        self.entries.is_empty()
            || (self.entries.len() < self.max_entries && self.bytes + size <= self.max_bytes)
    }

    fn front_is_sent(&self, taken: u64) -> bool {
        self.entries
            .front()
            .is_some_and(|entry| entry.number.is_some_and(|number| number <= taken))
    }

    fn forget_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.size;
        }
    }

    /// Forgets what has been with the transport for `lease`.
    pub(crate) fn expire(&mut self, outbox: &Outbox, lease: Duration, now: Instant) {
        let taken = outbox.taken();
        while let Some(entry) = self.entries.front()
            && entry
                .sent_at
                .is_some_and(|sent_at| now.duration_since(sent_at) >= lease)
        {
            self.forget_front();
        }
        for entry in &mut self.entries {
            if entry.number.is_none_or(|number| number > taken) {
                break;
            }
            entry.sent_at.get_or_insert(now);
        }
    }

    /// The stream ended: nothing counts as sent.
    pub(crate) fn unsend(&mut self) {
        for entry in &mut self.entries {
            entry.number = None;
            entry.sent_at = None;
        }
    }

    /// Sends everything on a new session. Returns how many had been given to another before.
    pub(crate) fn resend(&mut self, outbox: &Outbox) -> u64 {
        let mut again = 0;
        for entry in &mut self.entries {
            entry.number = Some(outbox.push(Body::Complete(entry.complete.clone())));
            again += u64::from(std::mem::replace(&mut entry.tried, true));
        }
        again
    }

    /// The claims of all results, for `resumed`.
    pub(crate) fn claims(&self) -> impl Iterator<Item = ResumedTask> + '_ {
        self.entries.iter().map(|entry| ResumedTask {
            lease_token: entry.complete.lease_token.clone(),
            claim_epoch: entry.complete.claim_epoch,
        })
    }

    /// The results that the transport has not taken.
    pub(crate) fn unsent(&self, outbox: Option<&Outbox>) -> Vec<Unsent> {
        let taken = outbox.map_or(0, Outbox::taken);
        self.entries
            .iter()
            .filter(|entry| entry.number.is_none_or(|number| number > taken))
            .map(|entry| Unsent {
                label: entry.label.clone(),
                epoch: entry.complete.claim_epoch,
            })
            .collect()
    }

    /// True if the transport has taken every result.
    pub(crate) fn all_sent(&self, outbox: Option<&Outbox>) -> bool {
        let taken = outbox.map_or(0, Outbox::taken);
        self.entries
            .back()
            .is_none_or(|entry| entry.number.is_some_and(|number| number <= taken))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The size of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many sent ones were forgotten to make room since this was last asked.
    pub(crate) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests {
    use tokio_stream::StreamExt;

    use super::*;

    fn result(epoch: i64, bytes: usize) -> StageComplete {
        StageComplete {
            claim_epoch: epoch,
            output: vec![b'1'; bytes].into(),
            ..StageComplete::default()
        }
    }

    fn epochs(results: &Results) -> Vec<i64> {
        results.claims().map(|claim| claim.claim_epoch).collect()
    }

    fn insert(results: &mut Results, epoch: i64, outbox: Option<&Outbox>) -> bool {
        results
            .insert(result(epoch, 1), format!("demo/{epoch}"), outbox)
            .is_ok()
    }

    #[tokio::test]
    async fn room_is_made_by_forgetting_the_oldest_sent_results_only() {
        let mut results = Results::new(2, 1 << 20);
        let outbox = Outbox::default();
        let mut upstream = outbox.upstream();
        assert!(insert(&mut results, 1, Some(&outbox)));
        assert!(insert(&mut results, 2, Some(&outbox)));
        assert!(
            !insert(&mut results, 3, Some(&outbox)),
            "nothing has been sent yet"
        );
        upstream.next().await.unwrap();
        assert!(insert(&mut results, 3, Some(&outbox)));
        assert_eq!(epochs(&results), [2, 3]);
        assert_eq!((results.take_evicted(), results.take_evicted()), (1, 0));
        assert!(!results.all_sent(Some(&outbox)));
        upstream.next().await.unwrap();
        upstream.next().await.unwrap();
        assert!(results.all_sent(Some(&outbox)));
        results.unsend();
        assert!(!insert(&mut results, 4, None), "they count as unsent again");
        assert_eq!(results.unsent(None).len(), 2);
    }

    #[tokio::test]
    async fn a_sent_result_is_kept_for_one_lease_of_its_stream() {
        let lease = Duration::from_secs(30);
        let now = Instant::now();
        let mut results = Results::new(10, 1 << 20);
        let outbox = Outbox::default();
        let mut upstream = outbox.upstream();
        assert!(insert(&mut results, 1, Some(&outbox)));
        results.expire(&outbox, lease, now);
        results.expire(&outbox, lease, now + lease);
        assert_eq!(epochs(&results), [1], "it was not taken yet");
        upstream.next().await.unwrap();
        results.expire(&outbox, lease, now + lease);
        assert_eq!(epochs(&results), [1]);
        results.unsend();
        let next = Outbox::default();
        assert_eq!(results.resend(&next), 1);
        next.upstream().next().await.unwrap();
        results.expire(&next, lease, now + lease * 3);
        assert_eq!(
            epochs(&results),
            [1],
            "the count starts over on the new stream"
        );
        results.expire(&next, lease, now + lease * 4 - Duration::from_millis(1));
        assert_eq!(epochs(&results), [1], "its lease is not over");
        results.expire(&next, lease, now + lease * 4);
        assert!(results.is_empty());
    }

    #[test]
    fn bytes_are_bounded_and_one_huge_result_still_finds_room() {
        let mut results = Results::new(100, 1000);
        assert!(results.insert(result(1, 5000), String::new(), None).is_ok());
        assert!(results.insert(result(2, 1), String::new(), None).is_err());
        let mut results = Results::new(100, 1000);
        assert!(results.insert(result(1, 600), String::new(), None).is_ok());
        assert!(results.insert(result(2, 600), String::new(), None).is_err());
    }
}
