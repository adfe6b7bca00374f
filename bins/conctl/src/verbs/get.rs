//! `conctl get`: one object, or a few, as they are.

use clap::Args;
use converge_client::Client;
use converge_client::types::{Json, Kind, ProviderConfig, ReactorBinding, Resource};

use super::{list, newest_version};
use crate::context::Context;
use crate::exit::{Failure, Result};
use crate::names::{Target, Targets, targets};
use crate::output::{
    self, Clock, Format, clean, compact, kind_table, provider_config_table, reactor_binding_table,
    resource_row, resource_table,
};

/// Show objects.
///
/// A TYPE alone lists all of it, like `conctl list TYPE`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl get stdshell/hello               a row
  conctl get stdshell/hello -o yaml       all of it
  conctl get manifest stdshell/v1 -o json
  conctl get pc fast")]
pub(crate) struct GetArgs {
    /// What to show: NAME… or TYPE NAME…, where a resource is kind/name and a manifest is kind or kind/vN.
    #[arg(required = true, value_name = "[TYPE] NAME")]
    names: Vec<String>,
    /// How to show it.
    #[arg(short = 'o', long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

pub(crate) async fn run(cx: &mut Context, args: GetArgs) -> Result {
    let targets = match targets(&args.names)? {
        Targets::All(object_type) => return list::all(cx, object_type, args.output).await,
        Targets::Some(targets) => targets,
    };
    let client = cx.client()?;
    let mut found = Vec::new();
    for target in targets {
        let body = fetch(&client, &target)
            .await
            .map_err(|failure| failure.about(clean(&target.label())))?;
        found.push((target, body));
    }
    match args.output {
        Format::Name => {
            for (target, body) in &found {
                let label = match target {
                    Target::Manifest { kind, .. } => {
                        let manifest: converge_client::types::Manifest =
                            client.decode(body.get().as_bytes())?;
                        format!("manifest/{kind}/v{}", manifest.kind_version)
                    }
                    target => target.label(),
                };
                cx.out.line(&clean(&label))?;
            }
            Ok(())
        }
        Format::Json | Format::Yaml => {
            let several = found.len() > 1;
            for (_, body) in &found {
                match args.output {
                    Format::Json if several => cx.out.line(&compact(body.get()))?,
                    Format::Yaml if several => {
                        cx.out.line("---")?;
                        output::document(&mut cx.out, args.output, body)?;
                    }
                    _ => output::document(&mut cx.out, args.output, body)?,
                }
            }
            Ok(())
        }
        Format::Table | Format::Wide => {
            table(cx, &client, found, args.output == Format::Wide).await
        }
    }
}

/// The answer about one object.
pub(crate) async fn fetch(client: &Client, target: &Target) -> Result<Json> {
    let answer = match target {
        Target::Resource(r) => client.object(&["resources", &r.kind, &r.name]).await?,
        Target::Manifest { kind, version } => {
            let version = match version {
                Some(version) => *version,
                None => newest_version(client, kind).await?,
            };
            client
                .object(&["kinds", kind, "versions", &version.to_string(), "manifest"])
                .await?
        }
        Target::ProviderConfig(name) => client.object(&["providerconfigs", name]).await?,
        Target::ReactorBinding(name) => client.object(&["reactor-bindings", name]).await?,
    };
    Ok(answer.value)
}

/// One table for each type that was asked for.
async fn table(
    cx: &mut Context,
    client: &Client,
    found: Vec<(Target, Json)>,
    wide: bool,
) -> Result {
    let now = Clock::now();
    let (mut resources, mut configs, mut bindings, mut manifests) =
        (vec![], vec![], vec![], vec![]);
    for (target, body) in &found {
        let body = body.get().as_bytes();
        match target {
            Target::Resource(_) => resources.push(client.decode::<Resource>(body)?),
            Target::ProviderConfig(_) => configs.push(client.decode::<ProviderConfig>(body)?),
            Target::ReactorBinding(_) => bindings.push(client.decode::<ReactorBinding>(body)?),
            Target::Manifest { .. } => {
                manifests.push(client.decode::<converge_client::types::Manifest>(body)?);
            }
        }
    }
    let mut parts = Vec::new();
    if !manifests.is_empty() {
        let wanted: Vec<_> = manifests
            .iter()
            .map(|m| (m.kind.clone(), m.kind_version))
            .collect();
        let kinds: Vec<Kind> = client
            .kinds()
            .await
            .map_err(Failure::from)?
            .items
            .into_iter()
            .filter(|kind| wanted.contains(&(kind.kind.clone(), kind.kind_version)))
            .collect();
        parts.push(kind_table(&kinds, wide, now));
    }
    if !configs.is_empty() {
        parts.push(provider_config_table(&configs, wide, now));
    }
    if !bindings.is_empty() {
        parts.push(reactor_binding_table(&bindings, wide, now));
    }
    if !resources.is_empty() {
        let mut table = resource_table(wide);
        for resource in &resources {
            table.row(resource_row(resource, wide, cx.out.colour, now));
        }
        parts.push(table);
    }
    let parts: Vec<String> = parts.iter().map(|table| table.render("")).collect();
    cx.out.text(&parts.join("\n"))
}
