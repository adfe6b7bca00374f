//! One run of a script: spec and config in, status and condition out.

use converge_sdk::process::{self, Command, Environment, Exit, Finished};
use converge_sdk::{Condition, Json, Outcome, ReactionRequest, TaskContext, TaskError};
use serde::Serialize;

use crate::config::Config;
use crate::spec::Spec;

/// How much of each stream the status holds.
const TAIL_BYTES: usize = 8 * 1024;
/// What runs scripts when neither spec nor config say.
const INTERPRETER: &str = "bash";

#[derive(Serialize)]
struct Status {
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    stdout_bytes: u64,
    stderr_bytes: u64,
    duration_ms: u64,
}

impl Status {
    fn of(finished: &Finished) -> Self {
        Status {
            exit_code: finished.exit_code(),
            signal: match finished.exit {
                Some(Exit::Signal(signal)) => Some(signal),
                _ => None,
            },
            stdout: finished.stdout.text(TAIL_BYTES),
            stderr: finished.stderr.text(TAIL_BYTES),
            stdout_bytes: finished.stdout.total_bytes(),
            stderr_bytes: finished.stderr.total_bytes(),
            duration_ms: u64::try_from(finished.duration.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Runs the resource's script.
pub(crate) async fn run(
    ctx: &TaskContext,
    request: &ReactionRequest,
) -> Result<Outcome, TaskError> {
    let spec = Spec::of(request)?;
    let config = Config::of(ctx)?;
    let finished = process::run(ctx, command(ctx, request, spec, config)?).await?;
    let status = Json::of(&Status::of(&finished))?;
    match finished.failure() {
        None => Ok(Outcome::new()
            .with_status(status)
            .with_condition(Condition::ready("ScriptSucceeded"))),
        Some(failure) => {
            let condition =
                Condition::not_ready("ScriptFailed").with_message(first_line(&failure.message));
            Err(TaskError::from(failure)
                .with_status(status)
                .with_conditions([condition]))
        }
    }
}

fn command(
    ctx: &TaskContext,
    request: &ReactionRequest,
    spec: Spec,
    config: Config,
) -> Result<Command, TaskError> {
    let mut env = Environment::for_task(&config.inherit_env, ctx, request);
    env.layer("config.env", &config.env)?;
    env.layer("spec.env", &spec.env)?;
    let script = if config.normalize_newlines.unwrap_or(true) && spec.script.contains("\r\n") {
        spec.script.replace("\r\n", "\n")
    } else {
        spec.script
    };
    // Arguments for one interpreter mean something else to another.
    let args = match (spec.args, &spec.interpreter) {
        (Some(args), _) => args,
        (None, None) => config.default_args.clone(),
        (None, Some(_)) => Vec::new(),
    };
    let grace = config.kill_grace();
    let interpreter = spec
        .interpreter
        .or(config.default_interpreter)
        .unwrap_or_else(|| INTERPRETER.to_owned());
    Ok(Command::new(interpreter, env)
        .args(args)
        .script(script)
        .timeout(
            spec.timeout_seconds
                .unwrap_or(config.default_timeout_seconds)
                .as_timeout(),
        )
        .grace(grace)
        .allow_background(config.allow_background))
}

/// What happened, without the tail of stderr that follows it: the status has that.
fn first_line(message: &str) -> &str {
    let line = message.lines().next().unwrap_or_default();
    line.strip_suffix("; stderr ends:").unwrap_or(line)
}
