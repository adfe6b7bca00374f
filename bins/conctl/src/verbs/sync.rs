//! `conctl sync`: a tree of files as the whole of an app.
//!
//! Pruning deletes, so it is careful: only resources without an owner, only those that carry the label of an app in this
//! tree, only after every document of the tree was read and applied, and only after it was asked. A tree without resources
//! is more likely a wrong path than a wish to delete everything, and prunes nothing unless told to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use converge_client::Client;
use converge_client::types::{DeleteQuery, Json, ObjectRef, Resource, ResourceQuery};

use super::apply::{Options, Planned, plan, send_all};
use super::diff;
use crate::context::Context;
use crate::document::{
    Document, Shape, Source, json_string, push_json_string, raw, read_app, read_tree, shape,
};
use crate::exit::{self, Failure, Result};
use crate::names::{ObjectType, Target};
use crate::output::{Format, clean};

/// The label that says which app a resource is of.
const APP_LABEL: &str = "converge.sh/app";

/// The file that names an app.
const APP_FILE: &str = "converge.yaml";

/// Make the server hold what a tree of files says.
///
/// Every resource gets the label converge.sh/app of the nearest converge.yaml (`app: NAME`), in its directory or one above
/// it. --prune then deletes the resources of these apps that are gone from the tree.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl sync deploy/                      apply everything below deploy/
  conctl sync deploy/ --prune --dry-run    what would change, and what would be deleted
  conctl sync deploy/ --prune --yes        without asking")]
pub(crate) struct SyncArgs {
    /// The tree.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Delete resources of the tree's apps that are gone from it.
    #[arg(long)]
    prune: bool,
    /// Change nothing; show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Delete without asking.
    #[arg(long)]
    yes: bool,
    /// Let a tree without resources delete all of its app.
    #[arg(long)]
    allow_empty: bool,
}

pub(crate) async fn run(cx: &mut Context, args: SyncArgs) -> Result {
    if !args.dir.is_dir() {
        return Err(Failure::usage(format!(
            "{} is not a directory",
            args.dir.display()
        )));
    }
    let sources = read_tree(&args.dir)?;
    let (sources, apps) = stamp(&args.dir, sources)?;
    let plan = plan(sources, None)?;
    let kept = kept(&plan)?;
    if args.prune && apps.is_empty() {
        return Err(Failure::usage(format!(
            "--prune needs a {APP_FILE} (app: NAME) in {} or above it: it says which resources are this tree's",
            args.dir.display()
        )));
    }
    let client = cx.client()?;
    if args.dry_run {
        for planned in &plan {
            match diff::difference(&client, planned).await? {
                Some(text) => cx.out.text(&text)?,
                None => cx
                    .progress
                    .note(&format!("{} unchanged", diff::target(planned)?.label())),
            }
        }
    } else {
        let (_, failure) = send_all(cx, &client, plan, Options::default(), Format::Table).await?;
        if let Some(failure) = failure {
            // Deleting what a refused document may have meant to replace helps nobody.
            if args.prune {
                cx.progress
                    .note("nothing pruned: not everything could be applied");
            }
            return Err(failure);
        }
    }
    if args.prune {
        prune(cx, &client, &args, &apps, &kept).await
    } else {
        Ok(())
    }
}

/// Puts the app's label on every resource, and says which apps the tree has.
fn stamp(root: &Path, sources: Vec<Source>) -> Result<(Vec<Source>, BTreeSet<String>)> {
    let mut known: BTreeMap<PathBuf, Option<String>> = BTreeMap::new();
    let mut apps: BTreeSet<String> = nearest(root, &mut known)?.into_iter().collect();
    let mut stamped = Vec::with_capacity(sources.len());
    for mut source in sources {
        let directory = source
            .path
            .as_deref()
            .and_then(Path::parent)
            .unwrap_or(root);
        if let Some(app) = nearest(directory, &mut known)? {
            if source.document.object_type(None)? == ObjectType::Resource {
                label(&mut source.document, &app)?;
            }
            apps.insert(app);
        }
        stamped.push(source);
    }
    Ok((stamped, apps))
}

/// The app of the nearest converge.yaml, in this directory or above it.
fn nearest(
    directory: &Path,
    known: &mut BTreeMap<PathBuf, Option<String>>,
) -> Result<Option<String>> {
    let start = fs::canonicalize(directory)
        .map_err(|err| Failure::usage(format!("cannot read {}: {err}", directory.display())))?;
    for ancestor in start.ancestors() {
        if let Some(app) = known.get(ancestor) {
            let app = app.clone();
            known.insert(start.clone(), app.clone());
            return Ok(app);
        }
        let file = ancestor.join(APP_FILE);
        if file.is_file() {
            let document = read_app(&file)?;
            let app = document
                .text("app")
                .filter(|app| !app.is_empty() && app.len() <= 256)
                .ok_or_else(|| document.wrong("/app", "app must be the app's name"))?;
            known.insert(start.clone(), Some(app.clone()));
            return Ok(Some(app));
        }
    }
    known.insert(start.clone(), None);
    Ok(None)
}

fn label(document: &mut Document, app: &str) -> Result {
    let value = json_string(app)?;
    let members: Vec<(String, Json)> = match document.field("labels").map(shape) {
        None => Vec::new(),
        Some(Some(Shape::Object(members))) => members
            .into_iter()
            .map(|(key, value)| (key, value.to_owned()))
            .collect(),
        // The server says what is wrong with it.
        Some(_) => return Ok(()),
    };
    let mut labels = String::from("{");
    for (key, value) in members.iter().filter(|(key, _)| key != APP_LABEL) {
        push_json_string(&mut labels, key);
        labels.push(':');
        labels.push_str(value.get());
        labels.push(',');
    }
    push_json_string(&mut labels, APP_LABEL);
    labels.push(':');
    labels.push_str(value.get());
    labels.push('}');
    document.set("labels", raw(labels)?);
    Ok(())
}

/// The resources that the tree has.
fn kept(plan: &[Planned]) -> Result<BTreeSet<ObjectRef>> {
    let mut kept = BTreeSet::new();
    for planned in plan {
        if let Target::Resource(reference) = diff::target(planned)? {
            kept.insert(reference);
        }
    }
    Ok(kept)
}

async fn prune(
    cx: &mut Context,
    client: &Client,
    args: &SyncArgs,
    apps: &BTreeSet<String>,
    kept: &BTreeSet<ObjectRef>,
) -> Result {
    let mut extra = BTreeSet::new();
    for app in apps {
        extra.extend(
            of_app(client, app)
                .await?
                .into_iter()
                .filter(|reference| !kept.contains(reference)),
        );
    }
    if extra.is_empty() {
        cx.progress.note("nothing to prune");
        return Ok(());
    }
    if kept.is_empty() && !args.allow_empty {
        return Err(Failure::new(
            exit::REFUSED,
            format!(
                "{} holds no resource: pruning would delete all {} of {}; --allow-empty does that",
                args.dir.display(),
                extra.len(),
                apps.iter().cloned().collect::<Vec<_>>().join(", ")
            ),
        ));
    }
    if args.dry_run {
        return extra.iter().try_for_each(|reference| {
            cx.out.line(&format!(
                "{} would be deleted",
                clean(&reference.to_string())
            ))
        });
    }
    cx.out.flush()?;
    if !args.yes && !confirmed(&extra)? {
        return Err(Failure::new(exit::REFUSED, "nothing pruned"));
    }
    for reference in &extra {
        match client
            .resource_delete(&reference.kind, &reference.name, DeleteQuery::default())
            .await
        {
            Ok(()) => cx.out.line(&format!(
                "{} deletion requested",
                clean(&reference.to_string())
            ))?,
            // Somebody else was faster.
            Err(err) if err.is_not_found() => {}
            Err(err) => return Err(Failure::from(err).about(clean(&reference.to_string()))),
        }
    }
    Ok(())
}

/// The resources of an app that nobody owns and nobody deletes yet.
async fn of_app(client: &Client, app: &str) -> Result<Vec<ObjectRef>> {
    let mut query = ResourceQuery {
        label: vec![format!("{APP_LABEL}:{app}")],
        limit: Some(converge_client::types::MAX_PAGE),
        ..ResourceQuery::default()
    };
    let mut found = Vec::new();
    loop {
        let page = client.resource_page(&query).await?;
        for item in &page.items {
            let resource: Resource = client.decode(item.get().as_bytes())?;
            // Looked at again here: what is deleted must carry the label, whatever the filter gave.
            let is_ours = resource
                .labels
                .get(APP_LABEL)
                .is_some_and(|label| label == app);
            if is_ours && resource.owner.is_none() && resource.deletion_requested_at.is_none() {
                found.push(resource.reference());
            }
        }
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(found),
        }
    }
}

fn confirmed(extra: &BTreeSet<ObjectRef>) -> Result<bool> {
    let stdin = std::io::stdin();
    let mut stderr = std::io::stderr();
    for reference in extra {
        writeln!(stderr, "  {}", clean(&reference.to_string()))?;
    }
    if !stdin.is_terminal() {
        return Err(Failure::usage(
            "pruning asks first, and there is no terminal to ask on; --yes answers",
        ));
    }
    write!(stderr, "Delete these {}? [y/N] ", extra.len())?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
