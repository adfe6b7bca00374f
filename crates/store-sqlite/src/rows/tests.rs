//! Every field of every row comes back as it was written, through inserts and through updates that name only what changed.

use std::sync::Arc;

use converge_engine::model::{
    Below, Bundle, Claim, Class, Config, ConfigSweep, Contributed, Deletion, Derived, Digest, Due,
    Edge, Failure, Finalizer, Flow, History, Hold, Inputs, Look, Marks, Orphan, OwnedCondition,
    Pair, Resource, Sums, Tombstone,
};
use converge_types::ids::{KindVersion, Uid};
use converge_types::labels::Labels;
use converge_types::phase::{Condition, ConditionStatus, Emit, Phase, Stage, Trigger};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;
use rusqlite::Connection;

use super::tally::{self, Tally};
use super::{config, event, graph, resource};
use crate::tests::database;

fn uid() -> impl Strategy<Value = Uid> {
    any::<[u8; 16]>().prop_map(Uid::from_bytes)
}

fn kv() -> impl Strategy<Value = KindVersion> {
    ("[a-z][a-z0-9-]{0,8}", 1..=32_767_i32)
        .prop_map(|(kind, version)| KindVersion::parse(&kind, version).unwrap())
}

fn name<T: std::str::FromStr<Err: std::fmt::Debug> + std::fmt::Debug>() -> impl Strategy<Value = T>
{
    "[A-Za-z0-9][A-Za-z0-9._-]{0,12}".prop_map(|text| text.parse().unwrap())
}

fn labels() -> impl Strategy<Value = Arc<Labels>> {
    btree_map("[a-z]{1,5}", ".{0,8}", 0..3)
        .prop_filter_map("labels", |map| Labels::new(map).ok().map(Arc::new))
}

fn digest() -> impl Strategy<Value = Digest> {
    any::<u128>().prop_map(Digest)
}

fn inputs() -> impl Strategy<Value = Inputs> {
    (
        any::<i64>(),
        1..32_767_i32,
        digest(),
        digest(),
        any::<i64>(),
    )
        .prop_map(|(generation, kind_version, config, labels, below)| Inputs {
            generation,
            kind_version,
            config,
            labels,
            below,
        })
}

fn stage() -> impl Strategy<Value = Stage> {
    select(Stage::ALL)
}

prop_compose! {
    fn failure()(stage in stage(), reaction in "[a-z]{1,5}", message in ".{0,20}", terminal in any::<bool>(),
        attempts in any::<u32>(), lost_leases in any::<u32>(), next_ms in of(any::<i64>()), inputs in inputs(),
        manifest_version in any::<i64>(), cures in vec(kv().prop_map(|kv| kv.kind), 0..3)) -> Failure {
        Failure { stage, reaction, message, terminal, attempts, lost_leases, next_ms, inputs, manifest_version, cures }
    }
}

prop_compose! {
    fn claim()(secret in any::<u128>(), epoch in any::<i64>(), stage in stage(), trigger in select(Trigger::ALL),
        reaction in ".{0,5}", kv in kv(), manifest_version in any::<i64>(), inputs in inputs(),
        class in select(Class::ALL.to_vec()), worker in ".{0,5}", broker in ".{0,5}", since_ms in any::<i64>(),
        emits in vec(select(Emit::ALL.to_vec()), 0..4)) -> Claim {
        let emits = emits.into_iter().collect();
        Claim { secret, epoch, stage, trigger, reaction, kv, manifest_version, emits, inputs, class, worker, broker, since_ms }
    }
}

prop_compose! {
    fn condition()(reaction in "[a-z]{0,5}", type_ in "[A-Z][a-z]{1,5}", status in select(ConditionStatus::ALL),
        reason in ".{0,5}", message in ".{0,9}", last_transition_ms in any::<i64>(), observed_generation in any::<i64>())
        -> OwnedCondition {
        let condition = Condition { type_, status, reason, message, last_transition_ms, observed_generation };
        OwnedCondition { reaction, condition }
    }
}

fn pointer() -> impl Strategy<Value = converge_types::pointer::Pointer> {
    vec("[a-z~/]{1,4}", 0..3).prop_map(converge_types::pointer::Pointer::from_tokens)
}

fn due() -> impl Strategy<Value = Due> {
    let hold = prop_oneof![
        uid().prop_map(Hold::Dependency),
        (uid(), pointer()).prop_map(|(on, pointer)| Hold::Flow { on, pointer }),
        uid().prop_map(Hold::Gone),
        uid().prop_map(Hold::Released),
        of(uid()).prop_map(Hold::Children),
        Just(Hold::Config),
        Just(Hold::Quarantine),
    ];
    prop_oneof![
        Just(Due::Idle),
        (select(Class::ALL.to_vec()), any::<i64>(), any::<i64>()).prop_map(
            |(class, turn, since_ms)| Due::Ready {
                class,
                turn,
                since_ms
            }
        ),
        hold.prop_map(Due::Held),
    ]
}

fn sums() -> impl Strategy<Value = Sums> {
    any::<[i64; 5]>().prop_map(|[total, ready, unsettled, failed, degraded]| Sums {
        total,
        ready,
        unsettled,
        failed,
        degraded,
    })
}

prop_compose! {
    fn first_half()(uid in uid(), kv in kv(), name in name(), owner in of(uid()), root in uid(), depth in any::<u16>(),
        position in any::<u32>(), labels in labels(), config_ref in of(name()), times in any::<[i64; 5]>(),
        deletion in of((any::<i64>(), any::<[bool; 3]>())), orphan in of(any::<[i64; 2]>())) -> Resource {
        let mut row = blank(uid, kv);
        row.name = name;
        (row.owner, row.root, row.depth, row.position) = (owner, root, depth, position);
        (row.labels, row.config_ref) = (labels, config_ref);
        [row.generation, row.synced_gen, row.created_ms, row.updated_ms, row.epoch] = times;
        row.deletion = deletion.map(|(requested_ms, [abandon, recreate, claimed])|
            Deletion { requested_ms, abandon, recreate, claimed });
        row.orphan = orphan.map(|[since_ms, until_ms]| Orphan { since_ms, until_ms });
        row
    }
}

prop_compose! {
    fn row()(mut row in first_half(), flags in any::<[bool; 5]>(), finalizers in vec(("[a-z]{1,4}", 1..9_i32, of("[a-z]{1,4}")), 0..2),
        claim in of(claim()), marks in any_marks(), failures in (of(failure()), of(failure())),
        conditions in vec(condition(), 0..3), look in of(any::<[i64; 2]>()), times in any::<[Option<i64>; 4]>(),
        counts in any::<[u32; 3]>(), sums in (sums(), sums()), numbers in any::<[i64; 6]>(), due in due(),
        phase in select(Phase::ALL)) -> Resource {
        let [quarantined, by_hand, synced, settled, counted] = flags;
        (row.quarantined, row.by_hand) = (quarantined, by_hand);
        row.derived = Derived { phase, synced, settled, counted };
        row.finalizers = finalizers.into_iter().map(|(name, kind_version, config)| {
            let config_ref = config.map(|config| config.parse().unwrap());
            Finalizer { name, kind_version, config_ref }
        }).collect();
        (row.claim, row.marks) = (claim, marks);
        (row.failure, row.observe_failure) = failures;
        row.conditions = conditions;
        row.look = look.map(|[at_ms, delay_ms]| Look { at_ms, delay_ms });
        [row.not_before_ms, row.resync_ms, row.rollup_ms, row.wake_ms] = times;
        [row.flows_pending, row.flows_gone, row.children] = counts;
        row.below = Below { sums: sums.0, version: numbers[0] };
        row.contributed = Contributed { sums: sums.1, version: numbers[1], is_cause: numbers[1] % 2 == 0 };
        (row.own_version, row.flowed_version, row.transitions, row.revision) = (numbers[2], numbers[3], numbers[4], numbers[5]);
        row.due = due;
        row
    }
}

fn any_marks() -> impl Strategy<Value = Marks> {
    (of(inputs()), of(inputs()), of(inputs())).prop_map(|(compose, work, rollup)| Marks {
        compose,
        work,
        rollup,
    })
}

fn blank(uid: Uid, kv: KindVersion) -> Resource {
    Resource {
        uid,
        kv,
        name: "a".parse().unwrap(),
        owner: None,
        root: uid,
        depth: 0,
        position: 0,
        labels: Arc::default(),
        config_ref: None,
        generation: 0,
        synced_gen: 0,
        created_ms: 0,
        updated_ms: 0,
        deletion: None,
        orphan: None,
        quarantined: false,
        finalizers: Vec::new(),
        epoch: 0,
        claim: None,
        marks: Marks::default(),
        failure: None,
        observe_failure: None,
        recomposed: false,
        conditions: Vec::new(),
        by_hand: false,
        not_before_ms: None,
        look: None,
        resync_ms: None,
        rollup_ms: None,
        flows_pending: 0,
        flows_gone: 0,
        children: 0,
        below: Below::default(),
        causes: Vec::new(),
        own_version: 0,
        flowed_version: 0,
        contributed: Contributed::default(),
        due: Due::Idle,
        wake_ms: None,
        derived: Derived::NEW,
        transitions: 0,
        revision: 0,
    }
}

/// What the searched columns of a row say, as the indexes see them.
fn searched(conn: &Connection, uid: Uid) -> Vec<rusqlite::types::Value> {
    let sql = "SELECT ready_kind, ready_version, ready_class, ready_turn, held_on, wake_ms, claimed, phase, version,
        finalizer_version, config_ref, owner FROM resource WHERE uid = ?1";
    conn.query_row(sql, [uid.as_bytes()], |row| {
        (0..12).map(|at| row.get(at)).collect()
    })
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_resource_comes_back_as_it_was_written(states in vec(row(), 1..5)) {
        let (_dir, conn) = database();
        let (_dir2, fresh) = database();
        let mut before: Option<(i64, Resource)> = None;
        for mut row in states {
            let id = match &before {
                None => {
                    resource::insert(&conn, 7, &row).unwrap();
                    7
                }
                Some((id, old)) => {
                    // Identity is for life; the rest may change in any way.
                    (row.uid, row.name) = (old.uid, old.name.clone());
                    row.kv.kind = old.kv.kind.clone();
                    resource::update(&conn, *id, old, &row).unwrap();
                    *id
                }
            };
            let (found_id, found) = resource::by_uid(&conn, row.uid).unwrap().unwrap();
            prop_assert_eq!(found_id, id);
            prop_assert_eq!(&found, &row);
            prop_assert_eq!(&resource::by_name(&conn, &row.kv.kind, &row.name).unwrap().unwrap().1, &row);
            // An update leaves the searched columns as an insert would have written them.
            fresh.execute("DELETE FROM resource", []).unwrap();
            resource::insert(&fresh, 1, &row).unwrap();
            prop_assert_eq!(searched(&conn, row.uid), searched(&fresh, row.uid));
            before = Some((id, row));
        }
    }

    #[test]
    fn an_update_of_one_field_keeps_the_others(row in row(), other in row(), which in 0..9) {
        let (_dir, conn) = database();
        let id = 1;
        resource::insert(&conn, id, &row).unwrap();
        let mut next = row.clone();
        match which {
            0 => next.due = other.due,
            1 => next.wake_ms = other.wake_ms,
            2 => next.claim = other.claim,
            3 => next.derived = other.derived,
            4 => next.finalizers = other.finalizers,
            5 => next.kv.version = other.kv.version,
            6 => next.deletion = other.deletion,
            7 => next.config_ref = other.config_ref,
            _ => next.owner = other.owner,
        }
        resource::update(&conn, id, &row, &next).unwrap();
        prop_assert_eq!(&resource::by_uid(&conn, row.uid).unwrap().unwrap().1, &next);
        let (_dir2, fresh) = database();
        resource::insert(&fresh, 1, &next).unwrap();
        prop_assert_eq!(searched(&conn, row.uid), searched(&fresh, row.uid));
    }

    #[test]
    fn small_rows_come_back_as_they_were_written(
        uids in any::<[[u8; 16]; 3]>(), kv in kv(), numbers in any::<[i64; 4]>(), turns in any::<[i64; 5]>(),
        since in any::<[u8; 5]>(), digests in (digest(), digest()), texts in (of(".{0,9}"), of(name())),
        flags in any::<[bool; 2]>(), small in any::<u32>(), big in 0..=i64::MAX as u64, pointers in (pointer(), pointer()),
        value in select(vec![None, Some("null"), Some("1.000000000000000000000000000001"), Some(r#"{ "a" : [] }"#)]),
        owner in of(uid()), labels in labels(),
    ) {
        let (_dir, conn) = database();
        let [a, b, c] = uids.map(Uid::from_bytes);
        let pair = Pair { kv: kv.clone(), inflight: small, turn: turns, since, default_config: digests.0, resources: big };
        let phases = [(Phase::Ready, big), (Phase::Failed, u64::from(small))];
        let tally = Tally { pair, phases: phases.into() };
        tally::put(&conn, &tally).unwrap();
        prop_assert_eq!(tally::of(&conn, &kv).unwrap(), Some(tally));
        let stored: Vec<_> = tally::phases(&conn).unwrap().into_iter().map(|(_, phase, n)| (phase, n)).collect();
        prop_assert_eq!(stored.len(), 2);
        prop_assert!(phases.iter().all(|counted| stored.contains(counted)));

        let flow = Flow { dependent: pointers.0, source: pointers.1, value: value.map(|text| text.parse().unwrap()), gone: flags[0] };
        let edge = Edge { from: a, to: b, owner: c, position: small, former: flags[1], flows: vec![flow] };
        graph::put(&conn, &edge).unwrap();
        for found in [graph::from(&conn, a), graph::to(&conn, b), graph::of(&conn, c)] {
            let found = found.unwrap();
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(&*found[0], &edge);
            let text = found[0].flows[0].value.as_ref().map(|doc| doc.as_bytes().to_vec());
            prop_assert_eq!(text, value.map(|text| text.as_bytes().to_vec()));
        }
        graph::delete(&conn, a, b).unwrap();
        prop_assert!(graph::from(&conn, a).unwrap().is_empty());

        let spec: converge_types::json::Doc = r#"{"n": 1.50}"#.parse().unwrap();
        let row = Config {
            name: "cfg".parse().unwrap(), kv: kv.clone(), is_default: flags[0], spec: spec.clone(), bundle_bytes: big,
            bundle_digest: digests.0, effective: digests.1, broken: texts.0.clone(), owner, former: flags[1], created_ms: numbers[0],
            updated_ms: numbers[1], revision: numbers[2],
        };
        config::put(&conn, &row).unwrap();
        prop_assert_eq!(&*config::by_name(&conn, &row.name).unwrap().unwrap(), &row);
        let bundle = Bundle(Arc::from(uids[0].as_slice()));
        config::bundle_put(&conn, &row.name, Some(&bundle)).unwrap();
        prop_assert_eq!(config::bundle(&conn, &row.name).unwrap(), Some(bundle));

        let sweep = ConfigSweep { kv: kv.clone(), config_ref: texts.1.clone(), after: owner };
        config::sweep_put(&conn, &sweep).unwrap();
        config::sweep_put(&conn, &sweep).unwrap();
        prop_assert_eq!(config::sweep_next(&conn).unwrap(), Some(sweep.clone()));
        config::sweep_done(&conn, &sweep).unwrap();
        prop_assert_eq!(config::sweep_next(&conn).unwrap(), None);

        let history = History {
            uid: a, generation: numbers[0], spec, labels, kv: kv.clone(), config_ref: texts.1.clone(), at_ms: numbers[1],
            who: texts.0.clone(),
        };
        event::history_put(&conn, &history).unwrap();
        prop_assert_eq!(&*event::history(&conn, a).unwrap()[0], &history);

        let tombstone = Tombstone {
            uid: a, kind: kv.kind.clone(), name: "gone".parse().unwrap(), owner, removed_ms: numbers[2], revision: numbers[3],
        };
        event::tombstone_put(&conn, &tombstone).unwrap();
        prop_assert_eq!(event::tombstone(&conn, &kv.kind, &tombstone.name).unwrap(), Some(tombstone));
    }
}
