//! `Idempotency-Key`: the same key never does the thing twice.
//!
//! Kept in memory, bounded: a repeat that comes after a restart, or after many thousand other keys, asks again for what is harmless to
//! ask for twice.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use axum::http::HeaderMap;
use converge_api_types::header::IDEMPOTENCY_KEY;

use crate::check::Checks;
use crate::problem::Problem;

const KEYS: usize = 10_000;
const KEY_BYTES: usize = 255;

/// Keys seen. See the module.
#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    keys: HashSet<String>,
    order: VecDeque<String>,
}

/// A key that was taken for one request.
#[derive(Debug)]
enum Turn {
    /// There is no key: do it.
    Unkeyed,
    /// The first of this key: do it, and give the key back if it failed.
    First(String),
    /// It was done before.
    Repeat,
}

impl Once {
    /// Does the work unless the request's key has had its turn at it: `None` for a repeat. After work that failed the key may come again.
    pub(crate) async fn run<T>(
        &self,
        headers: &HeaderMap,
        scope: &str,
        work: impl Future<Output = Result<T, Problem>>,
    ) -> Result<Option<T>, Problem> {
        let turn = self.turn(headers, scope)?;
        if matches!(turn, Turn::Repeat) {
            return Ok(None);
        }
        let done = work.await;
        if done.is_err() {
            self.give_back(turn);
        }
        done.map(Some)
    }

    /// Reads the header; `scope` is what the key is for.
    fn turn(&self, headers: &HeaderMap, scope: &str) -> Result<Turn, Problem> {
        let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
            return Ok(Turn::Unkeyed);
        };
        let key = value.to_str().unwrap_or_default();
        if key.is_empty() || key.len() > KEY_BYTES {
            let mut checks = Checks::default();
            checks.add(
                IDEMPOTENCY_KEY,
                format!("must be 1 to {KEY_BYTES} visible ASCII characters"),
            );
            return Err(checks.into_problem());
        }
        let key = format!("{scope} {key}");
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.keys.insert(key.clone()) {
            return Ok(Turn::Repeat);
        }
        seen.order.push_back(key.clone());
        if seen.order.len() > KEYS
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.keys.remove(&oldest);
        }
        Ok(Turn::First(key))
    }

    /// What the key was taken for did not happen.
    fn give_back(&self, turn: Turn) {
        if let Turn::First(key) = turn {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.keys.remove(&key);
            seen.order.retain(|kept| *kept != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(key: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_KEY, key.parse().unwrap());
        headers
    }

    #[test]
    fn a_key_has_one_turn_per_scope_until_it_is_given_back() {
        let once = Once::default();
        assert!(matches!(
            once.turn(&HeaderMap::new(), "a").unwrap(),
            Turn::Unkeyed
        ));
        let first = once.turn(&headers("k"), "a").unwrap();
        assert!(matches!(first, Turn::First(_)));
        assert!(matches!(
            once.turn(&headers("k"), "a").unwrap(),
            Turn::Repeat
        ));
        assert!(matches!(
            once.turn(&headers("k"), "b").unwrap(),
            Turn::First(_)
        ));
        once.give_back(first);
        assert!(matches!(
            once.turn(&headers("k"), "a").unwrap(),
            Turn::First(_)
        ));
        assert!(once.turn(&headers(&"x".repeat(256)), "a").is_err());
    }

    #[test]
    fn old_keys_are_forgotten() {
        let once = Once::default();
        for number in 0..=KEYS {
            once.turn(&headers(&number.to_string()), "a").unwrap();
        }
        assert!(matches!(
            once.turn(&headers("0"), "a").unwrap(),
            Turn::First(_)
        ));
        assert_eq!(once.0.lock().unwrap().keys.len(), KEYS);
    }
}
