//! What applying a manifest over an older one of the same pair means for what exists.
//!
//! Pure: it says what differs and how grave each difference is. Whether a removed reaction is still needed by something
//! alive, and whether anything exists at all, only the caller knows.

use std::fmt;

use serde_json::Value;

use super::{Manifest, Reaction};
use crate::ids::{FinalizerName, ReactionName};
use crate::json::Doc;
use crate::phase::{Emit, Trigger};
use crate::pointer::Pointer;
use crate::schema::compat::edits;

/// How grave a change of a manifest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gravity {
    /// What was legal stays so, and nothing that was applied is dropped.
    Safe,
    /// A field of the policy: seeded by the first apply only, so this one does not change what is in force.
    Policy,
    /// A reaction is gone: safe unless something alive needs it.
    ReactionRemoved(ReactionName),
    /// A finalizer is gone: safe unless something alive carries it.
    FinalizerRemoved(FinalizerName),
    /// Anything else.
    Breaking,
}

/// One difference between two manifests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where in the new manifest; for what is gone, in the old one.
    pub pointer: Pointer,
    /// What changed, for people.
    pub what: String,
    /// How grave it is.
    pub gravity: Gravity,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pointer, self.what)
    }
}

/// Everything that differs between two manifests of one pair.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The differences; none when the two are equal by value.
    pub changes: Vec<Change>,
}

impl Comparison {
    /// Whether nothing differs, the policy included.
    pub fn is_identical(&self) -> bool {
        self.changes.is_empty()
    }

    /// Whether the two differ in nothing but policy, so that there is nothing to store.
    pub fn is_policy_only(&self) -> bool {
        self.changes
            .iter()
            .all(|change| change.gravity == Gravity::Policy)
    }

    /// The changes that forbid the edit while a resource of this version exists. `needed` says whether something alive
    /// needs a removed reaction, or carries a removed finalizer.
    pub fn refusals(&self, needed: impl Fn(&Gravity) -> bool) -> Vec<&Change> {
        let refused = |change: &&Change| match &change.gravity {
            Gravity::Safe | Gravity::Policy => false,
            Gravity::Breaking => true,
            removed @ (Gravity::ReactionRemoved(_) | Gravity::FinalizerRemoved(_)) => {
                needed(removed)
            }
        };
        self.changes.iter().filter(refused).collect()
    }

    /// The policy fields of the new manifest that differ from the policy the old one was given.
    pub fn policy(&self) -> impl Iterator<Item = &Change> {
        self.changes
            .iter()
            .filter(|change| change.gravity == Gravity::Policy)
    }
}

/// Compares a manifest with the one it would replace. To compare its policy with the one in force, put that into `old`.
pub fn compare(old: &Manifest, new: &Manifest) -> Comparison {
    let mut changes = Vec::new();
    let mut change = |tokens: &[&str], what: String, gravity: Gravity| {
        changes.push(Change {
            pointer: Pointer::from_tokens(tokens.iter().copied()),
            what,
            gravity,
        });
    };
    if old.kind != new.kind {
        change(
            &["kind_version"],
            format!("changed from {} to {}", old.kind, new.kind),
            Gravity::Breaking,
        );
    }
    if old.description != new.description {
        change(&["description"], "changed".to_owned(), Gravity::Safe);
    }
    schema(
        "spec_schema",
        &old.spec_schema,
        &new.spec_schema,
        true,
        &mut change,
    );
    schema(
        "config_schema",
        &old.config_schema,
        &new.config_schema,
        true,
        &mut change,
    );
    schema(
        "status_schema",
        &old.status_schema,
        &new.status_schema,
        false,
        &mut change,
    );
    reactions(old, new, &mut change);
    match (&old.finalizer_name, &new.finalizer_name) {
        (old, new) if old == new => {}
        (None, _) => change(&["finalizer_name"], "added".to_owned(), Gravity::Safe),
        (Some(name), _) => {
            change(
                &["finalizer_name"],
                format!("{name} removed or renamed"),
                Gravity::FinalizerRemoved(name.clone()),
            );
        }
    }
    policy(old, new, &mut change);
    Comparison { changes }
}

fn schema(
    field: &str,
    old: &Option<Doc>,
    new: &Option<Doc>,
    counts: bool,
    change: &mut impl FnMut(&[&str], String, Gravity),
) {
    if old == new {
        return;
    }
    let tree = |schema: &Option<Doc>| schema.as_ref().map_or(Ok(Value::Bool(true)), Doc::to_value);
    let (Ok(was), Ok(is)) = (tree(old), tree(new)) else {
        return change(&[field], "cannot be read".to_owned(), Gravity::Breaking);
    };
    let found = edits(&was, &is);
    if found.is_empty() {
        // An absent schema and one that says `true`.
        change(&[field], "written another way".to_owned(), Gravity::Safe);
    }
    for edit in found {
        let tokens: Vec<&str> = [field].into_iter().chain(edit.at.tokens()).collect();
        let gravity = if edit.safe || !counts {
            Gravity::Safe
        } else {
            Gravity::Breaking
        };
        change(&tokens, edit.what, gravity);
    }
}

/// What makes two reactions the same one in two manifests.
fn role(reaction: &Reaction) -> (Trigger, bool, Option<&str>) {
    let composes = reaction.trigger == Trigger::SpecChange && reaction.composes();
    (
        reaction.trigger,
        composes,
        reaction.verb.as_ref().map(|verb| verb.as_str()),
    )
}

fn reactions(old: &Manifest, new: &Manifest, change: &mut impl FnMut(&[&str], String, Gravity)) {
    for (index, was) in old.reactions.iter().enumerate() {
        let kept = new
            .reactions
            .iter()
            .enumerate()
            .find(|(_, is)| role(is) == role(was));
        let Some((at, is)) = kept else {
            let what = format!("reaction {} on {} removed", was.name, was.trigger);
            change(
                &["reactions", &index.to_string()],
                what,
                Gravity::ReactionRemoved(was.name.clone()),
            );
            continue;
        };
        let at = at.to_string();
        if is.name != was.name {
            // Workers tell reactions apart by name: those of this version know the old one only.
            let what = format!("reaction {} renamed to {}", was.name, is.name);
            change(
                &["reactions", &at, "name"],
                what,
                Gravity::ReactionRemoved(was.name.clone()),
            );
        }
        let dropped: Vec<_> = was
            .emits
            .iter()
            .filter(|emit| !is.emits.allows(*emit))
            .map(Emit::as_str)
            .collect();
        if !dropped.is_empty() {
            let what = format!(
                "reaction {} no longer emits {}",
                is.name,
                dropped.join(", ")
            );
            change(&["reactions", &at, "emits"], what, Gravity::Breaking);
        }
        let gained: Vec<_> = is
            .emits
            .iter()
            .filter(|emit| !was.emits.allows(*emit))
            .map(Emit::as_str)
            .collect();
        if !gained.is_empty() {
            // A resync that begins to compose is another stage; that of a specChange is another role already.
            let gravity = if is.composes() == was.composes() {
                Gravity::Safe
            } else {
                Gravity::Breaking
            };
            change(
                &["reactions", &at, "emits"],
                format!("reaction {} also emits {}", is.name, gained.join(", ")),
                gravity,
            );
        }
        if dropped.is_empty() && gained.is_empty() && is.emits != was.emits {
            change(
                &["reactions", &at, "emits"],
                "written another way".to_owned(),
                Gravity::Safe,
            );
        }
        if is.finalizer != was.finalizer {
            // It repeats finalizer_name where it is, so that field says what happened.
            change(
                &["reactions", &at, "finalizer"],
                "changed".to_owned(),
                Gravity::Safe,
            );
        }
    }
    for (index, is) in new.reactions.iter().enumerate() {
        if !old.reactions.iter().any(|was| role(was) == role(is)) {
            let what = format!("reaction {} on {} added", is.name, is.trigger);
            change(&["reactions", &index.to_string()], what, Gravity::Safe);
        }
    }
    let order = |manifest: &Manifest| {
        manifest
            .reactions
            .iter()
            .map(|r| r.name.clone())
            .collect::<Vec<_>>()
    };
    let sorted = |mut names: Vec<ReactionName>| {
        names.sort();
        names
    };
    let (was, is) = (order(old), order(new));
    if was != is && sorted(was) == sorted(is) {
        change(&["reactions"], "in another order".to_owned(), Gravity::Safe);
    }
}

fn policy(old: &Manifest, new: &Manifest, change: &mut impl FnMut(&[&str], String, Gravity)) {
    let (Ok(Value::Object(was)), Ok(Value::Object(is))) = (
        serde_json::to_value(&old.policy),
        serde_json::to_value(&new.policy),
    ) else {
        return;
    };
    for (field, is) in is {
        let was = was.get(&field).cloned().unwrap_or_default();
        if was != is {
            change(
                &[&field],
                format!("{is} here, {was} before"),
                Gravity::Policy,
            );
        }
    }
}

#[cfg(test)]
mod tests;
