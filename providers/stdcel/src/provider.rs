//! The provider: tasks in, outcomes out. What a graph means is in the other modules.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use converge_sdk::{
    Child, Condition, ConditionStatus, Edge, Json, KindVersion, Outcome, Provider, ReactionRequest,
    ResourceRef, Stage, TaskContext, TaskError,
};

use crate::problem::summary;
use crate::{Composition, Graph, Instance, Observed, Problem};

/// The name of the kind.
pub const KIND: &str = "stdcel";

/// Graphs kept parsed, and the bytes of config that they may come from in all.
const CACHED_GRAPHS: usize = 16;
const CACHED_BYTES: usize = 64 << 20;
/// Longest failure message: what the control plane stores.
const MESSAGE_BYTES: usize = 7 * 1024;

/// Serves `stdcel`: one graph per config, one composition per instance.
#[derive(Debug, Default)]
pub struct Stdcel {
    graphs: Arc<Graphs>,
}

impl Stdcel {
    /// A provider with nothing cached.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// Parsed graphs, the most recently used last.
#[derive(Debug, Default)]
struct Graphs(Mutex<Vec<(Json, Arc<Graph>)>>);

impl Graphs {
    /// The parsed graph of a config.
    fn of(&self, config: &Json) -> Arc<Graph> {
        let mut graphs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(known, _): &(Json, Arc<Graph>)| known.as_bytes() == config.as_bytes();
        if let Some(at) = graphs.iter().position(same) {
            let entry = graphs.remove(at);
            let graph = Arc::clone(&entry.1);
            graphs.push(entry);
            return graph;
        }
        // Parsed under the lock: many tasks start at once after an edit, and one of them is enough to do it.
        let graph = Arc::new(Graph::parse(config.as_bytes()));
        graphs.push((config.clone(), Arc::clone(&graph)));
        let bytes = |graphs: &[(Json, Arc<Graph>)]| {
            graphs.iter().map(|(config, _)| config.len()).sum::<usize>()
        };
        while graphs.len() > CACHED_GRAPHS || (graphs.len() > 1 && bytes(&graphs) > CACHED_BYTES) {
            graphs.remove(0);
        }
        graph
    }
}

/// The graph's JSON: an override with `resources` is a graph of its own, any other is merged into the default.
fn graph_config(ctx: &TaskContext) -> Result<Json, TaskError> {
    let own = ctx.override_config().spec.as_ref();
    let config = match own.filter(|own| has_resources(own)) {
        Some(own) => own,
        None => ctx.effective_config()?,
    };
    if is_empty_object(config) {
        return Err(TaskError::transient(
            "stdcel has no graph yet: apply a providerconfig with `resources`",
        ));
    }
    Ok(config.clone())
}

fn has_resources(config: &Json) -> bool {
    crate::json::Doc::parse(config.as_bytes()).is_ok_and(|doc| doc.get("resources").is_some())
}

fn is_empty_object(config: &Json) -> bool {
    config
        .as_bytes()
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .eq(b"{}")
}

#[async_trait]
impl Provider for Stdcel {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        let run: fn(&Graph, &ReactionRequest) -> Result<Outcome, TaskError> =
            match (request.stage, request.reaction.as_str()) {
                (Stage::Compose, "compose") => compose,
                (Stage::Rollup, "rollup") => rollup,
                _ => return Err(request.unknown_reaction()),
            };
        let (graphs, ctx) = (Arc::clone(&self.graphs), ctx.clone());
        // Reading a graph is bounded as evaluating it is; both stay off the threads that serve everything else.
        let work = move || {
            let config = graph_config(&ctx)?;
            run(&graphs.of(&config), &request)
        };
        let done = tokio::task::spawn_blocking(work).await;
        done.unwrap_or_else(|error| {
            Err(TaskError::terminal(format!("the composer failed: {error}")))
        })
    }
}

fn instance<'r>(request: &'r ReactionRequest, uid: &'r str) -> Instance<'r> {
    Instance {
        spec: request.resource.spec.as_bytes(),
        name: &request.resource.name,
        labels: request.resource.labels.clone(),
        uid,
    }
}

fn compose(graph: &Graph, request: &ReactionRequest) -> Result<Outcome, TaskError> {
    let uid = request.resource.uid.to_string();
    let composition = graph
        .compose(&instance(request, &uid))
        .map_err(|problems| terminal(&problems))?;
    Ok(outcome(composition))
}

/// A composition as the SDK's outcome.
#[must_use]
pub fn outcome(composition: Composition) -> Outcome {
    let end = |at: usize| {
        let child = &composition.children[at];
        ResourceRef::new(child.kind.as_str(), child.name.as_str())
    };
    let edge = |edge: &crate::Edge| {
        let values = edge.values.iter();
        values.fold(
            Edge::new(end(edge.from), end(edge.to)),
            |out, (dependent, source)| out.with_value(dependent.as_str(), source.as_str()),
        )
    };
    let edges: Vec<Edge> = composition.edges.iter().map(edge).collect();
    let child = |child: crate::Child| {
        // 1 to 32767, checked when the graph was read.
        let version = u16::try_from(child.kind_version).unwrap_or(1);
        let spec = Json::from_bytes_unchecked(child.spec.into_bytes());
        let mut out = Child::new(KindVersion::new(&child.kind, version), child.name, spec);
        out.labels = child.labels;
        out
    };
    Outcome::new()
        .with_children(
            composition
                .children
                .into_iter()
                .map(child)
                .collect::<Vec<_>>(),
        )
        .with_edges(edges)
}

fn rollup(graph: &Graph, request: &ReactionRequest) -> Result<Outcome, TaskError> {
    let own = |child: &&converge_sdk::Resource| {
        child.owner == Some(request.resource.uid) && child.labels.contains_key("graph_id")
    };
    let observed: Vec<Observed<'_>> = request
        .descendants
        .iter()
        .filter(own)
        .map(|child| Observed {
            kind: &child.kind,
            name: &child.name,
            spec: child.spec.as_bytes(),
            status: child.status.as_ref().map(Json::as_bytes),
        })
        .collect();
    let uid = request.resource.uid.to_string();
    let rollup = graph
        .rollup(&instance(request, &uid), &observed)
        .map_err(|problems| terminal(&problems))?;
    let ready = if rollup.unready.is_empty() {
        Condition::ready("GraphReady")
    } else {
        Condition::not_ready("WaitingForResources").with_message(clip(rollup.unready.join("\n")))
    };
    let mut outcome = Outcome::new()
        .with_status(Json::from_bytes_unchecked(rollup.status.into_bytes()))
        .with_condition(ready);
    if !rollup.problems.is_empty() {
        let condition = Condition::new("StatusEvaluated", ConditionStatus::False)
            .with_reason("ExpressionFailed");
        outcome = outcome.with_condition(condition.with_message(clip(summary(&rollup.problems))));
    }
    Ok(outcome)
}

fn terminal(problems: &[Problem]) -> TaskError {
    TaskError::terminal(clip(summary(problems)))
}

/// Cuts a message on a character.
fn clip(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES)
            .rev()
            .find(|at| message.is_char_boundary(*at))
            .unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}
