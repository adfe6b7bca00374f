//! Value flows: copying a Ready source's status into its dependents' specs.
//!
//! A value is taken in every transaction after which the source is Ready. Missing and null mean "not yet"; a value that disappears leaves
//! the last in place and holds further changes of the dependent. What a dependent is dispatched with is its authored spec plus the
//! current value of each flow; its generation moves when that differs by value.

use std::sync::Arc;

use converge_types::ids::Uid;
use converge_types::json::Doc;
use converge_types::phase::{ConditionStatus, Stage, condition};
use converge_types::pointer::Pointer;
use serde_json::Value;

use super::inputs::{EffectiveConfig, effective_config, inputs};
use super::plan::Plan;
use super::{conditions, failure};
use crate::model::{DocSlot, Edge, EventKind, Flow, Resource};
use crate::view::{Decision, View};

/// Takes the current values of every flow from `source` (which is Ready), and resolves the dependents where one differs.
///
/// # Errors
/// As the view's reads.
pub fn deliver(view: &mut View<'_>, source: Uid) -> Decision<()> {
    let edges: Vec<_> = view
        .edges_to(source)?
        .into_iter()
        .filter(|edge| !edge.former && !edge.flows.is_empty())
        .collect();
    if edges.is_empty() {
        return Ok(());
    }
    let status = status_of(view, source)?;
    for edge in edges {
        if let Some(flows) = taken(&edge.flows, &status) {
            let from = edge.from;
            view.edge_put(
                edge.from,
                edge.to,
                Some(Edge {
                    flows,
                    ..(*edge).clone()
                }),
            )?;
            resolve(view, from)?;
        }
    }
    Ok(())
}

/// Takes the values of one edge if its source is Ready now; returns the edge as it is afterwards.
///
/// # Errors
/// As the view's reads.
pub fn take(view: &mut View<'_>, mut edge: Edge) -> Decision<Edge> {
    if edge.flows.is_empty()
        || !view
            .resource(edge.to)?
            .is_some_and(|to| to.derived.is_ready())
    {
        return Ok(edge);
    }
    let status = status_of(view, edge.to)?;
    if let Some(flows) = taken(&edge.flows, &status) {
        edge.flows = flows;
    }
    Ok(edge)
}

fn status_of(view: &mut View<'_>, source: Uid) -> Decision<Value> {
    let status = view.doc(source, DocSlot::Status)?;
    Ok(status
        .and_then(|doc| doc.to_value().ok())
        .unwrap_or(Value::Null))
}

/// The flows with the values of this status; `None` when nothing differs.
fn taken(flows: &[Flow], status: &Value) -> Option<Vec<Flow>> {
    let mut differs = false;
    let next = flows
        .iter()
        .map(|flow| {
            let mut next = flow.clone();
            let value = flow.source.get(status).filter(|value| !value.is_null());
            match value.map(Doc::from_value) {
                Some(Ok(doc)) => {
                    next.gone = false;
                    if flow.value.as_ref() != Some(&doc) {
                        next.value = Some(doc);
                    }
                }
                // Missing, null, or nested too deep to be a document of its own: no value.
                _ => next.gone = flow.value.is_some(),
            }
            differs |= next != *flow;
            next
        })
        .collect();
    differs.then_some(next)
}

/// Writes the resolved spec of a dependent from its authored one and the current values, moves its generation if that differs by value,
/// checks the schema once nothing is pending, and touches it.
///
/// # Errors
/// As the view's reads.
pub fn resolve(view: &mut View<'_>, uid: Uid) -> Decision<()> {
    let Some(row) = view.resource(uid)? else {
        return Ok(());
    };
    let before = view.spec(uid)?;
    let edges: Vec<_> = view
        .edges_from(uid)?
        .into_iter()
        .filter(|edge| !edge.former)
        .collect();
    let flows: Vec<(Uid, Flow)> = edges
        .iter()
        .flat_map(|edge| edge.flows.iter().map(|flow| (edge.to, flow.clone())))
        .collect();
    let resolved = substituted(view, uid, &flows)?;
    if before.as_ref().map(Doc::as_bytes) != resolved.as_ref().map(Doc::as_bytes) {
        let same_as_authored = view
            .doc(uid, DocSlot::Authored)?
            .as_ref()
            .map(|doc| doc.as_bytes().to_vec())
            == resolved.as_ref().map(|doc| doc.as_bytes().to_vec());
        view.doc_put(
            uid,
            DocSlot::Resolved,
            resolved.clone().filter(|_| !same_as_authored),
        );
    }
    let moved = before != resolved;
    let pending = flows
        .iter()
        .filter(|(_, flow)| flow.value.is_none())
        .count();
    let gone = flows.iter().filter(|(_, flow)| flow.gone).count();
    let now = view.now_ms();
    let condition_now = flows_condition(view, &flows, pending, gone)?;
    view.update(uid, |row| {
        if moved {
            row.generation += 1;
            row.updated_ms = now;
        }
        row.flows_pending = u32::try_from(pending).unwrap_or(u32::MAX);
        row.flows_gone = u32::try_from(gone).unwrap_or(u32::MAX);
        conditions::set_own(row, condition::FLOWS_RESOLVED, condition_now, now);
    })?;
    if moved && pending == 0 && !flows.is_empty() {
        view.event(
            &row,
            EventKind::FlowChanged,
            None,
            "a value it reads changed",
            None,
        )?;
        check_schema(view, uid, resolved.as_ref(), &flows)?;
    }
    view.touch(uid);
    Ok(())
}

fn substituted(view: &mut View<'_>, uid: Uid, flows: &[(Uid, Flow)]) -> Decision<Option<Doc>> {
    let authored = view.doc(uid, DocSlot::Authored)?;
    if flows.iter().all(|(_, flow)| flow.value.is_none()) {
        return Ok(authored);
    }
    let Some(mut spec) = authored.as_ref().and_then(|doc| doc.to_value().ok()) else {
        return Ok(authored);
    };
    for (_, flow) in flows {
        if let Some(value) = flow.value.as_ref().and_then(|doc| doc.to_value().ok()) {
            // Compose checked that the pointer can be set; a spec that was authored since is checked again there.
            let _ = flow.dependent.set(&mut spec, value);
        }
    }
    Ok(Doc::from_value(&spec).ok().or(authored))
}

fn flows_condition(
    view: &mut View<'_>,
    flows: &[(Uid, Flow)],
    pending: usize,
    gone: usize,
) -> Decision<Option<(ConditionStatus, &'static str, String)>> {
    if flows.is_empty() {
        return Ok(None);
    }
    let Some((source, flow)) = flows
        .iter()
        .find(|(_, flow)| flow.gone)
        .or_else(|| flows.iter().find(|(_, flow)| flow.value.is_none()))
    else {
        return Ok(Some((ConditionStatus::True, "Resolved", String::new())));
    };
    let source = name_of(view, *source)?;
    let reason = if gone > 0 {
        "ValueGone"
    } else {
        "ValuePending"
    };
    let message = format!(
        "{pending} pending, {gone} gone; first: {source} {} for {}",
        flow.source, flow.dependent
    );
    Ok(Some((ConditionStatus::False, reason, message)))
}

/// `kind/name`, for people.
pub(crate) fn name_of(view: &mut View<'_>, uid: Uid) -> Decision<String> {
    Ok(view.resource(uid)?.map_or_else(
        || uid.to_string(),
        |row| format!("{}/{}", row.kv.kind, row.name),
    ))
}

/// Whether the spec a row is about to be dispatched with fits its schema: a pin for a flowed value may have ended without the value
/// having moved, and a composer may have flipped the version around it. A violation fails the row.
///
/// # Errors
/// As the view's reads.
pub fn still_fits(view: &mut View<'_>, row: &Resource) -> Decision<bool> {
    if row.owner.is_none() {
        return Ok(true);
    }
    let edges = view.edges_from(row.uid)?;
    let flows: Vec<(Uid, Flow)> = edges
        .iter()
        .filter(|edge| !edge.former)
        .flat_map(|edge| edge.flows.iter().map(|flow| (edge.to, flow.clone())))
        .collect();
    if flows.is_empty() {
        return Ok(true);
    }
    let spec = view.spec(row.uid)?;
    check_schema(view, row.uid, spec.as_ref(), &flows)
}

/// After substitution the full schema is checked; a violation fails the dependent, naming the flow.
fn check_schema(
    view: &mut View<'_>,
    uid: Uid,
    spec: Option<&Doc>,
    flows: &[(Uid, Flow)],
) -> Decision<bool> {
    let Some(row) = view.resource(uid)? else {
        return Ok(true);
    };
    let Some(manifest) = view.manifest(&row.kv)? else {
        return Ok(true);
    };
    let Some(value) = spec.and_then(|doc| doc.to_value().ok()) else {
        return Ok(true);
    };
    let violations = manifest.compiled.spec().violations(&value);
    if violations.is_empty() {
        return Ok(true);
    }
    let mut parts = Vec::new();
    for violation in violations.iter().take(20) {
        let cause = flows
            .iter()
            .find(|(_, flow)| flow.dependent.overlaps(&violation.pointer));
        parts.push(match cause {
            Some((source, flow)) => format!(
                "/spec{}: {} (flows from {} {})",
                violation.pointer,
                violation.message,
                name_of(view, *source)?,
                flow.source
            ),
            None => format!("/spec{}: {}", violation.pointer, violation.message),
        });
    }
    let message = format!(
        "the spec with its flowed values does not fit {}: {}",
        row.kv,
        parts.join("; ")
    );
    fail(
        view,
        &row,
        manifest.version,
        Plan::of(manifest.manifest()),
        message,
    )?;
    Ok(false)
}

/// Pins a terminal failure to the row's inputs of now, without a task having run.
fn fail(
    view: &mut View<'_>,
    row: &Arc<Resource>,
    manifest_version: i64,
    plan: Plan<'_>,
    message: String,
) -> Decision<()> {
    let EffectiveConfig::Digest(config) = effective_config(view, row.config_ref.as_ref(), &row.kv)?
    else {
        return Ok(());
    };
    let (stage, reaction) = match (plan.compose, plan.work) {
        (Some(reaction), _) => (Stage::Compose, reaction),
        (None, Some(reaction)) => (Stage::Work, reaction),
        (None, None) => return Ok(()),
    };
    let reaction = reaction.name.to_string();
    let with = inputs(row, stage, config);
    let failure = failure::pinned(stage, reaction.clone(), with, manifest_version, &message);
    let message = failure.message.clone();
    view.update(row.uid, |row| {
        row.failure = Some(failure);
        row.own_version += 1;
    })?;
    view.event(row, EventKind::Failed, Some(&reaction), message, None)
}

/// Pointers of a child that have no value yet: exempt from its schema until they do.
#[must_use]
pub fn pending(flows: &[Flow]) -> Vec<Pointer> {
    flows
        .iter()
        .filter(|flow| flow.value.is_none())
        .map(|flow| flow.dependent.clone())
        .collect()
}
