//! Durations and timestamps.
//!
//! Both are whole nanoseconds in 128 bits, so no sum overflows before its range is checked. Time zone rules come with the
//! binary: the same expression must not change with the machine's tzdata.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::eval::Budget;
use super::fault::Fault;
use super::functions::{Arity, Function, Run};
use super::value::Value;

const SECOND: i128 = 1_000_000_000;
/// Some 292 years: what 64 bits of nanoseconds hold.
const MAX_DURATION: i128 = i64::MAX as i128;
/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999999Z.
const MIN_TIMESTAMP: i128 = -62_135_596_800 * SECOND;
const MAX_TIMESTAMP: i128 = 253_402_300_800 * SECOND - 1;

/// Checks the range of a duration.
pub(super) fn duration(nanos: Option<i128>) -> Result<Value, Fault> {
    match nanos {
        Some(nanos) if nanos.abs() <= MAX_DURATION => Ok(Value::Duration(nanos)),
        _ => Err(Fault::domain("the duration is out of range")),
    }
}

/// Checks the range of a timestamp.
pub(super) fn timestamp(nanos: Option<i128>) -> Result<Value, Fault> {
    match nanos {
        Some(nanos) if (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(&nanos) => {
            Ok(Value::Timestamp(nanos))
        }
        _ => Err(Fault::domain(
            "the timestamp is outside the years 1 to 9999",
        )),
    }
}

/// Reads `1h30m`, `-1.5s`, `90s`.
pub(super) fn parse_duration(text: &str) -> Result<Value, Fault> {
    let wrong = || {
        Fault::domain(format!(
            "`{}` is not a duration such as 1h30m or 90s",
            clip(text)
        ))
    };
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Value::Duration(0));
    }
    if rest.is_empty() || rest.len() > 128 {
        return Err(wrong());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let length = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(wrong)?;
        let (number, tail) = rest.split_at(length);
        let unit_length = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_length);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3600 * SECOND,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 18 {
            return Err(wrong());
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| wrong())?
        };
        let digits = fraction.get(..fraction.len().min(15)).unwrap_or_default();
        let parsed: i128 = if digits.is_empty() {
            0
        } else {
            digits.parse().map_err(|_| wrong())?
        };
        let power = 10_i128.pow(u32::try_from(digits.len()).unwrap_or(0));
        total += whole * scale + parsed * scale / power;
        rest = tail;
    }
    duration(Some(if negative { -total } else { total }))
}

/// A duration in seconds, as `string()` gives it: `5400s`, `1.5s`.
pub(super) fn format_duration(nanos: i128) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (whole, fraction) = (nanos.abs() / SECOND, nanos.abs() % SECOND);
    if fraction == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{fraction:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

/// Reads RFC 3339.
pub(super) fn parse_timestamp(text: &str) -> Result<Value, Fault> {
    let wrong = || {
        Fault::domain(format!(
            "`{}` is not a timestamp such as 2026-01-31T12:00:00Z",
            clip(text)
        ))
    };
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    if bytes.len() < shape.len() + 1 || bytes.len() > 64 {
        return Err(wrong());
    }
    let fits = shape.iter().zip(bytes).all(|(want, got)| match want {
        b'd' => got.is_ascii_digit(),
        want => want == got,
    });
    if !fits {
        return Err(wrong());
    }
    let field = |from: usize, to: usize| text[from..to].parse::<i64>().unwrap_or(-1);
    let (year, month, day) = (field(0, 4), field(5, 7), field(8, 10));
    let (hour, minute, second) = (field(11, 13), field(14, 16), field(17, 19));
    let month_days = match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    };
    let valid = (1..=12).contains(&month)
        && (1..=month_days).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !valid {
        return Err(wrong());
    }
    let mut rest = &text[shape.len()..];
    let mut nanos = 0_i128;
    if let Some(tail) = rest.strip_prefix('.') {
        let length = tail
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(tail.len());
        if length == 0 {
            return Err(wrong());
        }
        nanos = format!("{:0<9}", &tail[..length.min(9)])
            .parse()
            .map_err(|_| wrong())?;
        rest = &tail[length..];
    }
    let offset = if rest == "Z" {
        0
    } else {
        parse_offset(rest).ok_or_else(wrong)?
    };
    let seconds =
        days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    timestamp(Some(i128::from(seconds) * SECOND + nanos))
}

/// `+05:30` in seconds.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(hours) || !digits(minutes) {
        return None;
    }
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The date of a day number: year, month, day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// A timestamp in RFC 3339, in UTC.
pub(super) fn format_timestamp(nanos: i128) -> String {
    let (seconds, fraction) = (nanos.div_euclid(SECOND), nanos.rem_euclid(SECOND));
    let seconds = i64::try_from(seconds).unwrap_or_default();
    let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let mut out = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if fraction != 0 {
        out.push('.');
        out.push_str(format!("{fraction:09}").trim_end_matches('0'));
    }
    out.push('Z');
    out
}

#[derive(Clone, Copy)]
enum Part {
    FullYear,
    Month,
    DayOfYear,
    DayOfMonth,
    Date,
    DayOfWeek,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

fn part(part: Part, name: &str, args: &[Value]) -> Result<Value, Fault> {
    let zone = match args.get(1) {
        None => None,
        Some(Value::String(zone)) => Some(&**zone),
        Some(other) => {
            return Err(Fault::of_type(format!(
                "`{name}` takes a time zone name, not {}",
                other.type_name()
            )));
        }
    };
    let nanos = match (&args[0], zone) {
        (Value::Timestamp(nanos), _) => *nanos,
        (Value::Duration(nanos), None) => return of_duration(part, *nanos, name),
        (other, _) => {
            return Err(Fault::of_type(format!(
                "`{name}` does not take {}",
                other.type_name()
            )));
        }
    };
    let utc = i64::try_from(nanos.div_euclid(SECOND)).unwrap_or_default();
    let seconds = utc + zone.map_or(Ok(0), |zone| offset_at(zone, utc))?;
    let days = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400);
    let (year, month, day) = civil_from_days(days);
    Ok(Value::Int(match part {
        Part::FullYear => year,
        Part::Month => month - 1,
        Part::DayOfYear => days - days_from_civil(year, 1, 1),
        Part::DayOfMonth => day - 1,
        Part::Date => day,
        Part::DayOfWeek => (days + 4).rem_euclid(7),
        Part::Hours => of_day / 3600,
        Part::Minutes => of_day / 60 % 60,
        Part::Seconds => of_day % 60,
        Part::Milliseconds => {
            i64::try_from(nanos.rem_euclid(SECOND) / 1_000_000).unwrap_or_default()
        }
    }))
}

fn of_duration(part: Part, nanos: i128, name: &str) -> Result<Value, Fault> {
    let value = match part {
        Part::Hours => nanos / (3600 * SECOND),
        Part::Minutes => nanos / (60 * SECOND),
        Part::Seconds => nanos / SECOND,
        Part::Milliseconds => nanos % SECOND / 1_000_000,
        _ => return Err(Fault::of_type(format!("`{name}` does not take a duration"))),
    };
    Ok(Value::Int(i64::try_from(value).unwrap_or_default()))
}

fn offset_at(zone: &str, seconds: i64) -> Result<i64, Fault> {
    if let Some(offset) = parse_offset(zone) {
        return Ok(offset);
    }
    let unknown = || Fault::domain(format!("`{}` is not a time zone", clip(zone)));
    let zone = TimeZone::get(zone).map_err(|_| unknown())?;
    let at = Timestamp::from_second(seconds).map_err(|_| unknown())?;
    Ok(i64::from(zone.to_offset(at).seconds()))
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

const fn accessor(name: &'static str, run: Run) -> Function {
    Function {
        name,
        method: true,
        arity: Arity { least: 0, most: 1 },
        moves: false,
        run,
    }
}

const fn conversion(name: &'static str, run: Run) -> Function {
    Function {
        name,
        method: false,
        arity: Arity { least: 1, most: 1 },
        moves: false,
        run,
    }
}

fn to_duration(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::String(text) => parse_duration(text),
        Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
        other => Err(Fault::of_type(format!(
            "`duration` does not take {}",
            other.type_name()
        ))),
    }
}

fn to_timestamp(_: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::String(text) => parse_timestamp(text),
        Value::Int(seconds) => timestamp(i128::from(*seconds).checked_mul(SECOND)),
        Value::Timestamp(nanos) => Ok(Value::Timestamp(*nanos)),
        other => Err(Fault::of_type(format!(
            "`timestamp` does not take {}",
            other.type_name()
        ))),
    }
}

pub(super) static FUNCTIONS: &[Function] = &[
    conversion("duration", to_duration),
    conversion("timestamp", to_timestamp),
    accessor("getFullYear", |_, args| {
        part(Part::FullYear, "getFullYear", args)
    }),
    accessor("getMonth", |_, args| part(Part::Month, "getMonth", args)),
    accessor("getDayOfYear", |_, args| {
        part(Part::DayOfYear, "getDayOfYear", args)
    }),
    accessor("getDayOfMonth", |_, args| {
        part(Part::DayOfMonth, "getDayOfMonth", args)
    }),
    accessor("getDate", |_, args| part(Part::Date, "getDate", args)),
    accessor("getDayOfWeek", |_, args| {
        part(Part::DayOfWeek, "getDayOfWeek", args)
    }),
    accessor("getHours", |_, args| part(Part::Hours, "getHours", args)),
    accessor("getMinutes", |_, args| {
        part(Part::Minutes, "getMinutes", args)
    }),
    accessor("getSeconds", |_, args| {
        part(Part::Seconds, "getSeconds", args)
    }),
    accessor("getMilliseconds", |_, args| {
        part(Part::Milliseconds, "getMilliseconds", args)
    }),
];

/// Whole seconds since the epoch, for `int(timestamp)`.
pub(super) fn seconds(nanos: i128) -> i64 {
    i64::try_from(nanos.div_euclid(SECOND)).unwrap_or_default()
}
