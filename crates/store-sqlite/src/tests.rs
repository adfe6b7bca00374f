//! The store through its trait. What every scenario needs is here; the scenarios are in the modules by what they are about.

mod commit;
mod file;
mod memory;
mod time;

use converge_engine::command::{
    Applied, ClaimTasks, Complete, Landed, ManifestApply, Outcome, Precondition, ResourceApply,
    ResourceDelete, Task, TaskFailure,
};
use converge_engine::model::ClaimRef;
use converge_types::labels::Labels;
use tempfile::TempDir;

use super::*;

/// A fresh database, for what is below the trait.
pub(crate) fn database() -> (TempDir, rusqlite::Connection) {
    let dir = tempfile::tempdir().unwrap();
    let settings = connection::WriterSettings {
        wal_limit_bytes: 1 << 20,
        max_bytes: None,
    };
    let conn = connection::writer(&dir.path().join("store.db"), &settings).unwrap();
    (dir, conn)
}

struct World {
    dir: TempDir,
    store: SqliteStore,
}

impl World {
    fn new(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("store.db"), options).unwrap();
        Self { dir, store }
    }

    async fn with_leaf(options: Options) -> Self {
        let world = Self::new(options);
        world.one(manifest()).await.unwrap();
        world
    }

    async fn one(&self, command: Command) -> Result<Reply, TransactError> {
        self.store.transact(vec![command]).await.pop().unwrap()
    }
}

fn leaf() -> KindVersion {
    "leaf/v1".parse().unwrap()
}

fn manifest() -> Command {
    let doc = r#"{"kind": "leaf", "kind_version": 1, "spec_schema": {"type": "object"},
        "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]}]}"#;
    Command::ManifestApply(ManifestApply {
        doc: doc.parse().unwrap(),
        precondition: Precondition::None,
        who: None,
    })
}

fn apply(name: &str, spec: &str) -> Command {
    Command::ResourceApply(ResourceApply {
        kind: leaf().kind,
        kind_version: None,
        name: name.parse().unwrap(),
        labels: Labels::new([("team".to_owned(), name.to_owned())].into()).unwrap(),
        config_ref: None,
        spec: spec.parse().unwrap(),
        new_uid: Uid::now(),
        precondition: Precondition::None,
        who: Some("tester".to_owned()),
    })
}

fn claim(limit: u32) -> Command {
    Command::Claim(ClaimTasks {
        worker: "w".to_owned(),
        broker: "b".to_owned(),
        pairs: vec![leaf()],
        limit,
        reserved_for_composers: 0,
        suspects_on_stream: Vec::new(),
        busy_on_stream: vec![leaf()],
        seed: (0..u128::from(limit)).map(|n| n + 1).collect(),
    })
}

fn delete(name: &str) -> Command {
    Command::ResourceDelete(ResourceDelete {
        kind: leaf().kind,
        name: name.parse().unwrap(),
        force: false,
        abandon: false,
        precondition: Precondition::None,
        who: None,
    })
}

fn tasks(claimed: Reply) -> Vec<Task> {
    match claimed {
        Reply::Claimed { tasks } => tasks,
        other => panic!("{other:?}"),
    }
}

fn completions(claimed: Reply) -> Vec<Command> {
    let tasks = tasks(claimed);
    tasks.iter().map(|task| completion(task, None)).collect()
}

/// The task ends: with the failure, or with its epoch as the status.
fn completion(task: &Task, failure: Option<TaskFailure>) -> Command {
    let epoch = task.claim.epoch;
    let status = bytes::Bytes::from(format!("{{\"epoch\": {epoch}}}"));
    Command::Complete(Complete {
        claim: ClaimRef {
            token: task.token,
            epoch,
        },
        stage: task.claim.stage,
        outcome: Outcome {
            status: failure.is_none().then_some(status),
            conditions: Vec::new(),
            compose: None,
            output: None,
            failure,
        },
        seed: 7,
    })
}

fn row(reply: Result<Reply, TransactError>) -> (Applied, Arc<Resource>) {
    match reply {
        Ok(Reply::Resource { applied, row, .. }) => (applied, row),
        other => panic!("{other:?}"),
    }
}

async fn get(store: &SqliteStore, name: &str) -> Option<ResourceView> {
    let name = name.parse().unwrap();
    store.resource_get(&leaf().kind, &name).await.unwrap()
}
