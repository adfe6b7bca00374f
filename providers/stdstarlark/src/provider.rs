//! The provider: one bundle, one spec, one config per task.

use std::sync::{Arc, Mutex, PoisonError};

use converge_sdk::{
    Bytes, Json, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
    async_trait,
};

use crate::bundle::Bundle;
use crate::engine::Engine;
use crate::protocol::Meta;

/// Bundles that stay unpacked: the default and a few overrides. Each is bounded by `limits::UNPACKED_BYTES`.
const KEPT_BUNDLES: usize = 4;

/// Serves the kind `stdstarlark`, version 1.
#[derive(Debug)]
pub struct StarlarkProvider {
    kind: KindVersion,
    engine: Engine,
    /// The most recently used last.
    bundles: Mutex<Vec<(Bytes, Arc<Bundle>)>>,
}

impl StarlarkProvider {
    /// A provider that evaluates with this engine.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        Self {
            kind: KindVersion::new(crate::KIND, 1),
            engine,
            bundles: Mutex::default(),
        }
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    async fn compose(
        &self,
        ctx: &TaskContext,
        request: &ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        let bundle = self.unpacked(ctx.bundle()?).await?;
        let config = ctx
            .effective_config_if_any()?
            .cloned()
            .unwrap_or_else(Json::empty_object);
        let meta = Meta {
            name: request.resource.name.clone(),
            kind: request.resource.kind.clone(),
            uid: request.resource.uid.to_string(),
            labels: request.resource.labels.clone(),
        };
        self.engine
            .compose(&bundle, &request.resource.spec, &config, &meta)
            .await
    }

    async fn unpacked(&self, bytes: &Bytes) -> Result<Arc<Bundle>, TaskError> {
        if let Some(known) = self.known(bytes) {
            return Ok(known);
        }
        let zip = bytes.clone();
        // Inflating a few megabytes takes longer than a handler may hold its thread.
        let bundle = tokio::task::spawn_blocking(move || Bundle::from_zip(&zip))
            .await?
            .map_err(TaskError::terminal_from)?;
        let bundle = Arc::new(bundle);
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        if bundles.len() >= KEPT_BUNDLES {
            bundles.remove(0);
        }
        bundles.push((bytes.clone(), Arc::clone(&bundle)));
        Ok(bundle)
    }

    fn known(&self, bytes: &Bytes) -> Option<Arc<Bundle>> {
        let mut bundles = self.bundles.lock().unwrap_or_else(PoisonError::into_inner);
        let index = bundles.iter().rposition(|(known, _)| known == bytes)?;
        let entry = bundles.remove(index);
        let bundle = Arc::clone(&entry.1);
        bundles.push(entry);
        Some(bundle)
    }
}

#[async_trait]
impl Provider for StarlarkProvider {
    fn kind(&self) -> KindVersion {
        self.kind.clone()
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        match (request.stage, request.reaction.as_str()) {
            (Stage::Compose, "compose") => tokio::select! {
                outcome = self.compose(ctx, &request) => outcome,
                // Dropping the run kills its child; there is nothing else to clean up.
                _ = ctx.cancelled() => Err(TaskError::transient("the run was cancelled")),
            },
            _ => Err(request.unknown_reaction()),
        }
    }
}
