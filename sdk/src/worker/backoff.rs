//! Pauses between attempts: exponential, with full jitter.

use std::time::Duration;

/// Doubles from `min`; each pause is a random part of the current bound, so that many workers do not come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    attempt: u32,
}

impl Backoff {
    pub(crate) fn new(min: Duration) -> Self {
        Self { min, attempt: 0 }
    }

    /// The next pause, at most `max`.
    pub(crate) fn next(&mut self, max: Duration) -> Duration {
        let bound = self.bound(max);
        self.attempt = self.attempt.saturating_add(1);
        bound.mul_f64(fastrand::f64())
    }

    fn bound(&self, max: Duration) -> Duration {
        self.min
            .checked_mul(1_u32.checked_shl(self.attempt).unwrap_or(u32::MAX))
            .unwrap_or(max)
            .min(max)
    }

    pub(crate) fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_its_maximum_and_starts_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100));
        let mut bounds = Vec::new();
        for _ in 0..70 {
            bounds.push(backoff.bound(ms(1000)));
            assert!(backoff.next(ms(1000)) <= ms(1000));
        }
        assert_eq!(bounds[..5], [ms(100), ms(200), ms(400), ms(800), ms(1000)]);
        assert_eq!(bounds[69], ms(1000));
        backoff.reset();
        assert!(backoff.next(ms(1000)) <= ms(100));
    }
}
