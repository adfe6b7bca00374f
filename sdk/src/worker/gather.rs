//! Results that wait a moment for others.
//!
//! A message, a commit and a new task cost the broker the same for one result as for several. Where many tasks run, a result
//! waits for company, but never long enough to matter to its task, and never where its slot is all that the worker has.

use std::time::{Duration, Instant};

use crate::wire::StageComplete;

/// A result may wait so long whatever its task took.
const SHORTEST: Duration = Duration::from_millis(2);
/// No result waits longer.
const LONGEST: Duration = Duration::from_millis(8);
/// The part of its task's time that a result may wait.
const PART: u32 = 4;
/// The part of the running tasks that is enough to go.
const ENOUGH: usize = 2;

#[derive(Default)]
pub(super) struct Gathered {
    ended: Vec<(u64, StageComplete)>,
    until: Option<Instant>,
}

impl Gathered {
    /// Takes the result of a task that ran for `took`. Gives the time by which they are to go, if that is news.
    pub(super) fn add(
        &mut self,
        ended: (u64, StageComplete),
        took: Duration,
        now: Instant,
    ) -> Option<Instant> {
        self.ended.push(ended);
        let until = now + (took / PART).clamp(SHORTEST, LONGEST);
        if self.until.is_some_and(|known| known <= until) {
            return None;
        }
        self.until = Some(until);
        self.until
    }

    /// All of them, if it is time to go: `running` tasks have a slot, those that are gathered here among them.
    pub(super) fn take(&mut self, running: usize, now: Instant) -> Vec<(u64, StageComplete)> {
        let are_few = self.ended.len() * ENOUGH < running;
        if are_few && self.until.is_some_and(|until| now < until) {
            return Vec::new();
        }
        self.take_all()
    }

    /// All of them, at once.
    pub(super) fn take_all(&mut self) -> Vec<(u64, StageComplete)> {
        self.until = None;
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn add(gathered: &mut Gathered, id: u64, took: Duration, now: Instant) -> Option<Instant> {
        gathered.add((id, StageComplete::default()), took, now)
    }

    #[test]
    fn a_result_waits_a_quarter_of_its_tasks_time_within_bounds() {
        for (took, waits) in [
            (Duration::ZERO, 2 * MS),
            (8 * MS, 2 * MS),
            (20 * MS, 5 * MS),
            (32 * MS, 8 * MS),
            (Duration::from_secs(3600), 8 * MS),
        ] {
            let (mut gathered, now) = (Gathered::default(), Instant::now());
            assert_eq!(add(&mut gathered, 1, took, now), Some(now + waits));
            assert!(gathered.take(16, now + waits - MS / 8).is_empty());
            assert_eq!(gathered.take(16, now + waits).len(), 1, "{took:?}");
            assert!(gathered.take(16, now + waits).is_empty());
        }
    }

    #[test]
    fn the_most_impatient_one_decides() {
        let (mut gathered, now) = (Gathered::default(), Instant::now());
        add(&mut gathered, 1, Duration::from_secs(60), now);
        assert_eq!(
            add(&mut gathered, 2, Duration::ZERO, now + MS),
            Some(now + 3 * MS)
        );
        assert_eq!(add(&mut gathered, 3, 20 * MS, now + 2 * MS), None);
        assert!(gathered.take(16, now + 2 * MS).is_empty());
        assert_eq!(gathered.take(16, now + 3 * MS).len(), 3);
    }

    #[test]
    fn half_of_what_runs_is_enough() {
        for (running, enough) in [(1, 1), (2, 1), (3, 2), (4, 2), (15, 8), (16, 8), (256, 128)] {
            let (mut gathered, now) = (Gathered::default(), Instant::now());
            for id in 1..enough {
                add(&mut gathered, id, Duration::ZERO, now);
                assert!(gathered.take(running, now).is_empty(), "{id} of {running}");
            }
            add(&mut gathered, enough, Duration::ZERO, now);
            let went = gathered.take(running, now);
            assert_eq!(went.len() as u64, enough, "of {running}");
        }
    }
}
