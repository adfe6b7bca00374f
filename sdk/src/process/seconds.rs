//! Durations as specs and configs write them: a number of seconds.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A year: beyond it a number of seconds is a mistake.
const MOST_SECONDS: f64 = 366.0 * 24.0 * 3600.0;

/// A number of seconds, fractions allowed, at most a year.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl Seconds {
    /// As a timeout: 0 means none.
    #[must_use]
    pub fn as_timeout(self) -> Option<Duration> {
        (!self.0.is_zero()).then_some(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        if (0.0..=MOST_SECONDS).contains(&seconds) {
            Ok(Seconds(Duration::from_secs_f64(seconds)))
        } else {
            Err(D::Error::custom(format!(
                "must be a number of seconds from 0 to {MOST_SECONDS}, not {seconds}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_numbers_within_a_year() {
        let read = |json: &str| serde_json::from_str::<Seconds>(json);
        assert_eq!(read("0").unwrap().as_timeout(), None);
        assert_eq!(
            read("1.5").unwrap().as_timeout(),
            Some(Duration::from_millis(1500))
        );
        for json in ["-1", "1e300", "\"5\"", "null"] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
