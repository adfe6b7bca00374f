//! One task: what it knows, what it may run, when it must stop.
//!
//! Owns the environment every program of the task gets, the secrets known so far, the time limit, and the one function that runs a helper
//! program. Must hold: no program starts after a stop was asked for; nothing is logged that did not pass the redactor.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use converge_sdk::process::{self, Capture, Command, Ending, Environment, Inherit, StopSignal};
use converge_sdk::{CancelReason, LeaseState, ReactionRequest, TaskContext, TaskError};
use tokio::time::Instant;

use crate::Options;
use crate::config::Config;
use crate::environment::{self, Env};
use crate::failure::Failure;
use crate::home::Home;
use crate::messages::{cut, plain};
use crate::redact::{Redactor, Secrets};
use crate::status::Status;

/// How long a helper (git, curl, aws, …) may take to end when asked to.
const HELPER_GRACE: Duration = Duration::from_secs(5);
/// How often the size of what a helper writes is looked at.
const SIZE_CHECK: Duration = Duration::from_millis(100);

/// Why a task stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its own time limit.
    Timeout(Duration),
    /// The worker asks.
    Cancelled(CancelReason),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Timeout(limit) => write!(f, "the timeout of {} s", limit.as_secs()),
            Self::Cancelled(CancelReason::Deadline) => f.write_str("the deadline of the task"),
            Self::Cancelled(CancelReason::Drain) => f.write_str("the shutdown of the worker"),
            Self::Cancelled(CancelReason::LeaseLost) => f.write_str("the loss of the lease"),
            Self::Cancelled(_) => f.write_str("a cancellation"),
        }
    }
}

/// One task.
pub(crate) struct Task<'t> {
    pub(crate) ctx: &'t TaskContext,
    pub(crate) request: &'t ReactionRequest,
    pub(crate) options: &'t Options,
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) uid: String,
    /// What is reported at the end, with a failure too.
    pub(crate) status: Status,
    env: Env,
    secrets: Mutex<Secrets>,
    until: Option<(Instant, Duration)>,
}

/// A helper program's end.
#[derive(Debug)]
pub(crate) struct Ran {
    /// Its exit code; nothing when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    /// The end of its stderr, or of its stdout when there is none.
    pub(crate) said: String,
}

impl Ran {
    /// Whether it succeeded.
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

/// A helper program to run.
#[derive(Debug)]
pub(crate) struct Helper<'h> {
    pub(crate) program: &'h str,
    pub(crate) args: Vec<String>,
    pub(crate) env: Env,
    pub(crate) cwd: Option<&'h Path>,
    pub(crate) stdin: Option<String>,
    pub(crate) timeout: Duration,
    /// Ends it when what lies at these paths grows beyond so many bytes.
    pub(crate) watch: Option<(PathBuf, u64)>,
}

impl<'h> Helper<'h> {
    /// A helper with the task's environment.
    pub(crate) fn new<S: Into<String>>(
        task: &Task<'_>,
        program: &'h str,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            program,
            args: args.into_iter().map(Into::into).collect(),
            env: task.env.clone(),
            cwd: None,
            stdin: None,
            timeout: Duration::from_secs(900),
            watch: None,
        }
    }

    /// Sets a variable.
    pub(crate) fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }
}

impl<'t> Task<'t> {
    /// A task with what was read so far.
    pub(crate) fn new(
        ctx: &'t TaskContext,
        request: &'t ReactionRequest,
        options: &'t Options,
        config: Config,
        home: Home,
    ) -> Self {
        let env = run_environment(options, &config);
        let secrets = secrets_of(options, &config);
        let until = config.timeout.map(|limit| (Instant::now() + limit, limit));
        ctx.set_cleanup_grace(config.kill_grace.saturating_add(Duration::from_secs(10)));
        Self {
            ctx,
            request,
            options,
            home,
            config,
            uid: request.resource.uid.to_string(),
            status: Status::read(request.status.as_ref().map(converge_sdk::Json::as_bytes)),
            env,
            secrets: Mutex::new(secrets),
            until,
        }
    }

    /// The environment of its programs.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Whether the binary is OpenTofu's.
    pub(crate) fn is_tofu(&self) -> bool {
        self.config.binary == crate::config::Binary::Tofu
    }

    /// Adds secrets that everything shown from now on loses.
    pub(crate) fn learn(&self, more: &Secrets) {
        self.secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(more);
    }

    /// The redactor for what is known now.
    pub(crate) fn redactor(&self) -> Redactor {
        self.secrets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .redactor()
    }

    /// Resolves when the task must stop.
    pub(crate) async fn stopped(&self) -> Stop {
        let timeout = async {
            match self.until {
                Some((until, limit)) => {
                    tokio::time::sleep_until(until).await;
                    limit
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reason = self.ctx.cancelled() => Stop::Cancelled(reason),
            limit = timeout => Stop::Timeout(limit),
        }
    }

    /// Looks whether another step may begin.
    ///
    /// # Errors
    /// Transient: it was asked to stop, or may not hold its claim any more.
    pub(crate) fn may_begin(&self, step: &str) -> Result<(), Failure> {
        let stop = match (self.ctx.cancel_reason(), self.until) {
            (Some(reason), _) => Some(Stop::Cancelled(reason)),
            (None, Some((until, limit))) if Instant::now() >= until => Some(Stop::Timeout(limit)),
            (None, _) => None,
        };
        if let Some(stop) = stop {
            return Err(Failure::transient(
                "Interrupted",
                format!("stopped before {step} by {stop}"),
            ));
        }
        match self.ctx.lease() {
            LeaseState::Held => Ok(()),
            LeaseState::Uncertain => Err(Failure::transient(
                "LeaseUncertain",
                format!(
                    "{step} was not begun: no broker was reached for the length of a lease, another worker may have the task"
                ),
            )),
            LeaseState::Lost => Err(Failure::transient(
                "LeaseLost",
                format!("{step} was not begun: another worker has the task"),
            )),
        }
    }

    /// The complete environment of one program.
    pub(crate) fn environment(&self, env: &Env) -> Environment {
        let mut environment = Environment::for_task(&Inherit::none(), self.ctx, self.request);
        for (name, value) in env {
            environment.set(name, value);
        }
        environment
    }

    /// Runs a helper to its end. What it writes to stderr goes to the log, redacted.
    ///
    /// # Errors
    /// It could not start, was stopped, or wrote too much. An exit code other than 0 is no error here.
    pub(crate) async fn run(&self, helper: Helper<'_>) -> Result<Ran, Failure> {
        let program = helper.program;
        self.may_begin(program)?;
        let mut command = Command::new(program, self.environment(&helper.env))
            .args(helper.args)
            .stdout(Capture::Whole(64 << 20))
            .timeout(Some(helper.timeout))
            .grace(HELPER_GRACE)
            .stop_signal(StopSignal::Terminate)
            .log_stderr(false);
        if let Some(cwd) = helper.cwd {
            command = command.cwd(cwd);
        }
        if let Some(stdin) = helper.stdin {
            command = command.stdin(stdin.into_bytes());
        }
        let too_large = async {
            let Some((path, most)) = &helper.watch else {
                return std::future::pending().await;
            };
            while size_of(path) <= *most {
                tokio::time::sleep(SIZE_CHECK).await;
            }
            *most
        };
        enum Why {
            Stop(Stop),
            TooLarge(u64),
        }
        let mut why = None;
        let cancel = async {
            why = Some(tokio::select! {
                stop = self.stopped() => Why::Stop(stop),
                most = too_large => Why::TooLarge(most),
            });
        };
        let finished = process::run_until(command, cancel)
            .await
            .map_err(|error| not_started(program, error))?;
        match (finished.ending, why) {
            (Ending::Exited, _) => {}
            (Ending::TimedOut { after }, _) => {
                return Err(Failure::transient(
                    "Timeout",
                    format!(
                        "{program} ran longer than {} s and was ended",
                        after.as_secs()
                    ),
                ));
            }
            (_, Some(Why::TooLarge(most))) => {
                return Err(Failure::terminal(
                    "SourceTooLarge",
                    format!(
                        "{program} was ended: the source is larger than {most} bytes, the most that is fetched"
                    ),
                ));
            }
            (Ending::OutputTooLarge { limit_bytes }, _) => {
                return Err(Failure::transient(
                    "HelperFailed",
                    format!("{program} printed more than {limit_bytes} bytes"),
                ));
            }
            (_, Some(Why::Stop(stop))) => {
                return Err(Failure::transient(
                    "Interrupted",
                    format!("{program} was ended by {stop}"),
                ));
            }
            (_, None) => {
                return Err(Failure::transient(
                    "Interrupted",
                    format!("{program} was ended"),
                ));
            }
        }
        // A helper whose output is not 0-terminated JSON is read lossily; that is for people only.
        let mut said = plain(&finished.stderr.text(4096));
        if said.trim().is_empty() {
            said = plain(&finished.stdout.text(4096));
        }
        Ok(Ran {
            code: finished.exit_code(),
            stdout: finished.stdout.bytes().to_vec(),
            said: said.trim().to_owned(),
        })
    }

    /// Runs a helper that must succeed; another exit code is a transient failure of `reason` with what it said.
    pub(crate) async fn must(
        &self,
        helper: Helper<'_>,
        reason: &'static str,
        what: &str,
    ) -> Result<Ran, Failure> {
        let program = helper.program;
        let ran = self.run(helper).await?;
        if ran.is_success() {
            return Ok(ran);
        }
        Err(Failure::transient(
            reason,
            format!("{what}: {program} {}", ended(&ran)),
        ))
    }
}

/// How a helper failed, with what it said.
pub(crate) fn ended(ran: &Ran) -> String {
    let how = ran.code.map_or_else(
        || "was ended by a signal".to_owned(),
        |code| format!("exited with code {code}"),
    );
    let said = ran.said.split_whitespace().collect::<Vec<_>>().join(" ");
    if said.is_empty() {
        how
    } else {
        format!("{how}: {}", cut(&said, 1500))
    }
}

/// A program that did not start.
pub(crate) fn not_started(program: &str, error: process::SpawnError) -> Failure {
    let error = TaskError::from(error);
    Failure {
        terminal: error.is_terminal(),
        reason: "ProgramNotStarted",
        message: format!("{program} could not be run: {}", error.message()),
    }
}

/// What the programs of a task see: the part of the worker's environment that passes, and what makes the tools behave.
fn run_environment(options: &Options, config: &Config) -> Env {
    let mut env = environment::pass(&options.environment, &config.inherit_env);
    let mut default = |name: &str, value: &str| {
        env.entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    };
    default("PATH", "/usr/local/bin:/usr/bin:/bin");
    default("AWS_PAGER", "");
    default("AWS_MAX_ATTEMPTS", "3");
    default("CLOUDSDK_CORE_DISABLE_PROMPTS", "1");
    default("AZURE_CORE_COLLECT_TELEMETRY", "false");
    let (endpoint, region) = config.s3_access();
    if let Some(endpoint) = endpoint {
        env.insert("AWS_ENDPOINT_URL_S3".to_owned(), endpoint.to_owned());
    }
    if !env.contains_key("AWS_REGION") && !env.contains_key("AWS_DEFAULT_REGION") {
        let region = region.or(endpoint.map(|_| "us-east-1"));
        if let Some(region) = region {
            env.insert("AWS_REGION".to_owned(), region.to_owned());
            env.insert("AWS_DEFAULT_REGION".to_owned(), region.to_owned());
        }
    }
    env
}

fn secrets_of(options: &Options, config: &Config) -> Secrets {
    let mut secrets = environment::secrets(&environment::pass(
        &options.environment,
        &config.inherit_env,
    ));
    if let crate::config::Backend::Raw(raw) = &config.backend {
        secrets.extend(&raw.secrets());
    }
    secrets
}

/// The bytes at a path: of a file, or of the files in a directory and those below.
fn size_of(path: &Path) -> u64 {
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return 0;
    };
    if !meta.is_dir() {
        return meta.len();
    }
    let mut total = 0;
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => left.push(entry.path()),
                Ok(meta) => total += meta.len(),
                Err(_) => {}
            }
        }
    }
    total
}
