//! A world to tell scenarios in: a store, a clock, workers that claim and report.
//!
//! Every call names what a person, a broker or a worker would do; after each, timers that are over and sweeps that wait are carried out,
//! as the server's sweeps would. Nothing here sleeps: time is the clock's.

use std::sync::Arc;

use bytes::Bytes;
use converge_engine::command::EdgeSpec;
use converge_engine::command::{
    Applied, ClaimTasks, Command, Complete, ComposeOutcome, ConfigApply, Landed, LeaseLost,
    ManifestApply, Outcome, PolicySet, Precondition, RawChild, Reply, ResourceApply,
    ResourceDelete, ResourceReconcile, SweepBatch, Task, TaskFailure, Wake,
};
use converge_engine::model::{ClaimRef, Event};
use converge_engine::store::{ResourceView, Standing, Store, TransactError};
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use converge_types::labels::Labels;
use converge_types::phase::{Condition, ConditionStatus, Phase, Stage};

use crate::clock::ManualClock;

/// See the module.
pub struct World {
    /// The store under test.
    pub store: Arc<dyn Store>,
    /// Its clock.
    pub clock: ManualClock,
    secret: std::sync::atomic::AtomicU64,
}

/// A JSON literal as a document.
#[must_use]
pub fn doc(text: &str) -> Doc {
    Doc::parse(Bytes::copy_from_slice(text.as_bytes())).expect("a test writes JSON")
}

/// A condition as a handler reports it.
#[must_use]
pub fn ready(status: ConditionStatus) -> Condition {
    Condition {
        type_: "Ready".to_owned(),
        status,
        reason: "Test".to_owned(),
        message: String::new(),
        last_transition_ms: 0,
        observed_generation: 0,
    }
}

/// A success with this status.
#[must_use]
pub fn done(status: &str) -> Outcome {
    Outcome {
        status: Some(Bytes::copy_from_slice(status.as_bytes())),
        conditions: Vec::new(),
        compose: None,
        output: None,
        failure: None,
    }
}

/// A success that carries nothing.
#[must_use]
pub fn empty() -> Outcome {
    Outcome {
        status: None,
        conditions: Vec::new(),
        compose: None,
        output: None,
        failure: None,
    }
}

/// A failure.
#[must_use]
pub fn failed(message: &str, terminal: bool) -> Outcome {
    Outcome {
        failure: Some(TaskFailure {
            message: message.to_owned(),
            terminal,
        }),
        ..empty()
    }
}

/// A composition.
#[must_use]
pub fn composed(children: Vec<RawChild>, edges: Vec<EdgeSpec>) -> Outcome {
    Outcome {
        compose: Some(ComposeOutcome {
            children,
            edges,
            configs: Vec::new(),
        }),
        ..empty()
    }
}

/// A child of version 1 without labels.
#[must_use]
pub fn child(kind: &str, name: &str, spec: &str) -> RawChild {
    RawChild {
        kind: kind.to_owned(),
        kind_version: 1,
        name: name.to_owned(),
        spec: Bytes::copy_from_slice(spec.as_bytes()),
        labels: std::collections::BTreeMap::new(),
    }
}

/// `from` needs `to` (both `kind/name`), with flows (dependent, source).
#[must_use]
pub fn edge(from: &str, to: &str, values: &[(&str, &str)]) -> EdgeSpec {
    let split = |end: &str| {
        let (kind, name) = end.split_once('/').expect("kind/name");
        (kind.to_owned(), name.to_owned())
    };
    EdgeSpec {
        from: split(from),
        to: split(to),
        values: values
            .iter()
            .map(|(dependent, source)| ((*dependent).to_owned(), (*source).to_owned()))
            .collect(),
    }
}

/// A manifest of a leaf with a `work` reaction.
#[must_use]
pub fn leaf(kind: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","kind_version":1,"reactions":[{{"name":"work","trigger":"specChange","emits":["status","conditions"]}}]}}"#
    )
}

/// A manifest of a leaf with a teardown.
#[must_use]
pub fn leaf_with_teardown(kind: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","kind_version":1,"finalizer_name":"example.com/{kind}","reactions":[
            {{"name":"work","trigger":"specChange","emits":["status","conditions"]}},
            {{"name":"teardown","trigger":"deleteRequested","emits":["finalizer"]}}]}}"#
    )
}

/// A manifest of a composer.
#[must_use]
pub fn composer(kind: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","kind_version":1,"reactions":[{{"name":"compose","trigger":"specChange","emits":["children","status","conditions"]}}]}}"#
    )
}

/// A manifest of a composer with a rollup.
#[must_use]
pub fn composer_with_rollup(kind: &str) -> String {
    format!(
        r#"{{"kind":"{kind}","kind_version":1,"reactions":[
            {{"name":"compose","trigger":"specChange","emits":["children","status","conditions"]}},
            {{"name":"rollup","trigger":"childrenSettled","emits":["status","conditions"]}}]}}"#
    )
}

fn split(key: &str) -> (Kind, ResourceName) {
    let (kind, name) = key.split_once('/').expect("kind/name");
    (
        Kind::new(kind).expect("a kind"),
        ResourceName::new(name).expect("a name"),
    )
}

impl World {
    /// A world on this store.
    #[must_use]
    pub fn on(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        Self {
            store,
            clock,
            secret: std::sync::atomic::AtomicU64::new(1),
        }
    }

    /// Carries one command out, then whatever it made due to be swept.
    pub async fn try_do(&self, command: Command) -> Result<Reply, TransactError> {
        let reply = self.store.transact(vec![command]).await.remove(0);
        self.sweep().await;
        reply
    }

    /// As [`World::try_do`], where a refusal is a failure of the test.
    pub async fn must(&self, command: Command) -> Reply {
        self.try_do(command)
            .await
            .unwrap_or_else(|error| panic!("refused: {error:?}"))
    }

    /// Timers that are over, configs whose readers wait.
    pub async fn sweep(&self) {
        for command in [
            Command::Wake(Wake { limit: 1_000 }),
            Command::ConfigSweep(SweepBatch { limit: 1_000 }),
        ] {
            for _ in 0..10_000 {
                match self.store.transact(vec![command.clone()]).await.remove(0) {
                    Ok(Reply::Swept { more: true, .. }) => {}
                    _ => break,
                }
            }
        }
    }

    /// Moves the clock and sweeps.
    pub async fn pass(&self, ms: i64) {
        self.clock.step(ms);
        self.sweep().await;
    }

    /// Applies a manifest.
    pub async fn manifest(&self, text: &str) -> Applied {
        let command = ManifestApply {
            doc: doc(text),
            precondition: Precondition::None,
            who: None,
        };
        match self.must(Command::ManifestApply(command)).await {
            Reply::Manifest { applied, .. } => applied,
            other => panic!("{other:?}"),
        }
    }

    /// The command that applies `kind/name` with this spec.
    #[must_use]
    pub fn apply_command(&self, key: &str, spec: &str) -> ResourceApply {
        let (kind, name) = split(key);
        ResourceApply {
            kind,
            kind_version: None,
            name,
            labels: Labels::default(),
            config_ref: None,
            spec: doc(spec),
            new_uid: Uid::now(),
            precondition: Precondition::None,
            who: Some("tester".to_owned()),
        }
    }

    /// Applies `kind/name` with this spec.
    pub async fn apply(&self, key: &str, spec: &str) -> Applied {
        match self
            .must(Command::ResourceApply(self.apply_command(key, spec)))
            .await
        {
            Reply::Resource { applied, .. } => applied,
            other => panic!("{other:?}"),
        }
    }

    /// Applies a config of version 1.
    pub async fn config(
        &self,
        name: &str,
        kind: &str,
        is_default: bool,
        spec: &str,
    ) -> Result<Reply, TransactError> {
        self.try_do(Command::ConfigApply(ConfigApply {
            name: ConfigName::new(name).expect("a name"),
            kv: KindVersion::parse(kind, 1).expect("a pair"),
            is_default: Some(is_default),
            spec: Some(doc(spec)),
            data: None,
            replace_default: false,
            precondition: Precondition::None,
            who: None,
        }))
        .await
    }

    /// Deletes `kind/name`.
    pub async fn delete(&self, key: &str) -> Reply {
        let (kind, name) = split(key);
        let command = ResourceDelete {
            kind,
            name,
            force: false,
            abandon: false,
            precondition: Precondition::None,
            who: Some("tester".to_owned()),
        };
        self.must(Command::ResourceDelete(command)).await
    }

    /// Claims up to `limit` tasks of these kinds (version 1) for a worker.
    pub async fn claim(&self, worker: &str, kinds: &[&str], limit: u32) -> Vec<Task> {
        let pairs: Vec<_> = kinds.iter().map(|kind| (*kind, 1)).collect();
        self.claim_as(worker, &pairs, limit).await
    }

    /// Claims up to `limit` tasks of exact pairs.
    pub async fn claim_pairs(&self, pairs: &[(&str, i32)], limit: u32) -> Vec<Task> {
        self.claim_as("w", pairs, limit).await
    }

    async fn claim_as(&self, worker: &str, pairs: &[(&str, i32)], limit: u32) -> Vec<Task> {
        let command = self.claim_command(worker, pairs, limit);
        match self.must(Command::Claim(command)).await {
            Reply::Claimed { tasks } => tasks,
            other => panic!("{other:?}"),
        }
    }

    /// Leaves a claim of these kinds (version 1) with the store.
    pub fn stand(&self, worker: &str, kinds: &[&str], limit: u32) -> Standing {
        let pairs: Vec<_> = kinds.iter().map(|kind| (*kind, 1)).collect();
        let claim = self.claim_command(worker, &pairs, limit);
        self.store
            .stand(claim)
            .expect("a store that is open takes standing claims")
    }

    fn claim_command(&self, worker: &str, pairs: &[(&str, i32)], limit: u32) -> ClaimTasks {
        let base = self
            .secret
            .fetch_add(u64::from(limit), std::sync::atomic::Ordering::Relaxed);
        ClaimTasks {
            worker: worker.to_owned(),
            broker: "broker".to_owned(),
            pairs: pairs
                .iter()
                .map(|(kind, version)| KindVersion::parse(kind, *version).expect("a pair"))
                .collect(),
            limit,
            reserved_for_composers: 0,
            suspects_on_stream: Vec::new(),
            busy_on_stream: Vec::new(),
            seed: (0..u128::from(limit))
                .map(|at| u128::from(base) + at)
                .collect(),
        }
    }

    /// Asks for one full pass.
    pub async fn reconcile(&self, key: &str) {
        let (kind, name) = split(key);
        self.must(Command::ResourceReconcile(ResourceReconcile {
            kind,
            name,
            recursive: false,
            who: None,
        }))
        .await;
    }

    /// Edits the live policy of version 1 of a kind.
    pub async fn policy(&self, kind: &str, edit: &str) {
        self.must(Command::PolicySet(PolicySet {
            kv: KindVersion::parse(kind, 1).expect("a pair"),
            doc: doc(edit),
            precondition: Precondition::None,
            who: None,
        }))
        .await;
    }

    /// Claims exactly one task.
    pub async fn claim_one(&self, worker: &str, kinds: &[&str]) -> Task {
        let mut tasks = self.claim(worker, kinds, 1).await;
        assert_eq!(tasks.len(), 1, "one task of {kinds:?} should be claimable");
        tasks.remove(0)
    }

    /// Reports an outcome for a task.
    pub async fn report(&self, task: &Task, outcome: Outcome) -> Landed {
        let command = Complete {
            claim: ClaimRef {
                token: task.token,
                epoch: task.claim.epoch,
            },
            stage: task.claim.stage,
            outcome,
            seed: 7,
        };
        match self.must(Command::Complete(command)).await {
            Reply::Landed(landed) => landed,
            other => panic!("{other:?}"),
        }
    }

    /// The lease of a task runs out.
    pub async fn lose(&self, task: &Task) -> u64 {
        let claims = vec![ClaimRef {
            token: task.token,
            epoch: task.claim.epoch,
        }];
        match self
            .must(Command::LeaseLost(LeaseLost { claims, seed: 7 }))
            .await
        {
            Reply::Released { claims } => claims,
            other => panic!("{other:?}"),
        }
    }

    /// Runs everything claimable of these kinds through `handler` until nothing is left; returns how many tasks ran.
    pub async fn run(&self, kinds: &[&str], mut handler: impl FnMut(&Task) -> Outcome) -> usize {
        let mut ran = 0;
        loop {
            let tasks = self.claim("worker", kinds, 64).await;
            if tasks.is_empty() {
                return ran;
            }
            for task in tasks {
                let outcome = handler(&task);
                self.report(&task, outcome).await;
                ran += 1;
                assert!(ran < 1_000_000, "it does not come to rest");
            }
        }
    }

    /// A resource with its documents.
    pub async fn get(&self, key: &str) -> Option<ResourceView> {
        let (kind, name) = split(key);
        self.store
            .resource_get(&kind, &name)
            .await
            .expect("reads work")
    }

    /// A resource that must exist.
    pub async fn view(&self, key: &str) -> ResourceView {
        self.get(key)
            .await
            .unwrap_or_else(|| panic!("{key} does not exist"))
    }

    /// Its phase.
    pub async fn phase(&self, key: &str) -> Phase {
        self.view(key).await.row.derived.phase
    }

    /// Its events, oldest first.
    pub async fn events(&self, key: &str) -> Vec<Event> {
        let uid = self.view(key).await.row.uid;
        let mut events = self
            .store
            .event_list(uid, None, 1_000)
            .await
            .expect("reads work");
        events.reverse();
        events
    }
}

/// A handler that composes this, and answers everything else as `other` does.
pub fn composing(
    composition: Outcome,
    mut other: impl FnMut(&Task) -> Outcome,
) -> impl FnMut(&Task) -> Outcome {
    move |task| match task.claim.stage {
        Stage::Compose => composition.clone(),
        _ => other(task),
    }
}

/// What a worker that always succeeds answers: composers nothing, leaves `{"ok":true}`.
#[must_use]
pub fn succeed(task: &Task) -> Outcome {
    match task.claim.stage {
        Stage::Work => done(r#"{"ok":true}"#),
        _ => empty(),
    }
}
