//! `conctl wait`: until a resource is in a phase, has a condition or is gone.

use std::time::Duration;

use clap::Args;
use converge_client::types::Phase;

use crate::cli::duration;
use crate::context::Context;
use crate::exit::Result;
use crate::names::resources;
use crate::output::clean;
use crate::waiting::{Deadline, Goal, wait_for};

/// Wait for a resource.
///
/// Waiting for a phase ends at once, with exit code 1, when the resource is Failed instead: only another spec or config can
/// change that.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl wait stdshell/hello --for phase=Ready
  conctl wait stdcel/app --for condition=ChildrenReady --timeout 30s
  conctl wait stdshell/old --for delete")]
pub(crate) struct WaitArgs {
    /// The resources: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// What to wait for: phase=PHASE, condition=TYPE[=True|False|Unknown] or delete.
    #[arg(long = "for", value_name = "WHAT", value_parser = goal, default_value = "phase=Ready")]
    goal: Goal,
    /// How long to wait: 30s, 5m, 1h30m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

fn goal(text: &str) -> Result<Goal, String> {
    let mut parts = text.splitn(3, '=');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("phase"), Some(phase), None) => match Phase::parse(phase) {
            Some(phase) => Ok(Goal::Phase {
                phase,
                generation: 0,
                grace: Duration::ZERO,
            }),
            None => {
                let all: Vec<&str> = Phase::ALL.into_iter().map(Phase::as_str).collect();
                Err(format!("a phase is one of {}", all.join(", ")))
            }
        },
        (Some("condition"), Some(type_), status) if !type_.is_empty() => Ok(Goal::Condition {
            type_: type_.to_owned(),
            status: status.unwrap_or("True").to_owned(),
        }),
        (Some("delete" | "deleted"), None, None) => Ok(Goal::Gone { uid: None }),
        _ => Err("write phase=PHASE, condition=TYPE[=STATUS] or delete".to_owned()),
    }
}

pub(crate) async fn run(cx: &mut Context, args: WaitArgs) -> Result {
    let targets = resources(&args.names)?;
    let client = cx.client()?;
    let deadline = Deadline::after(args.timeout);
    for target in targets {
        let reached = wait_for(&client, &mut cx.progress, &target, &args.goal, deadline).await?;
        let how = match (&args.goal, reached) {
            (Goal::Condition { type_, status }, _) => format!("{type_}={status}"),
            (_, Some(resource)) => resource.phase.to_string(),
            (_, None) => "gone".to_owned(),
        };
        cx.out
            .line(&format!("{} {}", clean(&target.to_string()), clean(&how)))?;
        cx.out.flush()?;
    }
    Ok(())
}
