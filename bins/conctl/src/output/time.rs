//! How long ago, and how long until.

use jiff::Timestamp;

/// Now, read once a command so that one answer has one now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Timestamp);

impl Clock {
    /// The system's clock.
    pub(crate) fn now() -> Self {
        Self(Timestamp::now())
    }
}

/// The age of something that happened at `at`; what is no time is shown as it is.
pub(crate) fn since(at: &str, now: Clock) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => short(now.0.as_second().saturating_sub(at.as_second())),
        Err(_) => super::clean(at),
    }
}

/// The time left until `at`.
pub(crate) fn until(at: &str, now: Clock) -> String {
    match at.parse::<Timestamp>() {
        Ok(at) => short(at.as_second().saturating_sub(now.0.as_second())),
        Err(_) => super::clean(at),
    }
}

/// Two units at most: `42s`, `5m`, `3m20s`, `2h10m`, `3d4h`, `400d`.
fn short(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..7200 => format!("{minutes}m"),
        7200..86_400 => two(hours, "h", minutes % 60, "m"),
        86_400..864_000 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        for (seconds, text) in [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (200, "3m20s"),
            (300, "5m"),
            (3600, "60m"),
            (7800, "2h10m"),
            (90_000, "1d1h"),
            (86_400 * 400, "400d"),
        ] {
            assert_eq!(short(seconds), text);
        }
    }

    #[test]
    fn what_is_no_time_is_shown_as_it_is() {
        assert_eq!(since("soon", Clock::now()), "soon");
    }
}
