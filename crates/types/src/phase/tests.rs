use super::*;

#[test]
fn phases_are_ordered_as_they_are_decided() {
    let words: Vec<_> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    assert_eq!(
        words,
        [
            "Deleting",
            "Quarantined",
            "Failed",
            "Orphaned",
            "Reconciling",
            "Degraded",
            "Ready"
        ]
    );
    assert!(Phase::ALL.is_sorted());
}

#[test]
fn every_word_has_one_spelling() {
    fn agree<T>(all: &[T])
    where
        T: Copy
            + PartialEq
            + fmt::Debug
            + fmt::Display
            + FromStr<Err = WordError>
            + Serialize
            + serde::de::DeserializeOwned,
    {
        for value in all {
            let word = value.to_string();
            assert_eq!(word.parse::<T>().expect("own word"), *value);
            let json = serde_json::to_string(value).expect("writes");
            assert_eq!(json, format!("{word:?}"));
            assert_eq!(serde_json::from_str::<T>(&json).expect("own json"), *value);
        }
        assert!("nonsense".parse::<T>().is_err());
    }
    agree(Phase::ALL);
    agree(Stage::ALL);
    agree(Trigger::ALL);
    agree(Emit::ALL);
    agree(Transition::ALL);
    agree(ConditionStatus::ALL);
}

#[test]
fn an_unknown_word_is_told_the_known_ones() {
    let error = "ready"
        .parse::<ConditionStatus>()
        .expect_err("unknown")
        .to_string();
    assert_eq!(
        error,
        r#""ready" is no condition status: expected one of True, False, Unknown"#
    );
}

#[test]
fn wire_numbers_are_fixed() {
    let stages: Vec<_> = Stage::ALL
        .iter()
        .map(|stage| (stage.as_str(), stage.wire()))
        .collect();
    assert_eq!(
        stages,
        [
            ("compose", 1),
            ("work", 2),
            ("rollup", 3),
            ("delete", 4),
            ("operate", 5),
            ("react", 6)
        ]
    );
    let transitions: Vec<_> = Transition::ALL
        .iter()
        .map(|t| (t.as_str(), t.wire()))
        .collect();
    assert_eq!(
        transitions,
        [
            ("created", 1),
            ("synced", 2),
            ("degraded", 3),
            ("failed", 4),
            ("deleted", 5)
        ]
    );
    assert!(
        Stage::ALL
            .iter()
            .all(|stage| Stage::from_wire(stage.wire()) == Some(*stage))
    );
    assert_eq!(
        (
            Stage::from_wire(0),
            Stage::from_wire(7),
            Transition::from_wire(0),
            Transition::from_wire(6)
        ),
        (None, None, None, None)
    );
}

#[test]
fn children_in_a_mask_cover_edges_and_configs() {
    let mask: EmitMask = serde_json::from_str(r#"["status","children"]"#).expect("valid");
    assert!(mask.allows(Emit::Edges) && mask.allows(Emit::Configs) && mask.allows(Emit::Status));
    assert!(!mask.lists(Emit::Edges) && !mask.allows(Emit::Conditions));
    assert_eq!(
        serde_json::to_string(&mask).expect("writes"),
        r#"["children","status"]"#
    );
    assert!(!EmitMask::NONE.with(Emit::Status).allows(Emit::Edges));
    assert_eq!(
        Emit::ALL
            .iter()
            .copied()
            .collect::<EmitMask>()
            .iter()
            .count(),
        Emit::ALL.len()
    );
}

#[test]
fn waiting_reasons_read_as_documented() {
    let resource = ResourceRef::parse("a", "b").expect("valid");
    let pointer: Pointer = "/x/y".parse().expect("valid");
    let since_ms = 1_700_000_000_123;
    let table = [
        (
            WaitingReason::Running {
                worker: "w1".into(),
                since_ms,
            },
            "Running on w1 since 2023-11-14T22:13:20.123Z",
        ),
        (WaitingReason::Quarantined, "Quarantined"),
        (WaitingReason::HeldBy(resource.clone()), "HeldBy a/b"),
        (WaitingReason::ConfigMissing, "ConfigMissing"),
        (
            WaitingReason::DependencyNotReady(resource.clone()),
            "DependencyNotReady a/b",
        ),
        (
            WaitingReason::FlowMissing(resource.clone(), pointer),
            "FlowMissing a/b /x/y",
        ),
        (
            WaitingReason::Backoff {
                until_ms: 1_700_000_000_000,
            },
            "Backoff until 2023-11-14T22:13:20.000Z",
        ),
        (WaitingReason::NoWorker, "NoWorker"),
        (WaitingReason::WorkerNotReady, "WorkerNotReady"),
        (WaitingReason::KindAtCapacity, "KindAtCapacity"),
        (WaitingReason::Queued, "Queued"),
        (
            WaitingReason::ChildrenNotSettled(resource),
            "ChildrenNotSettled a/b",
        ),
    ];
    for (reason, text) in table {
        assert_eq!(reason.to_string(), text);
        assert_eq!(
            serde_json::to_string(&reason).expect("writes"),
            format!("{text:?}")
        );
    }
}

#[test]
fn no_time_is_out_of_range() {
    for ms in [i64::MIN, -1, 0, i64::MAX] {
        assert!(rfc3339_ms(ms).ends_with('Z'));
    }
    assert_eq!(rfc3339_ms(-1), "1969-12-31T23:59:59.999Z");
}

#[test]
fn a_condition_leaves_out_what_it_does_not_say() {
    let condition: Condition =
        serde_json::from_str(r#"{"type":"Ready","status":"True"}"#).expect("valid");
    assert_eq!(
        serde_json::to_string(&condition).expect("writes"),
        r#"{"type":"Ready","status":"True","last_transition_ms":0,"observed_generation":0}"#
    );
    assert!(condition::is_engines_own("Synced") && !condition::is_engines_own("Ready"));
}
