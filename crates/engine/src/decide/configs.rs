//! Provider configs: defaults, overrides, digests, and who must look again when one changes.
//!
//! Effective = default ⊕ override; its digest is kept on the override's row (and the default's on its pair), so that a claim compares
//! numbers. An edit writes no resource rows: it queues a sweep. A default that makes an override invalid marks that override broken,
//! which shows at the resources that read it.

use std::sync::Arc;

use converge_types::ids::{ConfigName, KindVersion, Uid};
use converge_types::json::Doc;
use converge_types::merge;

use super::inputs::digest;
use crate::model::{Bundle, Config, ConfigSweep, Digest, ManifestRow, Resource};
use crate::refusal::Problem;
use crate::view::{Decision, View};

/// What to do with the stored bundle.
#[derive(Debug, Clone)]
pub enum BundleEdit {
    /// Leave it.
    Keep,
    /// Remove it.
    Remove,
    /// Replace it.
    Set(Bundle),
}

/// A config as it shall be.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields of `Config`")]
pub struct Wanted {
    pub name: ConfigName,
    pub kv: KindVersion,
    pub is_default: bool,
    pub spec: Doc,
    pub bundle: BundleEdit,
    pub owner: Option<Uid>,
    pub former: bool,
}

/// Everything wrong with a config spec: a default is checked whole, an override merged over the current default.
///
/// # Errors
/// As the view's reads.
pub fn violations(
    view: &mut View<'_>,
    manifest: &ManifestRow,
    spec: &Doc,
    is_default: bool,
) -> Decision<Vec<Problem>> {
    let default = if is_default {
        None
    } else {
        view.config_default(&manifest.kv)?
            .map(|config| config.spec.clone())
    };
    Ok(
        match checked(manifest, default.as_ref(), spec, is_default) {
            Ok(()) => Vec::new(),
            Err(problems) => problems,
        },
    )
}

fn checked(
    manifest: &ManifestRow,
    default: Option<&Doc>,
    spec: &Doc,
    is_default: bool,
) -> Result<(), Vec<Problem>> {
    let merged = if is_default {
        Ok(Some(spec.clone()))
    } else {
        merge::effective_spec(default, Some(spec))
    };
    let merged = merged.map_err(|error| vec![Problem::new("/spec", error.to_string())])?;
    let Some(merged) = merged else { return Ok(()) };
    let value = merged
        .to_value()
        .map_err(|error| vec![Problem::new("/spec", error.to_string())])?;
    let violations = manifest.compiled.config().violations(&value);
    if violations.is_empty() {
        return Ok(());
    }
    Err(violations
        .into_iter()
        .map(|violation| Problem::new(format!("/spec{}", violation.pointer), violation.message))
        .collect())
}

/// Writes a config, keeps digests and defaults, queues the sweeps that follow. Returns whether anything differs.
///
/// # Errors
/// As the view's reads.
pub fn put(view: &mut View<'_>, wanted: Wanted) -> Decision<bool> {
    let now = view.now_ms();
    let old = view.config(&wanted.name)?;
    let stored_bundle = view.bundle(&wanted.name)?;
    let bundle = match wanted.bundle {
        BundleEdit::Keep => stored_bundle.clone(),
        BundleEdit::Remove => None,
        BundleEdit::Set(bundle) => Some(bundle).filter(|bundle| !bundle.0.is_empty()),
    };
    if let Some(old) = &old
        && old.kv == wanted.kv
        && old.is_default == wanted.is_default
        && old.spec == wanted.spec
        && old.owner == wanted.owner
        && old.former == wanted.former
        && stored_bundle == bundle
    {
        return Ok(false);
    }
    let config = Config {
        name: wanted.name.clone(),
        kv: wanted.kv.clone(),
        is_default: wanted.is_default,
        spec: wanted.spec,
        bundle_bytes: bundle.as_ref().map_or(0, |bundle| bundle.0.len() as u64),
        bundle_digest: bundle_digest(bundle.as_ref()),
        effective: Digest::default(),
        broken: None,
        owner: wanted.owner,
        former: wanted.former,
        created_ms: old.as_ref().map_or(now, |old| old.created_ms),
        updated_ms: now,
        revision: 0,
    };
    if stored_bundle != bundle {
        view.bundle_put(&wanted.name, bundle);
    }
    view.config_put(&wanted.name, Some(config))?;
    if let Some(old) = old.as_deref() {
        if old.is_default && (!wanted.is_default || old.kv != wanted.kv) {
            default_changed(view, &old.kv)?;
            super::compose::name_freed(view, &old.kv.kind)?;
        }
        if old.kv != wanted.kv {
            view.sweep_put(ConfigSweep {
                kv: old.kv.clone(),
                config_ref: Some(wanted.name.clone()),
                after: None,
            });
        }
    }
    if wanted.is_default {
        default_changed(view, &wanted.kv)?;
    }
    refresh(view, &wanted.name, old.is_none())?;
    Ok(true)
}

/// Deletes a config; what still names it is held.
///
/// # Errors
/// As the view's reads.
pub fn remove(view: &mut View<'_>, config: &Config) -> Decision<()> {
    view.config_put(&config.name, None)?;
    if config.is_default {
        default_changed(view, &config.kv)?;
    }
    view.sweep_put(ConfigSweep {
        kv: config.kv.clone(),
        config_ref: Some(config.name.clone()),
        after: None,
    });
    super::compose::name_freed(view, &config.kv.kind)
}

/// A composer no longer emits a config it owns. What still reads it, an orphan for one, is torn down with it; then it goes.
///
/// # Errors
/// As the view's reads.
pub fn release(view: &mut View<'_>, config: &Config) -> Decision<()> {
    if readers(view, &config.name, 1, Resource::reads)?.is_empty() {
        return remove(view, config);
    }
    let former = Wanted {
        name: config.name.clone(),
        kv: config.kv.clone(),
        is_default: false,
        spec: config.spec.clone(),
        bundle: BundleEdit::Keep,
        owner: config.owner,
        former: true,
    };
    put(view, former).map(drop)
}

/// What this row read before, and may read no more: a former config goes with its last reader, and a composer that could not move one of
/// its configs to another pair tries again.
///
/// # Errors
/// As the view's reads.
pub fn reader_left(view: &mut View<'_>, before: &Resource) -> Decision<()> {
    let owed = before.finalizers.iter().map(|owed| &owed.config_ref);
    for name in owed.chain([&before.config_ref]).flatten() {
        let Some(config) = view.config(name)? else {
            continue;
        };
        if config.former {
            if readers(view, name, 1, Resource::reads)?.is_empty() {
                remove(view, &config)?;
            }
        } else if config.owner.is_some()
            && view
                .resource(before.uid)?
                .is_none_or(|now| !reads_as(&now, name, &config.kv))
        {
            super::compose::name_freed(view, &config.kv.kind)?;
        }
    }
    Ok(())
}

/// Resources that would be left without this config if it became one of another pair: those that read it as what it is now. One that
/// names it and is of another pair is held anyway, and may be what the change is for. `but`: those that do not count.
///
/// # Errors
/// As the view's reads.
pub fn bound_to(
    view: &mut View<'_>,
    config: &Config,
    limit: usize,
    but: impl Fn(&Resource) -> bool,
) -> Decision<Vec<Arc<Resource>>> {
    readers(view, &config.name, limit, |row, name| {
        reads_as(row, name, &config.kv) && !but(row)
    })
}

/// Whether a task of this resource reads the config as one of `kv`, or a teardown it owes does.
fn reads_as(row: &Resource, name: &ConfigName, kv: &KindVersion) -> bool {
    (row.config_ref.as_ref() == Some(name) && row.kv == *kv) || owes_with(row, name, kv)
}

/// Whether this resource owes a teardown that reads the config as one of `kv`.
pub fn owes_with(row: &Resource, name: &ConfigName, kv: &KindVersion) -> bool {
    row.kv.kind == kv.kind
        && row
            .finalizers
            .iter()
            .any(|owed| owed.config_ref.as_ref() == Some(name) && owed.kind_version == kv.version)
}

/// Up to `limit` of the resources that are stored as reading this config and, as the command that runs has them, read it so.
fn readers(
    view: &mut View<'_>,
    name: &ConfigName,
    limit: usize,
    so: impl Fn(&Resource, &ConfigName) -> bool,
) -> Decision<Vec<Arc<Resource>>> {
    const PAGE: u32 = 64;
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let uids = view.config_users(name, after, PAGE)?;
        for uid in &uids {
            if let Some(row) = view.resource(*uid)?
                && so(&row, name)
            {
                found.push(row);
                if found.len() >= limit {
                    return Ok(found);
                }
            }
        }
        after = uids.last().copied();
        if uids.len() < PAGE as usize {
            return Ok(found);
        }
    }
}

/// The default of a pair is another, or gone: its digest, what its overrides come to, and who must look again.
///
/// # Errors
/// As the view's reads.
pub fn default_changed(view: &mut View<'_>, kv: &KindVersion) -> Decision<()> {
    view.signals().configs.insert(kv.clone());
    let default = view.config_default(kv)?;
    let effective = default.as_deref().map_or(Digest::default(), |config| {
        effective_digest(Some(&config.spec), config.bundle_digest)
    });
    let before = view.pair(kv)?.default_config;
    if before != effective {
        view.pair_update(kv, |pair| pair.default_config = effective)?;
        view.sweep_put(ConfigSweep {
            kv: kv.clone(),
            config_ref: None,
            after: None,
        });
    }
    for config in view.config_overrides(kv)? {
        refresh(view, &config.name, false)?;
    }
    Ok(())
}

/// Recomputes what a config comes to; queues a sweep of those that name it when that differs (or when it is new: they were held).
fn refresh(view: &mut View<'_>, name: &ConfigName, is_new: bool) -> Decision<()> {
    let Some(config) = view.config(name)? else {
        return Ok(());
    };
    let default = if config.is_default {
        None
    } else {
        view.config_default(&config.kv)?
    };
    let merged = match &default {
        _ if config.is_default => Ok(Some(config.spec.clone())),
        Some(default) => merge::effective_spec(Some(&default.spec), Some(&config.spec)),
        None => merge::effective_spec(None, Some(&config.spec)),
    };
    let bundle = match &default {
        Some(default) if config.bundle_digest == Digest::default() => default.bundle_digest,
        _ => config.bundle_digest,
    };
    let broken = match view.manifest(&config.kv)? {
        Some(manifest) if !config.is_default => checked(
            &manifest,
            default.as_ref().map(|default| &default.spec),
            &config.spec,
            false,
        )
        .err(),
        _ => None,
    };
    let broken = broken.map(|problems| {
        let problems: Vec<_> = problems
            .iter()
            .map(|problem| format!("{}: {}", problem.location, problem.message))
            .collect();
        let default = default
            .as_ref()
            .map_or("no default", |default| default.name.as_str());
        format!(
            "providerconfig {name} over {default} does not fit {}: {}",
            config.kv,
            problems.join("; ")
        )
    });
    let effective = effective_digest(merged.ok().flatten().as_ref(), bundle);
    if is_new || effective != config.effective || broken != config.broken {
        let row = Config {
            effective,
            broken,
            ..(*config).clone()
        };
        view.config_put(name, Some(row))?;
        let sweep = ConfigSweep {
            kv: config.kv.clone(),
            config_ref: Some(name.clone()),
            after: None,
        };
        view.sweep_put(sweep);
    }
    Ok(())
}

fn effective_digest(spec: Option<&Doc>, bundle: Digest) -> Digest {
    let spec = spec.map(Doc::canonical).unwrap_or_default();
    let parts = converge_types::json::Digest::of_parts(&[&spec, &bundle.0.to_be_bytes()]);
    digest(parts.as_bytes())
}

fn bundle_digest(bundle: Option<&Bundle>) -> Digest {
    bundle.map_or(Digest::default(), |bundle| {
        digest(converge_types::json::Digest::of(&bundle.0).as_bytes())
    })
}
