//! `conctl apply`: sends documents, in the order in which they need each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use converge_client::types::{ApplyResult, ObjectRef, Phase};
use converge_client::{Client, Error};

use crate::bundle;
use crate::cli::WaitFlags;
use crate::context::{Context, Progress};
use crate::document::{Document, Source, Walk, json_string, raw, read_paths};
use crate::exit::{self, Failure, Result};
use crate::names::ObjectType;
use crate::output::{self, Format, clean};
use crate::waiting::{Deadline, Goal, situation, wait_for};

/// The largest bundle.
const BUNDLE_LIMIT_BYTES: u64 = 10 * 1024 * 1024;

/// How long a failure may last after an edit of what the resource reads, before it counts.
const EDIT_GRACE: Duration = Duration::from_secs(3);

/// The fields each type of document can have; what an answer has besides them is not sent back.
const RESOURCE_FIELDS: &[&str] = &[
    "type",
    "kind",
    "kind_version",
    "name",
    "labels",
    "provider_config_ref",
    "spec",
];
const PROVIDER_CONFIG_FIELDS: &[&str] = &[
    "type",
    "name",
    "kind",
    "kind_version",
    "is_default",
    "spec",
    "data",
];
const REACTOR_BINDING_FIELDS: &[&str] = &[
    "type",
    "name",
    "watch_kind",
    "watch_kind_version",
    "transition",
    "label_match",
    "reactor",
    "reactor_version",
    "enabled",
];
const MANIFEST_ANSWER_FIELDS: &[&str] =
    &["manifest_version", "created_at", "updated_at", "warnings"];

/// Create or change objects from files.
///
/// Files are JSON or YAML, also with several documents. They are applied in the order manifest, providerconfig,
/// reactorbinding, resource, whatever order they are named in. What a document is says --type, else its "type", else the
/// file's name (*.kind.json, *.kind.yaml: a manifest), else its keys.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl apply -f demo.yaml                        one file
  conctl apply -f kinds/ -f app.yaml --wait        a directory and a file; wait until the resources are Ready
  conctl get stdshell/a -o yaml | conctl apply -f -
  conctl apply -f config.yaml --bundle policies/   a providerconfig whose bundle is the packed directory")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    files: FileFlags,
    /// The bundle of the one providerconfig among the documents: a directory to pack, or a file taken as it is.
    #[arg(long, value_name = "DIR|FILE")]
    bundle: Option<PathBuf>,
    /// Make a providerconfig the default of its kind although another one is.
    #[arg(long)]
    replace_default: bool,
    #[command(flatten)]
    wait: WaitFlags,
    /// How to show the result.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// Which files to read.
#[derive(Debug, Args)]
pub(crate) struct FileFlags {
    /// A file, a directory, or - for stdin; may be repeated.
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE|DIR|-",
        required = true
    )]
    files: Vec<PathBuf>,
    /// Also read the directories in a directory.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// What every document is.
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    object_type: Option<ObjectType>,
}

impl FileFlags {
    /// What the files say, in the order it is to be applied in.
    pub(crate) fn plan(&self) -> Result<Vec<Planned>> {
        let read = read_paths(&self.files, Walk::as_told(self.recursive))?;
        plan(read, self.object_type)
    }
}

/// A document on its way: what it is, besides what it says.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) object_type: ObjectType,
    pub(crate) document: Document,
}

/// What a document's apply came to.
pub(crate) struct Applied {
    /// What messages call it.
    pub(crate) label: String,
    /// What the server did.
    pub(crate) result: Option<ApplyResult>,
    /// The answer.
    body: String,
    /// For a resource: what to wait for.
    pub(crate) resource: Option<(ObjectRef, u64)>,
    /// What the server wants to be known.
    warnings: Vec<String>,
}

pub(crate) async fn run(cx: &mut Context, args: ApplyArgs) -> Result {
    let mut plan = args.files.plan()?;
    if plan.is_empty() {
        return Err(Failure::usage("the files hold no document"));
    }
    if let Some(path) = &args.bundle {
        attach_bundle(&mut cx.progress, &mut plan, path)?;
    }
    let client = cx.client()?;
    let options = Options {
        replace_default: args.replace_default,
    };
    let (applied, failure) = send_all(cx, &client, plan, options, args.output).await?;
    let waited = if args.wait.wait {
        wait_all(cx, &client, &applied, args.wait.timeout).await
    } else {
        Ok(())
    };
    failure.map_or(Ok(()), Err)?;
    waited
}

/// How documents are sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) replace_default: bool,
}

/// Says what each document is and puts them in order. All that is wrong is said at once.
pub(crate) fn plan(sources: Vec<Source>, asked: Option<ObjectType>) -> Result<Vec<Planned>> {
    let mut plan = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    for Source { mut document, .. } in sources {
        match document.object_type(asked) {
            Ok(object_type) => {
                if asked.is_some() {
                    document.retain(|field| field != "type");
                }
                drop_answer_fields(object_type, &mut document);
                plan.push(Planned {
                    object_type,
                    document,
                });
            }
            Err(failure) => problems.push(failure.message),
        }
    }
    if !problems.is_empty() {
        return Err(Failure::new(exit::REFUSED, problems.join("\n")));
    }
    // Stable: within a type the files keep their order.
    plan.sort_by_key(|planned| planned.object_type);
    Ok(plan)
}

/// What came from `get` can be applied again: what only answers have is left out. A document a person wrote is sent as it
/// is, so that the server can refuse a field it does not know.
fn drop_answer_fields(object_type: ObjectType, document: &mut Document) {
    if !document.has("created_at") || !document.has("updated_at") {
        return;
    }
    match object_type {
        ObjectType::Resource => document.retain(|field| RESOURCE_FIELDS.contains(&field)),
        ObjectType::ProviderConfig => {
            document.retain(|field| PROVIDER_CONFIG_FIELDS.contains(&field))
        }
        ObjectType::ReactorBinding => {
            document.retain(|field| REACTOR_BINDING_FIELDS.contains(&field))
        }
        ObjectType::Manifest => document.retain(|field| !MANIFEST_ANSWER_FIELDS.contains(&field)),
        ObjectType::Cluster => {}
    }
}

fn attach_bundle(progress: &mut Progress, plan: &mut [Planned], path: &Path) -> Result {
    let configs: Vec<usize> = plan
        .iter()
        .enumerate()
        .filter(|(_, planned)| planned.object_type == ObjectType::ProviderConfig)
        .map(|(index, _)| index)
        .collect();
    let [index] = configs[..] else {
        return Err(Failure::usage(format!(
            "--bundle needs exactly one providerconfig among the documents; there are {}",
            configs.len()
        )));
    };
    let document = &mut plan[index].document;
    if document.has("data") {
        return Err(document.wrong(
            "/data",
            "the providerconfig has data of its own; --bundle would replace it",
        ));
    }
    let failed =
        |err: std::io::Error| Failure::usage(format!("cannot read {}: {err}", path.display()));
    let meta = fs::metadata(path).map_err(failed)?;
    let bytes = if meta.is_dir() {
        let packed = bundle::pack(path)?;
        for skipped in &packed.skipped {
            progress.note(&format!("not packed: {skipped}"));
        }
        packed.bytes
    } else if meta.len() > BUNDLE_LIMIT_BYTES {
        return Err(Failure::new(
            exit::REFUSED,
            format!(
                "{} has {} bytes; a bundle may have {BUNDLE_LIMIT_BYTES}",
                path.display(),
                meta.len()
            ),
        ));
    } else {
        fs::read(path).map_err(failed)?
    };
    document.set("data", json_string(&BASE64_STANDARD.encode(bytes))?);
    Ok(())
}

/// Sends every document and shows what became of it. A refused one does not stop those after it; the first failure is
/// given back, with what was applied.
pub(crate) async fn send_all(
    cx: &mut Context,
    client: &Client,
    plan: Vec<Planned>,
    options: Options,
    format: Format,
) -> Result<(Vec<Applied>, Option<Failure>)> {
    let mut applied = Vec::new();
    let mut failure: Option<Failure> = None;
    let several = plan.len() > 1;
    for planned in plan {
        match send(client, &planned, options).await {
            Ok(done) => {
                for warning in &done.warnings {
                    cx.progress
                        .note(&format!("warning: {}: {warning}", done.label));
                }
                show(cx, &done, format)?;
                applied.push(done);
            }
            Err(failed) if failed.code == exit::UNREACHABLE => return Err(failed),
            Err(failed) if several => {
                cx.out.flush()?;
                cx.progress.note(&format!("error: {}", failed.message));
                failure.get_or_insert(Failure::reported(failed.code));
            }
            Err(failed) => failure = Some(failed),
        }
    }
    Ok((applied, failure))
}

fn show(cx: &mut Context, applied: &Applied, format: Format) -> Result {
    match format {
        Format::Table | Format::Wide => {
            let result = applied.result.map_or("applied", ApplyResult::as_str);
            let generation = match &applied.resource {
                Some((_, generation)) if format == Format::Wide => {
                    format!(" (generation {generation})")
                }
                _ => String::new(),
            };
            cx.out
                .line(&format!("{} {result}{generation}", clean(&applied.label)))
        }
        Format::Name => cx.out.line(&clean(&applied.label)),
        Format::Json => cx.out.line(&output::pretty(&applied.body)),
        Format::Yaml => {
            let value = raw(applied.body.clone())?;
            cx.out.line("---")?;
            output::document(&mut cx.out, format, &value)
        }
    }
}

/// Sends one document.
async fn send(client: &Client, planned: &Planned, options: Options) -> Result<Applied> {
    let document = &planned.document;
    let body = document.body().into();
    let failed = |err: Error| refused(planned, err);
    match planned.object_type {
        ObjectType::Manifest => {
            let kind = document.required("kind")?;
            let answer = client.manifest_apply(&kind, body).await.map_err(failed)?;
            Ok(Applied {
                label: format!(
                    "manifest/{}/v{}",
                    answer.value.kind, answer.value.kind_version
                ),
                result: answer.applied,
                body: text(&answer.body),
                resource: None,
                warnings: answer.value.warnings,
            })
        }
        ObjectType::ProviderConfig => {
            let answer = client
                .providerconfig_apply(body, options.replace_default)
                .await
                .map_err(failed)?;
            Ok(Applied {
                label: format!("providerconfig/{}", answer.value.name),
                result: answer.applied,
                body: text(&answer.body),
                resource: None,
                warnings: Vec::new(),
            })
        }
        ObjectType::ReactorBinding => {
            let answer = client.reactor_binding_apply(body).await.map_err(failed)?;
            Ok(Applied {
                label: format!("reactorbinding/{}", answer.value.name),
                result: answer.applied,
                body: text(&answer.body),
                resource: None,
                warnings: Vec::new(),
            })
        }
        ObjectType::Resource | ObjectType::Cluster => {
            let answer = client.resource_apply(body).await.map_err(failed)?;
            let reference = answer.value.reference();
            Ok(Applied {
                label: reference.to_string(),
                result: answer.applied,
                body: text(&answer.body),
                resource: Some((reference, answer.value.generation)),
                warnings: Vec::new(),
            })
        }
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

/// A refusal that names the document, and for every violation where in the file it is.
fn refused(planned: &Planned, err: Error) -> Failure {
    let document = &planned.document;
    let Error::Refused(problem) = &err else {
        // Of another server's part, or of no server: nothing to point at.
        return Failure::from(err);
    };
    let message = exit::problem_text(problem, |location| {
        document.at(location).filter(|_| location.starts_with('/'))
    });
    let text = |field: &str| document.text(field).filter(|text| !text.is_empty());
    let what = match (planned.object_type, text("kind"), text("name")) {
        (ObjectType::Resource, Some(kind), Some(name)) => format!("{kind}/{name}: "),
        (ObjectType::ProviderConfig, _, Some(name)) => format!("providerconfig/{name}: "),
        _ => String::new(),
    };
    // Of standard input or of a file with many documents the place says little.
    let what = if message.contains(what.trim_end_matches(": ")) {
        ""
    } else {
        &what
    };
    let code = exit::code_of_status(problem.status);
    if message.starts_with(&format!("{}:", document.file)) {
        // One violation, which says where it is.
        return Failure::new(code, message);
    }
    Failure::new(code, format!("{}: {what}{message}", document.location()))
}

/// Waits for every applied resource, all under one deadline; each that does not make it is reported.
async fn wait_all(
    cx: &mut Context,
    client: &Client,
    applied: &[Applied],
    timeout: Duration,
) -> Result {
    let deadline = Deadline::after(timeout);
    let mut failure: Option<Failure> = None;
    let several = applied
        .iter()
        .filter(|done| done.resource.is_some())
        .count()
        > 1;
    cx.out.flush()?;
    // An edit of a config or manifest reaches the resources that read it a moment later: a failure from before it must
    // not be taken for the answer.
    let edited = applied
        .iter()
        .any(|done| done.resource.is_none() && done.result != Some(ApplyResult::Unchanged));
    let grace = if edited { EDIT_GRACE } else { Duration::ZERO };
    for (reference, generation) in applied.iter().filter_map(|done| done.resource.as_ref()) {
        let goal = Goal::Phase {
            phase: Phase::Ready,
            generation: *generation,
            grace,
        };
        match wait_for(client, &mut cx.progress, reference, &goal, deadline).await {
            Ok(Some(resource)) => cx.progress.note(&situation(&resource)),
            Ok(None) => {}
            Err(failed) if failed.code == exit::UNREACHABLE => return Err(failed),
            Err(failed) if several => {
                cx.progress.note(&format!("error: {}", failed.message));
                failure.get_or_insert(Failure::reported(failed.code));
            }
            Err(failed) => failure = Some(failed),
        }
    }
    failure.map_or(Ok(()), Err)
}
