//! What one person waits for: one resource from apply to Ready, nothing else running.
//!
//! The baseline is [`Chain`]: the same commits and the same ways between threads with nothing in them. What is left of a figure when the machine is taken out is its ratio to that.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::bare_chain::Chain;
use super::harness::{Goal, Sample, Variant, compare, median};
use super::stacked::{noop_kind, worker};
use super::{Setting, load};
use crate::http::Http;
use crate::interrupt;
use crate::stack::Stack;

/// Applies in a round; as many come before the first round and are not counted.
const APPLIES: usize = 200;

/// When an applied resource is looked at: earlier after a look that found it Ready, later after one that did not, so that half of the looks find it.
///
/// Looks one after another would be most of the load while "nothing else is running", and each would delay what it waits for.
struct Staircase {
    pause: Duration,
}

/// When an apply was answered, and when it was looked at; in ms since it was sent.
struct Seen {
    answered: f64,
    /// Half-way between the look and its answer: what it tells was so at some moment between them.
    looked: f64,
}

impl Staircase {
    const STEP: Duration = Duration::from_micros(20);

    fn new() -> Self {
        Self {
            pause: Duration::from_micros(500),
        }
    }

    fn one(
        &mut self,
        apply: impl FnOnce() -> Result<()>,
        is_ready: impl Fn() -> Result<bool>,
    ) -> Result<Seen> {
        let started = Instant::now();
        let ms = || started.elapsed().as_secs_f64() * 1e3;
        apply()?;
        let answered = ms();
        std::thread::sleep(self.pause);
        let sent = ms();
        let found = is_ready()?;
        let looked = f64::midpoint(sent, ms());
        self.pause = if found {
            self.pause.saturating_sub(Self::STEP)
        } else {
            self.pause + Self::STEP
        };
        let mut ready = found;
        while !ready {
            interrupt::check()?;
            std::thread::sleep(Duration::from_millis(1));
            ready = is_ready()?;
        }
        Ok(Seen { answered, looked })
    }

    /// The medians of a round.
    fn round(&mut self, mut one: impl FnMut(&mut Self, usize) -> Result<Seen>) -> Result<Seen> {
        let seen = (0..APPLIES)
            .map(|n| one(self, n))
            .collect::<Result<Vec<_>>>()?;
        Ok(Seen {
            answered: median(seen.iter().map(|seen| seen.answered).collect()),
            looked: median(seen.iter().map(|seen| seen.looked).collect()),
        })
    }
}

pub(crate) fn apply_to_ready(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let mut stack = Stack::start(&programs.converge)?;
    let http = Http::new(&stack.at.api);
    noop_kind(&http)?;
    worker(&mut stack, &programs.noop, 16)?;
    load::await_worker(&http)?;
    let one = |stairs: &mut Staircase, name: &str| {
        stairs.one(
            || {
                http.post(
                    "/resources",
                    &json!({"kind": "noop", "name": name, "spec": {}}),
                )
            },
            || Ok(http.get(&format!("/resources/noop/{name}"))?["phase"] == "Ready"),
        )
    };
    let chain = RefCell::new(Chain::start(stack.dir())?);
    let bare_one = |stairs: &mut Staircase| {
        stairs.one(
            || chain.borrow_mut().apply(),
            || chain.borrow_mut().is_ready(),
        )
    };
    let (mut stairs, mut bare_stairs) = (Staircase::new(), Staircase::new());
    bare_stairs.round(|stairs, _| bare_one(stairs))?;
    stairs.round(|stairs, n| one(stairs, &format!("before-{n}")))?;

    let looked = RefCell::new(f64::NAN);
    let sample = |value| Sample { value, cpu: None };
    let bare = Variant {
        name: "bare chain to Ready".into(),
        goal: None,
        run: Box::new(|_| {
            Ok(sample(
                bare_stairs.round(|stairs, _| bare_one(stairs))?.looked,
            ))
        }),
    };
    let answer = Variant {
        name: "apply answered".into(),
        goal: None,
        run: Box::new(|round| {
            // Both figures are of the same applies; the next variant shows what this one measured.
            let seen = stairs.round(|stairs, n| one(stairs, &format!("l{round}-{n}")))?;
            looked.replace(seen.looked);
            Ok(sample(seen.answered))
        }),
    };
    let until = Variant {
        name: "apply to Ready".into(),
        goal: Some(Goal::Value(1.5)),
        run: Box::new(|_| Ok(sample(*looked.borrow()))),
    };
    compare("p50 ms", setting.rounds, vec![bare, answer, until])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_looks_find_what_they_look_for() {
        let mut stairs = Staircase::new();
        let mut looked = Vec::new();
        for _ in 0..APPLIES {
            let applied = Instant::now();
            let seen = stairs
                .one(
                    || Ok(()),
                    || Ok(applied.elapsed() >= Duration::from_millis(1)),
                )
                .unwrap();
            looked.push(seen.looked);
        }
        // Late looks only make it later, and no look before its time counts as found.
        let p50 = median(looked.split_off(APPLIES / 2));
        assert!(p50 > 0.9, "{p50}");
    }
}
