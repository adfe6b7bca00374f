//! How the record of a failure comes to be: attempts, backoff, pins. Nothing else makes one.
//!
//! Only a handler's own outcome is an attempt. Backoff is exponential with jitter in its upper half, so that retries of many resources
//! that failed together spread out and no delay is shorter than half its step.

use converge_types::ids::Kind;
use converge_types::limits;
use converge_types::phase::Stage;

use crate::model::{Claim, Failure, Inputs, ManifestRow, Millis, Resource};

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

/// A task that did not succeed.
#[derive(Debug, Clone, Copy)]
pub struct Failed<'a> {
    /// The resource, with the failure that stood before.
    pub row: &'a Resource,
    /// The claim the task ran under.
    pub claim: &'a Claim,
    /// The manifest of the claim's pair, while there is one.
    pub manifest: Option<&'a ManifestRow>,
    /// When.
    pub now_ms: Millis,
    /// For the jitter.
    pub seed: u64,
}

impl Failed<'_> {
    /// The record after an outcome of the handler itself: an attempt. `cures` are kinds that would help without new inputs.
    #[must_use]
    pub fn attempt(&self, message: &str, terminal: bool, cures: Vec<Kind>) -> Failure {
        let before = self.standing();
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        let most = self.max_attempts();
        let exhausted = !terminal && most > 0 && attempts >= most;
        let terminal = terminal || exhausted;
        let message = if exhausted {
            format!("gave up after {attempts} attempts: {message}")
        } else {
            message.to_owned()
        };
        Failure {
            terminal,
            attempts,
            next_ms: if terminal {
                teardown_retry(self.claim.stage, self.now_ms)
            } else {
                self.after_backoff(attempts)
            },
            cures,
            ..self.record(&message)
        }
    }

    /// The record after a lease was lost: no attempt, until there were too many in a row at the same inputs.
    #[must_use]
    pub fn lost_lease(&self) -> Failure {
        const MESSAGE: &str = "the worker was lost while running this task";
        let before = self.standing();
        let lost_leases = before
            .map_or(0, |before| before.lost_leases)
            .saturating_add(1);
        if lost_leases >= limits::LOST_LEASES_BEFORE_ATTEMPT {
            return Failure {
                lost_leases,
                ..self.attempt(MESSAGE, false, Vec::new())
            };
        }
        Failure {
            attempts: before.map_or(0, |before| before.attempts),
            lost_leases,
            ..self.record(MESSAGE)
        }
    }

    /// The record of a resync that failed: it pins nothing, and its attempts only space the next ones.
    #[must_use]
    pub fn observation(&self, message: &str) -> Failure {
        let before = self.row.observe_failure.as_ref();
        let attempts = before.map_or(0, |before| before.attempts).saturating_add(1);
        Failure {
            attempts,
            next_ms: self.after_backoff(attempts),
            ..self.record(message)
        }
    }

    /// Attempts after which a transient failure is terminal; 0 = none: a teardown is tried for ever.
    fn max_attempts(&self) -> u32 {
        match self.manifest {
            Some(manifest) if self.claim.stage != Stage::Delete => {
                manifest.policy.max_transient_attempts
            }
            _ => 0,
        }
    }

    /// The failure of the same stage at the same inputs, if one stands.
    fn standing(&self) -> Option<&Failure> {
        self.row.failure.as_ref().filter(|failure| {
            failure.stage == self.claim.stage && failure.inputs == self.claim.inputs
        })
    }

    fn after_backoff(&self, attempts: u32) -> Option<Millis> {
        Some(self.now_ms + backoff_ms(attempts, self.seed))
    }

    fn record(&self, message: &str) -> Failure {
        let claim = self.claim;
        let reaction = claim.reaction.clone();
        record(
            claim.stage,
            reaction,
            claim.inputs,
            claim.manifest_version,
            message,
        )
    }
}

/// The record of a stage that must not run with these inputs: nothing was tried, and only other inputs help.
#[must_use]
pub fn pinned(
    stage: Stage,
    reaction: String,
    inputs: Inputs,
    manifest_version: i64,
    message: &str,
) -> Failure {
    Failure {
        terminal: true,
        ..record(stage, reaction, inputs, manifest_version, message)
    }
}

/// A record that counts nothing yet and waits for nothing.
fn record(
    stage: Stage,
    reaction: String,
    inputs: Inputs,
    manifest_version: i64,
    message: &str,
) -> Failure {
    Failure {
        stage,
        reaction,
        message: limits::truncate_message(message).into_owned(),
        terminal: false,
        attempts: 0,
        lost_leases: 0,
        next_ms: None,
        inputs,
        manifest_version,
        cures: Vec::new(),
    }
}

/// A terminal teardown is tried again hourly; nothing else terminal is.
fn teardown_retry(stage: Stage, now_ms: Millis) -> Option<Millis> {
    (stage == Stage::Delete).then(|| now_ms + limits::TEARDOWN_RETRY.as_millis() as Millis)
}
