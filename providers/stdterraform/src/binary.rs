//! Which `terraform` or `tofu` runs: resolved to a version, installed by its manager, or the one on PATH.
//!
//! Must hold: only a strict version reaches a manager or a path; one install of a version at a time on a machine; the binary is run by its
//! own path, never through a manager's shim, so that a signal reaches it. Not here: choosing among versions (`version`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::config::Binary;
use crate::failure::Failure;
use crate::hcl_scan::Declared;
use crate::task::{Helper, Task, ended};
use crate::version::{Constraint, Version, Wanted, listed};

/// A binary to run.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub(crate) path: PathBuf,
    pub(crate) version: Version,
}

/// What is asked for: the spec's word, else the module's version file, else what the module allows, else the newest.
pub(crate) fn wanted(
    spec: Option<&Wanted>,
    module: Option<&Path>,
    declared: &Declared,
    binary: Binary,
) -> Result<Wanted, Failure> {
    if let Some(wanted) = spec {
        return Ok(wanted.clone());
    }
    let names: &[&str] = match binary {
        Binary::Terraform => &[".terraform-version"],
        Binary::Tofu => &[".opentofu-version", ".terraform-version"],
    };
    for name in names {
        let Some(path) = module.map(|module| module.join(name)) else {
            continue;
        };
        let Ok(text) = read_small(&path) else {
            continue;
        };
        return Wanted::parse(text.trim()).map_err(|problem| {
            Failure::terminal("VersionInvalid", format!("the module's {name}: {problem}"))
        });
    }
    Ok(if declared.required.is_empty() {
        Wanted::Latest(None)
    } else {
        Wanted::LatestAllowed
    })
}

fn read_small(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(4096)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Finds, and where needed installs, what is wanted.
pub(crate) async fn resolve(
    task: &Task<'_>,
    wanted: &Wanted,
    declared: &Declared,
) -> Result<Resolved, Failure> {
    task.may_begin("finding the binary")?;
    let binary = task.config.binary;
    let allowed = Constraint::all(declared.required.iter().cloned());
    let resolved = match on_path(task, binary.manager()) {
        Some(manager) => {
            Manager {
                task,
                binary,
                program: manager,
            }
            .resolve(wanted, &allowed)
            .await?
        }
        None => from_path(task, binary, wanted, &allowed).await?,
    };
    if matches!(task.config.backend, crate::config::Backend::S3 { .. })
        && !resolved.version.at_least(1, 10)
    {
        return Err(Failure::terminal(
            "VersionInvalid",
            format!(
                "{} {} cannot lock a state in s3 by itself; 1.10 or newer is needed",
                binary.program(),
                resolved.version
            ),
        ));
    }
    Ok(resolved)
}

async fn from_path(
    task: &Task<'_>,
    binary: Binary,
    wanted: &Wanted,
    allowed: &Constraint,
) -> Result<Resolved, Failure> {
    let (program, manager) = (binary.program(), binary.manager());
    let asked = asked(wanted, allowed);
    let Some(path) = on_path(task, program) else {
        return Err(Failure::terminal(
            "BinaryMissing",
            format!(
                "the worker has neither {manager} nor {program} on its PATH; {asked} is asked for"
            ),
        ));
    };
    let version = version_of(task, &path).await?;
    if !wanted.accepts(&version, allowed) {
        return Err(Failure::terminal(
            "VersionMissing",
            format!(
                "{asked} is asked for, but the worker has {program} {version} on its PATH and no {manager} to install another"
            ),
        ));
    }
    tracing::info!(%version, path = %path.display(), "using the {program} on PATH: there is no {manager} here");
    Ok(Resolved { path, version })
}

fn asked(wanted: &Wanted, allowed: &Constraint) -> String {
    match wanted {
        Wanted::MinRequired | Wanted::LatestAllowed if !allowed.is_empty() => {
            format!("version {allowed} ({wanted})")
        }
        _ => format!("version {wanted}"),
    }
}

/// `tfenv` or `tofuenv`.
struct Manager<'m> {
    task: &'m Task<'m>,
    binary: Binary,
    program: PathBuf,
}

impl Manager<'_> {
    async fn resolve(&self, wanted: &Wanted, allowed: &Constraint) -> Result<Resolved, Failure> {
        let name = self.binary.manager();
        let version = match wanted {
            Wanted::Exact(version) => version.clone(),
            _ => {
                let versions = self.versions().await?;
                wanted.choose(&versions, allowed).ok_or_else(|| {
                    Failure::terminal(
                        "VersionMissing",
                        format!(
                            "{name} knows no version that fits {}",
                            asked(wanted, allowed)
                        ),
                    )
                })?
            }
        };
        if let Some(path) = self.installed(&version) {
            return self.checked(path, version).await;
        }
        let _one_at_a_time = self.task.home.lock(&format!("{name}-{version}")).await?;
        if self.installed(&version).is_none() {
            tracing::info!(%version, "installing with {name}");
            let mut helper = self.helper(&["install", &version.to_string()]);
            helper.timeout = Duration::from_secs(600);
            let ran = self.task.run(helper).await?;
            if !ran.is_success() {
                return Err(Failure::transient(
                    "InstallFailed",
                    format!(
                        "{} {version} could not be installed: {name} {}",
                        self.binary.program(),
                        ended(&ran)
                    ),
                ));
            }
        }
        match self.installed(&version) {
            Some(path) => self.checked(path, version).await,
            None => Err(Failure::transient(
                "InstallFailed",
                format!(
                    "{name} says that it installed {version}, but there is no binary in {}",
                    self.roots()
                        .iter()
                        .map(|root| root.display().to_string())
                        .collect::<Vec<_>>()
                        .join(" or ")
                ),
            )),
        }
    }

    async fn checked(&self, path: PathBuf, version: Version) -> Result<Resolved, Failure> {
        let found = version_of(self.task, &path).await?;
        if found == version {
            return Ok(Resolved { path, version });
        }
        Err(Failure::transient(
            "VersionMissing",
            format!(
                "{} is {found}, not the {version} it should be",
                path.display()
            ),
        ))
    }

    /// What can be had; what is installed when the list cannot be had.
    async fn versions(&self) -> Result<Vec<Version>, Failure> {
        let mut remote = self.helper(&["list-remote"]);
        remote.timeout = Duration::from_secs(60);
        let ran = self.task.run(remote).await?;
        let versions = listed(&String::from_utf8_lossy(&ran.stdout));
        if ran.is_success() && !versions.is_empty() {
            return Ok(versions);
        }
        let local = self.task.run(self.helper(&["list"])).await?;
        let versions = listed(&String::from_utf8_lossy(&local.stdout));
        let name = self.binary.manager();
        if versions.is_empty() {
            return Err(Failure::transient(
                "InstallFailed",
                format!(
                    "{name} cannot list the versions there are: it {}",
                    ended(&ran)
                ),
            ));
        }
        tracing::warn!(
            "{name} cannot list the versions there are; choosing among those installed here"
        );
        Ok(versions)
    }

    fn helper(&self, args: &[&str]) -> Helper<'_> {
        let program = self
            .program
            .to_str()
            .unwrap_or_else(|| self.binary.manager());
        let mut helper = Helper::new(self.task, program, args.iter().copied());
        let prefix = format!("{}_", self.binary.manager().to_uppercase());
        for (name, value) in &self.task.options.environment {
            // A version named there would beat the one that is asked for.
            if name.starts_with(&prefix) && !name.ends_with("_VERSION") {
                helper.env.insert(name.clone(), value.clone());
            }
        }
        helper
    }

    /// Where it may keep its versions.
    fn roots(&self) -> Vec<PathBuf> {
        let prefix = self.binary.manager().to_uppercase();
        let env = &self.task.options.environment;
        let mut roots: Vec<PathBuf> = ["CONFIG_DIR", "ROOT"]
            .iter()
            .filter_map(|name| env.get(&format!("{prefix}_{name}")))
            .map(PathBuf::from)
            .collect();
        if let Ok(real) = self.program.canonicalize()
            && let Some(root) = real.parent().and_then(Path::parent)
        {
            roots.push(root.to_owned());
        }
        if let Some(home) = env.get("HOME") {
            roots.push(Path::new(home).join(format!(".{}", self.binary.manager())));
        }
        roots
    }

    fn installed(&self, version: &Version) -> Option<PathBuf> {
        self.roots()
            .into_iter()
            .map(|root| {
                root.join("versions")
                    .join(version.to_string())
                    .join(self.binary.program())
            })
            .find(|path| is_executable(path))
    }
}

/// Asks a binary for its version.
async fn version_of(task: &Task<'_>, path: &Path) -> Result<Version, Failure> {
    let program = path.to_string_lossy();
    let mut helper =
        Helper::new(task, &program, ["version", "-json"]).set("CHECKPOINT_DISABLE", "1");
    helper.timeout = Duration::from_secs(60);
    let ran = task
        .must(helper, "BinaryBroken", "the version could not be read")
        .await?;
    let parsed = serde_json::from_slice::<Value>(&ran.stdout).ok();
    let text = parsed
        .as_ref()
        .and_then(|value| value.get("terraform_version"))
        .and_then(Value::as_str);
    text.and_then(Version::parse).ok_or_else(|| {
        Failure::transient(
            "BinaryBroken",
            format!("{program} version -json does not say which version it is"),
        )
    })
}

/// A program on the PATH of the task.
fn on_path(task: &Task<'_>, program: &str) -> Option<PathBuf> {
    let path = task.env().get("PATH")?;
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
