//! A provider on a bench: its own directory, its own archive server, tasks made by hand.

pub(crate) mod daemon;
pub(crate) mod log;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use converge_sdk::{
    Condition, Json, KindVersion, Outcome, Provider as _, ProviderConfig, ReactionRequest,
    Resource, Stage, TaskContext, TaskControl, TaskError, Uid,
};
use serde_json::{Value, json};
use stdterraform::{Options, StdTerraform};

/// A directory, a server with archives, and what a provider is made of.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    pub(crate) web: web::Web,
    pub(crate) environment: BTreeMap<String, String>,
}

/// A task to be done: change it, then [`Job::work`] it.
pub(crate) struct Job {
    pub(crate) stage: Stage,
    pub(crate) reaction: &'static str,
    pub(crate) uid: Uid,
    pub(crate) spec: String,
    pub(crate) config: Value,
    pub(crate) bundle: Option<String>,
    pub(crate) status: Option<Json>,
}

/// A resource's identity, new every time.
pub(crate) fn new_uid() -> Uid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    bytes[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    Uid::from_bytes(bytes)
}

impl Bench {
    pub(crate) fn new() -> Self {
        log::install();
        let environment = std::env::vars()
            .filter(|(name, _)| ["PATH", "HOME", "LANG", "TMPDIR"].contains(&name.as_str()))
            .collect();
        let directory = tempfile::Builder::new()
            .prefix("stdterraform-")
            .tempdir()
            .unwrap();
        Self {
            directory,
            web: web::Web::start(),
            environment,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(crate) fn states(&self) -> PathBuf {
        self.path().join("states")
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(self.data(), self.environment.clone());
        options.allow_plain_http = true;
        options.lock_timeout = Duration::from_secs(1);
        options
    }

    pub(crate) fn provider(&self) -> StdTerraform {
        StdTerraform::new(self.options())
    }

    /// Programs in `directory` are found before those of the machine.
    pub(crate) fn search_first(&mut self, directory: &Path) {
        let path = format!("{}:{}", directory.display(), self.environment["PATH"]);
        self.environment.insert("PATH".to_owned(), path);
    }

    /// Serves a module of these files; gives its source.
    pub(crate) fn module(&self, name: &str, files: &[(&str, &str)]) -> String {
        self.web
            .put(&format!("/{name}.tar.gz"), web::archive(files));
        format!("{}/{name}.tar.gz", self.web.url())
    }

    /// A `local` config below this bench.
    pub(crate) fn local(&self) -> Value {
        json!({"backend": "local", "local": {"path": self.states()}, "kill_grace_seconds": 20})
    }

    /// A config that keeps states at this S3 endpoint, and the login for it.
    pub(crate) fn s3(&mut self, endpoint: &str) -> Value {
        let login = daemon::CREDENTIALS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.environment.extend(login);
        json!({"s3": {"bucket": "states", "region": "us-east-1", "endpoint": endpoint}, "kill_grace_seconds": 20})
    }

    /// A resource that works until the file it names is there; gives the module and the file.
    pub(crate) fn waiting(&self, name: &str) -> (String, PathBuf) {
        let release = self.path().join(format!("{name}-release"));
        let begun = self.path().join(format!("{name}-begun"));
        let main = format!(
            r#"
resource "terraform_data" "first" {{}}
resource "terraform_data" "waiting" {{
  depends_on = [terraform_data.first]
  provisioner "local-exec" {{
    command = "touch {begun}; while [ ! -e {release} ]; do sleep 0.05; done"
  }}
}}
output "first" {{ value = terraform_data.first.id }}
"#,
            begun = begun.display(),
            release = release.display(),
        );
        (self.module(name, &[("main.tf", &main)]), release)
    }

    /// Resolves when the resource of [`Bench::waiting`] works.
    pub(crate) async fn begun(&self, name: &str) {
        let begun = self.path().join(format!("{name}-begun"));
        wait_for_async("the provisioner runs", || begun.exists()).await;
    }

    /// An apply with a local backend.
    pub(crate) fn job(&self, source: &str, vars: Value) -> Job {
        Job::apply(json!({"source": source, "vars": vars}), self.local())
    }

    /// The state of a resource in the local backend.
    pub(crate) fn state_file(&self, uid: Uid) -> PathBuf {
        self.states()
            .join(format!("terraform/stdterraform/{uid}.tfstate"))
    }

    /// The addresses in that state.
    pub(crate) fn resources(&self, uid: Uid) -> Vec<String> {
        let Ok(text) = std::fs::read_to_string(self.state_file(uid)) else {
            return Vec::new();
        };
        resources_of(&text)
    }

    /// Nothing of a run is left: no directory, no process that works there.
    pub(crate) fn assert_clean(&self) {
        let runs: Vec<_> = std::fs::read_dir(self.data().join("runs"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path())
            .collect();
        assert!(runs.is_empty(), "runs are left: {runs:?}");
        wait_for("no process works in the bench", || {
            working_in(self.path()).is_empty()
        });
    }
}

/// The addresses in the text of a state.
pub(crate) fn resources_of(state: &str) -> Vec<String> {
    let state: Value = serde_json::from_str(state).unwrap();
    let resources = state["resources"].as_array().unwrap();
    resources
        .iter()
        .map(|resource| {
            format!(
                "{}.{}",
                resource["type"].as_str().unwrap(),
                resource["name"].as_str().unwrap()
            )
        })
        .collect()
}

impl Job {
    pub(crate) fn apply(spec: Value, config: Value) -> Self {
        Self {
            stage: Stage::Work,
            reaction: "work",
            uid: new_uid(),
            spec: spec.to_string(),
            config,
            bundle: None,
            status: None,
        }
    }

    /// The same resource as it is after `outcome`, applied again.
    pub(crate) fn after(mut self, outcome: &Outcome) -> Self {
        self.status = outcome.status.clone().or(self.status);
        self
    }

    pub(crate) fn teardown(mut self) -> Self {
        (self.stage, self.reaction) = (Stage::Delete, "teardown");
        self
    }

    pub(crate) fn drift(mut self) -> Self {
        (self.stage, self.reaction) = (Stage::Work, "drift");
        self
    }

    pub(crate) fn with_config(mut self, key: &str, value: Value) -> Self {
        self.config[key] = value;
        self
    }

    pub(crate) fn with_spec(mut self, spec: Value) -> Self {
        self.spec = spec.to_string();
        self
    }

    pub(crate) fn copy(&self) -> Self {
        Self {
            stage: self.stage,
            reaction: self.reaction,
            uid: self.uid,
            spec: self.spec.clone(),
            config: self.config.clone(),
            bundle: self.bundle.clone(),
            status: self.status.clone(),
        }
    }

    pub(crate) fn context(&self) -> (TaskContext, TaskControl) {
        let mut config = ProviderConfig::new();
        if !self.config.is_null() {
            config = config.with_spec(self.config.clone());
        }
        if let Some(bundle) = &self.bundle {
            config = config.with_bundle(bundle.clone().into_bytes());
        }
        TaskContext::builder(KindVersion::new("stdterraform", 1))
            .default_config(config)
            .build_with_control()
    }

    pub(crate) fn request(&self) -> ReactionRequest {
        let spec = Json::parse(self.spec.clone()).unwrap();
        let mut resource = Resource::new("stdterraform", "demo")
            .with_uid(self.uid)
            .with_spec(spec);
        if let Some(status) = &self.status {
            resource = resource.with_status(status.clone());
        }
        ReactionRequest::builder(
            self.stage,
            self.reaction,
            KindVersion::new("stdterraform", 1),
            resource,
        )
        .build()
    }

    pub(crate) async fn work(&self, provider: &StdTerraform) -> Result<Outcome, TaskError> {
        let (ctx, _control) = self.context();
        Box::pin(provider.work(&ctx, self.request())).await
    }
}

/// The status of an outcome.
pub(crate) fn status(outcome: &Outcome) -> Value {
    outcome.status.as_ref().unwrap().decode().unwrap()
}

/// The one condition of an outcome.
pub(crate) fn ready(outcome: &Outcome) -> &Condition {
    assert_eq!(outcome.conditions.len(), 1);
    assert_eq!(outcome.conditions[0].type_, "Ready");
    &outcome.conditions[0]
}

/// Waits until `condition` holds, for two minutes at most.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The same without holding the thread.
pub(crate) async fn wait_for_async(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Processes whose working directory lies in `directory`.
pub(crate) fn working_in(directory: &Path) -> Vec<u32> {
    let directory = directory.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            std::fs::read_link(process.path().join("cwd"))
                .ok()?
                .starts_with(&directory)
                .then_some(pid)
        })
        .collect()
}

/// A module with one resource, a variable and an output.
pub(crate) const ECHO: &str = r#"
variable "text" {
  type = string
}
resource "terraform_data" "echo" {
  input = var.text
}
output "text" {
  value = terraform_data.echo.output
}
"#;
