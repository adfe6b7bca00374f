//! Conditions: whose they are, and when they last changed.
//!
//! A reaction's conditions are replaced whole when it reports; the engine's own are set one by one under the empty reaction name.

use converge_types::phase::{Condition, ConditionStatus, condition};

use crate::model::{Claim, Millis, OwnedCondition, Resource};

/// What the reactions' `Ready` conditions say together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// All True, or none reported.
    Healthy,
    /// One is Unknown, none False.
    Unknown,
    /// One is False.
    Unhealthy,
}

/// The AND over reactions' `Ready`; absent = True.
#[must_use]
pub fn health(row: &Resource) -> Health {
    let mut health = Health::Healthy;
    for owned in row
        .conditions
        .iter()
        .filter(|owned| !owned.reaction.is_empty())
    {
        if owned.condition.type_ == condition::READY {
            match owned.condition.status {
                ConditionStatus::False => return Health::Unhealthy,
                ConditionStatus::Unknown => health = Health::Unknown,
                ConditionStatus::True => {}
            }
        }
    }
    health
}

/// Replaces what the claim's reaction reported before, as observed at the claim's generation: the resource may have a newer one that
/// nobody has looked at. A condition whose status stays keeps its transition time. Returns whether anything a reader sees (type, status,
/// reason, message) changed.
pub fn report(row: &mut Resource, claim: &Claim, reported: Vec<Condition>, now_ms: Millis) -> bool {
    let reaction = claim.reaction.as_str();
    let before: Vec<_> = row
        .conditions
        .iter()
        .filter(|owned| owned.reaction == reaction)
        .cloned()
        .collect();
    row.conditions.retain(|owned| owned.reaction != reaction);
    let mut changed = before.len() != reported.len();
    for mut condition in reported {
        let old = before
            .iter()
            .find(|owned| owned.condition.type_ == condition.type_)
            .map(|owned| &owned.condition);
        condition.last_transition_ms = match old {
            Some(old) if old.status == condition.status => old.last_transition_ms,
            _ => now_ms,
        };
        condition.observed_generation = claim.generation();
        changed |= old.is_none_or(|old| {
            old.status != condition.status
                || old.reason != condition.reason
                || old.message != condition.message
        });
        row.conditions.push(OwnedCondition {
            reaction: reaction.to_owned(),
            condition,
        });
    }
    changed
}

/// Sets one of the engine's own conditions; `None` removes it. Returns whether its status changed.
pub fn set_own(
    row: &mut Resource,
    type_: &str,
    value: Option<(ConditionStatus, &str, String)>,
    now_ms: Millis,
) -> bool {
    let at = row
        .conditions
        .iter()
        .position(|owned| owned.reaction.is_empty() && owned.condition.type_ == type_);
    let Some((status, reason, message)) = value else {
        return at.map(|at| row.conditions.remove(at)).is_some();
    };
    let generation = row.generation;
    if let Some(at) = at {
        let known = &row.conditions[at].condition;
        // Nearly every look at a row finds this one as it was.
        if known.status == status
            && known.reason == reason
            && known.message == message
            && known.observed_generation == generation
        {
            return false;
        }
    }
    let fresh = |last_transition_ms| OwnedCondition {
        reaction: String::new(),
        condition: Condition {
            type_: type_.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_ms,
            observed_generation: generation,
        },
    };
    match at {
        Some(at) => {
            let changed = row.conditions[at].condition.status != status;
            let since = if changed {
                now_ms
            } else {
                row.conditions[at].condition.last_transition_ms
            };
            row.conditions[at] = fresh(since);
            changed
        }
        None => {
            row.conditions.push(fresh(now_ms));
            true
        }
    }
}
