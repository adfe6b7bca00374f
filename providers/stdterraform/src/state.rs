//! The state itself: whether it is empty, moving it, removing it, and whether its store can lock.
//!
//! Must hold: a state is copied before anything runs against the new place, and never over one of another lineage; a state object is removed
//! only when it holds no resource. Not here: where a state is (`place`).

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::backend::StateBackend;
use crate::failure::Failure;
use crate::place::Place;
use crate::recovery::lock_failure;
use crate::session::{Origin, Session};
use crate::task::{Helper, Task, ended};
use crate::version::Wanted;

/// What of a state matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// There is one.
    pub(crate) exists: bool,
    lineage: String,
    serial: u64,
    /// Its resources and outputs.
    content: Value,
    /// Resources it manages.
    pub(crate) managed: usize,
}

impl Facts {
    /// Reads what `state pull` printed.
    pub(crate) fn read(pulled: &[u8]) -> Result<Self, Failure> {
        if pulled.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let state: Value = serde_json::from_slice(pulled).map_err(|error| {
            Failure::transient(
                "StateUnreadable",
                format!("the state cannot be read: {error}"),
            )
        })?;
        let resources = state.get("resources").and_then(Value::as_array);
        let managed = resources.into_iter().flatten().filter(|resource| {
            let instances = resource
                .get("instances")
                .and_then(Value::as_array)
                .is_none_or(|instances| !instances.is_empty());
            resource.get("mode").and_then(Value::as_str) != Some("data") && instances
        });
        Ok(Self {
            exists: true,
            lineage: state
                .get("lineage")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            serial: state.get("serial").and_then(Value::as_u64).unwrap_or(0),
            managed: managed.count(),
            content: serde_json::json!([state.get("resources"), state.get("outputs")]),
        })
    }
}

impl std::fmt::Display for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.exists {
            write!(
                f,
                "lineage {}, serial {}, {} resources",
                self.lineage, self.serial, self.managed
            )
        } else {
            f.write_str("nothing")
        }
    }
}

impl Session<'_, '_> {
    /// What the state holds now.
    pub(crate) async fn facts(&self) -> Result<Facts, Failure> {
        Facts::read(&self.read("state pull", &["state", "pull"]).await?)
    }
}

/// Compares the recorded place with the one the config names.
///
/// # Errors
/// Terminal when they differ and the config does not ask for the move.
pub(crate) fn check_place(
    task: &Task<'_>,
    backend: &StateBackend,
) -> Result<Option<Place>, Failure> {
    let Some(recorded) = task
        .status
        .state
        .clone()
        .filter(|recorded| !recorded.is_same(&backend.place))
    else {
        return Ok(None);
    };
    if task.config.migrate_state {
        return Ok(Some(recorded));
    }
    Err(Failure::terminal(
        "StateWouldMove",
        format!(
            "the state is in {recorded}, but the config names {}; put the config back, or set migrate_state: true to copy the state there first",
            backend.place
        ),
    ))
}

/// Copies the state from the recorded place to the one of the config.
pub(crate) async fn migrate(
    task: &mut Task<'_>,
    from: &Place,
    to: &StateBackend,
    wanted: Option<&Wanted>,
) -> Result<(), Failure> {
    let old =
        StateBackend::recorded(from).map_err(|why| Failure::terminal("StateWouldMove", why))?;
    let what = format!("copying the state from {from} to {}", to.place);
    let (pulled, facts) = {
        let mut session = Session::prepare(task, old, Origin::Bare, wanted).await?;
        session
            .init()
            .await
            .map_err(|failure| failure.context(&what))?;
        let pulled = session.read("state pull", &["state", "pull"]).await?;
        let facts = Facts::read(&pulled)?;
        (pulled, facts)
    };
    let mut session = Session::prepare(task, to.clone(), Origin::Bare, wanted).await?;
    session
        .init()
        .await
        .map_err(|failure| failure.context(&what))?;
    let mut there = session.facts().await?;
    if there.managed > 0 && there.lineage != facts.lineage && there.content != facts.content {
        let managed = there.managed;
        return Err(Failure::terminal(
            "StateWouldMove",
            format!("{what}: there is another state already, with {managed} resources"),
        ));
    }
    let is_there = |there: &Facts| {
        there.exists && there.lineage == facts.lineage && there.serial >= facts.serial
    };
    if facts.exists && !is_there(&there) {
        let file = session.module().join("moved.tfstate");
        let text = String::from_utf8(pulled)
            .map_err(|_| Failure::transient("StateUnreadable", "the state is no text"))?;
        crate::home::write_private(&file, &text)
            .map_err(|error| Failure::disk("cannot write the state that is moved", &error))?;
        let path = file.to_string_lossy().into_owned();
        // The first write to an empty place of some backends makes up a lineage of its own (seen with s3); the second one sets ours.
        for _ in 0..2 {
            // Nothing is lost with what this overwrites: it is empty, or has the same content.
            let args: &[&str] = if there.exists && there.lineage != facts.lineage {
                &["state", "push", "-force", &path]
            } else {
                &["state", "push", &path]
            };
            let done = session.run("state push", args).await?;
            if let Some(lock) = done.lock() {
                return Err(lock_failure(lock.as_ref(), to));
            }
            if !done.is_success() {
                return Err(Failure::transient(
                    "StateUnsaved",
                    format!("{what}: {}", done.errors()),
                ));
            }
            there = session.facts().await?;
            if is_there(&there) {
                break;
            }
        }
        if !is_there(&there) || there.content != facts.content {
            return Err(Failure::transient(
                "StateUnsaved",
                format!("{what}: what is there now ({there}) is not what was copied ({facts})"),
            ));
        }
    }
    tracing::warn!(from = %from, to = %to.place, "the state was copied; the old one stays where it was");
    drop(session);
    task.status.state = Some(to.place.clone());
    Ok(())
}

/// Looks once per endpoint whether a write that must not overwrite is refused: without that two runs could both hold the lock.
pub(crate) async fn probe(task: &Task<'_>, place: &Place) -> Result<(), Failure> {
    let (Some(endpoint), Some(bucket), "s3") = (
        place.setting("endpoint"),
        place.setting("bucket"),
        place.backend.as_str(),
    ) else {
        return Ok(());
    };
    let id = format!("{endpoint} {bucket}");
    if task.options.probed.contains(&id) {
        return Ok(());
    }
    let key = format!(
        "{}.converge-probe-{}-{}",
        task.config.state_prefix,
        task.uid,
        std::process::id()
    );
    let base = [
        "put-object",
        "--bucket",
        bucket,
        "--key",
        &key,
        "--cli-connect-timeout",
        "10",
    ];
    let conditional = [&base[..], &["--if-none-match", "*"]].concat();
    let what = format!("whether {endpoint} honours conditional writes could not be seen");
    // The first one overwrites: a probe that was interrupted may have left its object.
    task.must(s3api(task, place, &base), "BackendUnavailable", &what)
        .await?;
    let second = task.run(s3api(task, place, &conditional)).await;
    let delete = s3api(
        task,
        place,
        &["delete-object", "--bucket", bucket, "--key", &key],
    );
    let deleted = task.run(delete).await;
    if !deleted.as_ref().is_ok_and(super::task::Ran::is_success) {
        tracing::warn!(
            bucket,
            key,
            "the object of the lock probe could not be removed"
        );
    }
    let second = second?;
    if second.is_success() {
        return Err(Failure::terminal(
            "BackendCannotLock",
            format!(
                "{endpoint} ignores If-None-Match: two runs would both hold the lock of a state; use a store that honours conditional writes"
            ),
        ));
    }
    if !second.said.contains("PreconditionFailed") && !second.said.contains("412") {
        return Err(Failure::transient(
            "BackendUnavailable",
            format!("{what}: aws {}", ended(&second)),
        ));
    }
    task.options.probed.insert(id);
    Ok(())
}

/// A call of the aws command line tool to where a state is.
fn s3api<'h>(task: &Task<'_>, place: &Place, args: &[&str]) -> Helper<'h> {
    let mut helper = Helper::new(task, "aws", ["s3api"].iter().chain(args).copied());
    if let Some(endpoint) = place.setting("endpoint") {
        helper = helper.set("AWS_ENDPOINT_URL_S3", endpoint);
    }
    if let Some(region) = place.setting("region") {
        helper = helper
            .set("AWS_REGION", region)
            .set("AWS_DEFAULT_REGION", region);
    }
    helper
}

/// Removes the object of an empty state and its lock. What cannot be removed is said in the log: nothing is lost with it.
pub(crate) async fn remove(task: &Task<'_>, place: &Place) {
    let helpers: Vec<Helper<'_>> = match (
        place.backend.as_str(),
        place.setting("bucket"),
        place.setting("storage_account"),
        place.setting("container"),
    ) {
        ("s3", Some(bucket), _, _) => {
            let one = |key: String| {
                s3api(
                    task,
                    place,
                    &["delete-object", "--bucket", bucket, "--key", &key],
                )
            };
            vec![one(place.key.clone()), one(format!("{}.tflock", place.key))]
        }
        ("gcs", Some(bucket), _, _) => {
            let one = |object: &str| {
                Helper::new(
                    task,
                    "gcloud",
                    [
                        "storage",
                        "rm",
                        &format!("gs://{bucket}/{}/{object}", place.key),
                    ],
                )
            };
            vec![one("default.tfstate")]
        }
        ("azurerm", _, Some(account), Some(container)) => {
            let mut args = vec![
                "storage".to_owned(),
                "blob".to_owned(),
                "delete".to_owned(),
                "--only-show-errors".to_owned(),
                format!("--container-name={container}"),
                format!("--name={}", place.key),
            ];
            if !task.env().contains_key("AZURE_STORAGE_CONNECTION_STRING") {
                args.extend([
                    format!("--account-name={account}"),
                    "--auth-mode=login".to_owned(),
                ]);
            }
            vec![Helper::new(task, "az", args)]
        }
        ("local", ..) => {
            remove_local(Path::new(&place.key));
            return;
        }
        _ => {
            tracing::info!(%place, "the empty state stays where it is: how to remove it is not known here");
            return;
        }
    };
    for helper in helpers {
        let program = helper.program;
        let left = match task.run(helper).await {
            Ok(ran) if ran.is_success() => continue,
            Ok(ran) => format!("{program} {}", ended(&ran)),
            Err(failure) => failure.message,
        };
        tracing::warn!(%place, "the empty state could not be removed: {}", task.redactor().redact(&left));
    }
}

fn remove_local(state: &Path) {
    let name = state
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let beside = |name: String| -> PathBuf { state.with_file_name(name) };
    for path in [
        state.to_owned(),
        beside(format!("{name}.backup")),
        beside(format!(".{name}.lock.info")),
    ] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "the empty state could not be removed");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_managed_instances_count() {
        assert_eq!(Facts::read(b"\n").unwrap(), Facts::default());
        let state = br#"{"version":4,"serial":7,"lineage":"l","resources":[{"mode":"data","instances":[{}]},{"mode":"managed","instances":[]},{"mode":"managed","instances":[{}]}]}"#;
        let facts = Facts::read(state).unwrap();
        assert_eq!((facts.managed, facts.serial, facts.exists), (1, 7, true));
        assert!(!Facts::read(b"{").unwrap_err().terminal);
    }

    #[test]
    fn a_local_state_goes_with_all_that_belongs_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("u.tfstate");
        for name in [
            "u.tfstate",
            "u.tfstate.backup",
            ".u.tfstate.lock.info",
            "other.tfstate",
        ] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        remove_local(&state);
        let left: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["other.tfstate"]);
    }
}
