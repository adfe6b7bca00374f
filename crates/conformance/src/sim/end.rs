//! How a history ends: the faults stop, a person mends what only a person can, and everything must come to what was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use converge_engine::command::{Command, ResourceReconcile};
use converge_engine::model::{Due, Hold, Resource};
use converge_types::ids::Uid;
use converge_types::phase::Phase;

use super::plan::{self, PAIRS};
use super::{Sim, Step, Subject};

/// What a composition that names what another owns is answered; nothing in a history cures it.
const REFUSED: &str = "the composition was refused";

fn key(row: &Resource) -> String {
    format!("{}/{}", row.kv.kind, row.name)
}

fn is_refused(row: &Resource) -> bool {
    let failure = row.failure.as_ref();
    failure.is_some_and(|failure| failure.message.starts_with(REFUSED))
}

impl<S: Subject> Sim<S> {
    pub(super) fn end(&mut self) -> Step {
        self.faults = false;
        self.mend()?;
        self.settle()?;
        self.check_end()
    }

    /// What was stopped is let go, every override that may be named exists.
    fn mend(&mut self) -> Step {
        for row in self.subject.rows().iter().filter(|row| row.quarantined) {
            self.set_quarantine(&key(row), false, false)?;
        }
        for (kind, version) in PAIRS {
            let name = plan::override_of(kind, version);
            self.set_config(&name, kind, version, false, 9)?;
        }
        Ok(())
    }

    /// No more faults: run all there is until nothing moves, for a bounded time.
    fn settle(&mut self) -> Step {
        for round in 0..2_000 {
            self.sweep()?;
            self.claim()?;
            let idle = self.running.is_empty();
            while !self.running.is_empty() {
                self.report()?;
            }
            if !idle {
                continue;
            }
            let rows = self.subject.rows();
            let next = rows.iter().filter_map(|row| row.wake_ms).min();
            let now = self.clock.now_ms();
            match next {
                Some(at) if at > now => self.clock.step(at - now),
                Some(_) => {}
                // A look at what was queued out of date may have queued others; were one never claimed, this would not end.
                None if rows.iter().any(|row| matches!(row.due, Due::Ready { .. })) => {}
                None => {
                    if !self.retry_failed(&rows)? {
                        self.say(format_args!("settled after {round} rounds"));
                        return Ok(());
                    }
                }
            }
        }
        Err("it does not settle when the faults stop".to_owned())
    }

    /// What was pinned by a fault is asked for again by hand, as a person would.
    fn retry_failed(&mut self, rows: &[Arc<Resource>]) -> Result<bool, String> {
        let mut any = false;
        // A source that left a value out while there were faults gives it when it runs again.
        let dry: BTreeSet<Uid> = rows
            .iter()
            .filter_map(|row| match &row.due {
                Due::Held(Hold::Flow { on, .. }) => Some(*on),
                _ => None,
            })
            .collect();
        for row in rows {
            let failure = row.failure.as_ref();
            let pinned =
                failure.is_some_and(|failure| failure.terminal && failure.message == "terminal");
            if pinned || dry.contains(&row.uid) {
                any = true;
                self.say(format_args!("retry {}", key(row)));
                self.must(Command::ResourceReconcile(ResourceReconcile {
                    kind: row.kv.kind.clone(),
                    name: row.name.clone(),
                    recursive: false,
                    who: None,
                }))?;
            }
        }
        Ok(any)
    }

    /// Everything that was asked for is there, at rest, and nothing else is.
    fn check_end(&mut self) -> Step {
        self.check()?;
        let rows = self.subject.rows();
        let excused = excused(&rows);
        for row in &rows {
            let key = key(row);
            if row.claim.is_some() {
                return Err(format!("{key} is still claimed"));
            }
            if excused.contains(&row.uid) {
                continue;
            }
            if row.is_deleting() || row.orphan.is_some() {
                return Err(format!("{key} should be gone: {}", picture(&rows, row)));
            }
            if row.derived.phase != Phase::Ready {
                return Err(format!("{key} should be Ready: {}", picture(&rows, row)));
            }
            if row.synced_gen != row.generation {
                return Err(format!("{key} is Ready and has not synced"));
            }
        }
        for (key, generation) in &self.wanted {
            let row = rows.iter().find(|row| self::key(row) == *key);
            let Some(row) = row else {
                return Err(format!("{key} was applied and is not there"));
            };
            if row.generation != *generation {
                return Err(format!(
                    "{key} was applied as {generation} and is at {}",
                    row.generation
                ));
            }
        }
        for row in rows.iter().filter(|row| row.owner.is_none()) {
            let key = key(row);
            if !self.wanted.contains_key(&key) && !excused.contains(&row.uid) {
                return Err(format!("{key} was deleted and is there"));
            }
        }
        Ok(())
    }
}

/// A composition that names what another owns, a ref to a config of another pair: their authors must act. What waits for such a row, is
/// above it, or must go after it, waits too.
fn excused(rows: &[Arc<Resource>]) -> BTreeSet<Uid> {
    let names_another_pair = |row: &Resource| {
        let named = row.config_ref.as_ref().map(ToString::to_string);
        let own = plan::override_of(row.kv.kind.as_str(), row.kv.version);
        named.is_some_and(|named| !named.starts_with("own-") && named != own)
    };
    let mut excused: BTreeSet<Uid> = rows
        .iter()
        .filter(|row| is_refused(row) || names_another_pair(row))
        .map(|row| row.uid)
        .collect();
    loop {
        let before = excused.len();
        for row in rows {
            let waits = match &row.due {
                Due::Held(hold) => hold.on().is_some_and(|on| excused.contains(&on)),
                _ => false,
            };
            if waits {
                excused.insert(row.uid);
            }
            if let Some(owner) = row.owner
                && excused.contains(&row.uid)
            {
                excused.insert(owner);
            }
        }
        if excused.len() == before {
            return excused;
        }
    }
}

/// A row and what of its tree is not Ready.
fn picture(rows: &[Arc<Resource>], row: &Resource) -> String {
    rows.iter()
        .filter(|other| other.root == row.root && other.derived.phase != Phase::Ready)
        .map(|other| {
            format!(
                "\n  {} {} {:?} {:?} wake {:?} {:?} {:?} deletion {:?} ref {:?}",
                other.kv,
                other.name,
                other.derived,
                other.due,
                other.wake_ms,
                other.failure,
                other.below.sums,
                other.deletion,
                other.config_ref,
            )
        })
        .collect()
}
