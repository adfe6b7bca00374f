//! What a person asks of a resource beside its spec: reconcile, quarantine, rollback.

use converge_types::ids::Uid;

use super::apply::{self, Authored, existing, manifest_of, refuse_composed, refuse_deleting};
use super::{Reply, ResourceApply, ResourceQuarantine, ResourceReconcile, ResourceRollback};
use crate::model::{EventKind, Marks};
use crate::refusal::Refusal;
use crate::store::{Need, Rows};
use crate::view::{Decision, View};

/// Ends a pin and the backoff and asks for one full pass; a deleting resource retries its teardown.
pub(super) fn reconcile(command: &ResourceReconcile, view: &mut View<'_>) -> Decision<Reply> {
    let row = existing(view, &command.kind, &command.name)?;
    let uids = with_below(view, row.uid, command.recursive)?;
    for uid in &uids {
        let Some(row) = view.resource(*uid)? else {
            continue;
        };
        view.update(*uid, |row| {
            if row.failure.take().is_some() {
                row.own_version += 1;
            }
            row.observe_failure = None;
            row.not_before_ms = None;
            if !row.is_deleting() {
                row.by_hand = true;
                row.marks = Marks::default();
            }
            if let Some(claim) = &mut row.claim {
                // What runs began before it was asked for: its result lands, and is not the pass that was asked for.
                claim.inputs.supersede();
            }
        })?;
        view.event(
            &row,
            EventKind::ReconcileRequested,
            None,
            "one full pass",
            command.who.as_deref(),
        )?;
        view.touch(*uid);
    }
    Ok(Reply::Accepted {
        resources: uids.len() as u64,
    })
}

/// Stops the next claim of any stage, or lets it go on.
pub(super) fn quarantine(command: &ResourceQuarantine, view: &mut View<'_>) -> Decision<Reply> {
    let row = existing(view, &command.kind, &command.name)?;
    let mut changed = 0;
    for uid in with_below(view, row.uid, command.recursive)? {
        let Some(row) = view.resource(uid)? else {
            continue;
        };
        if row.quarantined == command.on {
            continue;
        }
        view.update(uid, |row| row.quarantined = command.on)?;
        let (kind, message) = if command.on {
            (
                EventKind::Quarantined,
                "no task of it is claimed until it is let go",
            )
        } else {
            (EventKind::Unquarantined, "let go")
        };
        view.event(&row, kind, None, message, command.who.as_deref())?;
        view.touch(uid);
        changed += 1;
    }
    Ok(Reply::Accepted { resources: changed })
}

/// Applies one kept authored state whole, as a new generation.
pub(super) fn rollback(command: &ResourceRollback, view: &mut View<'_>) -> Decision<Reply> {
    let row = existing(view, &command.kind, &command.name)?;
    refuse_deleting(&row)?;
    refuse_composed(view, &row, "rollback")?;
    let Rows::History(history) = view.fetch_raw(&Need::History(row.uid))? else {
        return Err(Refusal::NotFound("no history is kept".to_owned()).into());
    };
    let Some(kept) = history
        .iter()
        .find(|kept| kept.generation == command.generation)
    else {
        let known: Vec<_> = history
            .iter()
            .map(|kept| kept.generation.to_string())
            .collect();
        let message = format!(
            "generation {} of {}/{} is not kept; kept: {}",
            command.generation,
            command.kind,
            command.name,
            known.join(", ")
        );
        return Err(Refusal::NotFound(message).into());
    };
    let manifest = manifest_of(view, &command.kind, kept.kv.version)?;
    let state = Authored {
        kv: kept.kv.clone(),
        labels: kept.labels.clone(),
        config_ref: kept.config_ref.clone(),
        spec: kept.spec.clone(),
    };
    let as_apply = ResourceApply {
        kind: command.kind.clone(),
        kind_version: Some(kept.kv.version),
        name: command.name.clone(),
        labels: (*kept.labels).clone(),
        config_ref: kept.config_ref.clone(),
        spec: kept.spec.clone(),
        new_uid: row.uid,
        precondition: super::Precondition::None,
        who: command.who.clone(),
    };
    apply::apply(
        view,
        Some(row),
        &manifest,
        state,
        &as_apply,
        EventKind::RolledBack,
    )
}

fn with_below(view: &mut View<'_>, uid: Uid, recursive: bool) -> Decision<Vec<Uid>> {
    let mut found = vec![uid];
    let mut at = 0;
    while recursive && at < found.len() {
        let children = view.children(found[at])?;
        found.extend(children);
        at += 1;
    }
    Ok(found)
}
