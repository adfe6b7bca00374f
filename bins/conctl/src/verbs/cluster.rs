//! `conctl cluster`: the brokers and the workers connected to them.

use clap::Args;
use converge_client::types::{ClusterMember, WorkerInfo};

use super::items;
use crate::context::Context;
use crate::exit::Result;
use crate::output::{self, Clock, Format, Table, clean, since};

/// Show the fleet.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl cluster            brokers and their workers
  conctl cluster -o wide    and which kind is not ready where, and why")]
pub(crate) struct ClusterArgs {
    /// How to show it.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

pub(crate) async fn run(cx: &mut Context, args: ClusterArgs) -> Result {
    show(cx, args.output).await
}

/// Shows the fleet.
pub(crate) async fn show(cx: &mut Context, format: Format) -> Result {
    let client = cx.client()?;
    let list = client.list(&["cluster-members"], &[]).await?;
    if output::whole_list(&mut cx.out, format, &list)? {
        return Ok(());
    }
    let members: Vec<ClusterMember> = items(&client, &list)?;
    if format == Format::Name {
        for member in &members {
            cx.out.line(&clean(&member.id))?;
            member
                .workers
                .iter()
                .try_for_each(|worker| cx.out.line(&clean(&worker.id)))?;
        }
        return Ok(());
    }
    cx.out
        .text(&table(&members, format == Format::Wide).render(""))
}

fn table(members: &[ClusterMember], wide: bool) -> Table {
    let now = Clock::now();
    let mut headers = vec![
        "NAME",
        "ROLE",
        "KINDS",
        "IN_FLIGHT",
        "CREDIT",
        "HEARTBEAT",
        "AGE",
    ];
    if wide {
        headers.extend(["ADDRESS", "VERSION", "IDENTITY", "NOT_READY"]);
    }
    let mut table = Table::new(&headers);
    for member in members {
        let mut cells = vec![
            clean(&member.id).into(),
            clean(&member.role).into(),
            "".into(),
            "".into(),
            "".into(),
            since(&member.last_heartbeat, now).into(),
            since(&member.started_at, now).into(),
        ];
        if wide {
            cells.extend([
                clean(&member.address).into(),
                clean(&member.version).into(),
                "".into(),
                "".into(),
            ]);
        }
        table.row(cells);
        for worker in &member.workers {
            let role = if worker.draining {
                "worker (draining)"
            } else {
                "worker"
            };
            let mut cells = vec![
                clean(&format!("  {}", worker.id)).into(),
                role.into(),
                kinds(worker).into(),
                worker.in_flight.to_string().into(),
                worker.credit.to_string().into(),
                since(&worker.last_heartbeat, now).into(),
                since(&worker.connected_at, now).into(),
            ];
            if wide {
                let identity = clean(worker.identity.as_deref().unwrap_or_default());
                cells.extend([
                    "".into(),
                    "".into(),
                    identity.into(),
                    not_ready(worker).into(),
                ]);
            }
            table.row(cells);
        }
    }
    table
}

fn kinds(worker: &WorkerInfo) -> String {
    let kinds: Vec<String> = worker
        .kinds
        .iter()
        .map(|kind| {
            format!(
                "{}/v{}{}",
                kind.kind,
                kind.kind_version,
                if kind.ready { "" } else { "!" }
            )
        })
        .collect();
    clean(&kinds.join(","))
}

fn not_ready(worker: &WorkerInfo) -> String {
    let reasons: Vec<String> = worker
        .kinds
        .iter()
        .filter(|kind| !kind.ready)
        .map(|kind| {
            format!(
                "{}/v{}: {}",
                kind.kind,
                kind.kind_version,
                kind.message.as_deref().unwrap_or("not ready")
            )
        })
        .collect();
    clean(&reasons.join("; "))
}
