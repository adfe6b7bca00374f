//! `conctl delete`: asks for teardown, and can wait until it is done.

use std::path::PathBuf;

use clap::Args;
use converge_client::Client;
use converge_client::types::DeleteQuery;

use super::apply::plan;
use super::newest_version;
use crate::cli::WaitFlags;
use crate::context::Context;
use crate::document::{Document, Walk, read_paths};
use crate::exit::{self, Failure, Result};
use crate::names::{ObjectType, Target, some_targets};
use crate::output::clean;
use crate::waiting::{Deadline, Goal, wait_for};

/// Delete objects. A resource is torn down with everything it owns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl delete stdshell/hello --wait      until it is gone
  conctl delete -f demo.yaml               what the file names, in the opposite order of apply
  conctl delete stdshell/child --force     a composed resource: torn down, then made again by its composer
  conctl delete stdshell/stuck --abandon   its teardown is given up; what it made is left behind")]
pub(crate) struct DeleteArgs {
    /// What to delete: NAME… or TYPE NAME…, where a resource is kind/name.
    #[arg(
        value_name = "[TYPE] NAME",
        required_unless_present = "files",
        conflicts_with = "files"
    )]
    names: Vec<String>,
    /// Delete what these files or directories name; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    files: Vec<PathBuf>,
    /// Also read the directories in a directory.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Replace a composed resource: torn down, then made again.
    #[arg(long)]
    force: bool,
    /// Give the teardown up. What it would have removed is left behind.
    #[arg(long)]
    abandon: bool,
    /// What is not there is deleted well enough.
    #[arg(long)]
    ignore_not_found: bool,
    #[command(flatten)]
    wait: WaitFlags,
}

pub(crate) async fn run(cx: &mut Context, args: DeleteArgs) -> Result {
    let targets = if args.files.is_empty() {
        some_targets(&args.names)?
    } else {
        let walk = Walk::as_told(args.recursive);
        let mut plan = plan(read_paths(&args.files, walk)?, None)?;
        plan.reverse();
        plan.iter()
            .map(|planned| named_by(planned.object_type, &planned.document))
            .collect::<Result<_>>()?
    };
    let client = cx.client()?;
    let how = DeleteQuery {
        force: args.force,
        abandon: args.abandon,
    };
    let several = targets.len() > 1;
    let mut failure: Option<Failure> = None;
    let mut deleted = Vec::new();
    for target in targets {
        match delete(&client, &target, how, args.wait.wait).await {
            Ok(uid) => {
                let word = if matches!(target, Target::Resource(_)) {
                    "deletion requested"
                } else {
                    "deleted"
                };
                cx.out.line(&format!("{} {word}", clean(&target.label())))?;
                deleted.push((target, uid));
            }
            Err(failed) if failed.code == exit::NOT_FOUND && args.ignore_not_found => {}
            Err(failed) if failed.code == exit::UNREACHABLE => return Err(failed),
            Err(failed) if several => {
                cx.progress.note(&format!("error: {}", failed.message));
                failure.get_or_insert(Failure::reported(failed.code));
            }
            Err(failed) => failure = Some(failed),
        }
    }
    if args.wait.wait {
        cx.out.flush()?;
        let deadline = Deadline::after(args.wait.timeout);
        for (target, uid) in deleted {
            let Target::Resource(reference) = &target else {
                continue;
            };
            wait_for(
                &client,
                &mut cx.progress,
                reference,
                &Goal::Gone { uid },
                deadline,
            )
            .await?;
            cx.out.line(&format!("{} gone", clean(&target.label())))?;
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Deletes one object; for a resource that is going to be waited for, gives its identity.
async fn delete(
    client: &Client,
    target: &Target,
    how: DeleteQuery,
    identify: bool,
) -> Result<Option<String>> {
    let about = |failure: Failure| failure.about(clean(&target.label()));
    let mut uid = None;
    let deleted = match target {
        Target::Resource(reference) => {
            if identify {
                // Before the deletion: afterwards the name may be another resource's.
                let answer = client.resource(&reference.kind, &reference.name).await;
                uid = Some(answer.map_err(|err| about(err.into()))?.value.uid);
            }
            client
                .resource_delete(&reference.kind, &reference.name, how)
                .await
        }
        _ if how.force || how.abandon => {
            return Err(about(Failure::usage(
                "--force and --abandon work on resources only",
            )));
        }
        Target::Manifest { kind, version } => {
            let version = match version {
                Some(version) => *version,
                None => newest_version(client, kind).await.map_err(about)?,
            };
            client.manifest_delete(kind, version).await
        }
        Target::ProviderConfig(name) => client.providerconfig_delete(name).await,
        Target::ReactorBinding(name) => client.reactor_binding_delete(name).await,
    };
    deleted.map(|()| uid).map_err(|err| about(err.into()))
}

pub(crate) fn named_by(object_type: ObjectType, document: &Document) -> Result<Target> {
    Ok(match object_type {
        ObjectType::Manifest => Target::Manifest {
            kind: document.required("kind")?,
            version: document.integer("kind_version"),
        },
        ObjectType::ProviderConfig => Target::ProviderConfig(document.required("name")?),
        ObjectType::ReactorBinding => Target::ReactorBinding(document.required("name")?),
        ObjectType::Resource | ObjectType::Cluster => {
            Target::Resource(converge_client::types::ObjectRef::new(
                document.required("kind")?,
                document.required("name")?,
            ))
        }
    })
}
