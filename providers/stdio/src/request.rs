//! What the program reads: one JSON object, fields that would be empty left out, documents byte for byte as they were written.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use converge_sdk::{Bytes, Json, ReactionRequest, Resource, Stage, TaskError, Uid};
use serde::Serialize;

#[derive(Serialize)]
struct Request<'a> {
    reaction: &'a str,
    trigger: &'a str,
    kind: &'a str,
    kind_version: u16,
    name: &'a str,
    uid: String,
    generation: i64,
    spec: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    observed: Vec<Observed<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Json>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descendants: Vec<Descendant<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<Operation<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transition: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedup_token: Option<&'a str>,
}

#[derive(Serialize)]
struct Observed<'a> {
    kind: &'a str,
    name: &'a str,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Json>,
}

#[derive(Serialize)]
struct Descendant<'a> {
    kind: &'a str,
    name: &'a str,
    uid: String,
    /// The uid of what it belongs to: the composite itself for its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Json>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Operation<'a> {
    verb: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a Json>,
}

/// The request for a task. `settings` and `bundle` are those of the effective config.
///
/// # Errors
/// Terminal: a document of the resource is not JSON.
pub fn encode(
    request: &ReactionRequest,
    settings: Option<&Json>,
    bundle: Option<&Bytes>,
) -> Result<Bytes, TaskError> {
    let resource = &request.resource;
    let observed = match request.stage {
        Stage::Compose => request.observed.iter().map(observed).collect(),
        _ => Vec::new(),
    };
    let encoded = Json::of(&Request {
        reaction: &request.reaction,
        trigger: request.trigger.as_str(),
        kind: request.kind_version.kind(),
        kind_version: request.kind_version.version(),
        name: &resource.name,
        uid: resource.uid.to_string(),
        generation: request.generation,
        spec: &resource.spec,
        config: settings,
        bundle: bundle
            .filter(|bytes| !bytes.is_empty())
            .map(|bytes| STANDARD.encode(bytes)),
        observed,
        status: request.status.as_ref(),
        labels: &resource.labels,
        descendants: request.descendants.iter().map(descendant).collect(),
        operation: request.operation.as_ref().map(|operation| Operation {
            verb: &operation.verb,
            input: operation.input.as_ref(),
        }),
        transition: request.transition.map(converge_sdk::Transition::as_str),
        dedup_token: request.dedup_token.as_deref(),
    })?;
    Ok(encoded.into_bytes())
}

fn observed(resource: &Resource) -> Observed<'_> {
    Observed {
        kind: &resource.kind,
        name: &resource.name,
        ready: resource.is_ready,
        status: resource.status.as_ref(),
    }
}

fn descendant(resource: &Resource) -> Descendant<'_> {
    Descendant {
        kind: &resource.kind,
        name: &resource.name,
        uid: resource.uid.to_string(),
        owner: resource.owner.as_ref().map(Uid::to_string),
        ready: resource.is_ready,
        status: resource.status.as_ref(),
        labels: &resource.labels,
    }
}
