//! When a resource's next task may be claimed: now, after another row moves, or at a time.

use converge_types::ids::Uid;
use converge_types::pointer::Pointer;
use serde::{Deserialize, Serialize};

use super::Millis;

/// Dispatch class within a kind, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Class {
    /// Teardown, operations, reconcile-by-hand.
    Urgent = 0,
    /// First runs, spec, label and flow changes, rollups, reactor deliveries.
    Change = 1,
    /// Retries and second looks.
    Retry = 2,
    /// Config and manifest edits.
    Config = 3,
    /// Resyncs.
    Resync = 4,
}

impl Class {
    /// Every class, most urgent first.
    pub const ALL: [Self; 5] = [
        Self::Urgent,
        Self::Change,
        Self::Retry,
        Self::Config,
        Self::Resync,
    ];

    /// The class a store wrote as this number.
    #[must_use]
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

/// Where the resource's next task stands. Indexed by stores: `Ready` by (pair, class, turn), `Held` by what it is held on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Due {
    /// Nothing to run, or a claim is live; a timer may still be set in [`super::Resource::wake_ms`].
    #[default]
    Idle,
    /// May be claimed now.
    Ready {
        /// Its class.
        class: Class,
        /// Position within the class: smaller first. Roots take turns by start-time fair queueing, see `decide::turns`.
        turn: i64,
        /// When it became claimable, for ties and for people.
        since_ms: Millis,
    },
    /// Due, but something else must move first; that row's change re-derives this one.
    Held(Hold),
}

/// What a due resource waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// A dependency of it, or of one of its ancestors, is not Ready.
    Dependency(Uid),
    /// A flow from this (Ready) source has no value yet.
    Flow {
        /// The source.
        on: Uid,
        /// Where in the source's status the value is missing.
        pointer: Pointer,
    },
    /// A deletion: that resource must go first.
    Gone(Uid),
    /// An orphan: that former dependent must sync without it, or go.
    Released(Uid),
    /// A rollup: this descendant has not settled. Named lazily; `None` when only counts say so.
    Children(Option<Uid>),
    /// Its `provider_config_ref` names nothing, or a config of another pair.
    Config,
    /// Stopped by a person.
    Quarantine,
}

impl Hold {
    /// The row whose change must re-derive the held one. Children and configs reach it by other ways (owner link, config sweep).
    #[must_use]
    pub fn on(&self) -> Option<Uid> {
        match self {
            Self::Dependency(uid)
            | Self::Gone(uid)
            | Self::Released(uid)
            | Self::Flow { on: uid, .. } => Some(*uid),
            Self::Children(_) | Self::Config | Self::Quarantine => None,
        }
    }
}

/// A second look: a success that reported `Ready` other than True is run again until it reports True.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// When to look again.
    pub at_ms: Millis,
    /// The delay that led there; doubles up to its bound.
    pub delay_ms: Millis,
}
