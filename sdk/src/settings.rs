//! Settings as people write them: durations such as `500ms`, `30s`, `5m`, `1h30m`.

use std::time::Duration;

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: expected a form such as 500ms, 30s, 5m or 1h30m")]
pub struct DurationError {
    text: String,
}

const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads a duration: whole numbers, each with one of the units `h`, `m`, `s`, `ms`, larger units first.
///
/// # Errors
/// For anything else, a number without a unit included.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let bad = || DurationError {
        text: text.to_owned(),
    };
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut allowed = &UNITS[..];
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let letters = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let at = allowed
            .iter()
            .position(|(unit, _)| *unit == &rest[..letters])
            .ok_or_else(bad)?;
        let part = number.checked_mul(allowed[at].1).ok_or_else(bad)?;
        total = total.checked_add(part).ok_or_else(bad)?;
        allowed = &allowed[at + 1..];
        rest = &rest[letters..];
    }
    Ok(Duration::from_millis(total))
}

/// Writes a duration the way [`parse_duration`] reads it; what is below a millisecond is cut off.
pub fn format_duration(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, millis) in UNITS {
        if left >= millis {
            text.push_str(&(left / millis).to_string());
            text.push_str(unit);
            left %= millis;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_and_writes() {
        for (text, millis, written) in [
            ("500ms", 500, "500ms"),
            ("30s", 30_000, "30s"),
            ("5m", 300_000, "5m"),
            ("1h30m", 5_400_000, "1h30m"),
            (" 90s ", 90_000, "1m30s"),
            ("1h2m3s4ms", 3_723_004, "1h2m3s4ms"),
            ("0s", 0, "0s"),
        ] {
            let read = parse_duration(text).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
            assert_eq!(format_duration(read), written);
            assert_eq!(parse_duration(written).unwrap(), read);
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in [
            "",
            "5",
            "s",
            "-5s",
            "1.5s",
            "5 s",
            "5d",
            "30s1m",
            "1s1s",
            "5S",
            "1m5",
            "99999999999999999999s",
            "9999999999999999h",
            "5µs",
        ] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains("1h30m"), "{text}: {error}");
        }
    }
}
