//! What a failed outcome does: attempts, backoff, pins.
//!
//! Only a handler's own outcome is an attempt. Backoff is exponential with jitter in its upper half, so that retries of many resources
//! that failed together spread out and no delay is shorter than half its step.

use converge_types::ids::Kind;
use converge_types::limits;
use converge_types::phase::Stage;

use crate::model::{Failure, Inputs, Millis, Resource};

/// The delay before attempt `attempts + 1`, in milliseconds: half of the step for sure, the other half by `seed`.
#[must_use]
pub fn backoff_ms(attempts: u32, seed: u64) -> Millis {
    let min = limits::BACKOFF_MIN.as_millis() as Millis;
    let max = limits::BACKOFF_MAX.as_millis() as Millis;
    let step = min
        .saturating_mul(1 << attempts.saturating_sub(1).min(20))
        .min(max);
    let half = step / 2;
    half + (seed % (half.unsigned_abs() + 1)) as Millis
}

/// A failed outcome of a handler.
#[derive(Debug, Clone)]
pub struct Failed<'a> {
    /// The stage.
    pub stage: Stage,
    /// Its reaction.
    pub reaction: &'a str,
    /// What it said.
    pub message: String,
    /// Whether only new inputs help.
    pub terminal: bool,
    /// Kinds that would cure it without new inputs (refused compositions).
    pub cures: Vec<Kind>,
    /// The inputs of the claim.
    pub inputs: Inputs,
    /// Its manifest version.
    pub manifest_version: i64,
    /// `max_transient_attempts`; 0 = for ever.
    pub max_attempts: u32,
}

/// The failure record after this outcome.
#[must_use]
pub fn after(row: &Resource, failed: Failed<'_>, now_ms: Millis, seed: u64) -> Failure {
    let before = standing(row, failed.stage, &failed.inputs);
    let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
    let exhausted = !failed.terminal && failed.max_attempts > 0 && attempts >= failed.max_attempts;
    let terminal = failed.terminal || exhausted;
    let message = if exhausted {
        format!("gave up after {attempts} attempts: {}", failed.message)
    } else {
        failed.message
    };
    Failure {
        stage: failed.stage,
        reaction: failed.reaction.to_owned(),
        message: limits::truncate_message(&message).into_owned(),
        terminal,
        attempts,
        lost_leases: 0,
        next_ms: if terminal {
            teardown_retry(failed.stage, now_ms)
        } else {
            Some(now_ms + backoff_ms(attempts, seed))
        },
        inputs: failed.inputs,
        manifest_version: failed.manifest_version,
        cures: failed.cures,
    }
}

/// The failure record after a lease was lost: no attempt, until there were too many in a row at the same inputs.
#[must_use]
pub fn after_lost_lease(row: &Resource, failed: Failed<'_>, now_ms: Millis, seed: u64) -> Failure {
    let before = standing(row, failed.stage, &failed.inputs);
    let lost_leases = before
        .map_or(0, |before| before.lost_leases)
        .saturating_add(1);
    if lost_leases >= limits::LOST_LEASES_BEFORE_ATTEMPT {
        return Failure {
            lost_leases,
            ..after(row, failed, now_ms, seed)
        };
    }
    Failure {
        stage: failed.stage,
        reaction: failed.reaction.to_owned(),
        message: failed.message,
        terminal: false,
        attempts: before.map_or(0, |before| before.attempts),
        lost_leases,
        next_ms: None,
        inputs: failed.inputs,
        manifest_version: failed.manifest_version,
        cures: Vec::new(),
    }
}

/// The failure of the same stage at the same inputs, if one stands.
fn standing<'r>(row: &'r Resource, stage: Stage, inputs: &Inputs) -> Option<&'r Failure> {
    row.failure
        .as_ref()
        .filter(|failure| failure.stage == stage && failure.inputs == *inputs)
}

/// A terminal teardown is tried again hourly; nothing else terminal is.
fn teardown_retry(stage: Stage, now_ms: Millis) -> Option<Millis> {
    (stage == Stage::Delete).then(|| now_ms + limits::TEARDOWN_RETRY.as_millis() as Millis)
}
