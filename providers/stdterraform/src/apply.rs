//! The reaction `work`: apply the module, and report what it gave.
//!
//! Must hold: what was applied is recorded as soon as work on a resource began, failed or not, because a destroy needs it; outputs are read
//! after a failed apply too; an interrupted apply says whether its state is saved. Not here: making the module ready (`session`).

use serde_json::Value;

use crate::backend::StateBackend;
use crate::failure::Failure;
use crate::messages::{Counts, cut};
use crate::recovery::{PUSH, lock_failure};
use crate::session::{Done, Origin, Session};
use crate::spec::{Spec, Vars};
use crate::state;
use crate::status::Applied;
use crate::task::Task;

/// Errors that only another spec or module can end.
const TERMINAL_ERRORS: [&str; 6] = [
    "No value for required variable",
    "Invalid value for input variable",
    "Invalid value for variable",
    "Instance cannot be destroyed",
    "Unsupported Terraform Core version",
    "Unsupported OpenTofu Core version",
];

/// Reads the spec of the resource.
pub(crate) fn read_spec(task: &Task<'_>) -> Result<Spec, Failure> {
    let spec = Spec::parse(
        task.request.resource.spec.as_bytes(),
        task.options.allow_plain_http,
    )
    .map_err(|message| Failure::terminal("SpecInvalid", message))?;
    learn_source(task, &spec);
    Ok(spec)
}

/// What of a source is secret, is secret from now on.
pub(crate) fn learn_source(task: &Task<'_>, spec: &Spec) {
    let mut secrets = crate::redact::Secrets::default();
    spec.source
        .secrets()
        .iter()
        .for_each(|secret| secrets.add(secret));
    task.learn(&secrets);
}

/// Applies the module of the spec.
pub(crate) async fn apply(task: &mut Task<'_>) -> Result<Counts, Failure> {
    let spec = read_spec(task)?;
    let backend = StateBackend::of(&task.config, task.request.kind_version.kind(), &task.uid);
    let moved_from = state::check_place(task, &backend)?;
    state::probe(task, &backend.place).await?;
    if let Some(from) = moved_from {
        state::migrate(task, &from, &backend, spec.tf_version.as_ref()).await?;
    }
    let mut session = Session::prepare(
        task,
        backend,
        Origin::Source(&spec.source),
        spec.tf_version.as_ref(),
    )
    .await?;
    let shown = session.withhold(&spec.vars);
    session.keep_tree().await?;
    session.init().await?;
    session.task.status.state = Some(session.backend.place.clone());
    session.push_errored().await?;
    session.learn_outputs().await;

    let variables = session.variables(&spec.vars)?;
    let done = session
        .run_locked(
            "apply",
            &[
                "apply",
                "-json",
                "-auto-approve",
                "-input=false",
                &variables,
            ],
        )
        .await?;
    if done.is_success() || done.summary.begun {
        session.task.status.applied = Some(Applied {
            source: spec.source.shown(),
            digest: session.digest.clone(),
            tf_version: session.binary.version.to_string(),
            vars: shown,
        });
    }
    let warnings = session.warnings(&spec.vars, &done);
    session.task.status.set_warnings(warnings);
    if session.task.may_begin("reading the outputs").is_ok()
        && let Err(failure) = session.read_outputs().await
    {
        if done.is_success() {
            return Err(failure);
        }
        tracing::warn!(
            "the outputs could not be read: {}",
            session.task.redactor().redact(&failure.message)
        );
    }
    if !done.is_success() {
        return Err(session.failure("apply", &done).await);
    }
    session.forget_dead_runs();
    session
        .task
        .home
        .release_trees(&session.task.uid, Some(&session.digest));
    Ok(done.summary.counts.unwrap_or_default())
}

impl Session<'_, '_> {
    /// Runs a command that takes the lock. A lock that a run which is over left behind on this machine is freed, once.
    pub(crate) async fn run_locked(
        &self,
        phase: &'static str,
        args: &[&str],
    ) -> Result<Done, Failure> {
        let patient = format!(
            "-lock-timeout={}s",
            self.task.options.lock_timeout.as_secs()
        );
        let parallelism = self
            .task
            .config
            .parallelism
            .filter(|_| phase != PUSH)
            .map(|count| format!("-parallelism={count}"));
        let run = |timeout: &str| {
            let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            // Options go before the last argument: the variable file has the last word.
            let last = all.len().saturating_sub(1);
            all.insert(last, timeout.to_owned());
            if let Some(parallelism) = &parallelism {
                all.insert(last, parallelism.clone());
            }
            all
        };
        if self.has_dead_runs() {
            let first = run("-lock-timeout=0s");
            let done = self
                .run(phase, &first.iter().map(String::as_str).collect::<Vec<_>>())
                .await?;
            match done.lock() {
                Some(Some(lock)) if done.stop.is_none() => {
                    self.free_dead_lock(&lock).await?;
                }
                _ => return Ok(done),
            }
        }
        let second = run(&patient);
        self.run(
            phase,
            &second.iter().map(String::as_str).collect::<Vec<_>>(),
        )
        .await
    }

    /// Reads the outputs into the status.
    pub(crate) async fn read_outputs(&mut self) -> Result<(), Failure> {
        let json = self
            .read("output", &["output", "-json", "-no-color"])
            .await?;
        let secrets = self
            .task
            .status
            .set_outputs(&json)
            .map_err(|why| Failure::transient("StateUnreadable", why))?;
        self.task.learn(&secrets);
        Ok(())
    }

    /// Learns the sensitive outputs there are already, so that a message which quotes one does not show it.
    pub(crate) async fn learn_outputs(&mut self) {
        if self.task.status.sensitive_outputs.is_empty() {
            return;
        }
        let mut scratch = crate::status::Status::default();
        match self.read("output", &["output", "-json", "-no-color"]).await {
            Ok(json) => {
                if let Ok(secrets) = scratch.set_outputs(&json) {
                    self.task.learn(&secrets);
                }
            }
            Err(failure) => tracing::debug!("{}", self.task.redactor().redact(&failure.message)),
        }
    }

    /// What a person should look at although the run succeeded.
    fn warnings(&self, vars: &Vars, done: &Done) -> Vec<String> {
        let undeclared = vars
            .keys()
            .filter(|name| self.declared.lacks(name))
            .map(|name| {
                format!("the variable {name:?} is set, but the module declares no such variable")
            });
        let others = done
            .summary
            .warnings
            .iter()
            .filter(|warning| !warning.summary.contains("for undeclared variable"));
        let warnings: Vec<_> = undeclared
            .chain(others.map(|warning| cut(&warning.one_line(), 500)))
            .collect();
        for warning in &warnings {
            tracing::warn!("{}", self.task.redactor().redact(warning));
        }
        warnings
    }

    /// Why a command that changes resources failed.
    pub(crate) async fn failure(&self, phase: &'static str, done: &Done) -> Failure {
        if let Some(stop) = done.stop {
            let kept = self.task.home.kept(&self.task.uid);
            let state = if kept.exists() {
                format!(
                    "its state could not be saved and is kept in {} on this worker",
                    kept.display()
                )
            } else if done.killed {
                format!(
                    "it did not end within {} s and was killed: up to 20 s of what it made may be missing from the state, and its lock may be left",
                    self.task.config.kill_grace.as_secs()
                )
            } else {
                "its state is saved and its lock released".to_owned()
            };
            return Failure::transient(
                "Interrupted",
                format!("{phase} was interrupted by {stop}; {state}"),
            );
        }
        if let Some(lock) = done.lock() {
            return lock_failure(lock.as_ref(), &self.backend);
        }
        let mut message = format!("{phase} failed: {}", done.errors());
        let says = |part: &str| {
            done.summary
                .errors
                .iter()
                .any(|error| error.summary.contains(part))
        };
        if says("Instance cannot be destroyed") {
            message.push_str(
                "; a resource has lifecycle.prevent_destroy: take it out of the module and apply that first, or abandon the resource",
            );
        }
        let kept = self.task.home.kept(&self.task.uid);
        if kept.exists() {
            message.push_str(&format!("; the state could not be saved, is kept in {} on this worker and pushed first next time", kept.display()));
            return Failure::transient("StateUnsaved", message);
        }
        if TERMINAL_ERRORS.iter().any(|part| says(part))
            || (!done.summary.begun && self.is_invalid().await)
        {
            Failure::terminal("ModuleInvalid", message)
        } else {
            Failure::transient("RunFailed", message)
        }
    }

    /// Whether the module is wrong whatever the world is like.
    async fn is_invalid(&self) -> bool {
        let helper = self.helper(&["validate", "-json", "-no-color"]);
        let Ok(ran) = self.task.run(helper).await else {
            return false;
        };
        let verdict: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        // A plugin that does not start says nothing about the module.
        let diagnostics = verdict.get("diagnostics").and_then(Value::as_array);
        let about_plugins = diagnostics.into_iter().flatten().any(|diagnostic| {
            let summary = diagnostic.get("summary").and_then(Value::as_str);
            summary.is_some_and(|summary| summary.contains("plugin"))
        });
        verdict.get("valid") == Some(&Value::Bool(false)) && !about_plugins
    }
}
