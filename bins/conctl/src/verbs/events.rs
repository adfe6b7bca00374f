//! `conctl events`: what happened to a resource, once or as it happens.

use std::collections::HashMap;

use clap::Args;
use converge_client::types::{Event, Json, List, ObjectRef};
use converge_client::{Client, Error};

use super::items;
use crate::context::{Context, POLL_INTERVAL};
use crate::exit::{Failure, Result};
use crate::names;
use crate::output::{self, Clock, Format, Table, clean, compact, since};

/// How often in a row a follower may find no server before it ends.
const UNREACHABLE_LIMIT: u32 = 20;

/// Show what happened to a resource, oldest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl events stdshell/hello
  conctl events stdshell/hello -f          go on until it is gone
  conctl events stdshell/old --deleted     of a resource that is gone")]
pub(crate) struct EventsArgs {
    /// The resource: kind/name.
    #[arg(required = true, value_name = "KIND/NAME")]
    names: Vec<String>,
    /// Go on and show new ones.
    #[arg(short = 'f', long)]
    follow: bool,
    /// Of a resource that is gone.
    #[arg(long, conflicts_with = "follow")]
    deleted: bool,
    /// How to show them.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

pub(crate) async fn run(cx: &mut Context, args: EventsArgs) -> Result {
    let reference = names::resource(&args.names)?;
    let client = cx.client()?;
    let about = |err: Error| Failure::from(err).about(clean(&reference.to_string()));
    if args.follow {
        return follow(cx, &client, &reference, args.output).await;
    }
    let list = read(&client, &reference, args.deleted)
        .await
        .map_err(about)?;
    if output::whole_list(&mut cx.out, args.output, &list)? {
        return Ok(());
    }
    let mut table = table();
    for event in items::<Event>(&client, &list)? {
        add_row(&mut table, &event, Clock::now(), whole_message(&event));
    }
    if list.items.is_empty() {
        cx.progress.note("no events");
        return Ok(());
    }
    cx.out.text(&table.render(""))
}

/// All events of a resource, oldest first.
pub(crate) async fn read(
    client: &Client,
    reference: &ObjectRef,
    deleted: bool,
) -> Result<List<Json>, Error> {
    let query: &[_] = if deleted { &[("deleted", "true")] } else { &[] };
    let mut list = client
        .list(
            &["resources", &reference.kind, &reference.name, "events"],
            query,
        )
        .await?;
    // Oldest first, also should a server page from the newest.
    list.items.sort_by_cached_key(|item| {
        serde_json::from_str::<Event>(item.get()).map_or(0, |event| event.seq)
    });
    Ok(list)
}

/// A table of events, for [`add_row`].
pub(crate) fn table() -> Table {
    Table::new(&["AGE", "TYPE", "GEN", "REACTION", "COUNT", "WHO", "MESSAGE"])
}

/// An event in such a table; how much of its message is shown is the caller's.
pub(crate) fn add_row(table: &mut Table, event: &Event, now: Clock, message: String) {
    table.row(vec![
        since(&event.at, now).into(),
        clean(&event.type_).into(),
        event.generation.to_string().into(),
        clean(event.reaction.as_deref().unwrap_or_default()).into(),
        if event.count > 1 {
            format!("x{}", event.count)
        } else {
            String::new()
        }
        .into(),
        clean(event.who.as_deref().unwrap_or_default()).into(),
        message.into(),
    ]);
}

fn whole_message(event: &Event) -> String {
    clean(event.message.trim())
}

/// Shows what is new or counted on, until the resource is gone.
async fn follow(
    cx: &mut Context,
    client: &Client,
    reference: &ObjectRef,
    format: Format,
) -> Result {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut table = table().reserve(&[("AGE", 4), ("TYPE", 17), ("REACTION", 8), ("WHO", 15)]);
    let mut begun = false;
    let mut unreachable = 0;
    loop {
        let answer = read(client, reference, false).await;
        let ends = matches!(&answer, Err(err) if begun && err.is_not_found());
        // Its last events were written when it went.
        let answer = if ends {
            read(client, reference, true).await
        } else {
            answer
        };
        match answer {
            Ok(list) => {
                unreachable = 0;
                show_new(cx, client, &list, format, &mut counts, &mut table, !begun)?;
                begun = true;
            }
            Err(Error::Unreachable { .. }) if begun && unreachable < UNREACHABLE_LIMIT => {
                unreachable += 1
            }
            Err(err) if ends && err.is_not_found() => {}
            Err(err) => return Err(Failure::from(err).about(clean(&reference.to_string()))),
        }
        cx.out.flush()?;
        if ends {
            cx.progress.note(&format!("{reference} is gone"));
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn show_new(
    cx: &mut Context,
    client: &Client,
    list: &List<Json>,
    format: Format,
    counts: &mut HashMap<u64, u64>,
    table: &mut Table,
    first: bool,
) -> Result {
    table.clear_rows();
    let mut documents = Vec::new();
    for item in &list.items {
        let event: Event = client.decode(item.get().as_bytes())?;
        if counts.insert(event.seq, event.count) != Some(event.count) {
            add_row(table, &event, Clock::now(), whole_message(&event));
            documents.push(item);
        }
    }
    // The server keeps a bounded number of events; nothing older than what it gave can come again.
    if let Some(oldest) = list.items.first() {
        let oldest: Event = client.decode(oldest.get().as_bytes())?;
        counts.retain(|seq, _| *seq >= oldest.seq);
    }
    match format {
        Format::Json => documents
            .iter()
            .try_for_each(|item| cx.out.line(&compact(item.get()))),
        Format::Yaml => documents.iter().try_for_each(|item| {
            cx.out.line("---")?;
            output::document(&mut cx.out, format, item)
        }),
        _ => {
            if first {
                cx.out.text(&table.render_headers())?;
            }
            cx.out.text(&table.render_rows())
        }
    }
}
