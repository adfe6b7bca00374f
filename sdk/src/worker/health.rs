//! What the loop shows of itself to whoever asks whether it lives and whether it is ready.
//!
//! The loop stores into atomics at the end of each turn and waits for nobody; a reader on another thread sees the values of the
//! same turn or of the next. What is shown names pairs and times and why a connection failed: nothing of a task, nothing of a config.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::KindVersion;

/// So many heartbeats may pass without a turn of the loop before it counts as stuck.
const MISSED: u32 = 3;
/// The longest text of why there is no connection, in bytes: a part of it is what the other side said.
const LONGEST_WHY: usize = 300;

/// What the loop has last shown.
pub(crate) struct Health {
    began: Instant,
    /// How long the loop may take for a turn.
    patience: Duration,
    /// The last turn, in microseconds since the beginning.
    turned: AtomicU64,
    /// When the stream came up or went down, in microseconds since the beginning.
    stream_since: AtomicU64,
    stream_up: AtomicBool,
    draining: AtomicBool,
    pairs: Vec<(String, AtomicU8)>,
    /// Why there is no connection.
    why: Mutex<String>,
}

/// How a pair stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairState {
    /// Its default config is not known on this session.
    Unprimed,
    /// It takes tasks.
    Ready,
    /// Its provider says that it is not ready.
    NotReady,
    /// Its provider panicked over its config.
    Broken,
}

impl PairState {
    const ALL: [Self; 4] = [Self::Unprimed, Self::Ready, Self::NotReady, Self::Broken];

    /// True if the broker was told to send no tasks of it.
    pub(crate) fn is_shed(self) -> bool {
        matches!(self, Self::NotReady | Self::Broken)
    }
}

/// Whether there is a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stream {
    Up,
    Down { lasts: Duration, why: String },
}

/// What was shown, as one value to judge.
#[derive(Debug, Clone)]
struct Seen {
    unturned: Duration,
    patience: Duration,
    stream: Stream,
    draining: bool,
    pairs: Vec<(String, PairState)>,
}

/// The answer to a probe, in the form in which the control plane answers its own.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    status: &'static str,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    ok: bool,
    /// Why not, or what there is to say all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl Health {
    pub(crate) fn new<'a>(
        kinds: impl Iterator<Item = &'a KindVersion>,
        heartbeat_interval: Duration,
    ) -> Self {
        let unprimed = || AtomicU8::new(PairState::Unprimed as u8);
        Self {
            began: Instant::now(),
            patience: heartbeat_interval.saturating_mul(MISSED),
            turned: AtomicU64::new(0),
            stream_since: AtomicU64::new(0),
            stream_up: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            pairs: kinds.map(|kind| (kind.to_string(), unprimed())).collect(),
            why: Mutex::new("none has been up yet".to_owned()),
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// The loop has made a turn.
    pub(crate) fn turned(&self, now: Instant) {
        self.turned.store(self.micros(now), Ordering::Relaxed);
    }

    /// A stream is up, or none is, since then.
    pub(crate) fn stream(&self, is_up: bool, since: Instant) {
        self.stream_up.store(is_up, Ordering::Relaxed);
        self.stream_since
            .store(self.micros(since), Ordering::Relaxed);
    }

    /// Why there is no stream.
    pub(crate) fn no_stream(&self, why: &str) {
        let mut text = String::with_capacity(why.len().min(LONGEST_WHY));
        for char in why.chars() {
            if text.len() + char.len_utf8() > LONGEST_WHY {
                text.push('…');
                break;
            }
            text.push(if char.is_control() { ' ' } else { char });
        }
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// The worker takes no more tasks.
    pub(crate) fn draining(&self, is_draining: bool) {
        self.draining.store(is_draining, Ordering::Relaxed);
    }

    /// How the pair in this place stands.
    pub(crate) fn pair(&self, at: usize, state: PairState) {
        if let Some((_, shown)) = self.pairs.get(at) {
            shown.store(state as u8, Ordering::Relaxed);
        }
    }

    /// Whether the loop runs.
    pub(crate) fn live(&self) -> Verdict {
        self.seen(Instant::now()).live()
    }

    /// Whether the worker is of use.
    pub(crate) fn ready(&self) -> Verdict {
        self.seen(Instant::now()).ready()
    }

    fn seen(&self, now: Instant) -> Seen {
        let now = self.micros(now);
        let since = |then: &AtomicU64| {
            Duration::from_micros(now.saturating_sub(then.load(Ordering::Relaxed)))
        };
        let stream = if self.stream_up.load(Ordering::Relaxed) {
            Stream::Up
        } else {
            let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
            Stream::Down {
                lasts: since(&self.stream_since),
                why: why.clone(),
            }
        };
        let state = |shown: &AtomicU8| {
            let shown = shown.load(Ordering::Relaxed);
            let known = PairState::ALL
                .into_iter()
                .find(|state| *state as u8 == shown);
            known.unwrap_or(PairState::Unprimed)
        };
        let pairs = self.pairs.iter();
        Seen {
            unturned: since(&self.turned),
            patience: self.patience,
            stream,
            draining: self.draining.load(Ordering::Relaxed),
            pairs: pairs
                .map(|(kind, shown)| (kind.clone(), state(shown)))
                .collect(),
        }
    }
}

impl Seen {
    fn live(&self) -> Verdict {
        Verdict::of(vec![self.turns()])
    }

    fn ready(&self) -> Verdict {
        let serving = match self.draining {
            true => Err("draining: the worker is shutting down and takes no more tasks".to_owned()),
            false => Ok(None),
        };
        let stream = match &self.stream {
            Stream::Up => Ok(None),
            Stream::Down { lasts, why } => Err(format!("down for {}: {why}", seconds(*lasts))),
        };
        let mut checks = vec![
            // What a loop that is stuck has shown is out of date.
            self.turns(),
            Check::of("serving", serving),
            Check::of("stream", stream),
        ];
        for (kind, state) in &self.pairs {
            let found = match state {
                PairState::Ready => Ok(None),
                PairState::NotReady => Ok(Some("shed: its provider says that it is not ready")),
                PairState::Broken => Ok(Some(
                    "shed: its provider panicked over its config; the next config is another chance",
                )),
                PairState::Unprimed => {
                    Err("not primed: the broker has not said what its default config is".to_owned())
                }
            };
            let found = found.map(|note| note.map(str::to_owned));
            checks.push(Check::of(&format!("pair {kind}"), found));
        }
        Verdict::of(checks)
    }

    fn turns(&self) -> Check {
        let found = if self.unturned > self.patience {
            Err(format!(
                "stuck: no turn for {}, and {MISSED} heartbeats are {}; does an on_config or a ready of a provider block?",
                seconds(self.unturned),
                seconds(self.patience)
            ))
        } else {
            Ok(None)
        };
        Check::of("loop", found)
    }
}

impl Check {
    fn of(name: &str, found: Result<Option<String>, String>) -> Self {
        let (ok, message) = match found {
            Ok(note) => (true, note),
            Err(why) => (false, Some(why)),
        };
        Self {
            name: name.to_owned(),
            ok,
            message,
        }
    }
}

impl Verdict {
    fn of(checks: Vec<Check>) -> Self {
        let ok = checks.iter().all(|check| check.ok);
        Self {
            status: if ok { "ok" } else { "unavailable" },
            checks,
        }
    }

    /// True if all is well.
    pub(crate) fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn well() -> Seen {
        Seen {
            unturned: Duration::ZERO,
            patience: 15 * SECOND,
            stream: Stream::Up,
            draining: false,
            pairs: vec![
                ("a/v1".to_owned(), PairState::Ready),
                ("b/v2".to_owned(), PairState::Ready),
            ],
        }
    }

    fn down() -> Stream {
        Stream::Down {
            lasts: 12 * SECOND,
            why: "could not reach the broker".to_owned(),
        }
    }

    /// What is wrong, by the names of the checks.
    fn wrong(verdict: &Verdict) -> Vec<&str> {
        let wrong = verdict.checks.iter().filter(|check| !check.ok);
        wrong.map(|check| &*check.name).collect()
    }

    #[test]
    fn a_worker_is_ready_while_the_stream_is_up_and_every_pair_is_primed_or_shed() {
        use PairState::{Broken, NotReady, Ready, Unprimed};
        for (stream, draining, pairs, expected) in [
            (Stream::Up, false, [Ready, Ready], &[][..]),
            (Stream::Up, false, [Ready, NotReady], &[]),
            (Stream::Up, false, [Broken, Ready], &[]),
            (Stream::Up, false, [NotReady, NotReady], &[]),
            (Stream::Up, false, [Ready, Unprimed], &["pair b/v2"]),
            (
                Stream::Up,
                false,
                [Unprimed, Unprimed],
                &["pair a/v1", "pair b/v2"],
            ),
            (down(), false, [Ready, Ready], &["stream"]),
            (down(), false, [Unprimed, Ready], &["stream", "pair a/v1"]),
            (Stream::Up, true, [Ready, Ready], &["serving"]),
            (down(), true, [Ready, NotReady], &["serving", "stream"]),
        ] {
            let mut seen = well();
            for (pair, state) in seen.pairs.iter_mut().zip(pairs) {
                pair.1 = state;
            }
            (seen.stream, seen.draining) = (stream, draining);
            let verdict = seen.ready();
            assert_eq!(wrong(&verdict), expected, "{seen:?}");
            assert_eq!(verdict.is_ok(), expected.is_empty());
            assert!(seen.live().is_ok(), "none of this is a reason to restart");
        }
    }

    #[test]
    fn a_loop_that_makes_no_turn_for_three_heartbeats_is_neither_live_nor_ready() {
        let mut seen = well();
        seen.unturned = seen.patience;
        assert!(seen.live().is_ok() && seen.ready().is_ok());
        seen.unturned += Duration::from_micros(1);
        assert_eq!(wrong(&seen.live()), ["loop"]);
        assert_eq!(wrong(&seen.ready()), ["loop"]);
        let health = Health::new(std::iter::empty(), 5 * SECOND);
        health.stream(true, health.began);
        for (turned, now, live) in [(0, 15, true), (0, 16, false), (2, 17, true), (2, 18, false)] {
            health.turned(health.began + turned * SECOND);
            let seen = health.seen(health.began + now * SECOND);
            assert_eq!(seen.live().is_ok(), live, "{turned} {now}");
        }
    }

    #[test]
    fn the_answer_says_why_not() {
        let mut seen = well();
        (seen.stream, seen.pairs[1].1) = (down(), PairState::NotReady);
        let text = serde_json::to_string(&seen.ready()).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"status":"unavailable","checks":[{"name":"loop","ok":true},{"name":"serving","ok":true},"#,
                r#"{"name":"stream","ok":false,"message":"down for 12.0 s: could not reach the broker"},"#,
                r#"{"name":"pair a/v1","ok":true},{"name":"pair b/v2","ok":true,"message":"shed: its provider says that it is not ready"}]}"#
            )
        );
    }

    #[test]
    fn what_the_loop_shows_is_what_is_seen() {
        let kinds = [KindVersion::new("a", 1), KindVersion::new("b", 2)];
        let health = Health::new(kinds.iter(), SECOND);
        let seen = health.seen(health.began);
        assert_eq!(seen.pairs[1], ("b/v2".to_owned(), PairState::Unprimed));
        assert!(matches!(seen.stream, Stream::Down { .. }));
        for state in PairState::ALL {
            health.pair(1, state);
            assert_eq!(health.seen(health.began).pairs[1].1, state);
        }
        health.pair(7, PairState::Ready);
        health.stream(true, health.began + SECOND);
        health.draining(true);
        let seen = health.seen(health.began);
        assert!(seen.stream == Stream::Up && seen.draining);
        health.stream(false, health.began + 2 * SECOND);
        health.no_stream(&format!("line\r\none{}", "é".repeat(LONGEST_WHY)));
        let Stream::Down { lasts, why } = health.seen(health.began + 5 * SECOND).stream else {
            panic!("it is down")
        };
        assert_eq!(lasts, 3 * SECOND);
        assert!(why.starts_with("line  oneé") && why.ends_with('…'), "{why}");
        assert!(why.len() <= LONGEST_WHY + '…'.len_utf8());
    }
}
