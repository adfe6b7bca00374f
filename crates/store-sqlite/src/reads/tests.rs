//! No read that runs often may walk a table.

use super::*;
use crate::tests::database;
use converge_types::ids::KindVersion;

fn plan(conn: &Connection, sql: &str, params: &[Value]) -> String {
    let sql = format!("EXPLAIN QUERY PLAN {sql}");
    let mut statement = conn.prepare(&sql).unwrap();
    let rows = statement
        .query_map(params_from_iter(params.iter()), |row| {
            row.get::<_, String>(3)
        })
        .unwrap();
    rows.collect::<Result<Vec<_>, _>>().unwrap().join("; ")
}

#[test]
fn lists_walk_the_index_that_fits_and_never_sort() {
    let (_dir, conn) = database();
    let kv: KindVersion = "leaf/v1".parse().unwrap();
    let cases = [
        (ResourceFilter::default(), "resource_name"),
        (
            ResourceFilter {
                kind: Some(kv.kind.clone()),
                ..ResourceFilter::default()
            },
            "resource_name",
        ),
        (
            ResourceFilter {
                phase: Some(Phase::Failed),
                ..ResourceFilter::default()
            },
            "resource_phase",
        ),
        (
            ResourceFilter {
                roots_only: true,
                ..ResourceFilter::default()
            },
            "resource_name",
        ),
    ];
    for (filter, index) in cases {
        for cursor in [None, Some("leaf/a")] {
            let (sql, params) = list_query(&filter, cursor, 10);
            let plan = plan(&conn, &sql, &params);
            assert!(plan.contains(index), "{filter:?}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{filter:?}: {plan}");
            let wants_both_halves = index == "resource_name" && !filter.roots_only;
            assert_eq!(
                plan.contains("MERGE"),
                wants_both_halves,
                "{filter:?}: {plan}"
            );
        }
    }
    for filter in [
        ResourceFilter {
            owner: Some(Uid::now()),
            ..ResourceFilter::default()
        },
        ResourceFilter {
            root: Some(Uid::now()),
            ..ResourceFilter::default()
        },
    ] {
        let (sql, params) = list_query(&filter, None, 10);
        let plan = plan(&conn, &sql, &params);
        assert!(plan.contains("SEARCH resource"), "{filter:?}: {plan}");
    }
}

#[test]
fn what_a_command_asks_is_found_by_an_index_in_the_stated_order() {
    let (_dir, conn) = database();
    let number = Value::Integer(1);
    let blob = Value::Blob(vec![1; 16]);
    let text = Value::Text("leaf".to_owned());
    let cases = [
        (
            resource::READY,
            vec![text.clone(), number.clone(), number.clone(), number.clone()],
            "COVERING INDEX resource_queue",
        ),
        (
            "SELECT max(ready_turn) FROM resource WHERE ready_kind = ?1 AND ready_version = ?2
             AND ready_class = ?3 AND root = ?4 AND root <> uid",
            vec![text.clone(), number.clone(), number.clone(), blob.clone()],
            "resource_turn",
        ),
        (
            "SELECT uid FROM resource WHERE held_on = ?1 ORDER BY uid",
            vec![blob.clone()],
            "COVERING INDEX resource_held",
        ),
        (
            "SELECT uid FROM resource WHERE wake_ms <= ?1 ORDER BY wake_ms, uid LIMIT ?2",
            vec![number.clone(), number.clone()],
            "COVERING INDEX resource_wake",
        ),
        (
            "SELECT uid FROM resource WHERE owner = ?1 ORDER BY position, uid",
            vec![blob.clone()],
            "COVERING INDEX resource_owner",
        ),
        (
            "SELECT uid FROM resource WHERE config_ref = ?1 AND uid > ?2 ORDER BY uid LIMIT ?3",
            vec![text.clone(), blob.clone(), number.clone()],
            "COVERING INDEX resource_config",
        ),
        (
            "SELECT count(*) FROM resource WHERE kind = ?1 AND finalizer_version = ?2",
            vec![text, number],
            "COVERING INDEX resource_finalizer",
        ),
    ];
    for (sql, params, index) in cases {
        let plan = plan(&conn, sql, &params);
        assert!(plan.contains(index), "{sql}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{sql}: {plan}");
    }
}
