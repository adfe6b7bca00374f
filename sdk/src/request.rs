//! What a provider is asked to do: one reaction for one resource.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::{
    Child, ConfigOut, Edge, Json, KindVersion, Stage, TaskError, Transition, Trigger, Uid,
};

/// One reaction to run. Branch on `(stage, reaction)`; an unknown pair is a terminal failure.
///
/// Tests and offline tools make one with [`ReactionRequest::builder`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReactionRequest {
    /// What kind of work it is.
    pub stage: Stage,
    /// The name of the reaction in the kind's manifest.
    pub reaction: String,
    /// What set it off.
    pub trigger: Trigger,
    /// The pair under which the task was claimed.
    pub kind_version: KindVersion,
    /// The generation of the spec this task is for.
    pub generation: i64,
    /// The resource as it was when the task was claimed.
    pub resource: Resource,
    /// The status so far.
    pub status: Option<Json>,
    /// Compose: the children as they are now.
    pub observed: Vec<Resource>,
    /// Compose: the children of the last accepted result.
    pub desired: Vec<Child>,
    /// Compose: the edges of the last accepted result.
    pub edges: Vec<Edge>,
    /// Compose: the configs of the last accepted result.
    pub configs: Vec<ConfigOut>,
    /// Rollup: everything below the resource, all levels, each with its `owner`.
    pub descendants: Vec<Resource>,
    /// Operate: what was asked for.
    pub operation: Option<Operation>,
    /// React: the transition that `resource` made.
    pub transition: Option<Transition>,
    /// React: the same for every delivery of the same transition, so that a repeat can be told.
    pub dedup_token: Option<String>,
}

/// A resource as the control plane knows it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Resource {
    /// Its identity for life.
    pub uid: Uid,
    /// Its kind.
    pub kind: String,
    /// Its name, unique within the kind.
    pub name: String,
    /// The composite that created it.
    pub owner: Option<Uid>,
    /// The topmost composite above it.
    pub root: Option<Uid>,
    /// Its spec, verbatim, with the values that have flowed in.
    pub spec: Json,
    /// Its status, verbatim.
    pub status: Option<Json>,
    /// Grows with every change of the spec.
    pub generation: i64,
    /// The generation it last converged at.
    pub synced_gen: i64,
    /// True if it is healthy at the current generation.
    pub is_ready: bool,
    /// What must be torn down before it may go.
    pub finalizers: Vec<String>,
    /// When its deletion was asked for, in milliseconds since the epoch.
    pub deletion_requested_at_ms: Option<i64>,
    /// Until when an orphan is left alone, in milliseconds since the epoch.
    pub frozen_until_ms: Option<i64>,
    /// True if a person has stopped it.
    pub quarantined: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// An operation that a person asked for.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// The verb, as the manifest declares it.
    pub verb: String,
    /// The input document.
    pub input: Option<Json>,
    /// How often it was dispatched, this time included.
    pub attempts: i32,
    /// Who asked.
    pub requested_by: String,
}

impl ReactionRequest {
    /// Starts a request from what each one has. Trigger, generation and status follow from stage and resource.
    pub fn builder(
        stage: Stage,
        reaction: impl Into<String>,
        kind_version: KindVersion,
        resource: Resource,
    ) -> ReactionRequestBuilder {
        ReactionRequestBuilder(Self {
            stage,
            reaction: reaction.into(),
            trigger: stage.trigger(),
            kind_version,
            generation: resource.generation,
            status: resource.status.clone(),
            resource,
            observed: Vec::new(),
            desired: Vec::new(),
            edges: Vec::new(),
            configs: Vec::new(),
            descendants: Vec::new(),
            operation: None,
            transition: None,
            dedup_token: None,
        })
    }

    /// Decodes the spec.
    ///
    /// # Errors
    /// Terminal, with pointer and column.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, TaskError> {
        self.resource.spec.decode_as("spec")
    }

    /// Decodes the status so far; `None` if there is none yet.
    ///
    /// # Errors
    /// Terminal, with pointer and column.
    pub fn status_as<T: DeserializeOwned>(&self) -> Result<Option<T>, TaskError> {
        self.status
            .as_ref()
            .map(|status| status.decode_as("status"))
            .transpose()
    }

    /// The error for a reaction that this provider does not know.
    pub fn unknown_reaction(&self) -> TaskError {
        TaskError::terminal(format!(
            "{} has no reaction {:?} for stage {}: compare its kind manifest with the version of this worker",
            self.kind_version, self.reaction, self.stage
        ))
    }
}

/// Builds a [`ReactionRequest`].
#[derive(Debug, Clone)]
#[must_use]
pub struct ReactionRequestBuilder(ReactionRequest);

impl ReactionRequestBuilder {
    /// Sets the generation the task is for.
    pub fn generation(mut self, generation: i64) -> Self {
        self.0.generation = generation;
        self
    }

    /// Sets the status so far.
    pub fn status(mut self, status: impl Into<Json>) -> Self {
        self.0.status = Some(status.into());
        self
    }

    /// Sets the children as they are now.
    pub fn observed(mut self, observed: impl IntoIterator<Item = Resource>) -> Self {
        self.0.observed = observed.into_iter().collect();
        self
    }

    /// Sets the last accepted children.
    pub fn desired(mut self, desired: impl IntoIterator<Item = Child>) -> Self {
        self.0.desired = desired.into_iter().collect();
        self
    }

    /// Sets the last accepted edges.
    pub fn edges(mut self, edges: impl IntoIterator<Item = Edge>) -> Self {
        self.0.edges = edges.into_iter().collect();
        self
    }

    /// Sets the last accepted configs.
    pub fn configs(mut self, configs: impl IntoIterator<Item = ConfigOut>) -> Self {
        self.0.configs = configs.into_iter().collect();
        self
    }

    /// Sets what is below the resource.
    pub fn descendants(mut self, descendants: impl IntoIterator<Item = Resource>) -> Self {
        self.0.descendants = descendants.into_iter().collect();
        self
    }

    /// Sets the operation.
    pub fn operation(mut self, operation: Operation) -> Self {
        self.0.operation = Some(operation);
        self
    }

    /// Sets the transition and the token that tells its repeats.
    pub fn transition(mut self, transition: Transition, dedup_token: impl Into<String>) -> Self {
        self.0.transition = Some(transition);
        self.0.dedup_token = Some(dedup_token.into());
        self
    }

    /// The request.
    #[must_use]
    pub fn build(self) -> ReactionRequest {
        self.0
    }
}

impl Resource {
    /// A resource at generation 1 with an empty spec and the nil uid.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            uid: Uid::default(),
            kind: kind.into(),
            name: name.into(),
            owner: None,
            root: None,
            spec: Json::empty_object(),
            status: None,
            generation: 1,
            synced_gen: 0,
            is_ready: false,
            finalizers: Vec::new(),
            deletion_requested_at_ms: None,
            frozen_until_ms: None,
            quarantined: false,
            labels: BTreeMap::new(),
        }
    }

    /// Sets the uid.
    #[must_use]
    pub fn with_uid(mut self, uid: Uid) -> Self {
        self.uid = uid;
        self
    }

    /// Sets the owner.
    #[must_use]
    pub fn with_owner(mut self, owner: Uid) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Sets the spec.
    #[must_use]
    pub fn with_spec(mut self, spec: impl Into<Json>) -> Self {
        self.spec = spec.into();
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: impl Into<Json>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Sets the generation.
    #[must_use]
    pub fn with_generation(mut self, generation: i64) -> Self {
        self.generation = generation;
        self
    }

    /// Says whether it is healthy.
    #[must_use]
    pub fn with_ready(mut self, is_ready: bool) -> Self {
        self.is_ready = is_ready;
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Decodes the status; `None` if there is none yet.
    ///
    /// # Errors
    /// Terminal, naming the resource, with pointer and column.
    pub fn status_as<T: DeserializeOwned>(&self) -> Result<Option<T>, TaskError> {
        let what = || format!("status of {}/{}", self.kind, self.name);
        self.status
            .as_ref()
            .map(|status| status.decode_as(&what()))
            .transpose()
    }
}

impl Operation {
    /// An operation at its first attempt.
    pub fn new(verb: impl Into<String>) -> Self {
        Self {
            verb: verb.into(),
            input: None,
            attempts: 1,
            requested_by: String::new(),
        }
    }

    /// Sets the input document.
    #[must_use]
    pub fn with_input(mut self, input: impl Into<Json>) -> Self {
        self.input = Some(input.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_built_request_follows_its_resource() {
        let resource = Resource::new("demo", "a")
            .with_generation(7)
            .with_spec(json!({"size": "big"}))
            .with_status(json!({"id": 1}));
        let request = ReactionRequest::builder(
            Stage::Rollup,
            "rollup",
            KindVersion::new("demo", 1),
            resource,
        )
        .build();
        assert_eq!(request.trigger, Trigger::ChildrenSettled);
        assert_eq!(request.generation, 7);
        assert_eq!(request.status, Some(Json::from(json!({"id": 1}))));
        let error = request.spec::<BTreeMap<String, u8>>().unwrap_err();
        assert!(error.is_terminal());
        assert!(
            error.message().starts_with("spec is not valid: at /size: "),
            "{error}"
        );
        assert!(error.message().contains("column 13"), "{error}");
    }
}
