//! A control plane: `converge dev` on ports of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use converge_client::{Client, Options};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::{Process, program};
use crate::wait;

/// Whom a plane lets in, and how its own client gets in.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// More flags of `converge dev`.
    pub flags: Vec<String>,
    /// What the client shows; its server is the plane.
    pub client: Options,
}

/// See the module.
pub struct Plane {
    process: Process,
    data: TempDir,
    lease: Duration,
    entry: Entry,
    /// A client of its API.
    pub client: Client,
    /// Where workers dial.
    pub broker: String,
    /// Where the API answers.
    pub api: String,
}

impl Plane {
    /// Starts one with leases of this length.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(lease: Duration) -> Self {
        Self::start_for(lease, Entry::default()).await
    }

    /// As [`Plane::start`], for those who are let in.
    pub async fn start_for(lease: Duration, entry: Entry) -> Self {
        let data = TempDir::new().expect("a temporary directory");
        Self::start_in(data, lease, entry).await
    }

    async fn start_in(data: TempDir, lease: Duration, entry: Entry) -> Self {
        let addresses = data.path().join("addresses.json");
        let _ = std::fs::remove_file(&addresses);
        let mut command = Command::new(program("converge"));
        command
            .args([
                "dev",
                "--listen",
                "127.0.0.1:0",
                "--broker-listen",
                "127.0.0.1:0",
            ])
            .arg("--lease")
            .arg(format!("{}ms", lease.as_millis()))
            .arg("--heartbeat")
            .arg(format!("{}ms", lease.as_millis() / 6))
            .arg("--data-dir")
            .arg(data.path())
            .args(&entry.flags)
            .env_remove("LISTEN_ADDR")
            .env_remove("BROKER_LISTEN_ADDR")
            .env("LOG_LEVEL", "debug");
        let mut process = Process::start("converge", command);
        let (api, broker) = wait::until("converge to write its addresses", || {
            assert!(
                process.is_running(),
                "converge ended:\n{}",
                process.output()
            );
            let read = read_addresses(&addresses);
            async move { read }
        })
        .await;
        let client = Client::new(&Options {
            server: api.clone(),
            ..entry.client.clone()
        })
        .expect("a loopback address");
        Self {
            process,
            data,
            lease,
            entry,
            client,
            broker,
            api,
        }
    }

    /// Kills it at once and starts it again on the same data, on new ports.
    ///
    /// # Panics
    /// When it does not come up again.
    pub async fn kill_and_restart(self) -> Self {
        let Self {
            process,
            data,
            lease,
            entry,
            ..
        } = self;
        process.kill().await;
        Self::start_in(data, lease, entry).await
    }

    /// Asks it to end and waits; its exit code.
    pub async fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::SIGTERM);
        self.process.ended().await
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has ended.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    /// Its data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// What it said so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.process.output()
    }

    /// Waits until it has said this.
    ///
    /// # Panics
    /// When it does not within the usual limit.
    pub async fn says(&self, what: &str) {
        wait::until(what, || {
            let said = self.output().contains(what);
            async move { said.then_some(()) }
        })
        .await;
    }

    /// Applies one of the repository's kind manifests.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn kind(&self, name: &str) {
        let file = kinds().join(format!("{name}.kind.json"));
        let text =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.manifest(name, Bytes::from(text)).await;
    }

    /// Applies a kind manifest.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn manifest(&self, kind: &str, body: Bytes) {
        if let Err(error) = self.client.manifest_apply(kind, body).await {
            panic!("the manifest of {kind} is refused: {error}");
        }
    }

    /// Applies a resource.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn apply(&self, kind: &str, name: &str, spec: Value) {
        let body = serde_json::json!({"kind": kind, "name": name, "spec": spec});
        if let Err(error) = self
            .client
            .resource_apply(Bytes::from(body.to_string()))
            .await
        {
            panic!("{kind}/{name} is refused: {error}");
        }
    }

    /// Applies a resource that is an inline script.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn script(&self, name: &str, script: &str) {
        self.apply("stdshell", name, serde_json::json!({ "script": script }))
            .await;
    }

    /// A resource as the API shows it; `None` when there is none.
    ///
    /// # Panics
    /// When the API does not answer.
    pub async fn resource(&self, kind: &str, name: &str) -> Option<Value> {
        match self.client.object(&["resources", kind, name]).await {
            Ok(answer) => {
                Some(serde_json::from_str(answer.value.get()).expect("the API answers JSON"))
            }
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("GET {kind}/{name}: {error}"),
        }
    }

    /// Waits until a resource is in this phase at its present generation; what it is then.
    pub async fn wait_for(&self, kind: &str, name: &str, phase: &str) -> Value {
        let last = std::sync::Mutex::new(Value::Null);
        let found = tokio::time::timeout(wait::LIMIT, async {
            wait::until_within(
                &format!("{kind}/{name} to be {phase}"),
                Duration::from_secs(3_600),
                || async {
                    let resource = self.resource(kind, name).await?;
                    if let Ok(mut last) = last.lock() {
                        *last = resource.clone();
                    }
                    (resource["phase"] == phase
                        && (phase != "Ready" || resource["synced_gen"] == resource["generation"]))
                        .then_some(resource)
                },
            )
            .await
        })
        .await;
        match found {
            Ok(resource) => resource,
            Err(_) => panic!(
                "{kind}/{name} is not {phase}: {:#}\n{}",
                last.lock().expect("not poisoned"),
                self.output()
            ),
        }
    }

    /// Waits until a resource is gone.
    pub async fn wait_gone(&self, kind: &str, name: &str) {
        wait::until(&format!("{kind}/{name} to be gone"), || async {
            self.resource(kind, name).await.is_none().then_some(())
        })
        .await;
    }

    /// Events of a resource, newest first.
    ///
    /// # Panics
    /// When the API does not answer.
    pub async fn events(&self, kind: &str, name: &str) -> Vec<Value> {
        let page = self
            .client
            .page(&["resources", kind, name, "events"], &[("limit", "500")])
            .await;
        let page = page.unwrap_or_else(|error| panic!("events of {kind}/{name}: {error}"));
        page.items
            .iter()
            .map(|item| serde_json::from_str(item.get()).expect("JSON"))
            .collect()
    }
}

fn read_addresses(file: &Path) -> Option<(String, String)> {
    let text = std::fs::read(file).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    Some((
        value["api"].as_str()?.to_owned(),
        value["broker"].as_str()?.to_owned(),
    ))
}

fn kinds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kinds")
}
