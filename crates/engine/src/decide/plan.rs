//! What a manifest asks for, by stage.

use converge_types::manifest::{Manifest, Reaction};
use converge_types::phase::{Emit, Stage, Trigger};

/// The reactions of a manifest by the stage that runs them. Legality guarantees at most one of each.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the fields are the stages")]
pub struct Plan<'m> {
    pub compose: Option<&'m Reaction>,
    pub work: Option<&'m Reaction>,
    pub rollup: Option<&'m Reaction>,
    pub teardown: Option<&'m Reaction>,
    pub resync: Option<&'m Reaction>,
    pub is_reactor: bool,
}

impl<'m> Plan<'m> {
    /// Sorts the reactions of a manifest.
    #[must_use]
    pub fn of(manifest: &'m Manifest) -> Self {
        let mut plan = Self {
            compose: None,
            work: None,
            rollup: None,
            teardown: None,
            resync: None,
            is_reactor: false,
        };
        for reaction in &manifest.reactions {
            match reaction.trigger {
                Trigger::SpecChange if reaction.emits.lists(Emit::Children) => {
                    plan.compose = Some(reaction)
                }
                Trigger::SpecChange => plan.work = Some(reaction),
                Trigger::ChildrenSettled => plan.rollup = Some(reaction),
                Trigger::DeleteRequested => plan.teardown = Some(reaction),
                Trigger::Resync => plan.resync = Some(reaction),
                Trigger::Reactor => plan.is_reactor = true,
                Trigger::Operation => {}
            }
        }
        plan
    }

    /// The reaction that runs `stage` of a pass.
    #[must_use]
    pub fn reaction(&self, stage: Stage) -> Option<&'m Reaction> {
        match stage {
            Stage::Compose => self.compose,
            Stage::Work => self.work,
            Stage::Rollup => self.rollup,
            Stage::Delete => self.teardown,
            Stage::Operate | Stage::React => None,
        }
    }
}
