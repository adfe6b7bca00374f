//! Provider configs: apply and delete. What follows from an edit is `decide::configs`.

use std::sync::Arc;

use converge_types::json::Doc;
use converge_types::limits;

use super::apply::{check_precondition, manifest_of};
use super::{Applied, ConfigApply, ConfigDelete, Reply};
use crate::decide::configs::{self, BundleEdit, Wanted};
use crate::model::{Bundle, Config};
use crate::refusal::{Problem, Refusal};
use crate::view::{Decision, View};

pub(super) fn apply(command: &ConfigApply, view: &mut View<'_>) -> Decision<Reply> {
    let old = view.config(&command.name)?;
    check_precondition(
        &command.precondition,
        old.as_ref().map(|row| row.revision),
        || format!("providerconfig {}", command.name),
    )?;
    if let Some(old) = &old {
        refuse_composed(view, old, "apply")?;
        if old.kv != command.kv {
            refuse_bound(view, old, command)?;
        }
    }
    let manifest = manifest_of(view, &command.kv.kind, command.kv.version)?;
    let spec = command.spec.clone().unwrap_or_else(Doc::empty_object);
    let is_default = command
        .is_default
        .unwrap_or_else(|| old.as_ref().is_some_and(|old| old.is_default));
    check_sizes(command, &spec)?;
    let problems = configs::violations(view, &manifest, &spec, is_default)?;
    if !problems.is_empty() {
        return Err(Refusal::does_not_fit("the config", &command.kv, problems).into());
    }
    let holder = view
        .config_default(&command.kv)?
        .filter(|holder| holder.name != command.name);
    if is_default && let Some(holder) = holder {
        if !command.replace_default {
            let message = format!(
                "{} is the default of {}: apply with replace_default=true to move it",
                holder.name, command.kv
            );
            return Err(Refusal::conflict(message).into());
        }
        refuse_composed(view, &holder, "taking its place as default")?;
        let demoted = Wanted {
            name: holder.name.clone(),
            kv: holder.kv.clone(),
            is_default: false,
            spec: holder.spec.clone(),
            bundle: BundleEdit::Keep,
            owner: holder.owner,
            former: false,
        };
        configs::put(view, demoted)?;
    }
    let bundle = match &command.data {
        None => BundleEdit::Keep,
        Some(data) if data.is_empty() => BundleEdit::Remove,
        Some(data) => BundleEdit::Set(Bundle(data.clone())),
    };
    let wanted = Wanted {
        name: command.name.clone(),
        kv: command.kv.clone(),
        is_default,
        spec,
        bundle,
        owner: None,
        former: false,
    };
    let changed = configs::put(view, wanted)?;
    let applied = match (old.is_some(), changed) {
        (_, false) => Applied::Unchanged,
        (false, true) => Applied::Created,
        (true, true) => Applied::Configured,
    };
    let row = view
        .config(&command.name)?
        .ok_or_else(|| Refusal::NotFound("the config is gone".to_owned()))?;
    Ok(Reply::Config { applied, row })
}

pub(super) fn delete(command: &ConfigDelete, view: &mut View<'_>) -> Decision<Reply> {
    let Some(config) = view.config(&command.name)? else {
        return Err(
            Refusal::NotFound(format!("there is no providerconfig {}", command.name)).into(),
        );
    };
    check_precondition(&command.precondition, Some(config.revision), || {
        format!("providerconfig {}", command.name)
    })?;
    refuse_composed(view, &config, "delete")?;
    let users = view.config_users(&command.name, None, 10)?;
    if !users.is_empty() {
        let mut problems = Vec::new();
        for uid in users {
            if let Some(row) = view.resource(uid)? {
                problems.push(Problem::new(
                    format!("{}/{}", row.kv.kind, row.name),
                    "refers to it",
                ));
            }
        }
        let summary = format!("providerconfig {} is still referred to", command.name);
        return Err(Refusal::Conflict { summary, problems }.into());
    }
    configs::remove(view, &config)?;
    Ok(Reply::Deleted)
}

/// What reads a config as one of its pair would wait for ever for it to come back.
fn refuse_bound(view: &mut View<'_>, old: &Config, command: &ConfigApply) -> Decision<()> {
    let bound = configs::bound_to(view, old, 10, |_| false)?;
    if bound.is_empty() {
        return Ok(());
    }
    let problems = bound
        .iter()
        .map(|row| {
            let message = if row.config_ref.as_ref() == Some(&old.name) && row.kv == old.kv {
                "refers to it"
            } else {
                "owes a teardown that reads it"
            };
            Problem::new(format!("{}/{}", row.kv.kind, row.name), message)
        })
        .collect();
    let summary = format!(
        "providerconfig {} is still referred to as one of {}: give the one of {} another name",
        old.name, old.kv, command.kv
    );
    Err(Refusal::Conflict { summary, problems }.into())
}

fn check_sizes(command: &ConfigApply, spec: &Doc) -> Decision<()> {
    if spec.size() > limits::CONFIG_BYTES {
        let message = format!(
            "a config has at most {} bytes; this one has {}",
            limits::CONFIG_BYTES,
            spec.size()
        );
        return Err(Refusal::TooLarge(message).into());
    }
    let bundle = command.data.as_ref().map_or(0, |data| data.len());
    if bundle > limits::BUNDLE_BYTES {
        let message = format!(
            "a bundle has at most {} bytes; this one has {bundle}",
            limits::BUNDLE_BYTES
        );
        return Err(Refusal::TooLarge(message).into());
    }
    Ok(())
}

fn refuse_composed(view: &mut View<'_>, config: &Arc<Config>, verb: &str) -> Decision<()> {
    let Some(owner) = config.owner else {
        return Ok(());
    };
    let owner = crate::decide::flows::name_of(view, owner)?;
    let message = format!(
        "providerconfig {} is composed by {owner}: {verb} is refused",
        config.name
    );
    Err(Refusal::conflict(message).into())
}
