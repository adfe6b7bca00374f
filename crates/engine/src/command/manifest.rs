//! Kind manifests: apply, delete, live policy.

use converge_types::json::{self, Doc};
use converge_types::manifest::compat::{Gravity, compare};
use converge_types::manifest::{Manifest, ManifestError, Policy};
use converge_types::schema::Violation;

use super::apply::{check_precondition, manifest_of};
use super::{Applied, ManifestApply, ManifestDelete, PolicySet, Reply};
use crate::decide::plan::Plan;
use crate::decide::{compose, configs};
use crate::model::{ConfigSweep, ManifestRow};
use crate::refusal::{Problem, Refusal};
use crate::store::{Need, Rows};
use crate::view::{Decision, View};

pub(super) fn apply(command: &ManifestApply, view: &mut View<'_>) -> Decision<Reply> {
    let compiled = Manifest::parse(command.doc.bytes().clone()).map_err(refused)?;
    let kv = compiled.kind().clone();
    let now = view.now_ms();
    let old = view.manifest(&kv)?;
    check_precondition(
        &command.precondition,
        old.as_ref().map(|row| row.revision),
        || format!("kind {kv}"),
    )?;
    let Some(old) = old else {
        let row = ManifestRow {
            kv: kv.clone(),
            policy: compiled.manifest().policy.clone(),
            compiled,
            doc: command.doc.clone(),
            version: 1,
            created_ms: now,
            updated_ms: now,
            revision: 0,
        };
        return put(view, row, Applied::Created, Vec::new());
    };
    let mut in_force = old.manifest().clone();
    in_force.policy = old.policy.clone();
    let comparison = compare(&in_force, compiled.manifest());
    let notes: Vec<String> = comparison
        .policy()
        .map(|change| {
            format!(
                "{change} (the policy in force stays: it is edited by PUT …/versions/{}/config)",
                kv.version
            )
        })
        .collect();
    if comparison.is_policy_only() {
        return Ok(Reply::Manifest {
            applied: Applied::Unchanged,
            row: old,
            notes,
        });
    }
    let resources = view.pair(&kv)?.resources;
    let finalizers = finalizers_of(view, &kv)?;
    if resources > 0 || finalizers > 0 {
        // A resource that was flipped to another version may still owe the teardown of this one.
        let teardown = Plan::of(old.manifest())
            .teardown
            .map(|reaction| &reaction.name);
        let mut refusals = comparison.refusals(|gravity| match gravity {
            Gravity::ReactionRemoved(name) => {
                resources > 0 || (finalizers > 0 && Some(name) == teardown)
            }
            Gravity::FinalizerRemoved(_) => finalizers > 0,
            _ => false,
        });
        refusals.retain(|change| resources > 0 || change.gravity != Gravity::Breaking);
        if !refusals.is_empty() {
            let problems = refusals
                .iter()
                .map(|change| Problem::new(change.pointer.to_string(), change.what.clone()))
                .collect();
            let summary = format!(
                "{resources} resources of {kv} exist, {finalizers} owe its teardown, and these changes could break them: ship them as a new kind_version"
            );
            return Err(Refusal::Conflict { summary, problems }.into());
        }
    }
    let row = ManifestRow {
        kv: kv.clone(),
        compiled,
        policy: old.policy.clone(),
        doc: command.doc.clone(),
        version: old.version + 1,
        created_ms: old.created_ms,
        updated_ms: now,
        revision: 0,
    };
    put(view, row, Applied::Configured, notes)
}

/// Writes a manifest and lets what it may change look again: readers by a sweep, refused compositions that wait for the kind.
fn put(
    view: &mut View<'_>,
    row: ManifestRow,
    applied: Applied,
    notes: Vec<String>,
) -> Decision<Reply> {
    let kv = row.kv.clone();
    view.manifest_put(&kv, Some(row))?;
    if applied == Applied::Created {
        compose::name_freed(view, &kv.kind)?;
    } else {
        view.sweep_put(ConfigSweep {
            kv: kv.clone(),
            config_ref: None,
            after: None,
        });
        configs::default_changed(view, &kv)?;
    }
    let row = manifest_of(view, &kv.kind, kv.version)?;
    Ok(Reply::Manifest {
        applied,
        row,
        notes,
    })
}

fn finalizers_of(view: &mut View<'_>, kv: &converge_types::ids::KindVersion) -> Decision<u64> {
    Ok(match view.fetch_raw(&Need::FinalizersOf(kv.clone()))? {
        Rows::Count(count) => count,
        _ => 0,
    })
}

pub(super) fn delete(command: &ManifestDelete, view: &mut View<'_>) -> Decision<Reply> {
    let row = manifest_of(view, &command.kv.kind, command.kv.version)?;
    check_precondition(&command.precondition, Some(row.revision), || {
        format!("kind {}", command.kv)
    })?;
    let mut problems = Vec::new();
    let resources = view.pair(&command.kv)?.resources;
    if resources > 0 {
        problems.push(Problem::new(
            "resources",
            format!("{resources} of this version exist"),
        ));
    }
    let finalizers = finalizers_of(view, &command.kv)?;
    if finalizers > 0 {
        problems.push(Problem::new(
            "finalizers",
            format!("{finalizers} resources owe a teardown at this version"),
        ));
    }
    if !problems.is_empty() {
        let summary = format!("kind {} is in use: delete its resources first", command.kv);
        return Err(Refusal::Conflict { summary, problems }.into());
    }
    view.manifest_put(&command.kv, None)?;
    Ok(Reply::Deleted)
}

/// Edits the live policy: fields that are absent stay as they are.
pub(super) fn policy_set(command: &PolicySet, view: &mut View<'_>) -> Decision<Reply> {
    let old = manifest_of(view, &command.kv.kind, command.kv.version)?;
    check_precondition(&command.precondition, Some(old.revision), || {
        format!("kind {}", command.kv)
    })?;
    let policy = merged_policy(&old.policy, &command.doc)?;
    if policy == old.policy {
        return Ok(Reply::Manifest {
            applied: Applied::Unchanged,
            row: old,
            notes: Vec::new(),
        });
    }
    let row = ManifestRow {
        policy,
        updated_ms: view.now_ms(),
        ..(*old).clone()
    };
    view.manifest_put(&command.kv, Some(row))?;
    // A raised cap frees slots; an interval may begin or end.
    view.signals().ready.insert(command.kv.clone());
    view.sweep_put(ConfigSweep {
        kv: command.kv.clone(),
        config_ref: None,
        after: None,
    });
    let row = manifest_of(view, &command.kv.kind, command.kv.version)?;
    Ok(Reply::Manifest {
        applied: Applied::Configured,
        row,
        notes: Vec::new(),
    })
}

fn merged_policy(old: &Policy, edit: &Doc) -> Decision<Policy> {
    let as_is = Doc::from_value(&serde_json::to_value(old).unwrap_or_default());
    let merged = as_is.ok().and_then(|old| {
        converge_types::merge::effective_spec(Some(&old), Some(edit))
            .ok()
            .flatten()
    });
    let Some(merged) = merged else {
        return Err(Refusal::invalid("", "the policy is an object of the fields to change").into());
    };
    serde_json::from_slice(merged.as_bytes())
        .map_err(|error| Refusal::invalid("", json::without_place(&error)).into())
}

fn refused(error: ManifestError) -> Refusal {
    let list = |violations: Vec<Violation>| {
        violations
            .into_iter()
            .map(|violation| Problem::new(violation.pointer.to_string(), violation.message))
            .collect::<Vec<_>>()
    };
    match error {
        ManifestError::Size(_) => Refusal::TooLarge(error.to_string()),
        ManifestError::Doc(error) => Refusal::invalid("", error.to_string()),
        ManifestError::Illegal(violations) => {
            let problems = list(violations);
            let summary = match problems.as_slice() {
                [one] => format!(
                    "the manifest is not legal: {}: {}",
                    one.location, one.message
                ),
                many => format!("the manifest is not legal: {} violations", many.len()),
            };
            Refusal::Unprocessable { summary, problems }
        }
    }
}
