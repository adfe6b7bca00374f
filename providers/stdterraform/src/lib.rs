//! The kind `stdterraform`: a real Terraform or OpenTofu module as one resource.
//!
//! The spec names a module and its variables; applying the resource applies the module, deleting it destroys what was made. The state lies
//! where the kind's config says, under a key made of the resource's uid, and is never moved, lost or left locked by this crate: runs
//! are interrupted and waited for, a state that cannot be saved is kept and pushed first the next time, and a run whose backend is not
//! ours does not start. Sensitive values leave this crate nowhere but in the variable file of a run.
//!
//! Read `README.md` for specs and configs. The code, from the outside in: this file maps reactions to `apply`, `destroy` and `drift`;
//! they open a `session` (a module made ready); a session is made from a `source` that was fetched, a `binary` that was resolved and a
//! `backend` that was rendered; everything that runs does so through `task`.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! converge_sdk::serve(vec![Arc::new(stdterraform::StdTerraform::from_env())]).await?;
//! # Ok(())
//! # }
//! ```

mod apply;
mod archive;
mod backend;
mod binary;
mod config;
mod destroy;
mod document;
mod drift;
mod environment;
mod failure;
mod fetch;
mod follow;
mod hcl_scan;
mod home;
mod messages;
mod options;
mod place;
mod recovery;
mod redact;
mod session;
mod source;
mod spec;
mod state;
mod status;
mod task;
mod version;

use std::sync::Once;
use std::time::Duration;

use async_trait::async_trait;
use converge_sdk::{
    Condition, Json, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
};

pub use crate::archive::Limits;
use crate::config::Config;
use crate::drift::Found;
use crate::failure::Failure;
use crate::home::Home;
use crate::messages::cut;
pub use crate::options::Options;
use crate::task::Task;

/// The kind it serves.
pub const KIND: &str = "stdterraform";
/// Longest message that is reported.
const LONGEST_MESSAGE: usize = 8 * 1024;

/// Serves `stdterraform` version 1.
#[derive(Debug)]
pub struct StdTerraform {
    options: Options,
    swept: Once,
}

impl StdTerraform {
    /// With the worker's environment, see [`Options::from_env`].
    #[must_use]
    pub fn from_env() -> Self {
        Self::new(Options::from_env())
    }

    /// With these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            swept: Once::new(),
        }
    }

    /// Reads the config and opens the data directory.
    fn task<'t>(
        &'t self,
        ctx: &'t TaskContext,
        request: &'t ReactionRequest,
    ) -> Result<Task<'t>, TaskError> {
        let spec = ctx.effective_config_if_any()?;
        let bundle = ctx.bundle_if_any();
        let raw = match (spec, bundle) {
            (Some(spec), _) => spec.as_bytes(),
            (None, Some(_)) => b"{}",
            (None, None) => {
                return Err(TaskError::transient(
                    "there is no providerconfig for stdterraform yet: apply one that says where states are kept",
                ));
            }
        };
        let states = Home::states(&self.options.data_dir);
        let config = Config::parse(raw, bundle.map(|bundle| &bundle[..]), &states)
            .map_err(TaskError::terminal)?;
        let home = Home::open(&self.options.data_dir)
            .map_err(|failure| TaskError::transient(failure.message))?;
        self.swept.call_once(|| home.sweep());
        Ok(Task::new(ctx, request, &self.options, config, home))
    }
}

#[async_trait]
impl Provider for StdTerraform {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        let reaction = match (request.stage, request.reaction.as_str()) {
            (Stage::Work, "work") => Reaction::Apply,
            (Stage::Work, "drift") => Reaction::Drift,
            (Stage::Delete, "teardown") => Reaction::Destroy,
            _ => return Err(request.unknown_reaction()),
        };
        let mut task = self.task(ctx, &request)?;
        let result = match reaction {
            Reaction::Apply => apply::apply(&mut task)
                .await
                .map(|counts| Some(Condition::ready("Applied").with_message(counts.to_string()))),
            Reaction::Drift => drift::drift(&mut task)
                .await
                .map(|found| Some(found_condition(found))),
            Reaction::Destroy => destroy::destroy(&mut task).await.map(|()| None),
        };
        report(&task, reaction, result)
    }

    fn ready(&self) -> bool {
        converge_sdk::process::ready()
    }

    fn cleanup_grace(&self) -> Duration {
        config::KILL_GRACE + Duration::from_secs(10)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaction {
    Apply,
    Drift,
    Destroy,
}

fn found_condition(found: Found) -> Condition {
    match found {
        Found::InStep => Condition::ready("Applied").with_message("no drift"),
        Found::Drifted(addresses) => Condition::not_ready("Drifted").with_message(addresses),
        Found::Applied(counts) => Condition::ready("Applied").with_message(counts.to_string()),
    }
}

/// The one place where something leaves: secrets are taken out here, whatever happened before.
fn report(
    task: &Task<'_>,
    reaction: Reaction,
    result: Result<Option<Condition>, Failure>,
) -> Result<Outcome, TaskError> {
    let redactor = task.redactor();
    let clean = |text: &str| cut(&redactor.redact(text), LONGEST_MESSAGE);
    let status = || Json::from_bytes_unchecked(task.status.to_json(&redactor));
    match result {
        Ok(condition) => {
            let mut outcome = Outcome::new();
            if reaction != Reaction::Destroy {
                outcome = outcome.with_status(status());
            }
            if let Some(mut condition) = condition {
                condition.message = clean(&condition.message);
                outcome = outcome.with_condition(condition);
            }
            Ok(outcome)
        }
        Err(Failure {
            terminal,
            reason,
            message,
        }) => {
            let message = clean(&message);
            let mut error = if terminal {
                TaskError::terminal(message.clone())
            } else {
                TaskError::transient(message.clone())
            };
            // Only a status that says where a state is says more than what is stored already.
            if reaction != Reaction::Destroy && task.status.state.is_some() {
                error = error.with_status(status());
            }
            if reaction == Reaction::Apply {
                error = error.with_conditions([Condition::not_ready(reason).with_message(message)]);
            }
            Err(error)
        }
    }
}
