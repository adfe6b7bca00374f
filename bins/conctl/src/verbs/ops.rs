//! `conctl ops`: runs a verb on a resource, and shows what was run.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use converge_client::Client;
use converge_client::types::{Json, ObjectRef, Operation, OperationRequest, OperationState};
use tokio::time::{Instant, sleep};

use super::{idempotency_key, items};
use crate::cli::WaitFlags;
use crate::context::{Context, POLL_INTERVAL};
use crate::document::raw;
use crate::exit::{self, Failure, Result};
use crate::names::resource;
use crate::output::{self, Clock, Format, Table, brief, clean, since};

/// The largest input read from a file.
const INPUT_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// Run an operation on a resource, or show its operations.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl ops stdshell/hello                              what was run
  conctl ops demo/db --run backup --input '{\"full\": true}' --wait
  conctl ops demo/db --run restore --input @input.json
  conctl ops demo/db --uid 0198c0de-… -o json")]
pub(crate) struct OpsArgs {
    /// The resource: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// Run this verb.
    #[arg(long, value_name = "VERB", conflicts_with = "uid")]
    run: Option<String>,
    /// What the verb takes: JSON, or @FILE with JSON in it.
    #[arg(long, value_name = "JSON|@FILE", requires = "run")]
    input: Option<String>,
    /// Show this operation.
    #[arg(long)]
    uid: Option<String>,
    #[command(flatten)]
    wait: WaitFlags,
    /// How to show it.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

pub(crate) async fn run(cx: &mut Context, args: OpsArgs) -> Result {
    let target = resource(&args.names)?;
    let client = cx.client()?;
    let about = |failure: Failure| failure.about(clean(&target.to_string()));
    let uid = match (&args.run, args.uid) {
        (Some(verb), _) => {
            let input = args.input.as_deref().map(read_input).transpose()?;
            let request = OperationRequest {
                verb: verb.clone(),
                input,
            };
            let started = client
                .operation_start(&target.kind, &target.name, &request, &idempotency_key())
                .await
                .map_err(|err| about(err.into()))?;
            started.value.uid
        }
        (None, Some(uid)) => uid,
        (None, None) => return list(cx, &client, &target, args.output).await.map_err(about),
    };
    let operation = if args.wait.wait {
        finished(cx, &client, &target, &uid, args.wait.timeout).await?
    } else {
        client
            .operation(&target.kind, &target.name, &uid)
            .await
            .map_err(|err| about(err.into()))?
    };
    match args.output {
        Format::Json | Format::Yaml => {
            let body = raw(String::from_utf8_lossy(&operation.body).into_owned())?;
            output::document(&mut cx.out, args.output, &body)?;
        }
        Format::Name => cx.out.line(&clean(&operation.value.uid))?,
        Format::Table | Format::Wide => cx
            .out
            .text(&table(std::slice::from_ref(&operation.value)).render(""))?,
    }
    let waited_and_failed = args.wait.wait && operation.value.state == OperationState::Failed;
    if waited_and_failed {
        let message = operation
            .value
            .failure
            .map(|failure| failure.message)
            .unwrap_or_default();
        return Err(about(Failure::new(
            exit::REFUSED,
            format!("the operation failed: {message}"),
        )));
    }
    Ok(())
}

fn read_input(text: &str) -> Result<Json> {
    let Some(path) = text.strip_prefix('@') else {
        return raw(text.to_owned())
            .map_err(|failure| Failure::usage(format!("--input: {}", failure.message)));
    };
    let path = Path::new(path);
    let failed =
        |err: std::io::Error| Failure::usage(format!("cannot read {}: {err}", path.display()));
    if fs::metadata(path).map_err(failed)?.len() > INPUT_LIMIT_BYTES {
        return Err(Failure::usage(format!(
            "{} is larger than {INPUT_LIMIT_BYTES} bytes",
            path.display()
        )));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    raw(text).map_err(|failure| failure.about(path.display()))
}

async fn finished(
    cx: &mut Context,
    client: &Client,
    target: &ObjectRef,
    uid: &str,
    timeout: Duration,
) -> Result<converge_client::Answer<Operation>> {
    let started = Instant::now();
    loop {
        let answer = client.operation(&target.kind, &target.name, uid).await?;
        let state = answer.value.state;
        if matches!(state, OperationState::Succeeded | OperationState::Failed) {
            cx.progress.clear();
            return Ok(answer);
        }
        cx.progress
            .status(&format!("{target}: {} is {state}", answer.value.verb));
        if started.elapsed() >= timeout {
            cx.progress.clear();
            return Err(Failure::new(
                exit::TIMEOUT,
                format!("{target}: operation {uid} is {state} (waited {timeout:?})"),
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn list(cx: &mut Context, client: &Client, target: &ObjectRef, format: Format) -> Result {
    let list = client
        .list(&["resources", &target.kind, &target.name, "ops"], &[])
        .await?;
    if output::whole_list(&mut cx.out, format, &list)? {
        return Ok(());
    }
    let operations: Vec<Operation> = items(client, &list)?;
    if format == Format::Name {
        return operations
            .iter()
            .try_for_each(|operation| cx.out.line(&clean(&operation.uid)));
    }
    if operations.is_empty() {
        cx.progress.note("no operations");
        return Ok(());
    }
    cx.out.text(&table(&operations).render(""))
}

fn table(operations: &[Operation]) -> Table {
    let now = Clock::now();
    let mut table = Table::new(&["UID", "VERB", "STATE", "ATTEMPTS", "AGE", "MESSAGE"]);
    for operation in operations {
        let message = operation
            .failure
            .as_ref()
            .map(|failure| brief(&failure.message, 80))
            .unwrap_or_default();
        table.row(vec![
            clean(&operation.uid).into(),
            clean(&operation.verb).into(),
            operation.state.as_str().into(),
            operation.attempts.to_string().into(),
            since(&operation.created_at, now).into(),
            message.into(),
        ]);
    }
    table
}
