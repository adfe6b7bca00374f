//! What a resource is made of and what it needs: children, dependencies, graph.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use converge_api_types as api;
use converge_engine::model::Edge;
use converge_engine::store::{ResourceFilter, ResourceView};
use converge_types::ids::{Kind, ResourceName, Uid};
use converge_types::limits;
use converge_types::phase::Phase;

use super::Answer;
use super::resources::Wanted;
use crate::Api;
use crate::answer::{self, json, raw, unsigned};
use crate::check::{PathArgs, QueryArgs};
use crate::problem::Problem;

/// A root and everything the engine lets be below it.
const GRAPH_NODES: u32 = limits::RESOURCES_PER_ROOT as u32 + 1;
/// From here on, the other ends of edges are read as a list of siblings instead of one by one.
const MANY_EDGES: usize = 16;

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/resources/{kind}/{name}/children", get(children))
        .route("/resources/{kind}/{name}/dependencies", get(dependencies))
        .route("/resources/{kind}/{name}/graph", get(graph))
}

/// What the resource composed.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}/children", tag = "graph",
    params(("kind" = String, Path), ("name" = String, Path), ("view" = Option<String>, Query), ("limit" = Option<u32>, Query, minimum = 1, maximum = 500), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "one page", body = api::List<api::Resource>), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn children(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
) -> Answer {
    let (kind, name) = path.resource()?;
    let mut wanted = Wanted::read(&query, &["view", "limit", "cursor"], &[])?;
    let view = api.existing(&kind, &name).await?;
    wanted.filter.owner = Some(view.row.uid);
    api.resources(wanted).await
}

/// What the resource needs, and what needs it.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}/dependencies", tag = "graph", params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "both directions", body = api::Dependencies), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn dependencies(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
) -> Answer {
    let (kind, name) = path.resource()?;
    query.none()?;
    let revision = api.store.revision().await?;
    let view = api.existing(&kind, &name).await?;
    let (from, to) = api.store.edge_list(view.row.uid).await?;
    let ends = api.ends(view.row.uid, &from, &to).await?;
    let of = |edges: &[Arc<Edge>], other: fn(&Edge) -> Uid| {
        let found = edges
            .iter()
            .filter_map(|edge| Some((edge, ends.get(&other(edge))?)));
        found
            .map(|(edge, end)| dependency(edge, end))
            .collect::<Result<Vec<_>, _>>()
    };
    let answer = api::Dependencies {
        items: of(&from, |edge| edge.to)?,
        dependents: of(&to, |edge| edge.from)?,
        revision: unsigned(revision),
    };
    Ok(json(StatusCode::OK, &answer))
}

/// The resource, everything below it, and the edges between them.
#[utoipa::path(get, path = "/api/v1/resources/{kind}/{name}/graph", tag = "graph", params(("kind" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "the graph, from one snapshot", body = api::Graph), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn graph(State(api): State<Arc<Api>>, path: PathArgs, query: QueryArgs) -> Answer {
    let (kind, name) = path.resource()?;
    query.none()?;
    let top = api.existing(&kind, &name).await?;
    let (nodes, edges) = api.store.graph_get(top.row.uid, GRAPH_NODES).await?;
    if nodes.is_empty() {
        return Err(api.gone(&kind, &name).await);
    }
    Ok(json(StatusCode::OK, &drawn(top.row.uid, &nodes, &edges)))
}

type End = (Kind, ResourceName, Phase);

impl Api {
    /// What is at the other ends of the edges of `uid`.
    async fn ends(
        &self,
        uid: Uid,
        from: &[Arc<Edge>],
        to: &[Arc<Edge>],
    ) -> Result<HashMap<Uid, End>, Problem> {
        let mut ends = HashMap::new();
        let mut add = |view: &ResourceView| {
            let row = &view.row;
            ends.insert(
                row.uid,
                (row.kv.kind.clone(), row.name.clone(), row.derived.phase),
            );
        };
        if from.len() + to.len() >= MANY_EDGES {
            // Both ends of an edge are children of the same composite.
            let owner = from.iter().chain(to).next().map(|edge| edge.owner);
            let filter = ResourceFilter {
                owner,
                ..ResourceFilter::default()
            };
            let mut cursor = None;
            loop {
                let page = self
                    .store
                    .resource_list(&filter, cursor.as_deref(), api::MAX_PAGE, false)
                    .await?;
                page.items.iter().for_each(&mut add);
                match page.next {
                    Some(next) => cursor = Some(next),
                    None => return Ok(ends),
                }
            }
        }
        for edge in from.iter().chain(to) {
            let other = if edge.from == uid { edge.to } else { edge.from };
            if let Some(view) = self.store.resource_get_by_uid(other).await? {
                add(&view);
            }
        }
        Ok(ends)
    }
}

fn dependency(edge: &Edge, (kind, name, phase): &End) -> Result<api::Dependency, Problem> {
    let values = edge.flows.iter().map(|flow| {
        Ok(api::DependencyFlow {
            dependent_field: flow.dependent.to_string(),
            source_field: flow.source.to_string(),
            delivered: flow.value.is_some(),
            value: flow.value.as_ref().map(raw).transpose()?,
        })
    });
    Ok(api::Dependency {
        kind: kind.to_string(),
        name: name.to_string(),
        phase: answer::phase(*phase),
        values: values.collect::<Result<_, Problem>>()?,
    })
}

/// Owners before what they own, siblings by kind and name, whatever order the store read them in.
fn drawn(top: Uid, nodes: &[ResourceView], edges: &[Arc<Edge>]) -> api::Graph {
    let by_uid: HashMap<Uid, &ResourceView> =
        nodes.iter().map(|node| (node.row.uid, node)).collect();
    let mut children: HashMap<Uid, BTreeMap<(&Kind, &ResourceName), Uid>> = HashMap::new();
    for node in nodes.iter().filter(|node| node.row.uid != top) {
        if let Some(owner) = node.row.owner {
            let place = (&node.row.kv.kind, &node.row.name);
            children
                .entry(owner)
                .or_default()
                .insert(place, node.row.uid);
        }
    }
    let mut order = vec![top];
    let mut at = 0;
    while let Some(uid) = order.get(at) {
        if let Some(below) = children.remove(uid) {
            order.extend(below.values());
        }
        at += 1;
    }
    let place: HashMap<Uid, usize> = order
        .iter()
        .enumerate()
        .map(|(at, uid)| (*uid, at))
        .collect();
    let reference = |uid: Uid| {
        let row = &by_uid.get(&uid)?.row;
        Some(api::ObjectRef::new(row.kv.kind.as_str(), row.name.as_str()))
    };
    let mut edges: Vec<_> = edges
        .iter()
        .filter_map(|edge| Some((place.get(&edge.from)?, place.get(&edge.to)?, edge)))
        .collect();
    edges.sort_by_key(|(from, to, _)| (**from, **to));
    api::Graph {
        nodes: order
            .iter()
            .filter_map(|uid| by_uid.get(uid))
            .map(|node| api::GraphNode {
                kind: node.row.kv.kind.to_string(),
                name: node.row.name.to_string(),
                phase: answer::phase(node.row.derived.phase),
                owner: node.row.owner.and_then(reference),
            })
            .collect(),
        edges: edges
            .into_iter()
            .filter_map(|(_, _, edge)| {
                let values = edge.flows.iter().map(|flow| api::ValueFlow {
                    dependent_field: flow.dependent.to_string(),
                    source_field: flow.source.to_string(),
                });
                Some(api::GraphEdge {
                    from: reference(edge.from)?,
                    to: reference(edge.to)?,
                    values: values.collect(),
                })
            })
            .collect(),
    }
}
