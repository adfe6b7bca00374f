//! Between the engine's words and the wire's.
//!
//! Documents cross as they are stored, never re-encoded. What a worker sends is not trusted: numbers out of range and texts that are no
//! names are carried on for the engine to refuse with the task's own failure.

use bytes::Bytes;
use converge_engine::command::{
    ChildSpec, ComposeOutcome, ConfigSpec, EdgeSpec, Outcome, RawChild, RawConfig, Task,
    TaskFailure, TaskInput, TaskResource,
};
use converge_engine::model::{ClaimRef, Resource};
use converge_types::json::Doc;
use converge_types::phase::{Condition, ConditionStatus, Phase, Stage};

use crate::generated as wire;

/// A claimed task as the wire says it.
pub(crate) fn task(task: Task) -> wire::StageTask {
    let status = bytes(task.resource.status.as_ref());
    let resource = resource(&task.resource, true);
    let (config, bundle) = task.config_override.unzip();
    let mut message = wire::StageTask {
        stage: task.claim.stage.wire(),
        kind: task.claim.kv.kind.to_string(),
        kind_version: task.claim.kv.version,
        resource_id: uid(task.resource.row.uid),
        generation: task.resource.row.generation,
        reaction: task.claim.reaction,
        lease_token: task.token.to_string(),
        claim_epoch: task.claim.epoch,
        manifest_version: task.claim.manifest_version,
        provider_config: bytes(config.as_ref()),
        provider_bundle: bundle
            .flatten()
            .map_or_else(Bytes::new, |bundle| Bytes::copy_from_slice(&bundle.0)),
        task_deadline_ms: i64::try_from(task.deadline_ms).unwrap_or(i64::MAX),
        ..wire::StageTask::default()
    };
    match task.input {
        TaskInput::Work => {
            message.work_req = Some(wire::WorkRequest {
                resource: Some(resource),
                status,
            })
        }
        TaskInput::Delete => {
            message.delete_req = Some(wire::DeleteRequest {
                resource: Some(resource),
            })
        }
        TaskInput::Rollup { descendants } => {
            let descendants = descendants
                .iter()
                .map(|it| self::resource(it, true))
                .collect();
            message.rollup_req = Some(wire::RollupRequest {
                root: Some(resource),
                descendants,
                status,
            });
        }
        TaskInput::Compose {
            observed,
            desired,
            edges,
            configs,
        } => {
            message.compose_req = Some(wire::ComposeRequest {
                root: Some(resource),
                observed: observed.iter().map(|it| self::resource(it, true)).collect(),
                desired: desired.into_iter().map(child).collect(),
                edges: edges.into_iter().map(edge).collect(),
                configs: configs.into_iter().map(config_spec).collect(),
            });
        }
    }
    message
}

fn bytes(doc: Option<&Doc>) -> Bytes {
    doc.map(|doc| doc.bytes().clone()).unwrap_or_default()
}

fn uid(uid: converge_types::ids::Uid) -> Bytes {
    Bytes::copy_from_slice(uid.as_bytes())
}

fn resource(task: &TaskResource, with_documents: bool) -> wire::Resource {
    let row: &Resource = &task.row;
    wire::Resource {
        id: uid(row.uid),
        kind: row.kv.kind.to_string(),
        name: row.name.to_string(),
        owner_id: row.owner.map(uid).unwrap_or_default(),
        root_id: uid(row.root),
        spec: if with_documents {
            bytes(task.spec.as_ref())
        } else {
            Bytes::new()
        },
        status: if with_documents {
            bytes(task.status.as_ref())
        } else {
            Bytes::new()
        },
        generation: row.generation,
        synced_gen: row.synced_gen,
        is_ready: row.derived.phase == Phase::Ready,
        finalizers: row
            .finalizers
            .iter()
            .map(|finalizer| finalizer.name.clone())
            .collect(),
        deletion_requested_at_ms: row
            .deletion
            .as_ref()
            .map_or(0, |deletion| deletion.requested_ms),
        frozen_until_ms: 0,
        quarantined: row.quarantined,
        labels: row.labels.as_map().clone(),
    }
}

fn child(child: ChildSpec) -> wire::ChildSpec {
    wire::ChildSpec {
        kind: child.kind,
        name: child.name,
        spec: child.spec.into_bytes(),
        labels: child.labels,
        kind_version: child.kind_version,
    }
}

fn edge(edge: EdgeSpec) -> wire::DepEdge {
    let end = |(kind, name): (String, String)| Some(wire::ResourceRef { kind, name });
    wire::DepEdge {
        from: end(edge.from),
        to: end(edge.to),
        values: edge
            .values
            .into_iter()
            .map(|(dependent_field, source_field)| wire::ValueFlow {
                dependent_field,
                source_field,
            })
            .collect(),
    }
}

fn config_spec(config: ConfigSpec) -> wire::ProviderConfigSpec {
    wire::ProviderConfigSpec {
        name: config.name,
        kind: config.kind,
        is_default: config.is_default,
        spec: config.spec.into_bytes(),
        kind_version: config.kind_version,
    }
}

/// Which claim a result is for; `None` when the token is not one of ours.
pub(crate) fn claim_ref(token: &str, epoch: i64) -> Option<ClaimRef> {
    Some(ClaimRef {
        token: token.parse().ok()?,
        epoch,
    })
}

/// A result as the engine takes it. A stage the wire does not know is a stage the worker did not run.
pub(crate) fn outcome(complete: wire::StageComplete) -> (Option<Stage>, Outcome) {
    let stage = Stage::from_wire(complete.stage);
    let mut status = complete.status;
    let mut conditions = complete.conditions;
    let compose = complete.compose.map(|result| {
        if status.is_empty() {
            status = result.status;
        }
        if conditions.is_empty() {
            conditions = result.conditions;
        }
        ComposeOutcome {
            children: result.desired.into_iter().map(raw_child).collect(),
            edges: result.edges.into_iter().map(raw_edge).collect(),
            configs: result.configs.into_iter().map(raw_config).collect(),
        }
    });
    let failure = (!complete.error_message.is_empty()).then_some(TaskFailure {
        message: complete.error_message,
        terminal: complete.terminal,
    });
    let outcome = Outcome {
        status: Some(status).filter(|status| !status.is_empty()),
        conditions: conditions.into_iter().map(condition).collect(),
        compose,
        output: Some(complete.output).filter(|output| !output.is_empty()),
        failure,
    };
    (stage, outcome)
}

fn raw_child(child: wire::ChildSpec) -> RawChild {
    RawChild {
        kind: child.kind,
        kind_version: child.kind_version,
        name: child.name,
        spec: child.spec,
        labels: child.labels,
    }
}

fn raw_edge(edge: wire::DepEdge) -> EdgeSpec {
    let end = |end: Option<wire::ResourceRef>| {
        let end = end.unwrap_or_default();
        (end.kind, end.name)
    };
    EdgeSpec {
        from: end(edge.from),
        to: end(edge.to),
        values: edge
            .values
            .into_iter()
            .map(|value| (value.dependent_field, value.source_field))
            .collect(),
    }
}

fn raw_config(config: wire::ProviderConfigSpec) -> RawConfig {
    RawConfig {
        name: config.name,
        kind: config.kind,
        kind_version: config.kind_version,
        is_default: config.is_default,
        spec: config.spec,
    }
}

/// A status that is none of the three words says as much as `Unknown`.
fn condition(condition: wire::Condition) -> Condition {
    Condition {
        type_: condition.r#type,
        status: condition.status.parse().unwrap_or(ConditionStatus::Unknown),
        reason: condition.reason,
        message: condition.message,
        last_transition_ms: 0,
        observed_generation: 0,
    }
}
