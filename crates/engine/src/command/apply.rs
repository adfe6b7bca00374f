//! Apply a resource: validate, compare by value, flip the version in place, keep history.
//!
//! An apply is the whole desired state: absent labels or ref mean none. What is equal by value writes nothing.

use std::sync::Arc;

use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use converge_types::limits;

use super::{Applied, Precondition, Reply, ResourceApply};
use crate::decide::configs;
use crate::model::{Derived, DocSlot, Due, EventKind, History, ManifestRow, Marks, Resource};
use crate::refusal::{Problem, Refusal};
use crate::view::{Decision, View};

pub(super) fn decide(command: &ResourceApply, view: &mut View<'_>) -> Decision<Reply> {
    let existing = view.resource_by_name(&command.kind, &command.name)?;
    check_precondition(
        &command.precondition,
        existing.as_deref().map(|row| row.revision),
        || format!("{}/{}", command.kind, command.name),
    )?;
    if let Some(row) = &existing {
        refuse_deleting(row)?;
        refuse_composed(view, row, "apply")?;
    }
    let version = command
        .kind_version
        .or_else(|| existing.as_ref().map(|row| row.kv.version))
        .unwrap_or(1);
    let manifest = manifest_of(view, &command.kind, version)?;
    let state = Authored {
        kv: manifest.kv.clone(),
        labels: Arc::new(command.labels.clone()),
        config_ref: command.config_ref.clone(),
        spec: command.spec.clone(),
    };
    apply(
        view,
        existing,
        &manifest,
        state,
        command,
        EventKind::Applied,
    )
}

/// One authored state.
pub(super) struct Authored {
    pub(super) kv: KindVersion,
    pub(super) labels: Arc<Labels>,
    pub(super) config_ref: Option<ConfigName>,
    pub(super) spec: Doc,
}

pub(super) fn apply(
    view: &mut View<'_>,
    existing: Option<Arc<Resource>>,
    manifest: &ManifestRow,
    state: Authored,
    command: &ResourceApply,
    event: EventKind,
) -> Decision<Reply> {
    validate(view, manifest, &state)?;
    let now = view.now_ms();
    let who = command.who.as_deref();
    let Some(row) = existing else {
        let row = new_resource(command.new_uid, state.kv.clone(), command.name.clone(), now);
        let row = Resource {
            labels: state.labels.clone(),
            config_ref: state.config_ref.clone(),
            ..row
        };
        view.resource_insert(row.clone())?;
        view.doc_put(row.uid, DocSlot::Authored, Some(state.spec.clone()));
        keep_history(view, &row, state.spec, who);
        view.event(&row, event, None, "created", who)?;
        view.touch(row.uid);
        return Ok(Reply::resource(Applied::Created, Arc::new(row)));
    };
    let authored = view.doc(row.uid, DocSlot::Authored)?;
    let same_spec = authored.is_some_and(|doc| doc == state.spec);
    let bumps = !same_spec || row.kv != state.kv || row.config_ref != state.config_ref;
    if !bumps && row.labels == state.labels {
        return Ok(Reply::resource(Applied::Unchanged, row));
    }
    let before = row.clone();
    view.update(row.uid, |row| {
        if row.kv != state.kv {
            // Its place was one in the queue of the other pair.
            row.due = Due::Idle;
        }
        row.kv = state.kv;
        row.labels = state.labels;
        row.config_ref = state.config_ref;
        row.updated_ms = now;
        if bumps {
            row.generation += 1;
        }
    })?;
    if !same_spec {
        view.doc_put(row.uid, DocSlot::Authored, Some(state.spec.clone()));
    }
    let changed = view.resource(row.uid)?.unwrap_or(row);
    keep_history(view, &changed, state.spec, who);
    let message = if bumps {
        format!("generation {}", changed.generation)
    } else {
        "labels".to_owned()
    };
    view.event(&changed, event, None, message, who)?;
    view.touch(changed.uid);
    configs::reader_left(view, &before)?;
    Ok(Reply::resource(Applied::Configured, changed))
}

/// Everything that is wrong with an authored state, at once.
fn validate(view: &mut View<'_>, manifest: &ManifestRow, state: &Authored) -> Decision<()> {
    let mut problems = Vec::new();
    if state.spec.size() > limits::SPEC_BYTES {
        let message = format!(
            "a spec has at most {} bytes; this one has {}",
            limits::SPEC_BYTES,
            state.spec.size()
        );
        return Err(Refusal::TooLarge(message).into());
    }
    match state.spec.to_value() {
        Ok(value) => problems.extend(manifest.compiled.spec().violations(&value).into_iter().map(
            |violation| Problem::new(format!("/spec{}", violation.pointer), violation.message),
        )),
        Err(error) => problems.push(Problem::new("/spec", error.to_string())),
    }
    if let Some(name) = &state.config_ref
        && let Some(config) = view.config(name)?
        && config.kv != state.kv
    {
        problems.push(Problem::new(
            "/provider_config_ref",
            format!(
                "providerconfig {name} configures {}, not {}",
                config.kv, state.kv
            ),
        ));
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refusal::does_not_fit("the spec", &state.kv, problems).into())
}

fn keep_history(view: &mut View<'_>, row: &Resource, spec: Doc, who: Option<&str>) {
    view.history_add(History {
        uid: row.uid,
        generation: row.generation,
        spec,
        labels: row.labels.clone(),
        kv: row.kv.clone(),
        config_ref: row.config_ref.clone(),
        at_ms: row.updated_ms,
        who: who.map(str::to_owned),
    });
}

/// A resource nothing has happened to, with no owner.
#[must_use]
pub(crate) fn new_resource(uid: Uid, kv: KindVersion, name: ResourceName, now: i64) -> Resource {
    Resource {
        uid,
        kv,
        name,
        owner: None,
        root: uid,
        depth: 0,
        position: 0,
        labels: Arc::default(),
        config_ref: None,
        generation: 1,
        synced_gen: 0,
        created_ms: now,
        updated_ms: now,
        deletion: None,
        orphan: None,
        quarantined: false,
        finalizers: Vec::new(),
        epoch: 0,
        claim: None,
        marks: Marks::default(),
        failure: None,
        observe_failure: None,
        conditions: Vec::new(),
        by_hand: false,
        not_before_ms: None,
        look: None,
        resync_ms: None,
        recomposed: false,
        rollup_ms: None,
        flows_pending: 0,
        flows_gone: 0,
        children: 0,
        below: crate::model::Below::default(),
        causes: Vec::new(),
        own_version: 0,
        flowed_version: 0,
        contributed: crate::model::Contributed::default(),
        due: Due::Idle,
        wake_ms: None,
        derived: Derived::NEW,
        transitions: 0,
        revision: 0,
    }
}

/// The manifest of a pair, or a refusal that says which versions there are.
pub(super) fn manifest_of(
    view: &mut View<'_>,
    kind: &Kind,
    version: i32,
) -> Decision<Arc<ManifestRow>> {
    let kv = KindVersion {
        kind: kind.clone(),
        version,
    };
    if let Some(row) = view.manifest(&kv)? {
        return Ok(row);
    }
    let known = view.versions(kind)?;
    let message = if known.is_empty() {
        format!("kind {kind} is not known here: apply its manifest first")
    } else {
        let known: Vec<_> = known.iter().map(|kv| format!("v{}", kv.version)).collect();
        format!(
            "kind {kind} has no version {version} here; known: {}",
            known.join(", ")
        )
    };
    Err(Refusal::NotFound(message).into())
}

/// 412 unless the precondition holds for a row at `revision` (`None` = it does not exist).
pub(super) fn check_precondition(
    precondition: &Precondition,
    revision: Option<i64>,
    what: impl FnOnce() -> String,
) -> Decision<()> {
    let refusal = match (precondition, revision) {
        (Precondition::None, _)
        | (Precondition::Exists, Some(_))
        | (Precondition::Absent, None) => return Ok(()),
        (Precondition::Revision(wanted), Some(is)) if *wanted == is => return Ok(()),
        (Precondition::Absent, Some(_)) => format!("{} exists already", what()),
        (Precondition::Revision(_) | Precondition::Exists, None) => {
            format!("{} does not exist", what())
        }
        (Precondition::Revision(_), Some(_)) => {
            format!("{} has changed since it was read: read it again", what())
        }
    };
    Err(Refusal::Precondition(refusal).into())
}

pub(super) fn refuse_deleting(row: &Resource) -> Decision<()> {
    if row.is_deleting() {
        let message = format!(
            "{}/{} is being deleted: wait until it is gone",
            row.kv.kind, row.name
        );
        return Err(Refusal::conflict(message).into());
    }
    Ok(())
}

/// A composed resource belongs to its composer.
pub(super) fn refuse_composed(view: &mut View<'_>, row: &Resource, verb: &str) -> Decision<()> {
    let Some(owner) = row.owner else {
        return Ok(());
    };
    let owner = match view.resource(owner)? {
        Some(owner) => format!("{}/{}", owner.kv.kind, owner.name),
        None => owner.to_string(),
    };
    let message = format!(
        "{}/{} is composed by {owner}: {verb} is refused; change {owner} instead",
        row.kv.kind, row.name
    );
    Err(Refusal::conflict(message).into())
}

/// The resource of that name, or 404.
pub(super) fn existing(
    view: &mut View<'_>,
    kind: &Kind,
    name: &ResourceName,
) -> Decision<Arc<Resource>> {
    match view.resource_by_name(kind, name)? {
        Some(row) => Ok(row),
        None => Err(Refusal::NotFound(format!("there is no {kind}/{name}")).into()),
    }
}
