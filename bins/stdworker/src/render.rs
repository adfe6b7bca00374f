//! `stdworker render`: what a compose would emit, with no broker and no control plane.
//!
//! The provider that serves the kind runs as it does for a task; only what surrounds it is made up: an instance with the
//! spec from a file, and the config that would be the kind's default. Exit codes are those of programs that speak for
//! providers: 0 done, 2 terminal, 1 transient, 64 when the command line or a file given makes no sense.

mod bundle;
mod output;
mod yaml;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crate::EXIT_USAGE;
use crate::flags::Flags;
use clap::{Args, ValueEnum};
use converge_sdk::{
    Json, Provider, ProviderConfig, ReactionRequest, Resource, ResourceRef, Stage, TaskContext,
    TaskError,
};

/// Trying again may help.
const EXIT_TRANSIENT: u8 = 1;
/// Only another spec, config or bundle can help.
const EXIT_TERMINAL: u8 = 2;

/// Print what a compose would emit, without a broker.
#[derive(Debug, Args)]
pub(crate) struct RenderArgs {
    /// The kind to compose: stdcel, stdstarlark, stdio-composer or another composer this worker hosts.
    #[arg(long)]
    kind: String,
    /// The spec of the instance: JSON or YAML, `-` for stdin.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    spec: Option<PathBuf>,
    /// The spec of the kind's providerconfig: JSON or YAML, `-` for stdin.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The bundle of the kind's providerconfig: a folder, or a zip.
    #[arg(long, value_name = "DIR|ZIP")]
    bundle: Option<PathBuf>,
    /// The name of the instance.
    #[arg(long, default_value = "demo")]
    name: String,
    /// Check the config and the bundle without an instance.
    #[arg(long, conflicts_with = "spec")]
    check: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

/// How a composition is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Yaml,
    /// The response shape of stdio.
    Json,
    Tree,
    /// Graphviz.
    Dot,
    Mermaid,
}

/// Why nothing was rendered.
enum Failure {
    Usage(String),
    Task(TaskError),
}

impl Failure {
    fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Task(error) if error.is_terminal() => EXIT_TERMINAL,
            Self::Task(_) => EXIT_TRANSIENT,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Task(error) => f.write_str(error.message()),
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

/// Renders with the providers this binary hosts.
pub(crate) fn run(args: &RenderArgs, flags: &Flags, providers: &[Arc<dyn Provider>]) -> ExitCode {
    match render(args, flags, providers) {
        Ok(text) => {
            use std::io::Write as _;
            // A reader that has seen enough (`| head`) is no failure.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("stdworker render: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

fn render(
    args: &RenderArgs,
    flags: &Flags,
    providers: &[Arc<dyn Provider>],
) -> Result<String, Failure> {
    let provider = providers
        .iter()
        .find(|provider| provider.kind().kind() == args.kind)
        .ok_or_else(|| {
            let hosted: Vec<String> = providers
                .iter()
                .map(|provider| provider.kind().kind().to_owned())
                .collect();
            Failure::Usage(format!(
                "--kind {}: this worker hosts {}",
                args.kind,
                hosted.join(", ")
            ))
        })?;
    let config = args
        .config
        .as_deref()
        .map(|path| document("--config", path))
        .transpose()?;
    let bundle = args
        .bundle
        .as_deref()
        .map(|path| bundle::read(path).map_err(Failure::Usage))
        .transpose()?;
    let mut default = ProviderConfig::new();
    default.spec = config;
    default.bundle = bundle.map(Into::into);
    let context = TaskContext::builder(provider.kind())
        .default_config(default)
        .build();
    if args.check {
        return check(args, &context, flags.stdio_command.as_deref());
    }
    let spec = match args.spec.as_deref() {
        Some(path) => document("--spec", path)?,
        None => Json::empty_object(),
    };
    let resource = Resource::new(args.kind.as_str(), args.name.as_str()).with_spec(spec);
    let request =
        ReactionRequest::builder(Stage::Compose, "compose", provider.kind(), resource).build();
    let outcome = wait(provider.work(&context, request))??;
    output::print(
        &outcome,
        &ResourceRef::new(args.kind.as_str(), args.name.as_str()),
        args.output,
    )
    .map_err(|message| Failure::Task(TaskError::terminal(message)))
}

fn wait<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime =
        runtime.map_err(|err| Failure::Task(TaskError::transient(format!("no runtime: {err}"))))?;
    Ok(runtime.block_on(work))
}

/// What can be said of a config and a bundle alone. `fallback` is the program of stdio kinds without one of their own.
fn check(
    args: &RenderArgs,
    context: &TaskContext,
    fallback: Option<&str>,
) -> Result<String, Failure> {
    let missing = |flag: &str| Failure::Usage(format!("--check of {} needs {flag}", args.kind));
    match args.kind.as_str() {
        stdcel::KIND => {
            let config = context
                .effective_config_if_any()?
                .ok_or_else(|| missing("--config"))?;
            let graph = stdcel::Graph::parse(config.as_bytes());
            if !graph.problems().is_empty() {
                return Err(TaskError::terminal(stdcel::summary(graph.problems())).into());
            }
        }
        "stdstarlark" => {
            let bundle = context.bundle_if_any().ok_or_else(|| missing("--bundle"))?;
            let bundle = stdstarlark::Bundle::from_zip(bundle).map_err(TaskError::terminal_from)?;
            stdstarlark::check_offline(&bundle)?;
        }
        "stdshell" | "stdterraform" => {
            return Err(Failure::Usage(format!(
                "--kind {}: it composes nothing",
                args.kind
            )));
        }
        // Every other kind is one of stdio's, under a name of the operator's.
        _ => stdio::check_config(context, fallback)?,
    }
    Ok("ok\n".to_owned())
}

/// Reads a document, JSON or YAML.
fn document(flag: &str, path: &Path) -> Result<Json, Failure> {
    let wrong = |message: String| Failure::Usage(format!("{flag} {}: {message}", path.display()));
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    let bytes = bytes.map_err(|err| wrong(err.to_string()))?;
    // JSON is taken as it is, every digit and every space of it.
    if let Ok(json) = Json::parse(bytes.clone()) {
        return Ok(json);
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let json = yaml::to_json(&text)
        .map_err(|message| wrong(format!("it is neither JSON nor YAML: {message}")))?;
    Json::parse(json).map_err(|err| wrong(err.to_string()))
}
