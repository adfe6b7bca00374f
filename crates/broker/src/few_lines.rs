//! Lines a stranger can cause: of a flood so many are said, the rest is counted.
//!
//! A port open to strangers must not fill a disk with what they do.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many lines within each window.
const LINES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);

/// Twenty lines a minute of one sort; how many more there were is said with the next one.
#[derive(Debug, Default)]
pub struct FewLines(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl FewLines {
    /// Lets `line` be said, or counts it. `sort` says what sort of line it is.
    pub fn say(&self, sort: &'static str, line: impl FnOnce()) {
        let place = {
            let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            window.admit(Instant::now())
        };
        let Some(place) = place else { return };
        if place.unsaid > 0 {
            tracing::info!(
                sort,
                unsaid = place.unsaid,
                "as many more were counted and not said"
            );
        }
        line();
        if place.is_last {
            tracing::info!(sort, "more of these within a minute are only counted");
        }
    }
}

/// Leave to say one line.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// So many were not said since the last.
    unsaid: u64,
    /// No further one will be said for a while.
    is_last: bool,
}

impl Window {
    fn admit(&mut self, now: Instant) -> Option<Place> {
        let is_over = |began| now.saturating_duration_since(began) >= WINDOW;
        if self.began.is_none_or(is_over) {
            self.began = Some(now);
            self.said = 0;
        }
        if self.said >= LINES {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(Place {
            unsaid: std::mem::take(&mut self.unsaid),
            is_last: self.said == LINES,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_so_many_are_named_and_the_rest_is_counted() {
        let mut window = Window::default();
        let began = Instant::now();
        let place = |unsaid, is_last| Some(Place { unsaid, is_last });
        for line in 1..=LINES {
            assert_eq!(window.admit(began), place(0, line == LINES));
        }
        for _ in 0..1_000 {
            assert_eq!(window.admit(began + WINDOW / 2), None);
        }
        assert_eq!(window.admit(began + WINDOW), place(1_000, false));
        assert_eq!(window.admit(began + WINDOW), place(0, false));
    }

    #[test]
    fn what_may_not_be_said_is_not_said() {
        let lines = FewLines::default();
        let mut said = 0;
        for _ in 0..=LINES {
            lines.say("a test's", || said += 1);
        }
        assert_eq!(said, LINES);
    }
}
