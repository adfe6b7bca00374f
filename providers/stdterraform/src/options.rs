//! What a worker sets for all tasks: where data lies, what the environment is, how much is taken.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::archive::Limits;

/// Settings of the provider that are the worker's, not a config's.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Where runs, kept states, modules and plugins lie. One machine's workers may share it, two machines must not.
    pub data_dir: PathBuf,
    /// The worker's environment; programs see a part of it.
    pub environment: BTreeMap<String, String>,
    /// How long a run waits for a lock that somebody else holds. 60 s.
    pub lock_timeout: Duration,
    /// Whether `http` sources are fetched. Never outside tests on loopback: a module decides what runs here.
    pub allow_plain_http: bool,
    /// How much of a source is taken.
    pub limits: Limits,
    pub(crate) probed: Probed,
}

impl Options {
    /// With this data directory and environment, and defaults for the rest.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>, environment: BTreeMap<String, String>) -> Self {
        Self {
            data_dir: data_dir.into(),
            environment,
            lock_timeout: Duration::from_secs(60),
            allow_plain_http: false,
            limits: Limits::default(),
            probed: Probed::default(),
        }
    }

    /// From the environment of this process. The data directory is `STDTERRAFORM_DATA_DIR`, else `stdterraform` in `XDG_STATE_HOME`, else in
    /// `HOME/.local/state`, else in the directory for temporary files.
    #[must_use]
    pub fn from_env() -> Self {
        let environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let absolute = |name: &str| {
            environment
                .get(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let data_dir = absolute("STDTERRAFORM_DATA_DIR")
            .or_else(|| absolute("XDG_STATE_HOME").map(|path| path.join("stdterraform")))
            .or_else(|| absolute("HOME").map(|path| path.join(".local/state/stdterraform")))
            .unwrap_or_else(|| std::env::temp_dir().join("stdterraform"));
        Self::new(data_dir, environment)
    }
}

/// The endpoints that are known to honour conditional writes. Shared by all clones.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probed(Arc<Mutex<HashSet<String>>>);

impl Probed {
    /// Whether it was looked at.
    pub(crate) fn contains(&self, endpoint: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(endpoint)
    }

    /// Remembers it.
    pub(crate) fn insert(&self, endpoint: String) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(endpoint);
    }
}
