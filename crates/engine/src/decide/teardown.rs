//! Teardown: what goes first, what is owed before a row may go, and what is left when it does.
//!
//! A node goes when it owns nothing and nothing marked depends on it or on one of its ancestors; the root last. No row is removed
//! while a claim on it is live. A finalizer is owed from the transaction that first claimed a task of a kind with a teardown.
//! Orphans (children that vanished from a composition) wait for their grace and for everything that depended on them to sync without
//! that edge or to go, then are deleted the same way.

use converge_types::ids::Uid;
use converge_types::phase::Stage;

use super::derive::{Next, Run, within};
use super::inputs::{EffectiveConfig, effective_config, inputs};
use super::plan::Plan;
use crate::model::{Class, Deletion, EventKind, Hold, Orphan, Resource, Tombstone};
use crate::view::{Decision, View};

/// The next step of a resource that is being deleted.
///
/// # Errors
/// As the view's reads.
pub fn next(view: &mut View<'_>, row: &Resource) -> Decision<Next> {
    if row.claim.is_some() {
        return Ok(Next::Nothing);
    }
    // What owes no teardown claims nothing, so a quarantine does not keep it.
    if row.quarantined && !row.finalizers.is_empty() {
        return Ok(Next::Held(Hold::Quarantine));
    }
    if row.children > 0 {
        return Ok(Next::Held(Hold::Children(None)));
    }
    if let Some(dependent) = marked_dependent(view, row)? {
        return Ok(Next::Held(Hold::Gone(dependent)));
    }
    if row.finalizers.is_empty() {
        return Ok(Next::Remove);
    }
    let kv = row.due_kv();
    let Some(manifest) = view.manifest(&kv)? else {
        return Ok(Next::Nothing);
    };
    let Some(reaction) = Plan::of(manifest.manifest()).teardown else {
        return Ok(Next::Nothing);
    };
    let config = match effective_config(view, row.due_config(), &kv)? {
        EffectiveConfig::Digest(config) => config,
        EffectiveConfig::Missing => return Ok(Next::Held(Hold::Config)),
        EffectiveConfig::Broken(_) => return Ok(Next::Nothing),
    };
    let now = view.now_ms();
    let over = failure_over(view, row)?;
    let failure = row.failure.as_ref().filter(|_| !over);
    let longest = converge_types::limits::TEARDOWN_RETRY.as_millis() as crate::model::Millis;
    let mut not_before = within(row.not_before_ms, now, longest);
    if let Some(failure) = failure {
        not_before = not_before.max(within(failure.next_ms, now, longest));
    }
    if let Some(at) = not_before.filter(|at| *at > now) {
        return Ok(Next::At(at));
    }
    let mut with = inputs(row, Stage::Delete, config);
    with.kind_version = kv.version;
    Ok(Next::Run(Run {
        stage: Stage::Delete,
        trigger: reaction.trigger,
        reaction: reaction.name.to_string(),
        class: Class::Urgent,
        inputs: with,
        suspect: failure.is_some_and(|failure| {
            failure.lost_leases >= converge_types::limits::LOST_LEASES_BEFORE_SUSPECT
        }),
    }))
}

/// The first deleting resource that depends on this one or on one of its ancestors.
fn marked_dependent(view: &mut View<'_>, row: &Resource) -> Decision<Option<Uid>> {
    // Edges join children of one composite, so what has no owner has none.
    let mut at = row.owner.map(|owner| (row.uid, owner));
    while let Some((uid, owner)) = at {
        for edge in view.edges_to(uid)?.iter().rev() {
            if view
                .resource(edge.from)?
                .is_some_and(|from| from.is_deleting())
            {
                return Ok(Some(edge.from));
            }
        }
        at = view
            .resource(owner)?
            .and_then(|node| node.owner.map(|above| (owner, above)));
    }
    Ok(None)
}

/// The next step of an orphan that is not being deleted yet.
///
/// # Errors
/// As the view's reads.
pub fn next_of_orphan(view: &mut View<'_>, row: &Resource, orphan: Orphan) -> Decision<Next> {
    if orphan.until_ms > view.now_ms() {
        return Ok(Next::At(orphan.until_ms));
    }
    // Former edges are taken away as their dependents sync without them or go.
    if let Some(edge) = view
        .edges_to(row.uid)?
        .iter()
        .rev()
        .find(|edge| edge.former)
    {
        return Ok(Next::Held(Hold::Released(edge.from)));
    }
    Ok(Next::BeginDeletion)
}

/// Whether the failure on a deleting row no longer stands: it is of another stage, or an input of the teardown moved.
///
/// # Errors
/// As the view's reads.
pub fn failure_over(view: &mut View<'_>, row: &Resource) -> Decision<bool> {
    let Some(failure) = &row.failure else {
        return Ok(false);
    };
    if failure.stage != Stage::Delete {
        return Ok(true);
    }
    let kv = row.due_kv();
    let Some(manifest) = view.manifest(&kv)? else {
        return Ok(false);
    };
    if failure.terminal && failure.manifest_version != manifest.version {
        return Ok(true);
    }
    Ok(match effective_config(view, row.due_config(), &kv)? {
        EffectiveConfig::Digest(config) => config != failure.inputs.config,
        _ => false,
    })
}

/// Marks a resource and all it owns for deletion.
///
/// # Errors
/// As the view's reads.
pub fn begin(view: &mut View<'_>, uid: Uid) -> Decision<()> {
    let requested_ms = view.now_ms();
    with_all_owned(view, uid, |view, row| {
        if row.deletion.is_some() {
            return Ok(());
        }
        view.update(row.uid, |row| {
            row.deletion = Some(Deletion {
                requested_ms,
                abandon: false,
                recreate: false,
                claimed: false,
            });
            row.look = None;
            row.resync_ms = None;
        })
    })
}

/// Does something to a resource and to all it owns, owners before what they own.
///
/// # Errors
/// As the view's reads, and as `each`.
pub fn with_all_owned(
    view: &mut View<'_>,
    uid: Uid,
    mut each: impl FnMut(&mut View<'_>, &Resource) -> Decision<()>,
) -> Decision<()> {
    let mut left = vec![uid];
    while let Some(uid) = left.pop() {
        let Some(row) = view.resource(uid)? else {
            continue;
        };
        if row.children > 0 {
            left.extend(view.children(uid)?);
        }
        each(view, &row)?;
        view.touch(uid);
    }
    Ok(())
}

/// Removes the row: tombstone, event, its sums off its owner, those held on it touched.
///
/// # Errors
/// As the view's reads.
pub fn remove(view: &mut View<'_>, row: &Resource) -> Decision<()> {
    let uid = row.uid;
    let recreate = row
        .deletion
        .as_ref()
        .is_some_and(|deletion| deletion.recreate);
    for held in view.held_on(uid)? {
        view.touch(held);
    }
    for edge in view.edges_from(uid)? {
        view.edge_put(edge.from, edge.to, None)?;
        view.touch(edge.to);
    }
    for edge in view.edges_to(uid)? {
        view.edge_put(edge.from, edge.to, None)?;
        view.touch(edge.from);
    }
    view.event(row, EventKind::Deleted, None, "removed", None)?;
    view.tombstone_add(Tombstone {
        uid,
        kind: row.kv.kind.clone(),
        name: row.name.clone(),
        owner: row.owner,
        removed_ms: view.now_ms(),
        revision: 0,
    });
    for config in view.configs_owned_by(uid)? {
        super::configs::remove(view, &config)?;
    }
    view.resource_remove(uid)?;
    super::configs::reader_left(view, row)?;
    if let Some(owner) = row.owner {
        let gone = row.contributed;
        view.update(owner, |owner| {
            owner.below.sums = owner.below.sums - gone.sums;
            owner.below.version += 1;
        })?;
        super::causes::keep(view, owner, None)?;
        view.touch(owner);
    }
    super::compose::name_freed(view, &row.kv.kind)?;
    if recreate {
        super::compose::recreate(view, row)?;
    }
    Ok(())
}

/// `uid` has synced: edges it no longer has stop holding the orphans they pointed to.
///
/// # Errors
/// As the view's reads.
pub fn release_former(view: &mut View<'_>, uid: Uid) -> Decision<()> {
    let Some(row) = view.resource(uid)? else {
        return Ok(());
    };
    if row.owner.is_none() || row.orphan.is_some() || row.is_deleting() {
        return Ok(());
    }
    for edge in view.edges_from(uid)? {
        if edge.former {
            view.edge_put(edge.from, edge.to, None)?;
            view.touch(edge.to);
        }
    }
    Ok(())
}
