//! A worker whose kinds only make graphs: `fan` composes `count` leaves, `chain` composes them each waiting for the one before, and
//! `noop`, the leaf, does nothing. What is left is the cost of composing, ordering and settling.
//!
//! Driven by `cargo xtask bench`; configured like any worker (`BROKER_ADDR`, `WORKER_MAX_PARALLEL`, …).

use std::process::ExitCode;
use std::sync::Arc;

use converge_sdk::{
    Child, Edge, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
    async_trait, serve,
};
use serde_json::{Value, json};

struct Leaf;

#[async_trait]
impl Provider for Leaf {
    fn kind(&self) -> KindVersion {
        KindVersion::new("noop", 1)
    }

    async fn work(
        &self,
        _ctx: &TaskContext,
        _request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        Ok(Outcome::new())
    }
}

/// Composes `spec.count` leaves.
struct Graph {
    kind: &'static str,
    chained: bool,
}

#[async_trait]
impl Provider for Graph {
    fn kind(&self) -> KindVersion {
        KindVersion::new(self.kind, 1)
    }

    async fn work(
        &self,
        _ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        if request.stage != Stage::Compose {
            return Err(request.unknown_reaction());
        }
        let spec: Value = request.spec()?;
        let count = spec["count"].as_u64().unwrap_or_default();
        let leaf = KindVersion::new("noop", 1);
        let children: Vec<_> = (0..count)
            .map(|n| {
                Child::new(
                    leaf.clone(),
                    format!("{}-{n}", request.resource.name),
                    json!({}),
                )
            })
            .collect();
        let edges: Vec<_> = if self.chained {
            children
                .windows(2)
                .map(|pair| Edge::new(pair[1].reference(), pair[0].reference()))
                .collect()
        } else {
            Vec::new()
        };
        Ok(Outcome::new().with_children(children).with_edges(edges))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let fan = Graph {
        kind: "fan",
        chained: false,
    };
    let chain = Graph {
        kind: "chain",
        chained: true,
    };
    match serve(vec![Arc::new(Leaf), Arc::new(fan), Arc::new(chain)]).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("graph_worker: {error}");
            ExitCode::FAILURE
        }
    }
}
