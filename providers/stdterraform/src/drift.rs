//! The reaction `drift`: look whether the world still is what was applied.
//!
//! Reports with `Ready=False, reason Drifted` and the changed addresses, or applies them when the config says so. A look takes no lock: it
//! changes nothing, and must not hold up an apply.

use crate::apply::{apply, read_spec};
use crate::backend::StateBackend;
use crate::config;
use crate::failure::Failure;
use crate::messages::Counts;
use crate::session::{Origin, Session};
use crate::state;
use crate::task::Task;

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing to change.
    InStep,
    /// These addresses would change.
    Drifted(String),
    /// What differed was applied.
    Applied(Counts),
}

/// Looks for drift.
pub(crate) async fn drift(task: &mut Task<'_>) -> Result<Found, Failure> {
    if task.config.drift == config::Drift::Apply {
        return apply(task).await.map(Found::Applied);
    }
    let spec = read_spec(task)?;
    let backend = StateBackend::of(&task.config, task.request.kind_version.kind(), &task.uid);
    let backend = match state::check_place(task, &backend)? {
        None => backend,
        // The next apply copies it; a look goes where it is.
        Some(recorded) => StateBackend::recorded(&recorded)
            .map_err(|why| Failure::terminal("StateWouldMove", why))?,
    };
    let mut session = Session::prepare(
        task,
        backend,
        Origin::Source(&spec.source),
        spec.tf_version.as_ref(),
    )
    .await?;
    session.withhold(&spec.vars);
    session.init().await?;
    session.push_errored().await?;
    session.learn_outputs().await;
    let variables = session.variables(&spec.vars)?;
    let parallelism = session
        .task
        .config
        .parallelism
        .map(|count| format!("-parallelism={count}"));
    let mut args = vec![
        "plan",
        "-json",
        "-detailed-exitcode",
        "-input=false",
        "-lock=false",
    ];
    args.extend(parallelism.as_deref());
    args.push(&variables);
    let done = session.run("plan", &args).await?;
    match (done.code, done.stop) {
        (Some(0), None) => Ok(Found::InStep),
        (Some(2), None) => Ok(Found::Drifted(done.summary.planned_text())),
        _ => Err(session.failure("plan", &done).await),
    }
}
