//! `conctl rollback`: an earlier authored state, whole, as a new generation.

use clap::Args;
use converge_client::Client;
use converge_client::types::{ObjectRef, Phase, SpecRevision};

use crate::cli::WaitFlags;
use crate::context::Context;
use crate::exit::{self, Failure, Result};
use crate::names::resource;
use crate::output::{Clock, Table, clean, since};
use crate::waiting::{Deadline, Goal, situation, wait_for};

/// Go back to an earlier state of a resource.
///
/// The whole of it comes back: spec, labels, version and config; as a new generation.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl rollback stdshell/hello --history     what there is to go back to
  conctl rollback stdshell/hello               to the state before the last
  conctl rollback stdshell/hello --to 3 --wait")]
pub(crate) struct RollbackArgs {
    /// The resource: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// The generation whose state to go back to; the one before the last when absent.
    #[arg(long, value_name = "GENERATION")]
    to: Option<u64>,
    /// Only show what there is.
    #[arg(long, conflicts_with = "to")]
    history: bool,
    #[command(flatten)]
    wait: WaitFlags,
}

pub(crate) async fn run(cx: &mut Context, args: RollbackArgs) -> Result {
    let target = resource(&args.names)?;
    let client = cx.client()?;
    let about = |failure: Failure| failure.about(clean(&target.to_string()));
    if args.history {
        return show(cx, &history(&client, &target).await.map_err(about)?);
    }
    let generation = match args.to {
        Some(generation) => generation,
        None => history(&client, &target)
            .await
            .map_err(about)?
            .get(1)
            .map(|revision| revision.generation)
            .ok_or_else(|| {
                about(Failure::new(
                    exit::REFUSED,
                    "there is no earlier state to go back to",
                ))
            })?,
    };
    let answer = client
        .resource_rollback(&target.kind, &target.name, generation)
        .await
        .map_err(|err| about(err.into()))?;
    let now = answer.value.generation;
    cx.out.line(&format!(
        "{} rolled back to {generation} (generation {now})",
        clean(&target.to_string())
    ))?;
    if args.wait.wait {
        cx.out.flush()?;
        let goal = Goal::Phase {
            phase: Phase::Ready,
            generation: now,
            grace: std::time::Duration::ZERO,
        };
        let deadline = Deadline::after(args.wait.timeout);
        if let Some(resource) =
            wait_for(&client, &mut cx.progress, &target, &goal, deadline).await?
        {
            cx.progress.note(&situation(&resource));
        }
    }
    Ok(())
}

/// The authored states, newest first.
async fn history(client: &Client, target: &ObjectRef) -> Result<Vec<SpecRevision>> {
    let mut items = client.spec_history(&target.kind, &target.name).await?.items;
    items.sort_by_key(|revision| std::cmp::Reverse(revision.generation));
    Ok(items)
}

fn show(cx: &mut Context, history: &[SpecRevision]) -> Result {
    let now = Clock::now();
    let mut table = Table::new(&["GENERATION", "VERSION", "CONFIG", "AGE", "WHO"]);
    for revision in history {
        table.row(vec![
            revision.generation.to_string().into(),
            format!("v{}", revision.kind_version).into(),
            clean(revision.provider_config_ref.as_deref().unwrap_or_default()).into(),
            since(&revision.at, now).into(),
            clean(revision.who.as_deref().unwrap_or_default()).into(),
        ]);
    }
    cx.out.text(&table.render(""))
}
