//! What the operator says about the program of a kind, or of one resource.

use std::time::Duration;

use converge_sdk::process::{DEFAULT_GRACE, Inherit, Seconds, Variables};
use converge_sdk::{Json, TaskContext, TaskError};
use serde::Deserialize;

use crate::COMMAND_VARIABLE;

/// The effective config.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) command: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Variables,
    pub(crate) timeout_seconds: Seconds,
    /// Handed to the program as it stands.
    pub(crate) settings: Option<Json>,
    pub(crate) inherit_env: Inherit,
    pub(crate) kill_grace_seconds: Option<Seconds>,
    pub(crate) allow_background: bool,
}

impl Config {
    /// Reads it.
    pub(crate) fn of(ctx: &TaskContext) -> Result<Self, TaskError> {
        Ok(ctx.config_if_any()?.unwrap_or_default())
    }

    /// The program to run.
    pub(crate) fn command(&self, fallback: Option<&str>) -> Result<String, TaskError> {
        match self.command.as_deref().or(fallback) {
            Some(command) if !command.trim().is_empty() => Ok(command.to_owned()),
            Some(_) => Err(TaskError::terminal(
                "config.command is blank: name the program to run there",
            )),
            None => Err(TaskError::terminal(format!(
                "no program to run: set `command` in the providerconfig of the kind, or {COMMAND_VARIABLE} for the worker"
            ))),
        }
    }

    pub(crate) fn kill_grace(&self) -> Duration {
        self.kill_grace_seconds
            .map_or(DEFAULT_GRACE, |seconds| seconds.0)
    }
}
