//! The pairs this worker serves: their providers, default configs and readiness.
//!
//! A pair takes tasks once its default config is known on the current session, by push or by pull, and while its provider
//! says that it is ready. A panic of `on_config` sheds the pair until the next config; one of `ready` counts as not ready.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::WorkerError;
use super::handler::panic_message;
use super::health::PairState;
use crate::options::RunOptions;
use crate::{KindVersion, Provider, ProviderConfig};

pub(crate) struct Pair {
    pub(crate) kind: KindVersion,
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) config: ProviderConfig,
    /// The provider has been given a config.
    primed: bool,
    /// The config is known to be current on this session.
    pub(crate) fresh: bool,
    /// Pushes seen; a pull's answer is dropped if this has moved since it was sent.
    pub(crate) pushes: u64,
    /// What the provider last said.
    pub(crate) ready: bool,
    /// `on_config` panicked on the current config.
    shed: bool,
    /// What the broker was last told on this session; tasks are expected until it is told otherwise.
    pub(crate) advertised: bool,
}

impl Pair {
    /// True if tasks may start.
    pub(crate) fn takes_tasks(&self) -> bool {
        self.fresh && self.is_ready()
    }

    /// True if the provider wants tasks.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready && !self.shed
    }

    /// How it stands, for those who ask from outside.
    pub(crate) fn state(&self) -> PairState {
        match (self.shed, self.ready, self.fresh) {
            (true, ..) => PairState::Broken,
            (false, false, _) => PairState::NotReady,
            (false, true, false) => PairState::Unprimed,
            (false, true, true) => PairState::Ready,
        }
    }

    /// Asks the provider whether it is ready.
    pub(crate) fn poll_ready(&mut self) {
        self.ready = match catch_unwind(AssertUnwindSafe(|| self.provider.ready())) {
            Ok(ready) => ready,
            Err(panic) => {
                tracing::error!(kind = %self.kind, panic = panic_message(&*panic), "ready() panicked: the pair counts as not ready");
                false
            }
        };
    }

    /// Takes what is now the default config; the provider is told only of a change.
    pub(crate) fn set_config(&mut self, config: ProviderConfig) {
        self.fresh = true;
        if self.primed && self.config == config {
            return;
        }
        self.primed = true;
        self.config = config.clone();
        match catch_unwind(AssertUnwindSafe(|| self.provider.on_config(config))) {
            Ok(()) => self.shed = false,
            Err(panic) => {
                tracing::error!(kind = %self.kind, panic = panic_message(&*panic), "on_config() panicked: the pair takes no tasks until its next config");
                self.shed = true;
            }
        }
    }
}

/// All pairs, found by name and version.
pub(crate) struct Pairs {
    pub(crate) list: Vec<Pair>,
    by_name: HashMap<String, Vec<(i32, usize)>>,
}

impl Pairs {
    /// Takes the providers that the options ask for.
    pub(crate) fn register(
        providers: Vec<Arc<dyn Provider>>,
        options: &RunOptions,
    ) -> Result<Self, WorkerError> {
        let mut list: Vec<Pair> = Vec::new();
        let mut problems = Vec::new();
        let mut names = Vec::new();
        for provider in providers {
            let kind = provider.kind();
            if let Err(error) = kind.check() {
                problems.push(error.to_string());
            }
            if names.contains(&kind) {
                problems.push(format!("{kind} is registered twice"));
            }
            names.push(kind.clone());
            let wanted = options
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.iter().any(|wanted| wanted == kind.kind()));
            if wanted {
                list.push(Pair {
                    kind,
                    provider,
                    config: ProviderConfig::default(),
                    primed: false,
                    fresh: false,
                    pushes: 0,
                    ready: true,
                    shed: false,
                    advertised: true,
                });
            }
        }
        for wanted in options.kinds.iter().flatten() {
            if !names.iter().any(|kind| kind.kind() == wanted) {
                let known: Vec<_> = names.iter().map(KindVersion::kind).collect();
                problems.push(format!(
                    "WORKER_KINDS names {wanted:?}, which is not registered here: expected some of {}",
                    known.join(", ")
                ));
            }
        }
        if list.is_empty() && problems.is_empty() {
            problems.push("there is no provider to serve".to_owned());
        }
        if !problems.is_empty() {
            return Err(WorkerError::Registration { problems });
        }
        let mut by_name: HashMap<String, Vec<(i32, usize)>> = HashMap::new();
        for (at, pair) in list.iter().enumerate() {
            by_name
                .entry(pair.kind.kind().to_owned())
                .or_default()
                .push((pair.kind.version().into(), at));
        }
        Ok(Self { list, by_name })
    }

    /// The place of a pair in the list. A missing version means 1.
    pub(crate) fn find(&self, kind: &str, version: i32) -> Option<usize> {
        let version = if version == 0 { 1 } else { version };
        self.by_name
            .get(kind)?
            .iter()
            .find(|(each, _)| *each == version)
            .map(|(_, at)| *at)
    }
}
