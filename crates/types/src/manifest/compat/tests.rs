use serde_json::json;

use super::*;

type Edit = fn(&mut Value);

fn base() -> Value {
    json!({
        "kind": "demo", "kind_version": 1, "finalizer_name": "fin",
        "spec_schema": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 5}}, "required": ["size"]},
        "status_schema": {"type": "object"},
        "reactions": [
            {"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]},
            {"name": "teardown", "trigger": "deleteRequested", "emits": ["finalizer"]},
        ],
        "max_inflight": 2,
    })
}

fn add(manifest: &mut Value, reaction: Value) {
    manifest["reactions"]
        .as_array_mut()
        .expect("an array")
        .push(reaction);
}

fn manifest(value: &Value) -> Manifest {
    Manifest::parse(value.to_string())
        .unwrap_or_else(|error| panic!("{value}: {error}"))
        .manifest()
        .clone()
}

/// What changes when `edit` is made to the base.
fn after(edit: impl FnOnce(&mut Value)) -> Comparison {
    let mut value = base();
    edit(&mut value);
    compare(&manifest(&base()), &manifest(&value))
}

fn refusals(comparison: &Comparison, needed: bool) -> Vec<String> {
    comparison
        .refusals(|_| needed)
        .into_iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_same_manifest_written_another_way_is_identical() {
    let text = base()
        .to_string()
        .replace("\"maximum\":5", " \"maximum\" : 5.0");
    let other = Manifest::parse(text).expect("legal");
    assert!(compare(&manifest(&base()), other.manifest()).is_identical());
}

#[test]
fn safe_edits_are_accepted_whatever_exists() {
    let edits: [Edit; 9] = [
        |m| m["description"] = json!("new"),
        |m| m["spec_schema"]["properties"]["size"]["maximum"] = json!(6),
        |m| m["spec_schema"]["properties"]["name"] = json!({"type": "string"}),
        |m| m["spec_schema"]["required"] = json!([]),
        |m| m["status_schema"] = json!({"type": "string"}),
        |m| {
            add(
                m,
                json!({"name": "drift", "trigger": "resync", "emits": ["status"]}),
            )
        },
        |m| {
            add(
                m,
                json!({"name": "compose", "trigger": "specChange", "emits": ["children", "status"]}),
            )
        },
        |m| m["reactions"][1]["emits"] = json!(["finalizer", "status"]),
        |m| m["reactions"] = json!([m["reactions"][1], m["reactions"][0]]),
    ];
    for (index, edit) in edits.into_iter().enumerate() {
        let comparison = after(edit);
        assert!(
            !comparison.is_identical() && !comparison.is_policy_only(),
            "{index}"
        );
        assert_eq!(refusals(&comparison, true), Vec::<String>::new(), "{index}");
    }
}

#[test]
fn breaking_edits_are_named() {
    let table: [(Edit, &str); 5] = [
        (
            |m| m["spec_schema"]["properties"]["size"]["maximum"] = json!(4),
            "/spec_schema/properties/size/maximum: maximum narrowed from 5 to 4",
        ),
        (
            |m| m["spec_schema"]["required"] = json!(["size", "name"]),
            "/spec_schema/required: \"name\" is required now",
        ),
        (
            |m| m["config_schema"] = json!({"type": "object"}),
            "/config_schema/type: type added",
        ),
        (
            |m| m["reactions"][0]["emits"] = json!(["status"]),
            "/reactions/0/emits: reaction work no longer emits conditions",
        ),
        (
            |m| m["kind_version"] = json!(2),
            "/kind_version: changed from demo/v1 to demo/v2",
        ),
    ];
    for (edit, message) in table {
        assert_eq!(refusals(&after(edit), false), [message]);
    }
}

#[test]
fn a_removed_reaction_or_finalizer_counts_only_when_something_needs_it() {
    let table: [(Edit, &[&str]); 4] = [
        (
            |m| m["reactions"] = json!([m["reactions"][1]]),
            &["/reactions/0: reaction work on specChange removed"],
        ),
        (
            |m| m["reactions"][0]["name"] = json!("other"),
            &["/reactions/0/name: reaction work renamed to other"],
        ),
        (
            |m| m["finalizer_name"] = json!("other"),
            &["/finalizer_name: fin removed or renamed"],
        ),
        (
            |m| {
                m["reactions"] = json!([m["reactions"][0]]);
                m.as_object_mut()
                    .expect("an object")
                    .remove("finalizer_name");
            },
            &[
                "/reactions/1: reaction teardown on deleteRequested removed",
                "/finalizer_name: fin removed or renamed",
            ],
        ),
    ];
    for (edit, messages) in table {
        let comparison = after(edit);
        assert_eq!(refusals(&comparison, true), messages);
        assert_eq!(refusals(&comparison, false), Vec::<String>::new());
    }
    let gone = after(|m| m["reactions"][0]["name"] = json!("other"));
    let refused = gone
        .refusals(|gravity| matches!(gravity, Gravity::ReactionRemoved(name) if *name == "work"));
    assert_eq!(refused.len(), 1);
}

#[test]
fn a_work_reaction_that_begins_to_compose_is_another_reaction() {
    let comparison =
        after(|m| m["reactions"][0]["emits"] = json!(["children", "status", "conditions"]));
    assert_eq!(
        refusals(&comparison, true),
        ["/reactions/0: reaction work on specChange removed"]
    );
}

#[test]
fn a_policy_that_differs_is_said_and_refuses_nothing() {
    let comparison = after(|m| {
        m["max_inflight"] = json!(3);
        m["on_config_change"] = json!("next");
    });
    assert!(comparison.is_policy_only() && !comparison.is_identical());
    let said: Vec<_> = comparison.policy().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "/max_inflight: 3 here, 2 before",
            "/on_config_change: \"next\" here, \"reconcile\" before"
        ]
    );
    assert!(comparison.refusals(|_| true).is_empty());
}

#[test]
fn whatever_differs_is_a_change() {
    // A schema's spelling aside, two manifests that are not equal never compare as identical.
    let mut reordered = base();
    reordered["reactions"] = json!([base()["reactions"][1], base()["reactions"][0]]);
    assert_ne!(manifest(&reordered), manifest(&base()));
    assert!(!compare(&manifest(&base()), &manifest(&reordered)).is_identical());
    let mut absent = base();
    absent["config_schema"] = json!(true);
    assert!(!compare(&manifest(&base()), &manifest(&absent)).is_identical());
}
