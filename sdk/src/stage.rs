//! What a task is about: its stage, what triggered it, and the transition a reactor is told of.

use std::fmt;

/// What kind of work a task asks for. Branch on `(stage, reaction)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Emit the children, edges and configs of a composite.
    Compose,
    /// Bring the world to what the spec says.
    Work,
    /// Fold what the descendants report into the status of a composite.
    Rollup,
    /// Undo what `Work` did: the resource is being deleted.
    Delete,
    /// Run one operation that a person asked for.
    Operate,
    /// Take notice of a transition of another resource.
    React,
}

/// Why a reaction runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trigger {
    /// The spec, or the config it reads, changed. A resync comes under this trigger too, with its own reaction name.
    SpecChange,
    /// What is below a composite has settled.
    ChildrenSettled,
    /// The resource is to go.
    DeleteRequested,
    /// A person asked for an operation.
    Operation,
    /// A resource that this one watches made a transition.
    Reactor,
}

/// A step in the life of a resource, as reactors see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Transition {
    /// It was created.
    Created,
    /// It became Ready.
    Synced,
    /// It became Degraded.
    Degraded,
    /// It became Failed.
    Failed,
    /// It was removed.
    Deleted,
}

impl Stage {
    /// Every stage, in the order of the wire.
    pub const ALL: [Stage; 6] = [
        Stage::Compose,
        Stage::Work,
        Stage::Rollup,
        Stage::Delete,
        Stage::Operate,
        Stage::React,
    ];

    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Compose => "compose",
            Stage::Work => "work",
            Stage::Rollup => "rollup",
            Stage::Delete => "delete",
            Stage::Operate => "operate",
            Stage::React => "react",
        }
    }

    /// The trigger a provider sees for a task of this stage.
    pub fn trigger(self) -> Trigger {
        match self {
            Stage::Compose | Stage::Work => Trigger::SpecChange,
            Stage::Rollup => Trigger::ChildrenSettled,
            Stage::Delete => Trigger::DeleteRequested,
            Stage::Operate => Trigger::Operation,
            Stage::React => Trigger::Reactor,
        }
    }
}

impl Trigger {
    /// The name as kind manifests write it, for example `specChange`.
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::SpecChange => "specChange",
            Trigger::ChildrenSettled => "childrenSettled",
            Trigger::DeleteRequested => "deleteRequested",
            Trigger::Operation => "operation",
            Trigger::Reactor => "reactor",
        }
    }
}

impl Transition {
    /// The name in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Transition::Created => "created",
            Transition::Synced => "synced",
            Transition::Degraded => "degraded",
            Transition::Failed => "failed",
            Transition::Deleted => "deleted",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_has_the_trigger_of_the_contract() {
        let seen: Vec<(&str, &str)> = Stage::ALL
            .iter()
            .map(|s| (s.as_str(), s.trigger().as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                ("compose", "specChange"),
                ("work", "specChange"),
                ("rollup", "childrenSettled"),
                ("delete", "deleteRequested"),
                ("operate", "operation"),
                ("react", "reactor"),
            ]
        );
    }
}
