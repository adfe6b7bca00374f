//! Compose results: what a composer's children, edges and configs become.
//!
//! A result lands whole in one transaction or is refused whole, every problem listed (`check`). Authored is compared with authored, so
//! what a composer repeats touches nothing. The last accepted result is kept as it was emitted: it is shown to the composer next time and
//! is what a replaced child is created from.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use converge_types::ids::{Kind, Uid};
use converge_types::json::Doc;
use serde::{Deserialize, Serialize};

pub use check::Refused;
use check::{CheckedChild, CheckedConfig, CheckedEdge};

use super::{configs, flows};
use crate::command::{ChildSpec, ComposeOutcome, ConfigSpec, EdgeSpec, TaskInput, TaskResource};
use crate::model::{DocSlot, Due, Edge, EventKind, Flow, Millis, Orphan, Resource};
use crate::view::{Decision, View};

/// The last accepted result, as stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Accepted {
    children: Vec<ChildSpec>,
    edges: Vec<EdgeSpec>,
    configs: Vec<ConfigSpec>,
}

/// What a compose task is shown: children as they are, and the last accepted result.
///
/// # Errors
/// As the view's reads.
pub fn task_input(view: &mut View<'_>, row: &Resource) -> Decision<TaskInput> {
    let mut observed = Vec::new();
    for child in view.children(row.uid)? {
        let Some(child) = view.resource(child)? else {
            continue;
        };
        if child.orphan.is_none() && !child.is_deleting() {
            let status = view.doc(child.uid, DocSlot::Status)?;
            observed.push(TaskResource {
                spec: view.spec(child.uid)?,
                status,
                row: child,
            });
        }
    }
    let accepted = accepted(view, row.uid)?;
    Ok(TaskInput::Compose {
        observed,
        desired: accepted.children,
        edges: accepted.edges,
        configs: accepted.configs,
    })
}

fn accepted(view: &mut View<'_>, owner: Uid) -> Decision<Accepted> {
    let stored = view.doc(owner, DocSlot::Composed)?;
    Ok(stored
        .and_then(|doc| serde_json::from_slice(doc.as_bytes()).ok())
        .unwrap_or_default())
}

/// Lands a result under `owner`; children it no longer holds become orphans. `Ok(Err(_))`: refused, nothing written.
///
/// # Errors
/// As the view's reads.
pub fn land(
    view: &mut View<'_>,
    owner: &Resource,
    result: &ComposeOutcome,
) -> Decision<Result<(), Refused>> {
    let checked = match check::check(view, owner, result)? {
        Ok(checked) => checked,
        Err(refused) => return Ok(Err(refused)),
    };
    let emitted = Accepted {
        children: checked
            .children
            .iter()
            .map(|child| child.emitted.clone())
            .collect(),
        edges: result.edges.clone(),
        configs: checked
            .configs
            .iter()
            .map(|config| config.emitted.clone())
            .collect(),
    };
    let before = view.children(owner.uid)?;
    let mut edges_before = view.edges_of(owner.uid, &before)?;

    let uids = land_children(view, owner, &checked.children)?;
    let kept: BTreeSet<Uid> = uids.iter().copied().collect();
    let pruned = orphan_vanished(view, &before, &kept)?;
    edges_before.retain(|edge| !edge.former);
    land_edges(view, owner, &checked.edges, &uids, &edges_before)?;
    for uid in &uids {
        flows::resolve(view, *uid)?;
    }
    land_configs(view, owner, checked.configs)?;

    let bytes = serde_json::to_vec(&emitted).ok();
    if let Some(bytes) = bytes {
        let doc = Doc::from_stored(bytes);
        if view
            .doc(owner.uid, DocSlot::Composed)?
            .is_none_or(|old| old.as_bytes() != doc.as_bytes())
        {
            view.doc_put(owner.uid, DocSlot::Composed, Some(doc));
            let message = format!(
                "{} children, {} edges",
                emitted.children.len(),
                emitted.edges.len()
            );
            view.event(owner, EventKind::Composed, None, message, None)?;
        }
    }
    if pruned > 0 {
        view.event(
            owner,
            EventKind::Pruned,
            None,
            format!("pruned {pruned}"),
            None,
        )?;
    }
    Ok(Ok(()))
}

/// Creates, updates or takes back each child; returns their uids in the order of the result.
fn land_children(
    view: &mut View<'_>,
    owner: &Resource,
    children: &[CheckedChild],
) -> Decision<Vec<Uid>> {
    let now = view.now_ms();
    let mut uids = Vec::with_capacity(children.len());
    for (position, child) in children.iter().enumerate() {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        match view.resource_by_name(&child.kv.kind, &child.name)? {
            None => uids.push(create(view, owner, child, position, now)?),
            Some(row) => {
                uids.push(row.uid);
                update(view, &row, child, position, now)?;
            }
        }
    }
    Ok(uids)
}

fn create(
    view: &mut View<'_>,
    owner: &Resource,
    child: &CheckedChild,
    position: u32,
    now: Millis,
) -> Decision<Uid> {
    let uid = child_uid(view, owner.uid, child, now)?;
    let row = crate::command::new_resource(uid, child.kv.clone(), child.name.clone(), now);
    let row = Resource {
        owner: Some(owner.uid),
        root: owner.root,
        depth: owner.depth + 1,
        position,
        labels: Arc::new(child.labels.clone()),
        config_ref: child.config_ref.clone(),
        ..row
    };
    view.doc_put(uid, DocSlot::Authored, Some(child.authored.clone()));
    view.event(&row, EventKind::Applied, None, "composed", None)?;
    view.resource_insert(row)?;
    view.touch(uid);
    Ok(uid)
}

/// A child's identity: new for each life of a name, and the same when a command is decided again over the same rows.
fn child_uid(view: &mut View<'_>, owner: Uid, child: &CheckedChild, now: Millis) -> Decision<Uid> {
    use sha2::{Digest as _, Sha256};
    let lives = view.resource(owner)?.map_or(0, |owner| owner.below.version);
    let mut hash = Sha256::new();
    hash.update(owner.as_bytes());
    hash.update(now.to_be_bytes());
    // Grows with every removal below the owner, so two lives of one name within a millisecond differ.
    hash.update(lives.to_be_bytes());
    hash.update(child.kv.kind.as_str().as_bytes());
    hash.update([0]);
    hash.update(child.name.as_str().as_bytes());
    let mut random = [0; 10];
    for (to, from) in random.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    Ok(Uid::from_parts(u64::try_from(now).unwrap_or(0), random))
}

fn update(
    view: &mut View<'_>,
    row: &Resource,
    child: &CheckedChild,
    position: u32,
    now: Millis,
) -> Decision<()> {
    let uid = row.uid;
    if let Some(deletion) = &row.deletion {
        if row.orphan.is_some() && !deletion.claimed {
            take_back(view, row)?;
        } else {
            // What is going down is created again by the transaction that removes it.
            view.update(uid, |row| {
                if let Some(deletion) = &mut row.deletion {
                    deletion.recreate = true;
                }
            })?;
            return Ok(());
        }
    } else if row.orphan.is_some() {
        take_back(view, row)?;
    }
    let authored = view.doc(uid, DocSlot::Authored)?;
    let respecified = authored.as_ref() != Some(&child.authored);
    if respecified {
        // `flows::resolve` compares what is dispatched; without this it would compare the new authored spec with itself.
        if view.doc(uid, DocSlot::Resolved)?.is_none() {
            view.doc_put(uid, DocSlot::Resolved, authored);
        }
        view.doc_put(uid, DocSlot::Authored, Some(child.authored.clone()));
    }
    let bumps = row.kv != child.kv || row.config_ref != child.config_ref;
    if respecified || bumps || *row.labels != child.labels {
        view.event(row, EventKind::Applied, None, "composed anew", None)?;
    }
    let before = view.resource(uid)?;
    view.update(uid, |row| {
        row.position = position;
        if bumps {
            if row.kv != child.kv {
                // Its place was one in the queue of the other pair.
                row.due = Due::Idle;
            }
            row.kv = child.kv.clone();
            row.config_ref = child.config_ref.clone();
            row.generation += 1;
            row.updated_ms = now;
        }
        if *row.labels != child.labels {
            row.labels = Arc::new(child.labels.clone());
            row.updated_ms = now;
        }
    })?;
    if view.resource(uid)? != before {
        view.touch(uid);
    }
    configs::reader_left(view, row)
}

/// An orphan that is emitted again before a teardown was claimed: same uid, as if nothing had happened.
fn take_back(view: &mut View<'_>, row: &Resource) -> Decision<()> {
    let mut left = vec![row.uid];
    while let Some(uid) = left.pop() {
        let Some(node) = view.resource(uid)? else {
            continue;
        };
        let goes_down = node
            .deletion
            .as_ref()
            .is_some_and(|deletion| deletion.claimed);
        if uid != row.uid && node.deletion.is_none() {
            continue;
        }
        left.extend(view.children(uid)?);
        view.update(uid, |node| {
            if goes_down {
                if let Some(deletion) = &mut node.deletion {
                    deletion.recreate = true;
                }
            } else {
                node.deletion = None;
                if uid == row.uid {
                    node.orphan = None;
                }
                // What was removed below it comes back by its own composition.
                node.marks.compose = None;
            }
        })?;
        view.touch(uid);
    }
    view.event(
        row,
        EventKind::Adopted,
        None,
        "emitted again: taken back",
        None,
    )
}

fn orphan_vanished(view: &mut View<'_>, before: &[Uid], kept: &BTreeSet<Uid>) -> Decision<u64> {
    let now = view.now_ms();
    let mut pruned = 0;
    for uid in before.iter().filter(|uid| !kept.contains(uid)) {
        let Some(row) = view.resource(*uid)? else {
            continue;
        };
        if row.deletion.is_some() {
            // Replaced (`?force=true`) and now dropped for good.
            view.update(*uid, |row| {
                if let Some(deletion) = &mut row.deletion {
                    deletion.recreate = false;
                }
            })?;
            continue;
        }
        if row.orphan.is_some() {
            continue;
        }
        let grace = view
            .manifest(&row.kv)?
            .map_or(0, |manifest| manifest.policy.orphan_grace_secs);
        let until_ms = now + Millis::from(grace) * 1_000;
        view.update(*uid, |row| {
            row.orphan = Some(Orphan {
                since_ms: now,
                until_ms,
            })
        })?;
        view.event(
            &row,
            EventKind::Orphaned,
            None,
            "its composition no longer holds it",
            None,
        )?;
        view.touch(*uid);
        pruned += 1;
    }
    Ok(pruned)
}

fn land_edges(
    view: &mut View<'_>,
    owner: &Resource,
    edges: &[CheckedEdge],
    uids: &[Uid],
    before: &[Arc<Edge>],
) -> Decision<()> {
    let mut wanted = BTreeSet::new();
    for (position, edge) in edges.iter().enumerate() {
        let (from, to) = (uids[edge.from], uids[edge.to]);
        wanted.insert((from, to));
        let old = view.edges_from(from)?.into_iter().find(|old| old.to == to);
        let flows = edge
            .flows
            .iter()
            .map(|(dependent, source)| {
                let same = old
                    .iter()
                    .flat_map(|old| &old.flows)
                    .find(|old| old.dependent == *dependent && old.source == *source);
                same.cloned().unwrap_or(Flow {
                    dependent: dependent.clone(),
                    source: source.clone(),
                    value: None,
                    gone: false,
                })
            })
            .collect();
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        let edge = Edge {
            from,
            to,
            owner: owner.uid,
            position,
            former: false,
            flows,
        };
        let edge = flows::take(view, edge)?;
        if old.as_deref() != Some(&edge) {
            view.edge_put(from, to, Some(edge))?;
            view.touch(from);
            // What it waits for on its way out is named in the order of its edges.
            if goes(view, to)? {
                view.touch(to);
            }
        }
    }
    for edge in before
        .iter()
        .filter(|edge| !wanted.contains(&(edge.from, edge.to)))
    {
        // The edge goes on holding the teardown of what it pointed to until its dependent has synced without it.
        let former = goes(view, edge.to)?.then(|| Edge {
            former: true,
            flows: Vec::new(),
            ..(**edge).clone()
        });
        view.edge_put(edge.from, edge.to, former)?;
        view.touch(edge.from);
        for held in view.held_on(edge.to)? {
            view.touch(held);
        }
    }
    Ok(())
}

/// Whether this one is on its way out: orphaned, or being deleted.
fn goes(view: &mut View<'_>, uid: Uid) -> Decision<bool> {
    let row = view.resource(uid)?;
    Ok(row.is_some_and(|row| row.orphan.is_some() || row.is_deleting()))
}

fn land_configs(view: &mut View<'_>, owner: &Resource, wanted: Vec<CheckedConfig>) -> Decision<()> {
    let names: BTreeSet<_> = wanted.iter().map(|config| config.name.clone()).collect();
    for config in view.configs_owned_by(owner.uid)? {
        if !names.contains(&config.name) {
            configs::release(view, &config)?;
        }
    }
    for config in wanted {
        configs::put(
            view,
            configs::Wanted {
                name: config.name,
                kv: config.kv,
                is_default: config.emitted.is_default,
                spec: config.emitted.spec,
                bundle: configs::BundleEdit::Keep,
                owner: Some(owner.uid),
                former: false,
            },
        )?;
    }
    Ok(())
}

/// A name of this kind is free, or its manifest is here: compositions that were refused for it are tried again.
///
/// # Errors
/// As the view's reads.
pub fn name_freed(view: &mut View<'_>, kind: &Kind) -> Decision<()> {
    for uid in view.curable_by(kind)? {
        view.update(uid, |row| {
            row.failure = None;
            row.own_version += 1;
        })?;
        view.touch(uid);
    }
    Ok(())
}

/// A child that was taken down to be replaced is gone: the owner's last accepted result is landed again, which creates it.
///
/// # Errors
/// As the view's reads.
pub fn recreate(view: &mut View<'_>, removed: &Resource) -> Decision<()> {
    let Some(owner) = removed.owner else {
        return Ok(());
    };
    let Some(owner) = view.resource(owner)? else {
        return Ok(());
    };
    if owner.is_deleting() || owner.orphan.is_some() {
        return Ok(());
    }
    let accepted = accepted(view, owner.uid)?;
    let result = ComposeOutcome {
        children: accepted.children.into_iter().map(check::as_raw).collect(),
        edges: accepted.edges,
        configs: accepted
            .configs
            .into_iter()
            .map(check::config_as_raw)
            .collect(),
    };
    if land(view, &owner, &result)?.is_err() {
        // The outside changed so that it would be refused today: compose again and say why there.
        view.update(owner.uid, |row| row.marks.compose = None)?;
        view.touch(owner.uid);
    }
    Ok(())
}

/// Positions by (kind, name); what edges name their ends by.
fn positions(children: &[CheckedChild]) -> BTreeMap<(&str, &str), usize> {
    children
        .iter()
        .enumerate()
        .map(|(at, child)| ((child.kv.kind.as_str(), child.name.as_str()), at))
        .collect()
}
