//! The routes, one file per resource.

pub(crate) mod cluster;
pub(crate) mod events;
pub(crate) mod graph;
pub(crate) mod kinds;
pub(crate) mod manifests;
pub(crate) mod meta;
pub(crate) mod metrics;
pub(crate) mod providerconfigs;
pub(crate) mod resources;
pub(crate) mod steering;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use converge_engine::command::{Command, Reply};
use converge_engine::store::{StoreError, TransactError};

use crate::Api;
use crate::problem::Problem;

/// What a handler gives.
pub(crate) type Answer = Result<Response, Problem>;

pub(crate) fn all() -> Router<Arc<Api>> {
    Router::new()
        .merge(cluster::router())
        .merge(events::router())
        .merge(graph::router())
        .merge(kinds::router())
        .merge(manifests::router())
        .merge(providerconfigs::router())
        .merge(resources::router())
        .merge(steering::router())
}

impl Api {
    /// Carries one command out.
    pub(crate) async fn command(&self, command: Command) -> Result<Reply, Problem> {
        let answer = self.store.transact(vec![command]).await.pop();
        let answer = answer.unwrap_or_else(|| {
            Err(TransactError::Store(StoreError::Unwritable(
                "the store gave no answer".to_owned(),
            )))
        });
        Ok(answer?)
    }

    /// Carries out a command after which a row is gone.
    pub(crate) async fn removed(&self, command: Command) -> Answer {
        match self.command(command).await? {
            Reply::Deleted => Ok(StatusCode::NO_CONTENT.into_response()),
            other => Err(unexpected(&other)),
        }
    }
}

/// A reply that answers another command: a defect of ours, said as such.
pub(crate) fn unexpected(reply: &Reply) -> Problem {
    let name = format!("{reply:?}");
    let name: String = name
        .chars()
        .take_while(|letter| letter.is_alphanumeric())
        .collect();
    Problem::internal(format!(
        "the engine answered {name}, which this request did not ask for"
    ))
}
