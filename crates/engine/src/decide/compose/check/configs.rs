//! The configs of a compose result: each by itself, and what reads them.

use std::collections::{BTreeMap, BTreeSet};

use converge_types::ids::{ConfigName, KindVersion};
use converge_types::json::Doc;
use converge_types::limits;

use super::{
    CheckedChild, CheckedConfig, MAX_PROBLEMS, Problems, positions, spec_or_empty, version_or_first,
};
use crate::command::{ConfigSpec, RawConfig};
use crate::decide::configs;
use crate::model::Resource;
use crate::view::{Decision, View};

pub(super) fn check(
    view: &mut View<'_>,
    owner: &Resource,
    emitted: &[RawConfig],
    problems: &mut Problems,
) -> Decision<Vec<CheckedConfig>> {
    let mut checked: Vec<CheckedConfig> = Vec::with_capacity(emitted.len());
    let mut defaults = BTreeSet::new();
    let mut names = BTreeSet::new();
    for config in emitted {
        if let Some(config) = check_config(view, owner, config, problems)? {
            if !names.insert(config.name.clone()) {
                problems.add(format!("config {}", config.name), "emitted twice");
            }
            if config.emitted.is_default && !defaults.insert(config.kv.clone()) {
                problems.add(
                    format!("config {}", config.name),
                    format!("a second default for {}", config.kv),
                );
            }
            checked.push(config);
        }
    }
    Ok(checked)
}

fn check_config(
    view: &mut View<'_>,
    owner: &Resource,
    config: &RawConfig,
    problems: &mut Problems,
) -> Decision<Option<CheckedConfig>> {
    let place = format!("config {}", config.name);
    let version = version_or_first(config.kind_version);
    let kv = KindVersion::parse(&config.kind, version)
        .map_err(|error| problems.add(&place, error.to_string()));
    let name =
        ConfigName::new(&config.name).map_err(|error| problems.add(&place, error.to_string()));
    let bytes = spec_or_empty(&config.spec);
    let spec = if bytes.len() > limits::CONFIG_BYTES {
        problems.add(
            &place,
            format!("a config has at most {} bytes", limits::CONFIG_BYTES),
        );
        return Ok(None);
    } else {
        Doc::parse(bytes).map_err(|error| problems.add(&place, error.to_string()))
    };
    let (Ok(kv), Ok(name), Ok(spec)) = (kv, name, spec) else {
        return Ok(None);
    };
    let Some(manifest) = view.manifest(&kv)? else {
        problems.add_curable(&place, format!("kind {kv} is not known here"), kv.kind);
        return Ok(None);
    };
    if let Some(held) = view.config(&name)?
        && held.owner != Some(owner.uid)
    {
        let message = "that name is held by others";
        problems.add_curable(&place, message, held.kv.kind.clone());
    }
    if config.is_default
        && let Some(held) = view.config_default(&kv)?
        && held.owner != Some(owner.uid)
    {
        let message = format!("the default place of {kv} is held by {}", held.name);
        problems.add_curable(&place, message, kv.kind.clone());
    }
    for problem in configs::violations(view, &manifest, &spec, config.is_default)? {
        problems.add(format!("{place} {}", problem.location), problem.message);
    }
    let emitted = ConfigSpec {
        name: config.name.clone(),
        kind: config.kind.clone(),
        kind_version: version,
        is_default: config.is_default,
        spec,
    };
    Ok(Some(CheckedConfig { name, kv, emitted }))
}

/// What reads a config and what it configures must still fit when this result has landed, with what the result itself moves counted in.
pub(super) fn check_refs(
    view: &mut View<'_>,
    owner: &Resource,
    children: &[CheckedChild],
    emitted: &[CheckedConfig],
    problems: &mut Problems,
) -> Decision<()> {
    let will_be: BTreeMap<&ConfigName, &KindVersion> = emitted
        .iter()
        .map(|config| (&config.name, &config.kv))
        .collect();
    for child in children {
        let Some(name) = &child.config_ref else {
            continue;
        };
        let kv = match will_be.get(name) {
            Some(kv) => Some((*kv).clone()),
            None => view.config(name)?.map(|config| config.kv.clone()),
        };
        if let Some(kv) = kv.filter(|kv| *kv != child.kv) {
            let message = format!("providerconfig {name} configures {kv}, not {}", child.kv);
            problems.add(format!("{}/{}", child.kv.kind, child.name), message);
        }
    }
    let moved = positions(children);
    let is_emitted = |row: &Resource| {
        row.owner == Some(owner.uid)
            && moved.contains_key(&(row.kv.kind.as_str(), row.name.as_str()))
    };
    for config in emitted {
        let Some(held) = view.config(&config.name)? else {
            continue;
        };
        if held.owner != Some(owner.uid) || held.kv == config.kv {
            continue;
        }
        let bound = configs::bound_to(view, &held, MAX_PROBLEMS, |row| {
            // The ref of a child moves with this result and was looked at above; what it owes does not.
            is_emitted(row) && !configs::owes_with(row, &held.name, &held.kv)
        })?;
        for row in bound {
            let place = format!("config {}", config.name);
            let message = format!(
                "{}/{} still reads it as one of {}: give the one of {} another name",
                row.kv.kind, row.name, held.kv, config.kv
            );
            let leaves = row.owner != Some(owner.uid)
                || (!is_emitted(&row) && (row.orphan.is_some() || row.is_deleting()));
            if leaves {
                problems.add_curable(place, message, held.kv.kind.clone());
            } else {
                problems.add(place, message);
            }
        }
    }
    Ok(())
}
