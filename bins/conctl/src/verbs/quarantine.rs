//! `conctl quarantine` and `unquarantine`.

use clap::Args;

use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::names::resources;
use crate::output::clean;

/// Options of both.
#[derive(Debug, Args)]
pub(crate) struct QuarantineArgs {
    /// The resources: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// Also everything below.
    #[arg(long)]
    recursive: bool,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    On,
    Off,
}

pub(crate) async fn run(cx: &mut Context, args: QuarantineArgs, turn: Turn) -> Result {
    let targets = resources(&args.names)?;
    let client = cx.client()?;
    for target in targets {
        let done = match turn {
            Turn::On => {
                client
                    .resource_quarantine(&target.kind, &target.name, args.recursive)
                    .await
            }
            Turn::Off => {
                client
                    .resource_unquarantine(&target.kind, &target.name, args.recursive)
                    .await
            }
        };
        done.map_err(|err| Failure::from(err).about(clean(&target.to_string())))?;
        let word = if turn == Turn::On {
            "quarantined"
        } else {
            "unquarantined"
        };
        cx.out
            .line(&format!("{} {word}", clean(&target.to_string())))?;
    }
    Ok(())
}
