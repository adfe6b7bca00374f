use serde_json::{Value, json};

use super::*;

fn parse(manifest: &Value) -> Result<CompiledManifest, ManifestError> {
    Manifest::parse(manifest.to_string())
}

fn refused(manifest: &Value) -> Vec<String> {
    match parse(manifest) {
        Err(ManifestError::Illegal(violations)) => {
            violations.iter().map(ToString::to_string).collect()
        }
        other => panic!("{manifest}: {other:?}"),
    }
}

fn with(reactions: Value) -> Value {
    json!({"kind": "demo", "kind_version": 1, "finalizer_name": "demo/teardown", "reactions": reactions})
}

#[test]
fn a_manifest_is_read_with_all_its_fields() {
    let text = json!({
        "type": "manifest", "kind": "stack", "kind_version": 3, "description": "A stack.",
        "spec_schema": {"type": "object", "required": ["size"]}, "status_schema": {"type": "object"}, "config_schema": true,
        "reactions": [
            {"name": "compose", "trigger": "specChange", "emits": ["children", "status"]},
            {"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]},
            {"name": "rollup", "trigger": "childrenSettled", "emits": ["status"]},
            {"name": "teardown", "trigger": "deleteRequested", "emits": ["finalizer"], "finalizer": "demo/teardown"},
            {"name": "drift", "trigger": "resync", "emits": ["status"]},
            {"name": "restart", "trigger": "operation", "verb": "restart", "emits": ["operationOutput"]},
            {"name": "dump", "trigger": "operation", "verb": "dump", "emits": ["operationOutput"]},
        ],
        "finalizer_name": "demo/teardown", "max_inflight": 4, "task_deadline_secs": 60, "resync_interval_secs": 300,
        "resync_recomposes": true, "orphan_grace_secs": 10, "max_transient_attempts": 5, "on_config_change": "next",
    });
    let compiled = parse(&text).expect("legal");
    assert_eq!(compiled.kind().to_string(), "stack/v3");
    let name = |reaction: Option<&Reaction>| reaction.map(|reaction| reaction.name.to_string());
    assert_eq!(name(compiled.composer()).as_deref(), Some("compose"));
    assert_eq!(name(compiled.work()).as_deref(), Some("work"));
    assert_eq!(name(compiled.rollup()).as_deref(), Some("rollup"));
    assert_eq!(name(compiled.teardown()).as_deref(), Some("teardown"));
    assert_eq!(name(compiled.resync()).as_deref(), Some("drift"));
    assert_eq!(name(compiled.operation("dump")).as_deref(), Some("dump"));
    assert_eq!(
        (compiled.operation("none"), compiled.reactor()),
        (None, None)
    );
    assert_eq!(
        compiled.reaction("work").map(Reaction::stage),
        Some(Stage::Work)
    );
    assert_eq!(
        compiled.composer().map(Reaction::stage),
        Some(Stage::Compose)
    );
    assert!(!compiled.spec().accepts(&json!({})) && compiled.status().accepts(&json!({})));
    let policy = &compiled.manifest().policy;
    assert_eq!(
        (policy.max_inflight, policy.on_config_change),
        (4, OnConfigChange::Next)
    );

    // What is written again reads the same, and leaves `type` to whoever writes bodies.
    let again = serde_json::to_string(compiled.manifest()).expect("writes");
    assert_eq!(Manifest::parse(again).expect("legal"), compiled);
    let stored: Manifest =
        serde_json::from_str(&serde_json::to_string(compiled.manifest()).expect("writes"))
            .expect("reads");
    assert_eq!(&stored, compiled.manifest());
}

#[test]
fn what_a_manifest_leaves_out_has_defaults() {
    let compiled = parse(&json!({"kind": "demo", "kind_version": 1})).expect("legal");
    let manifest = compiled.manifest();
    assert_eq!(manifest.policy, Policy::default());
    assert_eq!(manifest.policy.on_config_change, OnConfigChange::Reconcile);
    assert!(manifest.reactions.is_empty() && manifest.finalizer_name.is_none());
    assert!(compiled.spec().accepts(&json!(7)) && compiled.config().accepts(&json!(null)));
}

#[test]
fn everything_wrong_is_reported_together_with_its_place() {
    let found = refused(&json!({
        "kind": "No", "kind_version": 0, "max_inflight": -1, "on_config_change": "never", "surprise": 1,
        "finalizer_name": "a b",
        "reactions": [
            {"name": "x y", "trigger": "specChange", "emits": ["status", "everything"], "more": 1},
            {"trigger": "sometimes"},
        ],
        "spec_schema": {"type": "strin"}, "config_schema": {"$ref": "http://example.com"}, "status_schema": 5,
    }));
    for place in [
        "/kind: kind \"No\" is not valid",
        "/kind_version: ",
        "/max_inflight: ",
        "/on_config_change: ",
        "/surprise: unknown field",
        "/finalizer_name: finalizer name",
        "/reactions/0/name: reaction name \"x y\"",
        "/reactions/0/emits/1: ",
        "/reactions/0/more: unknown field",
        "/reactions/1: \"name\" is a required property",
        "/reactions/1/trigger: ",
        "/spec_schema/type: ",
        "/config_schema/$ref: the reference",
        "/status_schema: ",
    ] {
        assert!(
            found.iter().any(|text| text.starts_with(place)),
            "{place} in {found:#?}"
        );
    }
}

#[test]
fn rules_between_reactions_are_reported_beside_wrong_fields() {
    let mut manifest = with(json!([{"name": "a", "trigger": "operation"}]));
    manifest["kind_version"] = json!(0);
    let found = refused(&manifest);
    assert!(
        found.iter().any(|text| text.starts_with("/kind_version")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|text| text.starts_with("/reactions/0/verb")),
        "{found:?}"
    );
}

#[test]
fn these_reactions_are_legal_together() {
    let table = [
        json!([]),
        json!([{"name": "a", "trigger": "specChange", "emits": []}]),
        json!([{"name": "a", "trigger": "specChange", "emits": ["children", "conditions"]},
               {"name": "b", "trigger": "specChange", "emits": ["status", "sideEffect"]}]),
        json!([{"name": "a", "trigger": "reactor", "emits": ["sideEffect"]}]),
        json!([{"name": "a", "trigger": "deleteRequested", "emits": ["finalizer"]}]),
        json!([{"name": "a", "trigger": "deleteRequested", "emits": ["finalizer", "status"], "finalizer": "demo/teardown"}]),
        json!([{"name": "a", "trigger": "resync", "emits": ["children", "status"]}]),
    ];
    for reactions in table {
        parse(&with(reactions.clone())).unwrap_or_else(|error| panic!("{reactions}: {error}"));
    }
}

#[test]
fn these_reactions_are_not_legal_together() {
    let table = [
        (
            json!([{"name": "a", "trigger": "resync"}, {"name": "b", "trigger": "resync"}]),
            "/reactions/1/trigger: a second reaction on resync; the first is a",
        ),
        (
            json!([{"name": "a", "trigger": "specChange"}, {"name": "b", "trigger": "specChange"}]),
            "/reactions/1/trigger: a second reaction on specChange that emits no children; the first is a",
        ),
        (
            json!([{"name": "a", "trigger": "specChange", "emits": ["children", "status"]},
                {"name": "b", "trigger": "specChange", "emits": ["children", "status"]}]),
            "/reactions/1/trigger: a second reaction on specChange that emits children; the first is a",
        ),
        (
            json!([{"name": "a", "trigger": "resync"}, {"name": "a", "trigger": "specChange"}]),
            "/reactions/1/name: a second reaction is called a",
        ),
        (
            json!([{"name": "a", "trigger": "operation", "verb": "v"}, {"name": "b", "trigger": "operation", "verb": "v"}]),
            "/reactions/1/verb: a second operation has the verb v",
        ),
        (
            json!([{"name": "a", "trigger": "operation"}]),
            "/reactions/0/verb: a reaction on operation needs a verb",
        ),
        (
            json!([{"name": "a", "trigger": "resync", "verb": "v"}]),
            "/reactions/0/verb: only a reaction on operation has a verb, not one on resync",
        ),
        (
            json!([{"name": "a", "trigger": "specChange", "emits": ["children"]}]),
            "/reactions/0/emits: a reaction that emits children also emits status or conditions",
        ),
        (
            json!([{"name": "a", "trigger": "specChange", "emits": ["children", "status", "sideEffect"]}]),
            "/reactions/0/emits: a reaction that emits children cannot emit sideEffect",
        ),
        (
            json!([{"name": "a", "trigger": "childrenSettled", "emits": ["children", "status"]}]),
            "/reactions/0/emits: a reaction on childrenSettled cannot emit children",
        ),
        (
            json!([{"name": "a", "trigger": "deleteRequested", "emits": ["status"]}]),
            "/reactions/0/emits: a reaction on deleteRequested emits finalizer",
        ),
        (
            json!([{"name": "a", "trigger": "reactor", "emits": ["sideEffect", "status"]}]),
            "/reactions/0/emits: a reaction on reactor emits sideEffect and nothing else",
        ),
        (
            json!([{"name": "a", "trigger": "reactor"}]),
            "/reactions/0/emits: a reaction on reactor emits sideEffect and nothing else",
        ),
        (
            json!([{"name": "a", "trigger": "reactor", "emits": ["sideEffect"]}, {"name": "b", "trigger": "specChange"}]),
            "/reactions/1/trigger: a kind with a reaction on reactor has no other reaction",
        ),
        (
            json!([{"name": "a", "trigger": "deleteRequested", "emits": ["finalizer"], "finalizer": "other"}]),
            "/reactions/0/finalizer: a reaction's finalizer equals the manifest's finalizer_name",
        ),
    ];
    for (reactions, message) in table {
        let found = refused(&with(reactions.clone()));
        assert_eq!(found, [message], "{reactions}");
    }
    let mut unnamed =
        with(json!([{"name": "a", "trigger": "deleteRequested", "emits": ["finalizer"]}]));
    unnamed
        .as_object_mut()
        .expect("an object")
        .remove("finalizer_name");
    assert_eq!(
        refused(&unnamed),
        ["/reactions/0/trigger: a reaction on deleteRequested needs the manifest's finalizer_name"]
    );
}

#[test]
fn a_duplicate_key_is_an_error_of_the_document() {
    let error = Manifest::parse("{\"kind\":\"a\",\"kind_version\":1,\"kind\":\"b\"}")
        .expect_err("twice")
        .to_string();
    assert_eq!(error, "duplicate key \"kind\" at /kind (line 1, column 30)");
    let large = format!(
        "{{\"description\":\"{}\"}}",
        "x".repeat(limits::MANIFEST_BYTES)
    );
    assert!(matches!(
        Manifest::parse(large),
        Err(ManifestError::Size(_))
    ));
}

#[test]
fn a_schema_keeps_every_digit() {
    let text = "{\"kind\":\"a\",\"kind_version\":1,\"spec_schema\":{\"default\":123456789012345678901234567890}}";
    let compiled = Manifest::parse(text).expect("legal");
    let again = serde_json::to_string(compiled.manifest()).expect("writes");
    assert!(again.contains("123456789012345678901234567890"), "{again}");
}

#[test]
fn the_published_schema_names_every_word_there_is() {
    for word in Trigger::ALL
        .iter()
        .map(|t| t.as_str())
        .chain(Emit::ALL.iter().map(|e| e.as_str()))
    {
        assert!(MANIFEST_SCHEMA.contains(&format!("{word:?}")), "{word}");
    }
    let schema: Value = serde_json::from_str(MANIFEST_SCHEMA).expect("json");
    let body = serde_json::to_value(
        Manifest::parse("{\"kind\":\"a\",\"kind_version\":1}")
            .expect("legal")
            .manifest(),
    )
    .expect("writes");
    for field in body.as_object().expect("an object").keys() {
        assert!(schema["properties"].get(field).is_some(), "{field}");
    }
}
