//! Where a row stands: its phase, whether it is synced and settled, and what its next task is and when.
//!
//! A function of the row, its manifest, its effective config, its dependencies and the time. [`derive()`] is also what a claim uses, so
//! what is dispatched and what is shown cannot differ.

use std::sync::Arc;

use converge_types::manifest::OnConfigChange;
use converge_types::phase::{Phase, Stage, Trigger};

use super::conditions::{Health, health};
use super::inputs::{EffectiveConfig, effective_config, inputs};
use super::plan::Plan;
use super::{gate, teardown};
use crate::model::{
    Class, Derived, Digest, Hold, Inputs, Look, ManifestRow, Millis, Orphan, Resource,
};
use crate::view::{Decision, View};

/// At most one rollup a second after the first.
const ROLLUP_INTERVAL_MS: Millis = converge_types::limits::ROLLUP_INTERVAL.as_millis() as Millis;

const BACKOFF_MAX_MS: Millis = converge_types::limits::BACKOFF_MAX.as_millis() as Millis;
/// A second and its jitter.
const GIVEN_BACK_MAX_MS: Millis =
    2 * converge_types::limits::INTERRUPTED_RETRY.as_millis() as Millis;

/// A due time, unless it is further ahead than its own maximum: a clock that was set back must not put work off.
#[must_use]
pub fn within(at: Option<Millis>, now: Millis, max: Millis) -> Option<Millis> {
    at.filter(|at| at.saturating_sub(now) <= max)
}

/// The next step of a resource.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing to run until something changes.
    Nothing,
    /// A task may be claimed now.
    Run(Run),
    /// Something else must move first.
    Held(Hold),
    /// Nothing before this time.
    At(Millis),
    /// Nothing keeps it: the row goes.
    Remove,
    /// An orphan whose grace and dependents are over: its deletion begins.
    BeginDeletion,
}

/// A task that may be claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The stage.
    pub stage: Stage,
    /// Why.
    pub trigger: Trigger,
    /// The reaction's name.
    pub reaction: String,
    /// Its class.
    pub class: Class,
    /// The inputs the claim records.
    pub inputs: Inputs,
    /// The worker was lost while running this at these inputs, at least as often as makes a suspect.
    pub suspect: bool,
}

/// All that is derived for a row.
#[derive(Debug, Clone)]
pub struct Derivation {
    /// The next step.
    pub next: Next,
    /// Phase and what ancestors sum.
    pub derived: Derived,
    /// The failure on the row no longer stands: an input it names has moved.
    pub failure_over: bool,
    /// The override was broken by a later default: the terminal failure to show.
    pub config_broken: Option<String>,
    /// All stages of the pass that concern `synced_gen` are done.
    pub pass_done: bool,
    /// When what is at rest is observed again.
    pub timers: Timers,
}

/// When a row at rest is looked at again and when its resync is due: what its policy of now asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `Resource`")]
pub struct Timers {
    pub look: Option<Look>,
    pub resync_ms: Option<Millis>,
    pub orphan: Option<Orphan>,
}

impl Timers {
    fn stored(row: &Resource, now: Millis) -> Self {
        Self {
            look: row.look,
            resync_ms: row.resync_ms,
            // A grace that began in the future is a clock that was set back: it begins now.
            orphan: row.orphan.map(|orphan| Orphan {
                since_ms: orphan.since_ms.min(now),
                until_ms: orphan.until_ms - (orphan.since_ms - now).max(0),
            }),
        }
    }

    /// A policy edit may begin or end resyncs, a clock may have been set back, an orphan may have been taken back: what is stored counts
    /// only as far as it could have been set now.
    fn of(
        row: &Resource,
        manifest: &ManifestRow,
        plan: &Plan<'_>,
        pass: &Pass<'_>,
        now: Millis,
    ) -> Self {
        let is_at_rest = row.claim.is_none()
            && row.orphan.is_none()
            && pass.first_due.is_none()
            && pass.config.is_some();
        if !is_at_rest {
            return Self::stored(row, now);
        }
        let interval = Millis::from(manifest.policy.resync_interval_secs).saturating_mul(1_000);
        let look = match within(row.look.map(|look| look.at_ms), now, look_max(interval)) {
            Some(_) => row.look,
            None if health(row) != Health::Healthy && looked_at(row, plan).is_some() => {
                Some(next_look(None, now, interval))
            }
            None => None,
        };
        let resyncs = plan.resync.is_some()
            || plan.work.is_some()
            || (manifest.policy.resync_recomposes && plan.compose.is_some());
        let resync_ms = match within(row.resync_ms, now, interval) {
            _ if interval <= 0 || !resyncs => None,
            Some(at) => Some(at),
            None => Some(first_resync(row, now, interval)),
        };
        Self {
            look,
            resync_ms,
            orphan: None,
        }
    }
}

fn look_max(interval_ms: Millis) -> Millis {
    interval_ms.max(converge_types::limits::SECOND_LOOK_MAX.as_millis() as Millis)
}

/// The look after `look`: twice as late, up to the larger of five minutes and the resync interval.
#[must_use]
pub fn next_look(look: Option<Look>, now: Millis, interval_ms: Millis) -> Look {
    let min = converge_types::limits::SECOND_LOOK_MIN.as_millis() as Millis;
    let delay_ms = look
        .map_or(min, |look| look.delay_ms.saturating_mul(2))
        .min(look_max(interval_ms));
    Look {
        at_ms: now + delay_ms,
        delay_ms,
    }
}

/// The first resync: in the later half of the interval, spread by uid.
fn first_resync(row: &Resource, now: Millis, interval_ms: Millis) -> Millis {
    let spread = ((row.uid.as_u128() & 0xffff_ffff) as i128 * i128::from(interval_ms)) >> 32;
    now + interval_ms - Millis::try_from(spread).unwrap_or(0) / 2
}

/// Derives a row.
///
/// # Errors
/// As the view's reads.
pub fn derive(view: &mut View<'_>, row: &Resource) -> Decision<Derivation> {
    let manifest = view.manifest(&row.kv)?;
    if row.is_deleting() {
        return Ok(Derivation {
            next: teardown::next(view, row)?,
            derived: Derived {
                phase: Phase::Deleting,
                synced: false,
                settled: true,
                counted: false,
            },
            failure_over: teardown::failure_over(view, row)?,
            config_broken: None,
            pass_done: false,
            timers: Timers::stored(row, view.now_ms()),
        });
    }
    let Some(manifest) = manifest else {
        // Refused while resources exist; a store that was edited by hand gets a row that rests instead of a crash.
        let derived = Derived {
            phase: Phase::Reconciling,
            synced: false,
            settled: false,
            counted: true,
        };
        return Ok(Derivation {
            next: Next::Nothing,
            derived,
            failure_over: false,
            config_broken: None,
            pass_done: false,
            timers: Timers::stored(row, view.now_ms()),
        });
    };
    let config = effective_config(view, row.config_ref.as_ref(), &row.kv)?;
    let state = Pass::of(row, &manifest, &config);
    let plan = Plan::of(manifest.manifest());
    let timers = Timers::of(row, &manifest, &plan, &state, view.now_ms());
    let next = next_of_pass(view, row, &manifest, &state, timers)?;
    let derived = derived(view, row, &manifest, &state, &next)?;
    Ok(Derivation {
        next,
        derived,
        failure_over: row.failure.is_some() && state.failure.is_none(),
        config_broken: match config {
            EffectiveConfig::Broken(why) => Some(why),
            _ => None,
        },
        pass_done: state.first_due.is_none() && state.config.is_some(),
        timers,
    })
}

/// The stages of a pass against their marks.
struct Pass<'r> {
    /// Digest of the effective config; `None` = missing or broken.
    config: Option<Digest>,
    broken: bool,
    /// The first stage whose mark is old, in the order of a pass.
    first_due: Option<Stage>,
    /// The failure that stands at the inputs of now.
    failure: Option<&'r crate::model::Failure>,
}

impl<'r> Pass<'r> {
    fn of(row: &'r Resource, manifest: &ManifestRow, config: &EffectiveConfig) -> Self {
        let plan = Plan::of(manifest.manifest());
        let (digest, broken) = match config {
            EffectiveConfig::Digest(digest) => (Some(*digest), false),
            EffectiveConfig::Missing => (None, false),
            EffectiveConfig::Broken(_) => (None, true),
        };
        let against = digest.unwrap_or_default();
        let is_due = |stage: Stage| {
            plan.reaction(stage).is_some()
                && match row.marks.get(stage) {
                    None => true,
                    Some(mark) => {
                        let mut now = inputs(row, stage, against);
                        let ignores_config = digest.is_none()
                            || manifest.policy.on_config_change == OnConfigChange::Next;
                        if ignores_config {
                            now.config = mark.config;
                        }
                        mark != now
                    }
                }
        };
        let first_due = [Stage::Compose, Stage::Work, Stage::Rollup]
            .into_iter()
            .find(|stage| is_due(*stage));
        let failure = row.failure.as_ref().filter(|failure| {
            let mut now = inputs(row, failure.stage, against);
            if digest.is_none() {
                now.config = failure.inputs.config;
            }
            now == failure.inputs
                && (!failure.terminal || failure.manifest_version == manifest.version)
        });
        Self {
            config: digest,
            broken,
            first_due,
            failure,
        }
    }

    fn is_failed(&self) -> bool {
        self.broken || self.failure.is_some_and(|failure| failure.terminal)
    }
}

fn next_of_pass(
    view: &mut View<'_>,
    row: &Resource,
    manifest: &Arc<ManifestRow>,
    pass: &Pass<'_>,
    timers: Timers,
) -> Decision<Next> {
    let now = view.now_ms();
    if row.claim.is_some() {
        return Ok(Next::Nothing);
    }
    if let Some(orphan) = timers.orphan {
        return teardown::next_of_orphan(view, row, orphan);
    }
    if row.quarantined {
        return Ok(Next::Held(Hold::Quarantine));
    }
    let Some(config) = pass.config else {
        return Ok(if pass.broken {
            Next::Nothing
        } else {
            Next::Held(Hold::Config)
        });
    };
    let plan = Plan::of(manifest.manifest());
    let mut failure = pass.failure;
    if let Some(stage) = pass.first_due {
        if failure.is_some_and(|failure| failure.stage != stage) {
            failure = None;
        }
        let mut not_before = within(row.not_before_ms, now, GIVEN_BACK_MAX_MS);
        if let Some(failure) = failure {
            match failure.next_ms {
                _ if failure.terminal => return Ok(Next::Nothing),
                next_ms => not_before = not_before.max(within(next_ms, now, BACKOFF_MAX_MS)),
            }
        }
        if stage == Stage::Rollup {
            if row.below.sums.unsettled > 0 {
                return Ok(Next::Held(Hold::Children(None)));
            }
            let next = row.rollup_ms.map(|last| last + ROLLUP_INTERVAL_MS);
            not_before = not_before.max(within(next, now, ROLLUP_INTERVAL_MS));
        } else if let Some(hold) = gate::hold(view, row)? {
            return Ok(Next::Held(hold));
        }
        if let Some(at) = not_before.filter(|at| *at > now) {
            return Ok(Next::At(at));
        }
        let Some(reaction) = plan.reaction(stage) else {
            return Ok(Next::Nothing);
        };
        return Ok(Next::Run(Run {
            stage,
            trigger: reaction.trigger,
            reaction: reaction.name.to_string(),
            class: class_of(
                row,
                stage,
                failure.is_some_and(|failure| failure.attempts > 0),
                config,
            ),
            inputs: inputs(row, stage, config),
            suspect: failure.is_some_and(is_suspect),
        }));
    }
    Ok(observe(row, manifest, &plan, pass, config, timers, now))
}

/// What is synced is looked at again: a second look until `Ready` is True, a resync at its interval.
fn observe(
    row: &Resource,
    manifest: &ManifestRow,
    plan: &Plan<'_>,
    pass: &Pass<'_>,
    config: Digest,
    timers: Timers,
    now: Millis,
) -> Next {
    let not_before = within(row.not_before_ms, now, GIVEN_BACK_MAX_MS).unwrap_or(Millis::MIN);
    let look = timers.look.map(|look| look.at_ms.max(not_before));
    let retry = row
        .observe_failure
        .as_ref()
        .and_then(|failure| within(failure.next_ms, now, BACKOFF_MAX_MS));
    let resync = timers
        .resync_ms
        .map(|at| at.max(retry.unwrap_or(Millis::MIN)).max(not_before));
    let run = |stage: Stage, trigger: Trigger, reaction: &str, class: Class| {
        Next::Run(Run {
            stage,
            trigger,
            reaction: reaction.to_owned(),
            class,
            inputs: inputs(row, stage, config),
            suspect: pass
                .failure
                .is_some_and(|failure| failure.stage == stage && is_suspect(failure)),
        })
    };
    if look.is_some_and(|at| at <= now)
        && let Some((stage, reaction)) = looked_at(row, plan)
    {
        return run(
            stage,
            reaction.trigger,
            reaction.name.as_str(),
            Class::Retry,
        );
    }
    if resync.is_some_and(|at| at <= now) {
        // A resync runs as WORK (or COMPOSE) under its own reaction name; kinds without one run their work again.
        if let Some(reaction) = plan.resync {
            return run(
                Stage::Work,
                Trigger::Resync,
                reaction.name.as_str(),
                Class::Resync,
            );
        }
        if manifest.policy.resync_recomposes
            && !row.recomposed
            && let Some(reaction) = plan.compose
        {
            return run(
                Stage::Compose,
                Trigger::Resync,
                reaction.name.as_str(),
                Class::Resync,
            );
        }
        if let Some(reaction) = plan.work {
            return run(
                Stage::Work,
                Trigger::Resync,
                reaction.name.as_str(),
                Class::Resync,
            );
        }
    }
    match (look.filter(|at| *at > now), resync.filter(|at| *at > now)) {
        (Some(a), Some(b)) => Next::At(a.min(b)),
        (Some(at), None) | (None, Some(at)) => Next::At(at),
        (None, None) => Next::Nothing,
    }
}

/// From the second lost lease at the same inputs on.
fn is_suspect(failure: &crate::model::Failure) -> bool {
    failure.lost_leases >= converge_types::limits::LOST_LEASES_BEFORE_SUSPECT
}

/// What a second look runs: the reaction that reported `Ready` other than True.
fn looked_at<'m>(
    row: &Resource,
    plan: &Plan<'m>,
) -> Option<(Stage, &'m converge_types::manifest::Reaction)> {
    let doubtful = row.conditions.iter().find(|owned| {
        !owned.reaction.is_empty()
            && owned.condition.type_ == converge_types::phase::condition::READY
            && owned.condition.status != converge_types::phase::ConditionStatus::True
    })?;
    let stages = [
        (Stage::Compose, plan.compose),
        (Stage::Work, plan.work),
        (Stage::Rollup, plan.rollup),
        (Stage::Work, plan.resync),
    ];
    let named = stages.into_iter().find(|(_, reaction)| {
        reaction.is_some_and(|reaction| reaction.name.as_str() == doubtful.reaction)
    });
    let (stage, reaction) = named?;
    Some((stage, reaction?))
}

fn class_of(row: &Resource, stage: Stage, is_retry: bool, config: Digest) -> Class {
    if is_retry {
        return Class::Retry;
    }
    if row.by_hand {
        return Class::Urgent;
    }
    if stage == Stage::Rollup {
        return Class::Change;
    }
    match row.marks.get(stage) {
        Some(mark) if Inputs { config, ..mark } == inputs(row, stage, config) => Class::Config,
        // A stage that is new to a resource that was synced before: a manifest edit.
        None if row.synced_gen == row.generation => Class::Config,
        _ => Class::Change,
    }
}

fn derived(
    view: &mut View<'_>,
    row: &Resource,
    manifest: &ManifestRow,
    pass: &Pass<'_>,
    next: &Next,
) -> Decision<Derived> {
    let health = health(row);
    let is_composite = Plan::of(manifest.manifest()).compose.is_some() || row.children > 0;
    let synced = pass.first_due.is_none() && !pass.broken && pass.config.is_some();
    let failed = pass.is_failed();
    let blocked = match next {
        Next::Held(hold) => gate::is_settled_block(view, hold)?,
        _ => false,
    };
    let own_settled = synced && health != Health::Unknown;
    let settled = (failed || blocked || own_settled) && row.below.sums.unsettled == 0;
    let healthy = health == Health::Healthy && row.below.sums.ready == row.below.sums.total;
    let phase = if row.quarantined {
        Phase::Quarantined
    } else if failed {
        Phase::Failed
    } else if row.orphan.is_some() {
        Phase::Orphaned
    } else if !synced || health == Health::Unknown || (is_composite && row.below.sums.unsettled > 0)
    {
        Phase::Reconciling
    } else if !healthy {
        Phase::Degraded
    } else {
        Phase::Ready
    };
    Ok(Derived {
        phase,
        synced,
        settled,
        counted: row.orphan.is_none() && !row.quarantined,
    })
}
