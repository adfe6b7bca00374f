//! How a resource is doing, and the closed sets that say what can happen to it.
//!
//! Each set has one spelling, used in JSON, in stores and in messages: `as_str`, Display, FromStr and serde agree.
//! Which of them holds for a resource is decided in the engine, not here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};

use crate::ids::ResourceRef;
use crate::pointer::Pointer;

/// A word that is not in a closed set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: expected one of {expected}")]
pub struct WordError {
    what: &'static str,
    text: String,
    expected: String,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = WordError;
            fn from_str(text: &str) -> Result<Self, WordError> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(WordError {
                        what: $what,
                        text: text.chars().take(80).collect(),
                        expected: [$($word),+].join(", "),
                    }),
                }
            }
        }
    };
}

words!(
    /// The one value that says how a resource is doing. Ordered as it is decided: the first that holds.
    Phase, "phase" {
        /// A deletion was asked for.
        Deleting = "Deleting",
        /// Somebody stopped it by hand.
        Quarantined = "Quarantined",
        /// Failed terminally at the current inputs.
        Failed = "Failed",
        /// Its composer no longer wants it.
        Orphaned = "Orphaned",
        /// Something of it has not caught up yet.
        Reconciling = "Reconciling",
        /// Caught up, and unhealthy.
        Degraded = "Degraded",
        /// Caught up and healthy.
        Ready = "Ready",
    }
);

words!(
    /// What a claim does.
    Stage, "stage" {
        /// Computes children, edges and configs.
        Compose = "compose",
        /// Does the work of a leaf.
        Work = "work",
        /// Sums up the descendants.
        Rollup = "rollup",
        /// Tears down what the work made.
        Delete = "delete",
        /// Runs one operation somebody asked for.
        Operate = "operate",
        /// Tells a reactor about a transition.
        React = "react",
    }
);

impl Stage {
    /// The number on the wire.
    pub const fn wire(self) -> i32 {
        match self {
            Stage::Compose => 1,
            Stage::Work => 2,
            Stage::Rollup => 3,
            Stage::Delete => 4,
            Stage::Operate => 5,
            Stage::React => 6,
        }
    }

    /// The stage with this number on the wire.
    pub fn from_wire(number: i32) -> Option<Stage> {
        Stage::ALL
            .iter()
            .copied()
            .find(|stage| stage.wire() == number)
    }
}

words!(
    /// What calls a reaction.
    Trigger, "trigger" {
        /// An input of the resource changed.
        SpecChange = "specChange",
        /// The descendants of a composite have settled.
        ChildrenSettled = "childrenSettled",
        /// A deletion was asked for and it is this resource's turn.
        DeleteRequested = "deleteRequested",
        /// Somebody asked for the reaction's verb.
        Operation = "operation",
        /// A watched resource made a transition.
        Reactor = "reactor",
        /// The resync interval is over.
        Resync = "resync",
    }
);

words!(
    /// A part of an outcome that the control plane applies.
    Emit, "part of an outcome" {
        /// The children, and with them edges and configs.
        Children = "children",
        /// The edges between the children.
        Edges = "edges",
        /// The provider configs a composer owns.
        Configs = "configs",
        /// The status.
        Status = "status",
        /// The conditions.
        Conditions = "conditions",
        /// The end of a teardown.
        Finalizer = "finalizer",
        /// The output of an operation.
        OperationOutput = "operationOutput",
        /// Something outside; nothing is stored.
        SideEffect = "sideEffect",
    }
);

/// Which parts of an outcome are applied; what is not in it is dropped.
///
/// In JSON a list of [`Emit`]s. A mask with `children` covers edges and configs too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EmitMask(u8);

impl EmitMask {
    /// Nothing.
    pub const NONE: EmitMask = EmitMask(0);

    const fn bit(emit: Emit) -> u8 {
        1 << emit as u8
    }

    /// This mask with `emit` as well.
    #[must_use]
    pub const fn with(self, emit: Emit) -> EmitMask {
        EmitMask(self.0 | Self::bit(emit))
    }

    /// Whether `emit` itself is listed.
    pub const fn lists(self, emit: Emit) -> bool {
        self.0 & Self::bit(emit) != 0
    }

    /// Whether the part is applied: it is listed, or it comes with `children`.
    pub const fn allows(self, emit: Emit) -> bool {
        self.lists(emit)
            || (matches!(emit, Emit::Edges | Emit::Configs) && self.lists(Emit::Children))
    }

    /// Whether nothing is listed.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// What is listed, in order.
    pub fn iter(self) -> impl Iterator<Item = Emit> {
        Emit::ALL
            .iter()
            .copied()
            .filter(move |emit| self.lists(*emit))
    }
}

impl FromIterator<Emit> for EmitMask {
    fn from_iter<T: IntoIterator<Item = Emit>>(emits: T) -> EmitMask {
        emits.into_iter().fold(EmitMask::NONE, EmitMask::with)
    }
}

impl fmt::Debug for EmitMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(Emit::as_str))
            .finish()
    }
}

impl Serialize for EmitMask {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for EmitMask {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Emit>::deserialize(deserializer)?
            .into_iter()
            .collect())
    }
}

words!(
    /// What a reactor can be told about a resource.
    Transition, "transition" {
        /// It was inserted.
        Created = "created",
        /// It entered Ready.
        Synced = "synced",
        /// It entered Degraded.
        Degraded = "degraded",
        /// It entered Failed.
        Failed = "failed",
        /// It was removed.
        Deleted = "deleted",
    }
);

impl Transition {
    /// The number on the wire.
    pub const fn wire(self) -> i32 {
        match self {
            Transition::Created => 1,
            Transition::Synced => 2,
            Transition::Degraded => 3,
            Transition::Failed => 4,
            Transition::Deleted => 5,
        }
    }

    /// The transition with this number on the wire.
    pub fn from_wire(number: i32) -> Option<Transition> {
        Transition::ALL
            .iter()
            .copied()
            .find(|transition| transition.wire() == number)
    }

    /// The transition that entering `phase` is.
    pub fn entering(phase: Phase) -> Option<Transition> {
        match phase {
            Phase::Ready => Some(Transition::Synced),
            Phase::Degraded => Some(Transition::Degraded),
            Phase::Failed => Some(Transition::Failed),
            Phase::Deleting | Phase::Quarantined | Phase::Orphaned | Phase::Reconciling => None,
        }
    }
}

words!(
    /// Whether a condition holds.
    ConditionStatus, "condition status" {
        /// It holds.
        True = "True",
        /// It does not.
        False = "False",
        /// Nobody can say yet.
        Unknown = "Unknown",
    }
);

/// One statement about a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// What it is about, `Ready` for example; unique among a reaction's conditions.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One word why, for programs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// A sentence why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When `status` last changed, in milliseconds since the epoch.
    #[serde(default)]
    pub last_transition_ms: i64,
    /// The generation of the resource it was reported at.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Condition types with a meaning for the engine.
pub mod condition {
    /// A reaction's own word on health.
    pub const READY: &str = "Ready";
    /// Every stage last succeeded with the current inputs.
    pub const SYNCED: &str = "Synced";
    /// The last compose result was accepted.
    pub const COMPOSED: &str = "Composed";
    /// The descendants are healthy.
    pub const CHILDREN_READY: &str = "ChildrenReady";
    /// Every flow into the resource has its value.
    pub const FLOWS_RESOLVED: &str = "FlowsResolved";
    /// The last resync succeeded.
    pub const OBSERVED: &str = "Observed";

    /// Whether only the engine may set a condition of this type.
    pub fn is_engines_own(type_: &str) -> bool {
        matches!(
            type_,
            SYNCED | COMPOSED | CHILDREN_READY | FLOWS_RESOLVED | OBSERVED
        )
    }
}

/// Why something that is not settled is not being worked on, or who works on it. Ordered: the first that holds is shown.
///
/// Display is what people read; times in it are RFC 3339 UTC with milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingReason {
    /// A worker has it.
    Running {
        /// The worker's identity.
        worker: String,
        /// Since when, in milliseconds since the epoch.
        since_ms: i64,
    },
    /// Somebody stopped it by hand.
    Quarantined,
    /// A deletion that waits until that resource is gone.
    HeldBy(ResourceRef),
    /// Its config reference names nothing it can use.
    ConfigMissing,
    /// That dependency, of it or of an ancestor, is not Ready.
    DependencyNotReady(ResourceRef),
    /// That resource's status has no value at the pointer yet.
    FlowMissing(ResourceRef, Pointer),
    /// The next attempt is not due before this time, in milliseconds since the epoch.
    Backoff {
        /// When it is due.
        until_ms: i64,
    },
    /// No connected worker serves the pair.
    NoWorker,
    /// A worker serves the pair and says it cannot right now.
    WorkerNotReady,
    /// As many of the kind run as its policy allows.
    KindAtCapacity,
    /// Due and waiting for a free slot.
    Queued,
    /// A composite that waits for that descendant.
    ChildrenNotSettled(ResourceRef),
}

impl WaitingReason {
    /// The reason without its details: the first word of its text.
    pub fn word(&self) -> &'static str {
        match self {
            WaitingReason::Running { .. } => "Running",
            WaitingReason::Quarantined => "Quarantined",
            WaitingReason::HeldBy(_) => "HeldBy",
            WaitingReason::ConfigMissing => "ConfigMissing",
            WaitingReason::DependencyNotReady(_) => "DependencyNotReady",
            WaitingReason::FlowMissing(..) => "FlowMissing",
            WaitingReason::Backoff { .. } => "Backoff",
            WaitingReason::NoWorker => "NoWorker",
            WaitingReason::WorkerNotReady => "WorkerNotReady",
            WaitingReason::KindAtCapacity => "KindAtCapacity",
            WaitingReason::Queued => "Queued",
            WaitingReason::ChildrenNotSettled(_) => "ChildrenNotSettled",
        }
    }
}

impl fmt::Display for WaitingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word();
        match self {
            WaitingReason::Running { worker, since_ms } => {
                write!(f, "{word} on {worker} since {}", rfc3339_ms(*since_ms))
            }
            WaitingReason::HeldBy(resource)
            | WaitingReason::DependencyNotReady(resource)
            | WaitingReason::ChildrenNotSettled(resource) => write!(f, "{word} {resource}"),
            WaitingReason::FlowMissing(resource, pointer) => {
                write!(f, "{word} {resource} {pointer}")
            }
            WaitingReason::Backoff { until_ms } => {
                write!(f, "{word} until {}", rfc3339_ms(*until_ms))
            }
            WaitingReason::Quarantined
            | WaitingReason::ConfigMissing
            | WaitingReason::NoWorker
            | WaitingReason::WorkerNotReady
            | WaitingReason::KindAtCapacity
            | WaitingReason::Queued => f.write_str(word),
        }
    }
}

impl Serialize for WaitingReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A time in milliseconds since the epoch as RFC 3339 UTC with milliseconds; one out of range as the nearest there is.
pub fn rfc3339_ms(ms: i64) -> String {
    let bounds = jiff::Timestamp::MIN.as_millisecond()..=jiff::Timestamp::MAX.as_millisecond();
    let clamped = ms.clamp(*bounds.start(), *bounds.end());
    let time = jiff::Timestamp::from_millisecond(clamped).unwrap_or_default();
    format!("{time:.3}")
}

#[cfg(test)]
mod tests;
