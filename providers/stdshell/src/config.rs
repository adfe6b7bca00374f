//! What the operator says about all scripts, or about those of one resource. Having no config at all is fine.

use converge_sdk::process::{DEFAULT_GRACE, Inherit, Seconds, Variables};
use converge_sdk::{TaskContext, TaskError};
use serde::Deserialize;

/// The effective config.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) default_interpreter: Option<String>,
    pub(crate) default_args: Vec<String>,
    pub(crate) env: Variables,
    pub(crate) default_timeout_seconds: Seconds,
    pub(crate) normalize_newlines: Option<bool>,
    pub(crate) inherit_env: Inherit,
    pub(crate) kill_grace_seconds: Option<Seconds>,
    pub(crate) allow_background: bool,
}

impl Config {
    /// Reads it.
    pub(crate) fn of(ctx: &TaskContext) -> Result<Self, TaskError> {
        Ok(ctx.config_if_any()?.unwrap_or_default())
    }

    pub(crate) fn kill_grace(&self) -> std::time::Duration {
        self.kill_grace_seconds
            .map_or(DEFAULT_GRACE, |seconds| seconds.0)
    }
}
