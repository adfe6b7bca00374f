//! The kind's config, decoded with every problem told at once.
//!
//! Owns which backend holds the states, which binary runs and for how long. A raw backend file (the bundle) stands in for the backend
//! blocks. Not here: credentials (each tool reads its own chain), what the backend becomes as a file (`backend`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::RawBackend;
use crate::document::{Object, Problems};
use crate::environment;

/// Where states are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backend {
    S3 {
        bucket: String,
        region: Option<String>,
        endpoint: Option<String>,
    },
    Azurerm {
        storage_account: String,
        container: String,
        resource_group: Option<String>,
        use_azuread_auth: bool,
    },
    Gcs {
        bucket: String,
    },
    Local {
        path: PathBuf,
    },
    Raw(RawBackend),
}

/// Which family of binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Binary {
    Terraform,
    Tofu,
}

impl Binary {
    /// The program.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
        }
    }

    /// The version manager.
    pub(crate) fn manager(self) -> &'static str {
        match self {
            Self::Terraform => "tfenv",
            Self::Tofu => "tofuenv",
        }
    }
}

/// What a resync does about drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Drift {
    Report,
    Apply,
}

/// A valid config.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) backend: Backend,
    pub(crate) state_prefix: String,
    pub(crate) binary: Binary,
    pub(crate) parallelism: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) kill_grace: Duration,
    pub(crate) drift: Drift,
    pub(crate) migrate_state: bool,
    pub(crate) inherit_env: Vec<String>,
}

/// How long an interrupted run may take to save its state.
pub(crate) const KILL_GRACE: Duration = Duration::from_secs(300);
/// The longest time a config may name.
const LONGEST_SECONDS: u64 = 7 * 24 * 3600;

impl Config {
    /// Reads a config; `raw` is `{}` when there is only a bundle. `states` is where a `local` backend without a path keeps them.
    ///
    /// # Errors
    /// All problems in one message.
    pub(crate) fn parse(raw: &[u8], bundle: Option<&[u8]>, states: &Path) -> Result<Self, String> {
        let mut problems = Problems::default();
        let problems = &mut problems;
        let mut object = Object::read("", raw, problems);

        let name = one_of(
            &mut object,
            "backend",
            &["s3", "azurerm", "gcs", "local"],
            problems,
        )
        .unwrap_or("s3");
        let mut blocks = Blocks::default();
        for block in ["s3", "azurerm", "gcs", "local"] {
            let given = object.object(block, problems);
            let used = bundle.is_none() && block == name;
            blocks.read(block, given, used, states, problems);
        }
        let backend = match bundle {
            None => blocks.used,
            Some(text) => RawBackend::parse(text)
                .map_err(|problem| problems.add("the bundle", problem))
                .ok()
                .map(Backend::Raw),
        };

        let state_prefix = object
            .string("state_prefix", problems)
            .unwrap_or_else(|| "terraform/".to_owned());
        if let Err(problem) = check_prefix(&state_prefix) {
            problems.add("/state_prefix", problem);
        }
        let binary = match one_of(&mut object, "binary", &["terraform", "tofu"], problems) {
            Some("tofu") => Binary::Tofu,
            _ => Binary::Terraform,
        };
        let parallelism = object.whole("parallelism", 1..=256, problems);
        let timeout = object
            .whole("timeout_seconds", 0..=LONGEST_SECONDS, problems)
            .filter(|seconds| *seconds > 0);
        let kill_grace = object.whole("kill_grace_seconds", 0..=LONGEST_SECONDS, problems);
        let drift = match one_of(&mut object, "drift", &["report", "apply"], problems) {
            Some("apply") => Drift::Apply,
            _ => Drift::Report,
        };
        let migrate_state = object.bool("migrate_state", problems).unwrap_or(false);
        let inherit_env = object.strings("inherit_env", problems).unwrap_or_default();
        for name in &inherit_env {
            if let Err(problem) = environment::check_extra(name) {
                problems.add("/inherit_env", problem);
            }
        }
        object.finish(problems);

        match (std::mem::take(problems).into_message("the config"), backend) {
            (None, Some(backend)) => Ok(Self {
                backend,
                state_prefix,
                binary,
                parallelism,
                timeout: timeout.map(Duration::from_secs),
                kill_grace: kill_grace.map_or(KILL_GRACE, Duration::from_secs),
                drift,
                migrate_state,
                inherit_env,
            }),
            (Some(message), _) => Err(message),
            (None, None) => Err(format!("the config is not valid: /{name}: is required")),
        }
    }

    /// The endpoint that the S3 backend, the module's providers and the aws CLI share, and its region.
    pub(crate) fn s3_access(&self) -> (Option<&str>, Option<&str>) {
        match &self.backend {
            Backend::S3 {
                endpoint, region, ..
            } => (endpoint.as_deref(), region.as_deref()),
            _ => (None, None),
        }
    }
}

/// Reads the backend blocks: all are checked, one is used.
#[derive(Debug, Default)]
struct Blocks {
    used: Option<Backend>,
}

impl Blocks {
    fn read(
        &mut self,
        block: &str,
        given: Option<Object>,
        used: bool,
        states: &Path,
        problems: &mut Problems,
    ) {
        if given.is_none() && !used {
            return;
        }
        let mut empty = Problems::default();
        let mut object =
            given.unwrap_or_else(|| Object::read(&format!("/{block}"), b"{}", &mut empty));
        let required = |object: &mut Object, name: &'static str, problems: &mut Problems| {
            let before = object.has(name);
            let value = object
                .text(name, problems)
                .filter(|value| check_name(value, &object.pointer(name), problems));
            if !before && used {
                problems.add(
                    &object.pointer(name),
                    format_args!("is required for the backend {block}"),
                );
            }
            value
        };
        let backend = match block {
            "s3" => {
                let bucket = required(&mut object, "bucket", problems);
                let region = object
                    .text("region", problems)
                    .filter(|value| check_name(value, "/s3/region", problems));
                let endpoint = object.text("endpoint", problems).and_then(|text| {
                    check_endpoint(&text)
                        .map_err(|problem| problems.add("/s3/endpoint", problem))
                        .ok()
                        .map(|()| text)
                });
                bucket.map(|bucket| Backend::S3 {
                    bucket,
                    region,
                    endpoint,
                })
            }
            "azurerm" => {
                let account = required(&mut object, "storage_account", problems);
                let container = required(&mut object, "container", problems);
                let resource_group = object.text("resource_group", problems);
                let use_azuread_auth = object.bool("use_azuread_auth", problems).unwrap_or(false);
                account
                    .zip(container)
                    .map(|(storage_account, container)| Backend::Azurerm {
                        storage_account,
                        container,
                        resource_group,
                        use_azuread_auth,
                    })
            }
            "gcs" => {
                required(&mut object, "bucket", problems).map(|bucket| Backend::Gcs { bucket })
            }
            _ => {
                let path = object
                    .text("path", problems)
                    .map_or_else(|| states.to_owned(), PathBuf::from);
                if path.is_absolute()
                    && !path
                        .components()
                        .any(|part| part == std::path::Component::ParentDir)
                {
                    Some(Backend::Local { path })
                } else {
                    problems.add("/local/path", "must be an absolute path without ..");
                    None
                }
            }
        };
        object.finish(problems);
        if used {
            self.used = backend;
        }
    }
}

fn one_of(
    object: &mut Object,
    name: &'static str,
    known: &'static [&'static str],
    problems: &mut Problems,
) -> Option<&'static str> {
    let text = object.string(name, problems)?;
    let found = known.iter().copied().find(|known| *known == text);
    if found.is_none() {
        let shown: String = text.chars().take(40).collect();
        problems.add(
            &object.pointer(name),
            format_args!("{shown:?} is none of {}", known.join(", ")),
        );
    }
    found
}

/// Names of buckets, accounts, regions: what cannot be an option, a path or a template.
fn check_name(value: &str, pointer: &str, problems: &mut Problems) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
    let good = value.len() <= 255
        && value.chars().all(fits)
        && value.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !good {
        problems.add(
            pointer,
            "must begin with a letter or digit and hold only letters, digits, . _ - :",
        );
    }
    good
}

fn check_endpoint(text: &str) -> Result<(), String> {
    let url = url::Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err("expected http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "must not hold a login; credentials come from the environment of the worker".to_owned(),
        );
    }
    Ok(())
}

/// A prefix becomes part of keys, paths and HCL strings.
fn check_prefix(prefix: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-=+@".contains(c);
    if prefix.len() > 512 || !prefix.chars().all(fits) {
        return Err("may hold letters, digits and / . _ - = + @, 512 at most".to_owned());
    }
    if prefix.starts_with(['/', '-'])
        || prefix.split('/').any(|part| part == ".." || part == ".")
        || prefix.contains("//")
    {
        return Err("may not begin with / or -, nor hold //, . or .. as a part".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text.as_bytes(), None, Path::new("/data/states"))
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let config = parse(r#"{"s3":{"bucket":"b"}}"#).unwrap();
        assert_eq!(
            config.backend,
            Backend::S3 {
                bucket: "b".into(),
                region: None,
                endpoint: None
            }
        );
        assert_eq!(config.state_prefix, "terraform/");
        assert_eq!(
            (config.binary, config.drift, config.migrate_state),
            (Binary::Terraform, Drift::Report, false)
        );
        assert_eq!(
            (config.timeout, config.kill_grace),
            (None, Duration::from_secs(300))
        );
        assert_eq!(
            parse(r#"{"backend":"local"}"#).unwrap().backend,
            Backend::Local {
                path: PathBuf::from("/data/states")
            }
        );
    }

    #[test]
    fn all_problems_of_a_config_come_at_once() {
        let error = parse(
            r#"{"backend":"azurerm","azurerm":{"storage_account":"-x","colour":1},"s3":{"bucket":7},"state_prefix":"/a","binary":"tf",
               "parallelism":0,"timeout_seconds":"1","kill_grace_seconds":-1,"drift":"fix","migrate_state":1,
               "inherit_env":["TF_VAR_x","A=B"],"local":{"path":"rel"},"gcs":[]}"#,
        )
        .unwrap_err();
        for part in [
            "/azurerm/storage_account:",
            "/azurerm/container: is required",
            "/azurerm/colour: unknown",
            "/s3/bucket:",
            "/state_prefix:",
            "/binary:",
            "/parallelism:",
            "/timeout_seconds:",
            "/kill_grace_seconds:",
            "/drift:",
            "/migrate_state:",
            "TF_VAR_x",
            "A=B",
            "/local/path:",
            "/gcs:",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn the_default_backend_needs_its_bucket() {
        assert!(
            parse("{}")
                .unwrap_err()
                .contains("/s3/bucket: is required for the backend s3")
        );
    }

    #[test]
    fn a_bundle_stands_in_for_the_blocks() {
        let bundle =
            b"terraform {\n backend \"pg\" { schema_name = \"__CONVERGE_STATE_KEY__\" }\n}";
        let config = Config::parse(b"{}", Some(bundle), Path::new("/d")).unwrap();
        assert!(matches!(config.backend, Backend::Raw(_)));
        let error =
            Config::parse(br#"{"x":1}"#, Some(b"terraform {}"), Path::new("/d")).unwrap_err();
        assert!(
            error.contains("the bundle:") && error.contains("/x:"),
            "{error}"
        );
    }

    #[test]
    fn no_text_of_a_config_holds_a_nul() {
        for (text, at) in [
            (r#"{"s3":{"bucket":"b\u0000"}}"#, "/s3/bucket:"),
            (r#"{"s3":{"bucket":"b","region":"r\u0000"}}"#, "/s3/region:"),
            (
                r#"{"s3":{"bucket":"b","endpoint":"http://h/\u0000"}}"#,
                "/s3/endpoint:",
            ),
            (
                r#"{"backend":"azurerm","azurerm":{"storage_account":"a","container":"c","resource_group":"g\u0000"}}"#,
                "/azurerm/resource_group:",
            ),
            (
                r#"{"backend":"gcs","gcs":{"bucket":"\u0000"}}"#,
                "/gcs/bucket:",
            ),
            (
                r#"{"backend":"local","local":{"path":"/a\u0000"}}"#,
                "/local/path:",
            ),
            (
                r#"{"backend":"local","state_prefix":"a\u0000/"}"#,
                "/state_prefix:",
            ),
            (r#"{"backend":"local","binary":"tofu\u0000"}"#, "/binary:"),
            (
                r#"{"backend":"local","inherit_env":["A\u0000"]}"#,
                "/inherit_env:",
            ),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(at), "{text}: {error}");
        }
        let bundle =
            b"terraform {\n backend \"pg\" { schema_name = \"\0__CONVERGE_STATE_KEY__\" }\n}";
        let error = Config::parse(b"{}", Some(bundle), Path::new("/d")).unwrap_err();
        assert!(error.contains("is no text"), "{error}");
    }

    #[test]
    fn endpoints_hold_no_login() {
        assert!(
            parse(r#"{"s3":{"bucket":"b","endpoint":"http://u:hunter2@h"}}"#)
                .unwrap_err()
                .contains("/s3/endpoint")
        );
        assert!(parse(r#"{"s3":{"bucket":"b","endpoint":"h:9000"}}"#).is_err());
    }
}
