//! `conctl reconcile`: asks for one full pass now, and ends a pin and a backoff.

use clap::Args;
use converge_client::types::Phase;

use super::idempotency_key;
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::names::resources;
use crate::output::clean;

/// Run a full pass of a resource now.
///
/// Ends a terminal failure and a backoff; on a resource that is being deleted its teardown is tried again.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl reconcile stdshell/hello
  conctl reconcile stdcel/app --recursive
  conctl reconcile --kind stdshell --phase Failed     everything of a kind that failed")]
pub(crate) struct ReconcileArgs {
    /// The resources: kind/name.
    #[arg(
        value_name = "KIND/NAME",
        required_unless_present = "kind",
        conflicts_with = "kind"
    )]
    names: Vec<String>,
    /// Also everything below.
    #[arg(long)]
    recursive: bool,
    /// Every resource of this kind.
    #[arg(long)]
    kind: Option<String>,
    /// With --kind: only in this phase.
    #[arg(long, requires = "kind")]
    phase: Option<String>,
}

pub(crate) async fn run(cx: &mut Context, args: ReconcileArgs) -> Result {
    if let Some(kind) = &args.kind {
        let phase = match &args.phase {
            Some(word) => Some(
                Phase::parse(word)
                    .ok_or_else(|| Failure::usage(format!("{word:?} is no phase")))?,
            ),
            None => None,
        };
        let client = cx.client()?;
        let answer = client
            .kind_reconcile(kind, phase.map(Phase::as_str))
            .await
            .map_err(|err| Failure::from(err).about(clean(kind)))?;
        return cx.out.line(&format!(
            "{} resources of {} reconciling",
            answer.value.reconciled,
            clean(kind)
        ));
    }
    let targets = resources(&args.names)?;
    let client = cx.client()?;
    for target in targets {
        client
            .resource_reconcile(
                &target.kind,
                &target.name,
                args.recursive,
                &idempotency_key(),
            )
            .await
            .map_err(|err| Failure::from(err).about(clean(&target.to_string())))?;
        cx.out
            .line(&format!("{} reconciling", clean(&target.to_string())))?;
    }
    Ok(())
}
