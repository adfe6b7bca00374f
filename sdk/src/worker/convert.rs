//! Between the wire's messages and the types an author sees.
//!
//! Everything that comes from the wire may be missing or wrong, so what comes in is checked here and nothing panics. What
//! goes out is held against the limits of the control plane, where a refusal can still name its cause.

use bytes::Bytes;

use crate::{
    Child, Condition, ConfigOut, Edge, Json, KindVersion, Operation, Outcome, ReactionRequest,
    Resource, ResourceRef, Stage, Transition, Uid, ValueFlow, wire,
};

/// Largest status, in bytes.
const MAX_STATUS: usize = 64 << 20;
/// Largest message on the wire, in bytes.
pub(crate) const MAX_MESSAGE: usize = 512 << 20;
/// Longest error message, in bytes.
const MAX_ERROR: usize = 8 << 10;
/// How the message of a result begins that is no outcome of its handler.
const INTERRUPTED: &str = "interrupted: ";

/// The stage by its number on the wire.
pub(crate) fn stage(number: i32) -> Option<Stage> {
    Some(match wire::Stage::try_from(number).ok()? {
        wire::Stage::Unspecified => return None,
        wire::Stage::Compose => Stage::Compose,
        wire::Stage::Work => Stage::Work,
        wire::Stage::Rollup => Stage::Rollup,
        wire::Stage::Delete => Stage::Delete,
        wire::Stage::Operate => Stage::Operate,
        wire::Stage::React => Stage::React,
    })
}

fn uid(bytes: &[u8]) -> Option<Uid> {
    <[u8; 16]>::try_from(bytes).ok().map(Uid::from_bytes)
}

fn json(bytes: Bytes) -> Option<Json> {
    (!bytes.is_empty()).then(|| Json::from_bytes_unchecked(bytes))
}

fn time(millis: i64) -> Option<i64> {
    (millis != 0).then_some(millis)
}

/// A missing version means 1; one that cannot be is kept impossible, so that whoever reads it refuses it.
fn pair(kind: &str, version: i32) -> KindVersion {
    let version = if version == 0 {
        1
    } else {
        u16::try_from(version).unwrap_or(0)
    };
    KindVersion::new(kind, version)
}

pub(crate) fn resource(from: wire::Resource) -> Resource {
    Resource {
        uid: uid(&from.id).unwrap_or_default(),
        kind: from.kind,
        name: from.name,
        owner: uid(&from.owner_id),
        root: uid(&from.root_id),
        spec: json(from.spec).unwrap_or_else(Json::empty_object),
        status: json(from.status),
        generation: from.generation,
        synced_gen: from.synced_gen,
        is_ready: from.is_ready,
        finalizers: from.finalizers,
        deletion_requested_at_ms: time(from.deletion_requested_at_ms),
        frozen_until_ms: time(from.frozen_until_ms),
        quarantined: from.quarantined,
        labels: from.labels,
    }
}

/// The resource a task is about: in the request that belongs to its stage.
pub(crate) fn subject(task: &wire::StageTask) -> Option<&wire::Resource> {
    match stage(task.stage)? {
        Stage::Compose => task.compose_req.as_ref()?.root.as_ref(),
        Stage::Work => task.work_req.as_ref()?.resource.as_ref(),
        Stage::Rollup => task.rollup_req.as_ref()?.root.as_ref(),
        Stage::Delete => task.delete_req.as_ref()?.resource.as_ref(),
        Stage::Operate => {
            let request = task.operate_req.as_ref()?;
            request.operation.as_ref()?;
            request.resource.as_ref()
        }
        Stage::React => task.react_req.as_ref()?.resource.as_ref(),
    }
}

/// What a composer without an opinion answers: the last accepted result.
#[derive(Default)]
pub(crate) struct Accepted {
    desired: Vec<wire::ChildSpec>,
    edges: Vec<wire::DepEdge>,
    configs: Vec<wire::ProviderConfigSpec>,
}

/// The request as a provider sees it. `None` if what belongs to the stage is missing.
pub(crate) fn request(
    task: wire::StageTask,
    kind_version: KindVersion,
) -> Option<(ReactionRequest, Accepted)> {
    let stage = stage(task.stage)?;
    let mut accepted = Accepted::default();
    let begin = |from: Option<wire::Resource>| {
        let built = ReactionRequest::builder(
            stage,
            &*task.reaction,
            kind_version.clone(),
            resource(from?),
        );
        Some(built.generation(task.generation).build())
    };
    let request = match stage {
        Stage::Compose => {
            let from = task.compose_req?;
            let mut request = begin(from.root)?;
            request.observed = from.observed.into_iter().map(resource).collect();
            request.desired = from.desired.iter().cloned().map(child).collect();
            request.edges = from.edges.iter().cloned().map(edge).collect();
            request.configs = from.configs.iter().cloned().map(config).collect();
            accepted = Accepted {
                desired: from.desired,
                edges: from.edges,
                configs: from.configs,
            };
            request
        }
        Stage::Work => {
            let from = task.work_req?;
            let mut request = begin(from.resource)?;
            if !from.status.is_empty() {
                request.status = json(from.status);
            }
            request
        }
        Stage::Rollup => {
            let from = task.rollup_req?;
            let mut request = begin(from.root)?;
            request.descendants = from.descendants.into_iter().map(resource).collect();
            if !from.status.is_empty() {
                request.status = json(from.status);
            }
            request
        }
        Stage::Delete => begin(task.delete_req?.resource)?,
        Stage::Operate => {
            let from = task.operate_req?;
            let mut request = begin(from.resource)?;
            let operation = from.operation?;
            request.operation = Some(Operation {
                verb: operation.verb,
                input: json(operation.input),
                attempts: operation.attempts,
                requested_by: operation.requested_by,
            });
            request
        }
        Stage::React => {
            let from = task.react_req?;
            let mut request = begin(from.resource)?;
            request.transition = match wire::Transition::try_from(from.transition).ok()? {
                wire::Transition::Unspecified => return None,
                wire::Transition::Created => Some(Transition::Created),
                wire::Transition::Synced => Some(Transition::Synced),
                wire::Transition::Degraded => Some(Transition::Degraded),
                wire::Transition::Failed => Some(Transition::Failed),
                wire::Transition::Deleted => Some(Transition::Deleted),
            };
            request.dedup_token = (!from.dedup_token.is_empty()).then_some(from.dedup_token);
            request
        }
    };
    Some((request, accepted))
}

fn child(from: wire::ChildSpec) -> Child {
    let mut child = Child::new(
        pair(&from.kind, from.kind_version),
        from.name,
        json(from.spec).unwrap_or_else(Json::empty_object),
    );
    child.labels = from.labels;
    child
}

fn edge(from: wire::DepEdge) -> Edge {
    let reference = |from: Option<wire::ResourceRef>| {
        let from = from.unwrap_or_default();
        ResourceRef::new(from.kind, from.name)
    };
    let mut edge = Edge::new(reference(from.from), reference(from.to));
    edge.values = from
        .values
        .into_iter()
        .map(|flow| ValueFlow::new(flow.dependent_field, flow.source_field))
        .collect();
    edge
}

fn config(from: wire::ProviderConfigSpec) -> ConfigOut {
    let mut config = ConfigOut::new(
        from.name,
        pair(&from.kind, from.kind_version),
        json(from.spec).unwrap_or_else(Json::empty_object),
    );
    config.is_default = from.is_default;
    config
}

fn conditions(from: Vec<Condition>) -> Vec<wire::Condition> {
    from.into_iter()
        .map(|condition| wire::Condition {
            r#type: condition.type_,
            status: condition.status.as_str().to_owned(),
            reason: condition.reason,
            message: condition.message,
        })
        .collect()
}

fn bytes(json: Option<Json>) -> Bytes {
    json.map(Json::into_bytes).unwrap_or_default()
}

/// Which claim a result is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) token: String,
    pub(crate) epoch: i64,
    /// The stage by its number, known to us or not.
    pub(crate) stage: i32,
}

/// A failure.
pub(crate) fn failed(claim: &Claim, terminal: bool, message: &str) -> wire::StageComplete {
    let mut end = message.len().min(MAX_ERROR);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    wire::StageComplete {
        lease_token: claim.token.clone(),
        claim_epoch: claim.epoch,
        stage: claim.stage,
        error_message: message[..end].to_owned(),
        failed_stage: claim.stage,
        terminal,
        ..wire::StageComplete::default()
    }
}

/// What was not the handler's own outcome: it counts as no attempt.
pub(crate) fn interrupted(claim: &Claim, why: &str) -> wire::StageComplete {
    failed(claim, false, &format!("{INTERRUPTED}{why}"))
}

/// Whether a result says that its task failed.
pub(crate) fn is_failure(complete: &wire::StageComplete) -> bool {
    !complete.error_message.is_empty()
}

/// Whether a result says that its task was cut short.
pub(crate) fn is_interrupted(complete: &wire::StageComplete) -> bool {
    complete.error_message.starts_with(INTERRUPTED)
}

/// A failure with what its handler wants to be stored beside it.
pub(crate) fn failed_with(
    claim: &Claim,
    terminal: bool,
    message: &str,
    status: Option<Json>,
    from: Vec<Condition>,
) -> wire::StageComplete {
    let mut complete = failed(claim, terminal, message);
    complete.status = bytes(status);
    complete.conditions = conditions(from);
    within_limits(claim, complete)
}

/// A success.
pub(crate) fn succeeded(
    claim: &Claim,
    stage: Stage,
    outcome: Outcome,
    accepted: Accepted,
) -> wire::StageComplete {
    let mut complete = wire::StageComplete {
        lease_token: claim.token.clone(),
        claim_epoch: claim.epoch,
        stage: claim.stage,
        ..wire::StageComplete::default()
    };
    match stage {
        Stage::Work | Stage::Rollup | Stage::React => {
            complete.status = bytes(outcome.status);
            complete.conditions = conditions(outcome.conditions);
        }
        Stage::Compose => {
            let accepted = match outcome.children {
                None => accepted,
                Some(children) => Accepted {
                    desired: children.into_iter().map(child_out).collect(),
                    edges: outcome.edges.into_iter().map(edge_out).collect(),
                    configs: outcome.configs.into_iter().map(config_out).collect(),
                },
            };
            complete.compose = Some(wire::ComposeResult {
                desired: accepted.desired,
                edges: accepted.edges,
                configs: accepted.configs,
                status: bytes(outcome.status),
                conditions: conditions(outcome.conditions),
            });
        }
        Stage::Operate => complete.output = bytes(outcome.operation_output),
        Stage::Delete => {}
    }
    within_limits(claim, complete)
}

fn within_limits(claim: &Claim, complete: wire::StageComplete) -> wire::StageComplete {
    use prost::Message;
    let status = complete
        .compose
        .as_ref()
        .map_or(complete.status.len(), |compose| compose.status.len());
    for (what, length) in [
        ("status", status),
        ("operation output", complete.output.len()),
    ] {
        if length > MAX_STATUS {
            let message = format!(
                "the {what} has {length} bytes, more than the limit of {MAX_STATUS} (64 MiB)"
            );
            return failed(claim, true, &message);
        }
    }
    let length = complete.encoded_len();
    // Some room for the frame around it.
    if length > MAX_MESSAGE - 64 {
        let message = format!(
            "the result has {length} bytes, more than one message of {MAX_MESSAGE} (512 MiB) can carry"
        );
        return failed(claim, true, &message);
    }
    complete
}

fn child_out(from: Child) -> wire::ChildSpec {
    wire::ChildSpec {
        kind: from.kind.kind().to_owned(),
        kind_version: from.kind.version().into(),
        name: from.name,
        spec: from.spec.into_bytes(),
        labels: from.labels,
    }
}

fn edge_out(from: Edge) -> wire::DepEdge {
    let reference = |from: ResourceRef| {
        Some(wire::ResourceRef {
            kind: from.kind,
            name: from.name,
        })
    };
    wire::DepEdge {
        from: reference(from.from),
        to: reference(from.to),
        values: from
            .values
            .into_iter()
            .map(|flow| wire::ValueFlow {
                dependent_field: flow.dependent_field,
                source_field: flow.source_field,
            })
            .collect(),
    }
}

fn config_out(from: ConfigOut) -> wire::ProviderConfigSpec {
    wire::ProviderConfigSpec {
        name: from.name,
        kind: from.kind.kind().to_owned(),
        kind_version: from.kind.version().into(),
        is_default: from.is_default,
        spec: from.spec.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(stage: Stage) -> Claim {
        let number = match stage {
            Stage::Compose => 1,
            Stage::Work => 2,
            _ => 5,
        };
        Claim {
            token: "t".to_owned(),
            epoch: 3,
            stage: number,
        }
    }

    #[test]
    fn a_composer_without_an_opinion_sends_the_last_result_back() {
        let task = wire::StageTask {
            stage: 1,
            compose_req: Some(wire::ComposeRequest {
                root: Some(wire::Resource::default()),
                desired: vec![wire::ChildSpec {
                    kind: "leaf".to_owned(),
                    name: "a".to_owned(),
                    spec: Bytes::from_static(b"{ \"n\": 1.0 }"),
                    ..wire::ChildSpec::default()
                }],
                edges: vec![wire::DepEdge::default()],
                configs: vec![wire::ProviderConfigSpec::default()],
                ..wire::ComposeRequest::default()
            }),
            ..wire::StageTask::default()
        };
        let sent = task.compose_req.clone().unwrap();
        let (request, accepted) = request(task.clone(), KindVersion::new("app", 1)).unwrap();
        assert_eq!(
            request.desired[0].kind,
            KindVersion::new("leaf", 1),
            "a missing version means 1"
        );
        let complete = succeeded(
            &claim(Stage::Compose),
            Stage::Compose,
            Outcome::new(),
            accepted,
        );
        let compose = complete.compose.unwrap();
        assert_eq!(compose.desired, sent.desired);
        assert_eq!(compose.edges, sent.edges);
        assert_eq!(compose.configs, sent.configs);

        let (_, accepted) = super::request(task, KindVersion::new("app", 1)).unwrap();
        let none = Outcome::new().with_children([]);
        let complete = succeeded(&claim(Stage::Compose), Stage::Compose, none, accepted);
        assert_eq!(complete.compose, Some(wire::ComposeResult::default()));
    }

    #[test]
    fn each_stage_sends_its_own_fields_only() {
        let outcome = Outcome::new()
            .with_status(serde_json::json!(1))
            .with_condition(Condition::ready("Ok"))
            .with_operation_output(serde_json::json!(2));
        let sent = |stage| succeeded(&claim(stage), stage, outcome.clone(), Accepted::default());
        let work = sent(Stage::Work);
        assert_eq!(
            (&work.status[..], work.conditions.len(), &work.output[..]),
            (&b"1"[..], 1, &b""[..])
        );
        let operate = sent(Stage::Operate);
        assert_eq!((operate.status.len(), &operate.output[..]), (0, &b"2"[..]));
        let delete = sent(Stage::Delete);
        assert_eq!(
            (
                delete.status.len(),
                delete.conditions.len(),
                delete.output.len()
            ),
            (0, 0, 0)
        );
        let compose = sent(Stage::Compose);
        assert_eq!((compose.status.len(), compose.conditions.len()), (0, 0));
        assert_eq!(&compose.compose.unwrap().status[..], b"1");
    }

    #[test]
    fn what_is_too_large_is_a_terminal_failure_that_says_so() {
        let outcome =
            Outcome::new().with_status(Json::from_bytes_unchecked(vec![b'1'; MAX_STATUS + 1]));
        let complete = succeeded(
            &claim(Stage::Work),
            Stage::Work,
            outcome,
            Accepted::default(),
        );
        assert!(complete.terminal && complete.status.is_empty());
        assert_eq!(complete.failed_stage, 2);
        assert!(
            complete.error_message.contains("67108865 bytes"),
            "{}",
            complete.error_message
        );

        let long = "ä".repeat(MAX_ERROR);
        let message = failed(&claim(Stage::Work), false, &long).error_message;
        assert_eq!(message.len(), MAX_ERROR);
    }

    #[test]
    fn a_task_without_its_request_is_seen() {
        let mut task = wire::StageTask {
            stage: 2,
            delete_req: Some(wire::DeleteRequest::default()),
            ..wire::StageTask::default()
        };
        assert!(subject(&task).is_none());
        task.stage = 77;
        assert!(subject(&task).is_none());
        assert!(request(task, KindVersion::new("app", 1)).is_none());
    }
}
