//! One run of the program: request in, response out.

use converge_sdk::process::{self, Capture, Command, Ending, Environment, RESPONSE_LIMIT_BYTES};
use converge_sdk::{Outcome, ReactionRequest, TaskContext, TaskError};

use crate::config::Config;
use crate::{request, response};

/// Runs the program that serves this task.
pub(crate) async fn run(
    ctx: &TaskContext,
    request: &ReactionRequest,
    fallback: Option<&str>,
) -> Result<Outcome, TaskError> {
    let config = Config::of(ctx)?;
    let program = config.command(fallback)?;
    let mut env = Environment::for_task(&config.inherit_env, ctx, request);
    env.layer("config.env", &config.env)?;
    let input = request::encode(request, config.settings.as_ref(), ctx.bundle_if_any())?;
    let grace = config.kill_grace();
    let command = Command::new(program, env)
        .args(config.args)
        .stdin(input)
        .stdout(Capture::Whole(RESPONSE_LIMIT_BYTES))
        .timeout(config.timeout_seconds.as_timeout())
        .grace(grace)
        .allow_background(config.allow_background);
    let finished = process::run(ctx, command).await?;
    let failure = finished.failure();
    let ending = finished.ending;
    let stdout = finished.stdout.into_bytes();
    let Some(failure) = failure else {
        return response::decode(request.stage, &stdout);
    };
    let error = TaskError::from(failure);
    if matches!(ending, Ending::OutputTooLarge { .. }) {
        return Err(error);
    }
    let (status, conditions) = response::decode_failed(&stdout);
    let error = error.with_conditions(conditions);
    Err(match status {
        Some(status) => error.with_status(status),
        None => error,
    })
}
