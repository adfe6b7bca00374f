//! A read that fails inside the writer's transaction takes the whole batch with it, and nothing else.
//!
//! A process of its own: the limit of SQLite's memory is one for the process, and can only be lowered.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use converge_engine::Store;
use converge_engine::command::{Command, ManifestApply, Precondition, ResourceApply};
use converge_engine::store::{ResourceFilter, TransactError};
use converge_store_sqlite::{Options, SqliteStore};
use converge_types::ids::{KindVersion, Uid};
use converge_types::labels::Labels;

const MIB: usize = 1 << 20;

fn leaf() -> KindVersion {
    "leaf/v1".parse().unwrap()
}

fn apply(name: &str, spec: &str) -> Command {
    Command::ResourceApply(ResourceApply {
        kind: leaf().kind,
        kind_version: None,
        name: name.parse().unwrap(),
        labels: Labels::default(),
        config_ref: None,
        spec: spec.parse().unwrap(),
        new_uid: Uid::now(),
        precondition: Precondition::None,
        who: None,
    })
}

/// Lowers the limit until there is no room for so many bytes: a third of them, and twice that as hex.
fn leave_no_room_for(bytes: usize) {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    for limit in (0..128).rev() {
        let lower = format!("PRAGMA hard_heap_limit = {}", limit * MIB);
        conn.query_row(&lower, [], |_| Ok(())).unwrap();
        let fits = conn.query_row(
            "SELECT length(hex(zeroblob(?1)))",
            [(bytes / 3) as i64],
            |row| row.get::<_, i64>(0),
        );
        if fits.is_err() {
            return;
        }
    }
    panic!("SQLite keeps to no limit");
}

async fn names(store: &SqliteStore) -> Vec<String> {
    let all = ResourceFilter::default();
    let page = store.resource_list(&all, None, 100, false).await.unwrap();
    page.items
        .iter()
        .map(|item| item.row.name.to_string())
        .collect()
}

#[tokio::test]
async fn a_read_that_runs_out_of_memory_undoes_its_batch() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("store.db"), Options::default()).unwrap();
    let manifest = Command::ManifestApply(ManifestApply {
        doc: r#"{"kind": "leaf", "kind_version": 1, "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status"]}]}"#
            .parse()
            .unwrap(),
        precondition: Precondition::None,
        who: None,
    });
    let big = format!(r#"{{"text": "{}"}}"#, "x".repeat(15 * MIB));
    for command in [manifest, apply("big", &big)] {
        store.transact(vec![command]).await.remove(0).unwrap();
    }
    leave_no_room_for(12 * MIB);

    // What `big` is applied as is compared with what is stored, which finds no room.
    let batch = vec![apply("a", "{}"), apply("big", "{}"), apply("b", "{}")];
    for answer in store.transact(batch).await {
        assert!(matches!(answer, Err(TransactError::Store(_))), "{answer:?}");
    }
    assert_eq!(names(&store).await, ["big"]);
    let counted =
        |summary: Vec<(KindVersion, _, u64)>| -> u64 { summary.iter().map(|row| row.2).sum() };
    assert_eq!(counted(store.resource_summary().await.unwrap()), 1);

    // There is room for what is small, and the store goes on.
    for name in ["a", "c"] {
        store
            .transact(vec![apply(name, "{}")])
            .await
            .remove(0)
            .unwrap();
    }
    assert_eq!(names(&store).await, ["a", "big", "c"]);
    assert_eq!(counted(store.resource_summary().await.unwrap()), 3);
    assert_eq!(store.manifest_list().await.unwrap()[0].1.resources, 3);
}
