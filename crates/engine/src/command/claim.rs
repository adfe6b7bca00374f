//! Claim tasks for a stream: order of dispatch, caps, suspects.
//!
//! Within a pair the highest class with something waiting goes first, except that a class that was passed over five times in a row goes
//! before it, the longest waiting first: with five classes none then waits more than nine claims, so any ten in a row serve each. Pairs of
//! the stream take turns. Every row is derived again before it is claimed, so a queue entry that is out of date costs a look, never a
//! wrong task.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use converge_types::ids::{KindVersion, Uid};
use converge_types::limits;
use converge_types::phase::{EmitMask, Stage};

use super::{ClaimTasks, Reply, Task, TaskInput, TaskResource};
use crate::decide::compose;
use crate::decide::configs;
use crate::decide::derive::{Next, Run, derive};
use crate::decide::flows;
use crate::decide::plan::Plan;
use crate::model::{Claim, Class, DocSlot, Finalizer, LeaseToken, ManifestRow, Resource};
use crate::view::{Decision, View};

/// A class passed over this often goes first. With five classes: 5 + 4 others just as starved = 9.
const STARVED: u8 = (limits::FAIR_CLAIMS as usize - Class::ALL.len()) as u8;

/// What is waiting of one pair.
struct Queue {
    kv: KindVersion,
    manifest: Arc<ManifestRow>,
    /// Fetched so far; `None` = not asked for yet.
    waiting: [Option<VecDeque<Uid>>; 5],
    since: [u8; 5],
    cap_left: u32,
    composes: bool,
    suspects_only_alone: bool,
    closed: bool,
}

pub(super) fn decide(command: &ClaimTasks, view: &mut View<'_>) -> Decision<Reply> {
    let limit = (command.limit as usize).min(command.seed.len());
    let mut queues = Vec::with_capacity(command.pairs.len());
    let mut seen = BTreeSet::new();
    for kv in &command.pairs {
        if seen.insert(kv)
            && !is_of(&command.suspects_on_stream, kv)
            && let Some(queue) = queue(command, view, kv)?
        {
            queues.push(queue);
        }
    }
    let reserved = if queues.iter().any(|queue| queue.composes) {
        command.reserved_for_composers as usize
    } else {
        0
    };
    let mut tasks = Vec::new();
    let mut open = true;
    while tasks.len() < limit && open {
        open = false;
        for at in 0..queues.len() {
            let left = limit - tasks.len();
            if left == 0 {
                break;
            }
            let composers_only = left <= reserved;
            let queue = &mut queues[at];
            if queue.closed || (composers_only && !queue.composes) {
                continue;
            }
            if let Some((uid, run)) = take(queue, view, left, composers_only)? {
                let secret = command.seed[tasks.len()];
                let (kind, suspect) = (queue.kv.kind.clone(), run.suspect);
                tasks.push(claim(command, view, queue, uid, run, secret)?);
                open = true;
                for same in queues.iter_mut().filter(|queue| queue.kv.kind == kind) {
                    same.closed |= suspect;
                    same.suspects_only_alone = true;
                }
            }
        }
    }
    Ok(Reply::Claimed { tasks })
}

/// Whether any of these is a version of the same kind: a suspect is alone among all of them.
fn is_of(pairs: &[KindVersion], kv: &KindVersion) -> bool {
    pairs.iter().any(|pair| pair.kind == kv.kind)
}

fn queue(command: &ClaimTasks, view: &mut View<'_>, kv: &KindVersion) -> Decision<Option<Queue>> {
    let Some(manifest) = view.manifest(kv)? else {
        return Ok(None);
    };
    let pair = view.pair(kv)?;
    let cap_left = match manifest.policy.max_inflight {
        0 => u32::MAX,
        cap => cap.saturating_sub(pair.inflight),
    };
    let plan = Plan::of(manifest.manifest());
    Ok(Some(Queue {
        kv: kv.clone(),
        composes: plan.compose.is_some() || plan.rollup.is_some(),
        suspects_only_alone: is_of(&command.busy_on_stream, kv),
        manifest,
        waiting: [const { None }; 5],
        since: pair.since,
        cap_left,
        closed: cap_left == 0,
    }))
}

/// The next row of a pair that really may run, in dispatch order.
fn take(
    queue: &mut Queue,
    view: &mut View<'_>,
    left: usize,
    composers_only: bool,
) -> Decision<Option<(Uid, Run)>> {
    // Rows this stream may not have now; they stay in the queue for others.
    let mut passed_over: BTreeMap<Class, usize> = BTreeMap::new();
    loop {
        let Some(class) = pick(queue, view, left, &passed_over)? else {
            if passed_over.is_empty() {
                queue.closed = true;
            }
            return Ok(None);
        };
        let at = passed_over.get(&class).copied().unwrap_or(0);
        let Some(uid) = queue.waiting[class as usize]
            .as_ref()
            .and_then(|waiting| waiting.get(at))
            .copied()
        else {
            return Ok(None);
        };
        let next = match view.resource(uid)? {
            Some(row) if row.claim.is_none() && row.due_kv() == queue.kv => {
                Some(derive(view, &row)?.next)
            }
            _ => None,
        };
        match next {
            Some(Next::Run(run)) => {
                let is_composing = matches!(run.stage, Stage::Compose | Stage::Rollup);
                if (composers_only && !is_composing) || (run.suspect && queue.suspects_only_alone) {
                    *passed_over.entry(class).or_default() += 1;
                    continue;
                }
                if let Some(waiting) = &mut queue.waiting[class as usize] {
                    waiting.remove(at);
                }
                if matches!(run.stage, Stage::Compose | Stage::Work)
                    && let Some(row) = view.resource(uid)?
                    && !flows::still_fits(view, &row)?
                {
                    view.touch(uid);
                    continue;
                }
                for (index, since) in queue.since.iter_mut().enumerate() {
                    *since = if index == class as usize {
                        0
                    } else {
                        since.saturating_add(1)
                    };
                }
                queue.cap_left -= 1;
                queue.closed = queue.cap_left == 0;
                return Ok(Some((uid, run)));
            }
            _ => {
                // Something moved since it was queued; deriving it puts it where it belongs.
                view.touch(uid);
                if let Some(waiting) = &mut queue.waiting[class as usize] {
                    waiting.remove(at);
                }
            }
        }
    }
}

fn pick(
    queue: &mut Queue,
    view: &mut View<'_>,
    left: usize,
    passed_over: &BTreeMap<Class, usize>,
) -> Decision<Option<Class>> {
    let mut starved: Vec<Class> = Class::ALL
        .into_iter()
        .filter(|class| queue.since[*class as usize] >= STARVED)
        .collect();
    starved.sort_by_key(|class| std::cmp::Reverse(queue.since[*class as usize]));
    for class in starved.into_iter().chain(Class::ALL) {
        if queue.waiting[class as usize].is_none() {
            let limit = u32::try_from(left).unwrap_or(u32::MAX);
            let found = view.ready(&queue.kv, class, limit)?;
            queue.waiting[class as usize] = Some(found.into());
        }
        let waiting = queue.waiting[class as usize]
            .as_ref()
            .map_or(0, VecDeque::len);
        if waiting > passed_over.get(&class).copied().unwrap_or(0) {
            return Ok(Some(class));
        }
    }
    Ok(None)
}

fn claim(
    command: &ClaimTasks,
    view: &mut View<'_>,
    queue: &Queue,
    uid: Uid,
    run: Run,
    secret: u128,
) -> Decision<Task> {
    let now = view.now_ms();
    let before = view.resource(uid)?.ok_or_else(|| gone(uid))?;
    let plan = Plan::of(queue.manifest.manifest());
    let spec = if run.stage == Stage::Delete {
        view.doc(uid, DocSlot::Teardown)?
    } else {
        view.spec(uid)?
    };
    let finalizer = plan
        .teardown
        .and(queue.manifest.manifest().finalizer_name.as_ref())
        .filter(|_| run.stage != Stage::Delete)
        .map(|name| Finalizer {
            name: name.to_string(),
            kind_version: queue.kv.version,
            config_ref: before.config_ref.clone(),
        });
    if finalizer.is_some() {
        // Teardown runs with what was last dispatched, so it is written down in the transaction that dispatches it.
        let owed = view.doc(uid, DocSlot::Teardown)?;
        if owed.as_ref().map(|doc| doc.as_bytes()) != spec.as_ref().map(|doc| doc.as_bytes()) {
            view.doc_put(uid, DocSlot::Teardown, spec.clone());
        }
    }
    let reactions = &queue.manifest.manifest().reactions;
    let emits = reactions
        .iter()
        .find(|reaction| reaction.name.as_str() == run.reaction)
        .map_or(EmitMask::NONE, |reaction| reaction.emits);
    let mut turn = 0;
    let class = run.class;
    view.update(uid, |row| {
        row.epoch += 1;
        if let crate::model::Due::Ready { turn: its, .. } = row.due {
            turn = its;
        }
        if run.stage == Stage::Rollup {
            row.rollup_ms = Some(now);
        }
        row.not_before_ms = None;
        if run.stage == Stage::Delete
            && let Some(deletion) = &mut row.deletion
        {
            deletion.claimed = true;
        }
        if let Some(finalizer) = finalizer {
            row.finalizers = vec![finalizer];
        }
        row.claim = Some(Claim {
            secret,
            epoch: row.epoch,
            stage: run.stage,
            trigger: run.trigger,
            reaction: run.reaction,
            kv: queue.kv.clone(),
            manifest_version: queue.manifest.version,
            emits,
            inputs: run.inputs,
            class,
            worker: command.worker.clone(),
            broker: command.broker.clone(),
            since_ms: now,
        });
    })?;
    configs::reader_left(view, &before)?;
    view.touch(uid);
    view.pair_update(&queue.kv, |pair| {
        pair.inflight += 1;
        pair.since = queue.since;
        let last = &mut pair.turn[class as usize];
        *last = (*last).max(turn);
    })?;
    let row = view.resource(uid)?.ok_or_else(|| gone(uid))?;
    let claim = row.claim.clone().ok_or_else(|| gone(uid))?;
    let named = match run.stage {
        Stage::Delete => row.due_config(),
        _ => row.config_ref.as_ref(),
    };
    let config_override = match named {
        Some(name) => match view.config(name)? {
            Some(config) if !config.is_default => Some((config.spec.clone(), view.bundle(name)?)),
            _ => None,
        },
        None => None,
    };
    let status = view.doc(uid, DocSlot::Status)?;
    let input = match run.stage {
        Stage::Compose => compose::task_input(view, &row)?,
        Stage::Rollup => TaskInput::Rollup {
            descendants: descendants(view, uid)?,
        },
        Stage::Delete => TaskInput::Delete,
        _ => TaskInput::Work,
    };
    Ok(Task {
        token: LeaseToken { uid, secret },
        claim,
        resource: TaskResource { row, spec, status },
        deadline_ms: u64::from(queue.manifest.policy.task_deadline_secs) * 1_000,
        config_override,
        default_config: view.pair(&queue.kv)?.default_config,
        suspect: run.suspect,
        input,
    })
}

fn gone(uid: Uid) -> crate::view::Halt {
    crate::view::Halt::Store(crate::store::StoreError::Corrupt(format!(
        "{uid} was queued and has no row"
    )))
}

/// All levels below, by owner, parents first; orphaned and deleting ones (and what is below them) left out.
fn descendants(view: &mut View<'_>, uid: Uid) -> Decision<Vec<TaskResource>> {
    let mut found = Vec::new();
    let mut parents = VecDeque::from([uid]);
    while let Some(parent) = parents.pop_front() {
        for child in view.children(parent)? {
            let Some(row) = view.resource(child)? else {
                continue;
            };
            if row.orphan.is_some() || row.is_deleting() {
                continue;
            }
            if row.children > 0 {
                parents.push_back(child);
            }
            found.push(task_resource(view, row)?);
        }
    }
    Ok(found)
}

/// A resource with its documents, as tasks show it.
pub(crate) fn task_resource(view: &mut View<'_>, row: Arc<Resource>) -> Decision<TaskResource> {
    Ok(TaskResource {
        spec: view.spec(row.uid)?,
        status: view.doc(row.uid, DocSlot::Status)?,
        row,
    })
}
