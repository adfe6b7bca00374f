//! `conctl describe`: everything a person wants to know about one object, the reason why it is not well first.

use std::fmt::Write as _;

use clap::Args;
use converge_client::types::{
    Condition, Dependencies, Dependency, Event, Json, List, Manifest, ObjectRef, ProviderConfig,
    ReactorBinding, Resource,
};
use converge_client::{Client, Error};

use super::get;
use crate::context::Context;
use crate::exit::Result;
use crate::names::{Target, some_targets};
use crate::output::{Clock, Table, brief, clean, clean_lines, phase_cell, since, to_yaml, until};

/// How many lines of a spec or status are shown.
const DOCUMENT_LINES: usize = 40;
/// How many children or dependencies are shown.
const ROWS: usize = 50;
/// How many of the newest events are shown.
const EVENTS: usize = 15;
/// How much of a message fits into a row.
const MESSAGE_CHARS: usize = 100;

/// Explain an object: how it is doing, and why.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl describe stdshell/hello
  conctl describe pc fast")]
pub(crate) struct DescribeArgs {
    /// What to describe: NAME… or TYPE NAME…, where a resource is kind/name.
    #[arg(required = true, value_name = "[TYPE] NAME")]
    names: Vec<String>,
}

pub(crate) async fn run(cx: &mut Context, args: DescribeArgs) -> Result {
    let targets = some_targets(&args.names)?;
    let client = cx.client()?;
    for (index, target) in targets.iter().enumerate() {
        let body = get::fetch(&client, target)
            .await
            .map_err(|failure| failure.about(clean(&target.label())))?;
        let colour = cx.out.colour;
        let text = match target {
            Target::Resource(reference) => {
                let resource: Resource = client.decode(body.get().as_bytes())?;
                let around = Around::read(&client, reference).await?;
                describe_resource(&resource, &around, colour)
            }
            Target::ProviderConfig(_) => describe_config(&client.decode(body.get().as_bytes())?),
            Target::ReactorBinding(_) => describe_binding(&client.decode(body.get().as_bytes())?),
            Target::Manifest { .. } => describe_manifest(&client.decode(body.get().as_bytes())?),
        };
        if index > 0 {
            cx.out.line("")?;
        }
        cx.out.text(&text)?;
    }
    Ok(())
}

/// What is around a resource.
struct Around {
    events: List<Json>,
    dependencies: Option<Dependencies>,
    children: Vec<Resource>,
}

impl Around {
    async fn read(client: &Client, reference: &ObjectRef) -> Result<Self> {
        let ObjectRef { kind, name } = reference;
        let events = super::events::read(client, reference, false).await;
        let dependencies = client
            .resource_dependencies(kind, name)
            .await
            .map(|answer| Some(answer.value));
        let children = client
            .resource_children(kind, name)
            .await
            .map(|list| list.items);
        Ok(Self {
            events: or_gone(
                events,
                List {
                    items: Vec::new(),
                    revision: 0,
                },
            )?,
            dependencies: or_gone(dependencies, None)?,
            children: or_gone(children, Vec::new())?,
        })
    }
}

/// The resource may go while it is described: what was read of it so far is still worth showing.
fn or_gone<T>(answer: Result<T, Error>, otherwise: T) -> Result<T, Error> {
    match answer {
        Err(err) if err.is_not_found() => Ok(otherwise),
        answer => answer,
    }
}

fn field(text: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<13}{}", format!("{name}:"), clean(value));
    }
}

fn section(text: &mut String, title: &str) {
    let _ = write!(text, "\n{title}:\n");
}

fn when(at: &str, now: Clock) -> String {
    format!("{at} ({} ago)", since(at, now))
}

fn describe_resource(resource: &Resource, around: &Around, colour: bool) -> String {
    let now = Clock::now();
    let mut text = String::new();
    field(&mut text, "Name", &resource.reference().to_string());
    field(&mut text, "Version", &format!("v{}", resource.kind_version));
    let _ = writeln!(
        text,
        "{:<13}{}",
        "Phase:",
        phase_cell(resource.phase, colour).render()
    );
    field(
        &mut text,
        "Waiting",
        resource.waiting.as_deref().unwrap_or_default(),
    );
    let synced = match resource.synced_gen {
        0 => "never synced".to_owned(),
        synced if synced == resource.generation => "synced".to_owned(),
        synced => format!("synced at {synced}"),
    };
    field(
        &mut text,
        "Generation",
        &format!("{} ({synced})", resource.generation),
    );
    if resource.quarantined {
        field(
            &mut text,
            "Quarantined",
            "yes; `conctl unquarantine` lets it go on",
        );
    }
    if let Some(at) = &resource.deletion_requested_at {
        field(&mut text, "Deleting", &format!("since {}", when(at, now)));
    }
    let reference = |r: &Option<ObjectRef>| r.as_ref().map(ToString::to_string).unwrap_or_default();
    field(&mut text, "Owner", &reference(&resource.owner));
    field(&mut text, "Root", &reference(&resource.root));
    field(
        &mut text,
        "Config",
        resource.provider_config_ref.as_deref().unwrap_or_default(),
    );
    let labels: Vec<String> = resource
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    field(&mut text, "Labels", &labels.join(" "));
    field(&mut text, "Finalizers", &resource.finalizers.join(" "));
    field(&mut text, "UID", &resource.uid);
    field(&mut text, "Created", &when(&resource.created_at, now));
    field(&mut text, "Updated", &when(&resource.updated_at, now));
    if let Some(failure) = &resource.failure {
        section(&mut text, "Failure");
        let attempts = match failure.attempts {
            0 => String::new(),
            1 => ", 1 attempt".to_owned(),
            attempts => format!(", {attempts} attempts"),
        };
        let next = match (&failure.next_attempt_at, failure.terminal) {
            (Some(at), _) => format!(", next in {} ({at})", until(at, now)),
            (None, true) => {
                "; a change of its spec or config, or `conctl reconcile`, starts it again"
                    .to_owned()
            }
            (None, false) => String::new(),
        };
        let kind = if failure.terminal {
            "terminal"
        } else {
            "transient"
        };
        let _ = writeln!(text, "  {kind}{attempts}{}", clean(&next));
        push_lines(&mut text, &failure.message, usize::MAX, "");
    }
    conditions(&mut text, &resource.conditions, now);
    if let Some(dependencies) = &around.dependencies {
        dependency_rows(&mut text, "Needs", &dependencies.items, colour);
        dependency_rows(&mut text, "Needed by", &dependencies.dependents, colour);
    }
    children(&mut text, &around.children, colour);
    let more = format!("conctl get {} -o yaml", resource.reference());
    document(&mut text, "Spec", resource.spec.as_ref(), &more);
    document(&mut text, "Status", resource.status.as_ref(), &more);
    events(&mut text, &around.events, now);
    text
}

fn push_lines(text: &mut String, lines: &str, limit: usize, more: &str) {
    let lines = clean_lines(lines);
    let count = lines.trim_end().lines().count();
    for line in lines.trim_end().lines().take(limit) {
        let _ = writeln!(text, "  {line}");
    }
    if count > limit {
        let _ = writeln!(text, "  … {} more lines: {}", count - limit, clean(more));
    }
}

fn conditions(text: &mut String, conditions: &[Condition], now: Clock) {
    if conditions.is_empty() {
        return;
    }
    section(text, "Conditions");
    let mut table = Table::new(&["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]);
    for condition in conditions {
        table.row(vec![
            clean(&condition.type_).into(),
            condition.status.as_str().into(),
            clean(&condition.reason).into(),
            since(&condition.last_transition_time, now).into(),
            brief(&condition.message, MESSAGE_CHARS).into(),
        ]);
    }
    text.push_str(&table.render("  "));
}

fn dependency_rows(text: &mut String, title: &str, dependencies: &[Dependency], colour: bool) {
    if dependencies.is_empty() {
        return;
    }
    section(text, title);
    let mut table = Table::new(&["NAME", "PHASE", "VALUES"]);
    for dependency in dependencies.iter().take(ROWS) {
        let values: Vec<String> = dependency
            .values
            .iter()
            .map(|flow| {
                let pending = if flow.delivered { "" } else { " (not yet)" };
                format!("{} -> {}{pending}", flow.source_field, flow.dependent_field)
            })
            .collect();
        table.row(vec![
            clean(&format!("{}/{}", dependency.kind, dependency.name)).into(),
            phase_cell(dependency.phase, colour),
            brief(&values.join(", "), MESSAGE_CHARS).into(),
        ]);
    }
    text.push_str(&table.render("  "));
    more_rows(text, dependencies.len());
}

fn more_rows(text: &mut String, count: usize) {
    if count > ROWS {
        let _ = writeln!(text, "  … {} more", count - ROWS);
    }
}

fn children(text: &mut String, children: &[Resource], colour: bool) {
    if children.is_empty() {
        return;
    }
    section(text, "Children");
    let mut table = Table::new(&["NAME", "PHASE", "GEN", "WAITING"]);
    for child in children.iter().take(ROWS) {
        let reason = child
            .failure
            .as_ref()
            .map(|f| f.message.as_str())
            .or(child.waiting.as_deref());
        table.row(vec![
            clean(&child.reference().to_string()).into(),
            phase_cell(child.phase, colour),
            child.generation.to_string().into(),
            brief(reason.unwrap_or_default(), MESSAGE_CHARS).into(),
        ]);
    }
    text.push_str(&table.render("  "));
    more_rows(text, children.len());
}

fn document(text: &mut String, title: &str, document: Option<&Json>, more: &str) {
    if let Some(document) = document {
        section(text, title);
        push_lines(text, &to_yaml(document), DOCUMENT_LINES, more);
    }
}

fn events(text: &mut String, events: &List<Json>, now: Clock) {
    if events.items.is_empty() {
        return;
    }
    section(text, "Events");
    let mut table = super::events::table();
    let newest = events.items.len().saturating_sub(EVENTS);
    for event in &events.items[newest..] {
        // An event this client does not understand is not a reason to show nothing.
        let Ok(event) = serde_json::from_str::<Event>(event.get()) else {
            continue;
        };
        let message = brief(&event.message, MESSAGE_CHARS);
        super::events::add_row(&mut table, &event, now, message);
    }
    if newest > 0 {
        let _ = writeln!(text, "  … {newest} older: conctl events");
    }
    text.push_str(&table.render("  "));
}

fn describe_config(config: &ProviderConfig) -> String {
    let now = Clock::now();
    let mut text = String::new();
    field(&mut text, "Name", &config.name);
    field(
        &mut text,
        "Kind",
        &format!("{} v{}", config.kind, config.kind_version),
    );
    field(
        &mut text,
        "Default",
        if config.is_default { "yes" } else { "no" },
    );
    field(
        &mut text,
        "Owner",
        &config
            .owner
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
    );
    if let Some(bundle) = &config.bundle {
        field(
            &mut text,
            "Bundle",
            &format!("{} bytes, sha256 {}", bundle.size, bundle.sha256),
        );
    }
    field(&mut text, "Digest", &config.digest);
    field(&mut text, "UID", &config.uid);
    field(&mut text, "Created", &when(&config.created_at, now));
    field(&mut text, "Updated", &when(&config.updated_at, now));
    document(
        &mut text,
        "Spec",
        config.spec.as_ref(),
        &format!("conctl get pc {} -o yaml", config.name),
    );
    text
}

fn describe_binding(binding: &ReactorBinding) -> String {
    let now = Clock::now();
    let mut text = String::new();
    field(&mut text, "Name", &binding.name);
    let version = binding
        .watch_kind_version
        .map(|v| format!(" v{v}"))
        .unwrap_or_default();
    field(
        &mut text,
        "Watches",
        &format!("{}{version}", binding.watch_kind),
    );
    field(&mut text, "On", &binding.transition);
    let labels: Vec<String> = binding
        .label_match
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    field(&mut text, "Labels", &labels.join(" "));
    field(
        &mut text,
        "Reactor",
        &format!("{} v{}", binding.reactor, binding.reactor_version),
    );
    field(
        &mut text,
        "Enabled",
        if binding.enabled { "yes" } else { "no" },
    );
    field(&mut text, "Pending", &binding.pending.to_string());
    field(&mut text, "Dead", &binding.dead_letters.to_string());
    field(&mut text, "UID", &binding.uid);
    field(&mut text, "Created", &when(&binding.created_at, now));
    field(&mut text, "Updated", &when(&binding.updated_at, now));
    text
}

fn describe_manifest(manifest: &Manifest) -> String {
    let now = Clock::now();
    let mut text = String::new();
    field(
        &mut text,
        "Kind",
        &format!("{} v{}", manifest.kind, manifest.kind_version),
    );
    field(&mut text, "Description", &manifest.description);
    field(
        &mut text,
        "Finalizer",
        manifest.finalizer_name.as_deref().unwrap_or_default(),
    );
    let or_none = |n: u64, unit: &str| {
        if n == 0 {
            "none".to_owned()
        } else {
            format!("{n}{unit}")
        }
    };
    field(
        &mut text,
        "In flight",
        &format!("at most {}", or_none(manifest.max_inflight, ""))
            .replace("at most none", "no cap"),
    );
    field(
        &mut text,
        "Deadline",
        &or_none(manifest.task_deadline_secs, "s"),
    );
    field(
        &mut text,
        "Resync",
        &or_none(manifest.resync_interval_secs, "s"),
    );
    field(&mut text, "On config", &manifest.on_config_change);
    field(&mut text, "Created", &when(&manifest.created_at, now));
    field(&mut text, "Updated", &when(&manifest.updated_at, now));
    section(&mut text, "Reactions");
    let mut table = Table::new(&["NAME", "TRIGGER", "VERB", "EMITS"]);
    for reaction in &manifest.reactions {
        table.row(vec![
            clean(&reaction.name).into(),
            clean(&reaction.trigger).into(),
            clean(reaction.verb.as_deref().unwrap_or_default()).into(),
            clean(&reaction.emits.join(" ")).into(),
        ]);
    }
    text.push_str(&table.render("  "));
    let more = format!(
        "conctl get manifest {}/v{} -o yaml",
        manifest.kind, manifest.kind_version
    );
    document(
        &mut text,
        "Spec schema",
        manifest.spec_schema.as_ref(),
        &more,
    );
    document(
        &mut text,
        "Config schema",
        manifest.config_schema.as_ref(),
        &more,
    );
    text
}
