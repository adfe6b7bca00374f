//! The reaction `teardown`: destroy what was applied, and leave no trace of an empty state.
//!
//! Must hold: success means that the state held no resource when it was last looked at. A destroy runs what was applied, with the variables
//! that were applied; the sensitive ones, which no status records, come from the spec it is dispatched with. Nothing was ever made → success
//! without the source being there.

use crate::apply::{learn_source, read_spec};
use crate::backend::StateBackend;
use crate::failure::Failure;
use crate::fetch;
use crate::session::{Origin, Session};
use crate::source::Source;
use crate::spec::Spec;
use crate::state;
use crate::status::Applied;
use crate::task::Task;
use crate::version::Wanted;

/// Destroys what the resource made.
pub(crate) async fn destroy(task: &mut Task<'_>) -> Result<(), Failure> {
    let spec = read_spec(task);
    let backend = StateBackend::of(&task.config, task.request.kind_version.kind(), &task.uid);
    let backend = match state::check_place(task, &backend)? {
        None => backend,
        // A copy would only be destroyed too.
        Some(recorded) => StateBackend::recorded(&recorded)
            .map_err(|why| Failure::terminal("StateWouldMove", why))?,
    };
    state::probe(task, &backend.place).await?;
    let wanted = spec.as_ref().ok().and_then(|spec| spec.tf_version.clone());
    let applied = task.status.applied.clone();

    if applied.is_none() && is_empty(task, &backend, wanted.as_ref()).await? {
        return finish(task, &backend).await;
    }
    let source = match (&applied, &spec) {
        (None, Ok(spec)) => spec.source.clone(),
        (None, Err(failure)) => return Err(failure.clone()),
        (Some(applied), spec) => applied_source(task, applied, spec.as_ref().ok())?,
    };
    let digest = applied
        .as_ref()
        .map(|applied| applied.digest.as_str())
        .unwrap_or_default();
    let origin = Origin::Applied {
        source: &source,
        digest,
    };
    let mut session = match Session::prepare(task, backend.clone(), origin, wanted.as_ref()).await {
        Ok(session) => session,
        Err(failure) if failure.reason == fetch::GONE => {
            return if is_empty(task, &backend, wanted.as_ref()).await? {
                finish(task, &backend).await
            } else {
                Err(failure)
            };
        }
        Err(failure) => return Err(failure),
    };

    let spec_vars = spec
        .as_ref()
        .map(|spec| spec.vars.clone())
        .unwrap_or_default();
    let shown = session.withhold(&spec_vars);
    let vars = match &applied {
        None => spec_vars,
        Some(applied) => {
            let withheld = spec_vars
                .into_iter()
                .filter(|(name, _)| !shown.contains_key(name));
            let mut vars = applied.vars.clone();
            vars.extend(withheld);
            vars
        }
    };
    session.init().await?;
    session.push_errored().await?;
    session.learn_outputs().await;
    if session.facts().await?.managed > 0 {
        let variables = session.variables(&vars)?;
        let done = session
            .run_locked(
                "destroy",
                &[
                    "destroy",
                    "-json",
                    "-auto-approve",
                    "-input=false",
                    &variables,
                ],
            )
            .await?;
        if !done.is_success() {
            return Err(session.failure("destroy", &done).await);
        }
        let left = session.facts().await?.managed;
        if left > 0 {
            return Err(Failure::transient(
                "RunFailed",
                format!("destroy succeeded, but the state still holds {left} resources"),
            ));
        }
    }
    session.forget_dead_runs();
    drop(session);
    finish(task, &backend).await
}

async fn finish(task: &Task<'_>, backend: &StateBackend) -> Result<(), Failure> {
    state::remove(task, &backend.place).await;
    task.home.forget(&task.uid);
    Ok(())
}

/// Whether the state holds no resource. Needs no module.
async fn is_empty(
    task: &mut Task<'_>,
    backend: &StateBackend,
    wanted: Option<&Wanted>,
) -> Result<bool, Failure> {
    let mut session = Session::prepare(task, backend.clone(), Origin::Bare, wanted).await?;
    session.init().await?;
    session.push_errored().await?;
    let empty = session.facts().await?.managed == 0;
    if empty {
        session.forget_dead_runs();
    }
    Ok(empty)
}

/// The source that was applied, with the login of the one in the spec when both are the same place.
fn applied_source(
    task: &Task<'_>,
    applied: &Applied,
    spec: Option<&Spec>,
) -> Result<Source, Failure> {
    let source = Source::parse(&applied.source, task.options.allow_plain_http).map_err(|why| {
        Failure::terminal(
            "StatusInvalid",
            format!("the applied source in the status is not valid: {why}"),
        )
    })?;
    Ok(match spec {
        Some(spec) => {
            learn_source(task, spec);
            source.with_access_of(&spec.source)
        }
        None => source,
    })
}
