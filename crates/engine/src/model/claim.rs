//! Claims: who may report a result for which task.
//!
//! A claim is a token nobody can guess plus an epoch that only grows per resource. Only a result that names exactly the claim on
//! the row lands. Not here: when a claim ends for silence (the broker keeps leases, on its monotonic clock).

use converge_types::ids::{KindVersion, Uid};
use converge_types::phase::{Emit, EmitMask, Stage, Trigger};
use serde::{Deserialize, Serialize};

use super::{Class, Digest, Millis};

/// What a stage was run with. A stage whose mark differs from the inputs of now is due.
///
/// Parts that do not concern a stage are zero in its inputs, so that whole values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// Generation of the resource; negative once superseded.
    pub generation: i64,
    /// The kind version it was run at.
    pub kind_version: i32,
    /// Digest of the effective config: merged spec in canonical form plus bundle.
    pub config: Digest,
    /// Digest of the labels; compose only.
    pub labels: Digest,
    /// The descendants' version; rollup only.
    pub below: i64,
}

impl Inputs {
    /// Makes them the inputs of nothing: a person asked to repeat the task while it ran. The sign is turned, for no resource has a negative
    /// generation.
    pub fn supersede(&mut self) {
        self.generation = -self.generation.abs();
    }
}

/// The inputs each stage last succeeded with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Of the compose stage.
    pub compose: Option<Inputs>,
    /// Of the work stage.
    pub work: Option<Inputs>,
    /// Of the rollup stage.
    pub rollup: Option<Inputs>,
}

impl Marks {
    /// The mark of `stage`; `None` for stages that keep none.
    #[must_use]
    pub fn get(&self, stage: Stage) -> Option<Inputs> {
        match stage {
            Stage::Compose => self.compose,
            Stage::Work => self.work,
            Stage::Rollup => self.rollup,
            _ => None,
        }
    }

    /// Sets the mark of `stage`; other stages keep no mark.
    pub fn set(&mut self, stage: Stage, inputs: Inputs) {
        match stage {
            Stage::Compose => self.compose = Some(inputs),
            Stage::Work => self.work = Some(inputs),
            Stage::Rollup => self.rollup = Some(inputs),
            _ => {}
        }
    }
}

/// A lease token: the resource it belongs to, and 128 random bits. On the wire `<uid, 32 hex>-<32 hex>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseToken {
    /// The resource that is claimed; lets any broker find the row of a result.
    pub uid: Uid,
    /// What makes it unguessable.
    pub secret: u128,
}

impl std::fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}-{:032x}", self.uid.as_u128(), self.secret)
    }
}

impl std::str::FromStr for LeaseToken {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (uid, secret) = text.split_once('-').ok_or(())?;
        if uid.len() != 32 || secret.len() != 32 {
            return Err(());
        }
        let uid = u128::from_str_radix(uid, 16).map_err(|_| ())?;
        let secret = u128::from_str_radix(secret, 16).map_err(|_| ())?;
        Ok(Self {
            uid: Uid::from_bytes(uid.to_be_bytes()),
            secret,
        })
    }
}

/// The one claim a resource may carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The secret half of the lease token.
    pub secret: u128,
    /// Strictly increases per resource, never reused.
    pub epoch: i64,
    /// The stage that runs.
    pub stage: Stage,
    /// Why it runs; a resync is a work or compose stage under the trigger [`Trigger::Resync`].
    pub trigger: Trigger,
    /// The reaction's name in the manifest.
    pub reaction: String,
    /// The pair it was dispatched as (after a version flip, the row's may differ).
    pub kv: KindVersion,
    /// Version of the manifest it was claimed under.
    pub manifest_version: i64,
    /// What of the result is applied. The mask of then: an edit of the manifest meanwhile changes nothing for a task that runs.
    #[serde(default = "everything")]
    pub emits: EmitMask,
    /// The inputs it was claimed with.
    pub inputs: Inputs,
    /// The class it was dispatched in; a task given back keeps it.
    pub class: Class,
    /// Identity of the worker, as the broker derived it.
    pub worker: String,
    /// The broker that holds the stream.
    pub broker: String,
    /// When it was made.
    pub since_ms: Millis,
}

impl Claim {
    /// The generation it was claimed at: what its result speaks of, whatever the resource has become since.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.inputs.generation.abs()
    }
}

/// Of a claim that was stored before its mask was.
fn everything() -> EmitMask {
    Emit::ALL.iter().copied().collect()
}

/// Names one exact claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// The lease token.
    pub token: LeaseToken,
    /// The claim epoch.
    pub epoch: i64,
}
