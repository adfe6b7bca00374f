//! Delete a resource: mark what it owns, transitively; the rest is `decide::teardown`.

use super::apply::{check_precondition, existing, refuse_composed};
use super::{Reply, ResourceDelete};
use crate::decide::{configs, teardown};
use crate::model::EventKind;
use crate::view::{Decision, View};

pub(super) fn decide(command: &ResourceDelete, view: &mut View<'_>) -> Decision<Reply> {
    let row = existing(view, &command.kind, &command.name)?;
    check_precondition(&command.precondition, Some(row.revision), || {
        format!("{}/{}", command.kind, command.name)
    })?;
    let is_replace = row.owner.is_some();
    if is_replace && !command.force && !row.is_deleting() {
        refuse_composed(
            view,
            &row,
            "delete (without ?force=true, which replaces it)",
        )?;
    }
    if !row.is_deleting() {
        let message = if is_replace {
            "replace: torn down, then created again"
        } else {
            "deletion requested"
        };
        view.event(
            &row,
            EventKind::DeletionRequested,
            None,
            message,
            command.who.as_deref(),
        )?;
    }
    teardown::begin(view, row.uid)?;
    if is_replace {
        // Only the named resource is created again; what it owns comes back by its own composition.
        view.update(row.uid, |row| {
            if let Some(deletion) = &mut row.deletion {
                deletion.recreate = true;
            }
        })?;
    }
    if command.abandon {
        abandon(view, row.uid, command.who.as_deref())?;
    }
    crate::decide::propagate::run(view)?;
    Ok(if view.resource(row.uid)?.is_some() {
        Reply::Deleting
    } else {
        Reply::Deleted
    })
}

/// Gives the finalizers of a deleting resource and of everything it owns up, saying what was left behind.
fn abandon(view: &mut View<'_>, uid: converge_types::ids::Uid, who: Option<&str>) -> Decision<()> {
    teardown::with_all_owned(view, uid, |view, row| {
        if let Some(finalizer) = row.finalizers.first() {
            let message = format!(
                "gave up finalizer {}: whatever {}/{} made outside is left behind",
                finalizer.name, row.kv.kind, row.name
            );
            view.event(row, EventKind::Abandoned, None, message, who)?;
        }
        view.update(row.uid, |row| {
            row.finalizers.clear();
            row.failure = None;
            if let Some(deletion) = &mut row.deletion {
                deletion.abandon = true;
            }
        })?;
        configs::reader_left(view, row)
    })
}
