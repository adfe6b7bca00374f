//! `conctl list`: many objects, once or as they change.
//!
//! Watching asks for the list's revision again and again, and for the list itself only when it moved; what is shown is
//! the difference to what was shown before, by identity.

use std::collections::HashMap;

use clap::Args;
use converge_client::types::{
    Json, Kind, List, Phase, ProviderConfig, ReactorBinding, Resource, ResourceQuery,
};
use converge_client::{Client, Error};

use super::{cluster, items};
use crate::context::{Context, POLL_INTERVAL};
use crate::document::raw;
use crate::exit::{Failure, Result};
use crate::names::ObjectType;
use crate::output::{
    self, Clock, Format, Table, clean, compact, kind_table, provider_config_table,
    reactor_binding_table, resource_row, resource_table,
};

/// The largest page the API gives.
const PAGE: u32 = 500;

/// How often in a row a watch may find no server before it ends.
const UNREACHABLE_LIMIT: u32 = 20;

/// List objects.
///
/// Without a TYPE these are resources, and the filters work on those.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl list                                   every resource
  conctl list --phase Failed --phase Degraded   what is not well
  conctl list -l team=a --kind stdshell -o name
  conctl list --root stdcel/app -w              everything below an app, and then every change
  conctl list kinds -o wide")]
pub(crate) struct ListArgs {
    /// resource, manifest, providerconfig, reactorbinding or cluster.
    #[arg(value_name = "TYPE")]
    object_type: Option<String>,
    /// Only this kind.
    #[arg(long)]
    kind: Option<String>,
    /// Only this kind at this version.
    #[arg(long, value_name = "KIND/vN", value_parser = kind_version)]
    kv: Option<String>,
    /// Only this phase; may be repeated.
    #[arg(long, value_parser = phase)]
    phase: Vec<Phase>,
    /// Only names that contain this.
    #[arg(long)]
    name: Option<String>,
    /// Only with this label; may be repeated.
    #[arg(short = 'l', long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<String>,
    /// Only children of this resource.
    #[arg(long, value_name = "KIND/NAME", value_parser = reference)]
    owner: Option<String>,
    /// Only what is below this resource.
    #[arg(long, value_name = "KIND/NAME", value_parser = reference)]
    root: Option<String>,
    /// Go on and show every change.
    #[arg(short = 'w', long)]
    watch: bool,
    /// How to show it.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

fn phase(text: &str) -> Result<Phase, String> {
    Phase::parse(text).ok_or_else(|| {
        let all: Vec<&str> = Phase::ALL.into_iter().map(Phase::as_str).collect();
        format!("a phase is one of {}", all.join(", "))
    })
}

fn kind_version(text: &str) -> Result<String, String> {
    let version = |version: &str| version.parse::<u16>().is_ok_and(|version| version > 0);
    match text.split_once("/v") {
        Some((kind, number)) if !kind.is_empty() && version(number) => Ok(text.to_owned()),
        _ => Err("a kind at a version is KIND/vN, such as stdshell/v1".to_owned()),
    }
}

fn reference(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(text.to_owned())
        }
        _ => Err("a resource is KIND/NAME, such as stdshell/hello".to_owned()),
    }
}

/// Reads `key=value` or `key:value` into what the API takes.
fn label(text: &str) -> Result<String, String> {
    match text.split_once(['=', ':']) {
        Some((key, value)) if !key.is_empty() => Ok(format!("{key}:{value}")),
        _ => Err("a label is KEY=VALUE".to_owned()),
    }
}

pub(crate) async fn run(cx: &mut Context, args: ListArgs) -> Result {
    let object_type = match &args.object_type {
        None => ObjectType::Resource,
        Some(word) => ObjectType::parse(word).ok_or_else(|| {
            Failure::usage(format!(
                "{word:?} is no type: resource, manifest, providerconfig, reactorbinding or cluster"
            ))
        })?,
    };
    let query = ResourceQuery {
        kind: args.kind,
        kv: args.kv,
        phase: args.phase.iter().map(ToString::to_string).collect(),
        name: args.name,
        label: args.label,
        owner: args.owner,
        root: args.root,
        limit: Some(PAGE),
        ..ResourceQuery::default()
    };
    if object_type != ObjectType::Resource {
        let filtered = ResourceQuery {
            limit: Some(PAGE),
            ..ResourceQuery::default()
        } != query;
        if filtered || args.watch {
            return Err(Failure::usage("filters and --watch work on resources only"));
        }
        return all(cx, object_type, args.output).await;
    }
    let client = cx.client()?;
    if args.watch {
        return watch(cx, &client, query, args.output).await;
    }
    let list = resources(&client, &query).await?;
    show_resources(cx, &client, &list, args.output)
}

/// All objects of a type.
pub(crate) async fn all(cx: &mut Context, object_type: ObjectType, format: Format) -> Result {
    let client = cx.client()?;
    let path: &[&str] = match object_type {
        ObjectType::Resource => {
            let query = ResourceQuery {
                limit: Some(PAGE),
                ..ResourceQuery::default()
            };
            let list = resources(&client, &query).await?;
            return show_resources(cx, &client, &list, format);
        }
        ObjectType::Cluster => return cluster::show(cx, format).await,
        ObjectType::Manifest => &["kinds"],
        ObjectType::ProviderConfig => &["providerconfigs"],
        ObjectType::ReactorBinding => &["reactor-bindings"],
    };
    let list = client.list(path, &[]).await?;
    if output::whole_list(&mut cx.out, format, &list)? {
        return Ok(());
    }
    let (now, wide) = (Clock::now(), format == Format::Wide);
    let (names, table) = match object_type {
        ObjectType::ProviderConfig => {
            let items: Vec<ProviderConfig> = items(&client, &list)?;
            let names = items
                .iter()
                .map(|config| format!("providerconfig/{}", config.name))
                .collect();
            (names, provider_config_table(&items, wide, now))
        }
        ObjectType::ReactorBinding => {
            let items: Vec<ReactorBinding> = items(&client, &list)?;
            let names = items
                .iter()
                .map(|binding| format!("reactorbinding/{}", binding.name))
                .collect();
            (names, reactor_binding_table(&items, wide, now))
        }
        _ => {
            let items: Vec<Kind> = items(&client, &list)?;
            let names = items
                .iter()
                .map(|kind| format!("manifest/{}/v{}", kind.kind, kind.kind_version))
                .collect();
            (names, kind_table(&items, wide, now))
        }
    };
    show_table(cx, names, &table, format)
}

async fn resources(client: &Client, query: &ResourceQuery) -> Result<List<Json>, Error> {
    let mut query = query.clone();
    let mut page = client.resource_page(&query).await?;
    let mut list = List {
        items: page.items,
        revision: page.revision,
    };
    while let Some(cursor) = page.next_cursor {
        query.cursor = Some(cursor);
        page = client.resource_page(&query).await?;
        list.items.append(&mut page.items);
    }
    Ok(list)
}

fn show_resources(cx: &mut Context, client: &Client, list: &List<Json>, format: Format) -> Result {
    if output::whole_list(&mut cx.out, format, list)? {
        return Ok(());
    }
    let (now, wide) = (Clock::now(), format == Format::Wide);
    let mut table = resource_table(wide);
    let mut names = Vec::new();
    for resource in items::<Resource>(client, list)? {
        names.push(resource.reference().to_string());
        table.row(resource_row(&resource, wide, cx.out.colour, now));
    }
    show_table(cx, names, &table, format)
}

fn show_table(cx: &mut Context, names: Vec<String>, table: &Table, format: Format) -> Result {
    if format == Format::Name {
        for name in names {
            cx.out.line(&clean(&name))?;
        }
        return Ok(());
    }
    if names.is_empty() {
        cx.progress.note("nothing found");
        return Ok(());
    }
    cx.out.text(&table.render(""))
}

/// What was shown last of each resource, by identity.
struct Shown {
    item: String,
    name: String,
}

async fn watch(cx: &mut Context, client: &Client, query: ResourceQuery, format: Format) -> Result {
    let mut shown: HashMap<String, Shown> = HashMap::new();
    // Longer names than the first may come.
    let mut table = resource_table(format == Format::Wide).reserve(&[
        ("NAME", 32),
        ("PHASE", 11),
        ("GEN", 3),
        ("AGE", 4),
    ]);
    let mut revision = None;
    let mut unreachable = 0;
    loop {
        match changed_list(client, &query, revision).await {
            Ok(Some(list)) => {
                show_changes(
                    cx,
                    client,
                    &list,
                    format,
                    &mut shown,
                    &mut table,
                    revision.is_none(),
                )?;
                cx.out.flush()?;
                revision = Some(list.revision);
                unreachable = 0;
            }
            Ok(None) => unreachable = 0,
            // A watch outlives a restart of the server, once it has begun.
            Err(Error::Unreachable { .. })
                if revision.is_some() && unreachable < UNREACHABLE_LIMIT =>
            {
                unreachable += 1;
            }
            Err(err) => return Err(err.into()),
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The list, when it is not at the revision that was seen.
async fn changed_list(
    client: &Client,
    query: &ResourceQuery,
    seen: Option<u64>,
) -> Result<Option<List<Json>>, Error> {
    if let Some(seen) = seen {
        let look = ResourceQuery {
            limit: Some(1),
            ..query.clone()
        };
        if client.resource_page(&look).await?.revision == seen {
            return Ok(None);
        }
    }
    resources(client, query).await.map(Some)
}

fn show_changes(
    cx: &mut Context,
    client: &Client,
    list: &List<Json>,
    format: Format,
    shown: &mut HashMap<String, Shown>,
    table: &mut Table,
    first: bool,
) -> Result {
    let (now, wide) = (Clock::now(), format == Format::Wide);
    let mut gone: HashMap<String, Shown> = std::mem::take(shown);
    let mut documents = Vec::new();
    let mut names = Vec::new();
    table.clear_rows();
    for item in &list.items {
        let resource: Resource = client.decode(item.get().as_bytes())?;
        let text = compact(item.get());
        let name = resource.reference().to_string();
        let before = gone.remove(&resource.uid);
        if before.is_none_or(|before| before.item != text) {
            table.row(resource_row(&resource, wide, cx.out.colour, now));
            names.push(clean(&name));
            documents.push(text.clone());
        }
        shown.insert(resource.uid, Shown { item: text, name });
    }
    let mut gone: Vec<(String, Shown)> = gone.into_iter().collect();
    gone.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    match format {
        Format::Table | Format::Wide => {
            if first {
                cx.out.text(&table.render_headers())?;
            }
            for (_, was) in &gone {
                let mut cells = vec![clean(&was.name).into(), "Removed".into()];
                cells.resize_with(table.columns(), || "".into());
                table.row(cells);
            }
            cx.out.text(&table.render_rows())
        }
        Format::Name => {
            names.extend(gone.iter().map(|(_, was)| clean(&was.name)));
            names.iter().try_for_each(|name| cx.out.line(name))
        }
        Format::Json | Format::Yaml => {
            for (uid, was) in &gone {
                let (kind, name) = was.name.split_once('/').unwrap_or(("", &was.name));
                documents.push(
                    serde_json::json!({ "kind": kind, "name": name, "uid": uid, "removed": true })
                        .to_string(),
                );
            }
            for document in documents {
                if format == Format::Json {
                    cx.out.line(&document)?;
                } else {
                    cx.out.line("---")?;
                    output::document(&mut cx.out, format, &raw(document)?)?;
                }
            }
            Ok(())
        }
    }
}
