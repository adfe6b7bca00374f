//! Land a result.
//!
//! A result on any but the exact claim changes no row and no event. A success always lands; its mark takes the inputs that were claimed,
//! so what moved meanwhile stays due. A failure lands the status and conditions it carries, never moves a mark, and sets attempts, backoff
//! or a pin only while its inputs are current. A compose result lands whole and only while its inputs are current.

use std::collections::BTreeSet;
use std::sync::Arc;

use converge_types::json::Doc;
use converge_types::limits;
use converge_types::phase::{Condition, ConditionStatus, Emit, Stage, Trigger, condition};

use super::{Complete, Landed, Outcome, Reply, TaskFailure};
use crate::decide::conditions::{Health, health};
use crate::decide::derive::next_look;
use crate::decide::failure::Failed;
use crate::decide::inputs::{EffectiveConfig, effective_config, inputs};
use crate::decide::plan::Plan;
use crate::decide::{compose, conditions, configs};
use crate::model::{Claim, DocSlot, EventKind, Failure, ManifestRow, Millis, Resource};
use crate::view::{Decision, View};

/// A message that begins with this is not the handler's own outcome: the task is given back and nothing is counted.
pub(crate) const INTERRUPTED: &str = "interrupted: ";

pub(super) fn decide(command: &Complete, view: &mut View<'_>) -> Decision<Reply> {
    let uid = command.claim.token.uid;
    let Some(row) = view.resource(uid)? else {
        return Ok(Reply::Landed(Landed::Fenced));
    };
    let Some(claim) = live_claim(&row, command).cloned() else {
        return Ok(Reply::Landed(Landed::Fenced));
    };
    end_claim(view, &row, &claim)?;
    view.touch(uid);
    let manifest = view.manifest(&claim.kv)?;
    let landing = Landing {
        resync_ms: manifest.as_ref().map_or(0, |row| {
            Millis::from(row.policy.resync_interval_secs).saturating_mul(1_000)
        }),
        is_current: is_current(view, &row, &claim)?,
        manifest,
        claim,
        seed: command.seed,
    };
    let outcome = checked(command, &landing);
    let landed = match &outcome.failure {
        Some(failure) if !failure.terminal && failure.message.starts_with(INTERRUPTED) => {
            give_back(view, &row, &landing, failure)?
        }
        Some(failure) => {
            land_report(view, &row, &landing, &outcome)?;
            land_failure(view, &row, &landing, failure)?;
            Landed::Applied
        }
        None => land_success(view, &row, &landing, &outcome)?,
    };
    Ok(Reply::Landed(landed))
}

struct Landing {
    claim: Claim,
    manifest: Option<Arc<ManifestRow>>,
    resync_ms: Millis,
    is_current: bool,
    seed: u64,
}

impl Landing {
    fn failed<'a>(&'a self, view: &View<'_>, row: &'a Resource) -> Failed<'a> {
        Failed {
            row,
            claim: &self.claim,
            manifest: self.manifest.as_deref(),
            now_ms: view.now_ms(),
            seed: self.seed,
        }
    }
}

fn live_claim<'r>(row: &'r Resource, command: &Complete) -> Option<&'r Claim> {
    row.claim.as_ref().filter(|claim| {
        claim.secret == command.claim.token.secret && claim.epoch == command.claim.epoch
    })
}

/// Takes the claim off the row and off its pair's count; a pair with a cap has a slot again.
pub(super) fn end_claim(view: &mut View<'_>, row: &Resource, claim: &Claim) -> Decision<()> {
    view.update(row.uid, |row| row.claim = None)?;
    view.pair_update(&claim.kv, |pair| {
        pair.inflight = pair.inflight.saturating_sub(1)
    })?;
    if view
        .manifest(&claim.kv)?
        .is_some_and(|row| row.policy.max_inflight > 0)
    {
        view.signals().ready.insert(claim.kv.clone());
    }
    Ok(())
}

/// Whether the inputs the claim recorded are still those of now.
pub(super) fn is_current(view: &mut View<'_>, row: &Resource, claim: &Claim) -> Decision<bool> {
    let named = match claim.stage {
        Stage::Delete => row.due_config(),
        _ => row.config_ref.as_ref(),
    };
    let EffectiveConfig::Digest(config) = effective_config(view, named, &claim.kv)? else {
        return Ok(false);
    };
    let mut now = inputs(row, claim.stage, config);
    if claim.stage == Stage::Delete {
        now.kind_version = claim.inputs.kind_version;
    }
    Ok(now == claim.inputs)
}

/// The outcome with what is unusable in it turned into a terminal failure.
fn checked(command: &Complete, landing: &Landing) -> Outcome {
    let mut outcome = command.outcome.clone();
    let mut problem = None;
    if command.stage != landing.claim.stage {
        problem = Some(format!(
            "the worker answered stage {} for {}",
            command.stage, landing.claim.stage
        ));
    }
    let status = outcome.status.take().filter(|bytes| !bytes.is_empty());
    if let Some(bytes) = status {
        if bytes.len() > limits::STATUS_BYTES {
            problem = Some(format!(
                "the status has {} bytes; the limit is {}",
                bytes.len(),
                limits::STATUS_BYTES
            ));
        } else {
            match Doc::parse(bytes.clone()) {
                Ok(_) => outcome.status = Some(bytes),
                Err(error) => {
                    problem = Some(format!("the status is not JSON we can store: {error}"))
                }
            }
        }
    }
    let mut types = BTreeSet::new();
    let twice = outcome
        .conditions
        .iter()
        .find(|it| !types.insert(it.type_.as_str()));
    if let Some(condition) = twice {
        problem = Some(format!(
            "the condition {} is reported twice, and only one of the two can be so",
            condition.type_
        ));
        outcome.conditions.clear();
    }
    if let Some(message) = problem {
        outcome.compose = None;
        outcome.failure = Some(TaskFailure {
            message,
            terminal: true,
        });
    }
    outcome
}

fn give_back(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    failure: &TaskFailure,
) -> Decision<Landed> {
    let claim = &landing.claim;
    let again = view.now_ms()
        + limits::INTERRUPTED_RETRY.as_millis() as Millis
        + (landing.seed % 250) as Millis;
    view.update(row.uid, |row| row.not_before_ms = Some(again))?;
    view.task_event(row, claim, EventKind::GivenBack, failure.message.clone())?;
    Ok(Landed::GivenBack)
}

/// Status and conditions, as far as the mask lets them.
fn land_report(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    outcome: &Outcome,
) -> Decision<()> {
    let now = view.now_ms();
    let claim = &landing.claim;
    let mut dropped = Vec::new();
    let mut changed = false;
    if let Some(bytes) = &outcome.status {
        if claim.emits.allows(Emit::Status) {
            let before = view.doc(row.uid, DocSlot::Status)?;
            if before
                .as_ref()
                .is_none_or(|doc| doc.as_bytes() != bytes.as_ref())
            {
                view.doc_put(
                    row.uid,
                    DocSlot::Status,
                    Some(Doc::from_stored(bytes.clone())),
                );
                changed = true;
            }
        } else {
            dropped.push("status");
        }
    }
    if outcome.compose.is_some() && !claim.emits.allows(Emit::Children) {
        dropped.push("children");
    }
    let is_compose_with_work = matches!(
        claim.stage,
        Stage::Work | Stage::Compose | Stage::Rollup | Stage::Delete
    );
    let mut reported: Vec<Condition> = Vec::new();
    if !outcome.conditions.is_empty() && !claim.emits.allows(Emit::Conditions) {
        dropped.push("conditions");
    } else if is_compose_with_work {
        reported = outcome
            .conditions
            .iter()
            .filter(|it| !condition::is_engines_own(&it.type_))
            .cloned()
            .collect();
        reported.truncate(MAX_CONDITIONS);
    }
    let told = format!(
        "reaction {} does not emit {}: dropped",
        claim.reaction,
        dropped.join(" and ")
    );
    if !dropped.is_empty() && (outcome.failure.is_none() || !reported.is_empty()) {
        reported.push(Condition {
            type_: PART_DROPPED.to_owned(),
            status: ConditionStatus::True,
            reason: "NotEmitted".to_owned(),
            message: told.clone(),
            last_transition_ms: 0,
            observed_generation: 0,
        });
    }
    // A failure without conditions leaves those of the last report in place; a success replaces them whole.
    let replaces = outcome.failure.is_none() || !reported.is_empty();
    let mut moved = Vec::new();
    view.update(row.uid, |row| {
        if replaces {
            let before: Vec<_> = row.conditions.clone();
            if conditions::report(row, claim, reported, now) {
                changed = true;
            }
            for owned in &row.conditions {
                let old = before.iter().find(|old| {
                    old.reaction == owned.reaction && old.condition.type_ == owned.condition.type_
                });
                if old.is_none_or(|old| old.condition.status != owned.condition.status) {
                    moved.push(format!(
                        "{}={} {}",
                        owned.condition.type_, owned.condition.status, owned.condition.reason
                    ));
                }
            }
        }
        if let Some(manifest) = landing.manifest.as_ref().filter(|it| it.kv == row.kv) {
            // Nobody can report again for a reaction this version does not have.
            let reactions = &manifest.manifest().reactions;
            let count = row.conditions.len();
            row.conditions.retain(|owned| {
                owned.reaction.is_empty()
                    || reactions
                        .iter()
                        .any(|reaction| reaction.name.as_str() == owned.reaction)
            });
            changed |= row.conditions.len() != count;
        }
        if changed {
            row.own_version += 1;
            row.updated_ms = now;
        }
    })?;
    if !moved.is_empty() {
        let message = moved.join(", ");
        view.result_event(row, claim, EventKind::ConditionChanged, message.trim_end())?;
    }
    if !dropped.is_empty() {
        view.result_event(row, claim, EventKind::PartDropped, told)?;
    }
    Ok(())
}

/// Reported in the reaction's name when its result held a part it does not emit; goes with its next report.
const PART_DROPPED: &str = "PartDropped";

/// More conditions than this in one report are cut.
const MAX_CONDITIONS: usize = 64;

fn land_success(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    outcome: &Outcome,
) -> Decision<Landed> {
    let claim = &landing.claim;
    if claim.stage == Stage::Delete {
        view.update(row.uid, |row| {
            row.finalizers.clear();
            row.failure = None;
        })?;
        configs::reader_left(view, row)?;
        view.task_event(row, claim, EventKind::Succeeded, claim.reaction.clone())?;
        return Ok(Landed::Applied);
    }
    if claim.stage == Stage::Compose {
        if !landing.is_current || row.is_deleting() {
            return Ok(Landed::Discarded);
        }
        let empty = super::ComposeOutcome::default();
        let now_row = view.resource(row.uid)?;
        let owner = now_row.as_deref().unwrap_or(row);
        if let Err(refused) =
            compose::land(view, owner, outcome.compose.as_ref().unwrap_or(&empty))?
        {
            return refuse_composition(view, row, landing, &refused);
        }
    }
    land_report(view, row, landing, outcome)?;
    let now = view.now_ms();
    let resync_ms = landing.resync_ms;
    let is_resync = claim.trigger == Trigger::Resync;
    let works = landing
        .manifest
        .as_ref()
        .is_some_and(|manifest| Plan::of(manifest.manifest()).work.is_some());
    view.update(row.uid, |row| {
        row.marks.set(claim.stage, claim.inputs);
        if row
            .failure
            .as_ref()
            .is_some_and(|failure| failure.stage == claim.stage)
        {
            row.failure = None;
        }
        if is_resync {
            row.observe_failure = None;
            conditions::set_own(row, condition::OBSERVED, None, now);
        }
        row.look = if health(row) == Health::Healthy {
            None
        } else {
            Some(next_look(row.look, now, resync_ms))
        };
        if is_resync {
            // The work of a kind that recomposes follows its composer; the first resync is set when the row comes to rest.
            row.recomposed = claim.stage == Stage::Compose && works;
            if !row.recomposed {
                row.resync_ms = Some(now + resync_ms);
            }
        }
        if claim.stage == Stage::Compose {
            let composed = (ConditionStatus::True, "Composed", String::new());
            conditions::set_own(row, condition::COMPOSED, Some(composed), now);
        }
    })?;
    view.task_event(row, claim, EventKind::Succeeded, claim.reaction.clone())?;
    Ok(Landed::Applied)
}

fn refuse_composition(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    refused: &compose::Refused,
) -> Decision<Landed> {
    let problems: Vec<_> = refused
        .problems
        .iter()
        .map(|problem| format!("{}: {}", problem.location, problem.message))
        .collect();
    let message = format!("the composition was refused: {}", problems.join("; "));
    let message = limits::truncate_message(&message).into_owned();
    let now = view.now_ms();
    view.update(row.uid, |row| {
        let composed = (ConditionStatus::False, "Refused", message.clone());
        conditions::set_own(row, condition::COMPOSED, Some(composed), now);
        row.own_version += 1;
    })?;
    let failure = landing
        .failed(view, row)
        .attempt(&message, true, refused.cures.clone());
    land_attempt(view, row, landing, failure)?;
    Ok(Landed::Applied)
}

fn land_failure(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    failure: &TaskFailure,
) -> Decision<()> {
    let claim = &landing.claim;
    if claim.trigger == Trigger::Resync {
        return land_observe_failure(view, row, landing, failure);
    }
    if !landing.is_current {
        let message = format!(
            "{} (its inputs have changed since: not counted)",
            failure.message
        );
        let message = limits::truncate_message(&message).into_owned();
        return view.task_event(row, claim, EventKind::Failed, message);
    }
    let failure = landing
        .failed(view, row)
        .attempt(&failure.message, failure.terminal, Vec::new());
    land_attempt(view, row, landing, failure)
}

/// Sets attempts, backoff or pin. A second look that failed makes its stage due again: the mark goes, the retry path takes over.
fn land_attempt(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    after: Failure,
) -> Decision<()> {
    let claim = &landing.claim;
    let now = view.now_ms();
    let text = after.message.clone();
    view.update(row.uid, |row| {
        unmark(row, claim);
        row.look = None;
        // The pass that was asked for goes on with its retry.
        row.by_hand &= !after.terminal;
        row.failure = Some(after);
        row.own_version += 1;
        row.updated_ms = now;
    })?;
    view.task_event(row, claim, EventKind::Failed, text)
}

/// A second look that failed makes its stage due again: it did not last succeed with these inputs.
pub(super) fn unmark(row: &mut Resource, claim: &Claim) {
    let marks = &mut row.marks;
    let mark = match claim.stage {
        Stage::Compose => &mut marks.compose,
        Stage::Work => &mut marks.work,
        Stage::Rollup => &mut marks.rollup,
        _ => return,
    };
    *mark = mark.filter(|mark| *mark != claim.inputs);
}

/// A failed resync pins nothing and counts for nothing: `Observed=False` and backoff.
fn land_observe_failure(
    view: &mut View<'_>,
    row: &Resource,
    landing: &Landing,
    failure: &TaskFailure,
) -> Decision<()> {
    let claim = &landing.claim;
    let now = view.now_ms();
    let after = landing.failed(view, row).observation(&failure.message);
    let message = after.message.clone();
    view.update(row.uid, |row| {
        let observed = (ConditionStatus::False, "ResyncFailed", message.clone());
        conditions::set_own(row, condition::OBSERVED, Some(observed), now);
        row.observe_failure = Some(after);
        row.own_version += 1;
    })?;
    view.task_event(row, claim, EventKind::Failed, message)
}
