//! One file per verb: its options, its help, what it does.

pub(crate) mod apply;
pub(crate) mod bundle;
pub(crate) mod cluster;
pub(crate) mod completion;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod events;
pub(crate) mod get;
pub(crate) mod graph;
pub(crate) mod list;
pub(crate) mod ops;
pub(crate) mod quarantine;
pub(crate) mod reconcile;
pub(crate) mod rollback;
pub(crate) mod sync;
pub(crate) mod wait;

use converge_client::Client;
use converge_client::types::{Json, List};
use serde::de::DeserializeOwned;

use crate::exit::{self, Failure, Result};

/// The newest version of a kind, when a command names none.
async fn newest_version(client: &Client, kind: &str) -> Result<i64> {
    let kinds = client.kinds().await?;
    kinds
        .items
        .iter()
        .filter(|item| item.kind == kind)
        .map(|item| item.kind_version)
        .max()
        .ok_or_else(|| Failure::new(exit::NOT_FOUND, format!("there is no kind {kind}")))
}

/// The items of a list as what they are.
fn items<T: DeserializeOwned>(client: &Client, list: &List<Json>) -> Result<Vec<T>> {
    list.items
        .iter()
        .map(|item| client.decode(item.get().as_bytes()).map_err(Failure::from))
        .collect()
}

/// A key that makes one command's request the same request however often it is sent.
fn idempotency_key() -> String {
    uuid::Uuid::new_v4().to_string()
}
