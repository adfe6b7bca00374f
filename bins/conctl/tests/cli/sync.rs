//! `sync`: what it stamps, and above all what it does not delete.

use serde_json::json;

use crate::fake::{Fake, accepted, applied, ok};
use crate::run::World;

/// A server that has, of the app `shop`: `hello` (in the tree), `old` (gone from it), `child` (owned), `going` (being
/// deleted), and `foreign` (of another app, given by a filter that does not filter).
fn shop(world: &World) -> Fake {
    let of = |name: &str, app: &str, more: serde_json::Value| {
        let mut changes = json!({ "name": name, "uid": name, "labels": { "converge.sh/app": app }, "spec": null, "status": null });
        for (key, value) in more.as_object().expect("an object") {
            changes[key] = value.clone();
        }
        world.resource(changes)
    };
    let items = [
        of("hello", "shop", json!({})),
        of("old", "shop", json!({})),
        of(
            "child",
            "shop",
            json!({ "owner": { "kind": "stdcel", "name": "app" } }),
        ),
        of(
            "going",
            "shop",
            json!({ "deletion_requested_at": "2026-01-02T03:04:05.678Z" }),
        ),
        of("foreign", "other", json!({})),
    ];
    Fake::start()
        .on(
            "POST /resources",
            [applied("configured", world.golden("resource"))],
        )
        .on(
            "GET /resources?limit=500&label=converge.sh%2Fapp%3Ashop",
            [ok(format!(
                "{{\"items\":[{}],\"revision\":1}}",
                items.join(",")
            ))],
        )
        .on("DELETE /resources/stdshell/old", [accepted()])
}

fn tree(world: &World) {
    world.write("deploy/converge.yaml", "app: shop\n");
    world.write(
        "deploy/a/hello.yaml",
        "kind: stdshell\nname: hello\nlabels: {team: a}\nspec: {}\n",
    );
}

#[test]
fn resources_get_the_label_of_the_nearest_app() {
    let world = World::new();
    let fake = shop(&world);
    let world = world.talk_to(&fake);
    tree(&world);
    world.write("deploy/b/converge.yaml", "app: other\n");
    world.write(
        "deploy/b/x.json",
        r#"{"kind":"stdshell","name":"x","spec":{}}"#,
    );
    assert_eq!(world.run(&["sync", "deploy"]).code, 0);
    assert_eq!(
        fake.bodies("POST /resources"),
        [
            r#"{"kind":"stdshell","name":"hello","labels":{"team":"a","converge.sh/app":"shop"},"spec":{}}"#,
            r#"{"kind":"stdshell","name":"x","spec":{},"labels":{"converge.sh/app":"other"}}"#,
        ]
    );
}

#[test]
fn pruning_deletes_only_what_is_ours_unowned_and_gone_from_the_tree() {
    let world = World::new();
    let fake = shop(&world);
    let world = world.talk_to(&fake);
    tree(&world);
    insta::assert_snapshot!(world.run(&["sync", "deploy", "--prune", "--yes"]).whole());
    let deleted: Vec<String> = fake
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("DELETE"))
        .collect();
    assert_eq!(deleted, ["DELETE /resources/stdshell/old"]);
}

#[test]
fn pruning_asks_needs_an_app_and_never_empties_by_mistake() {
    let world = World::new();
    let fake = shop(&world);
    let world = world.talk_to(&fake);
    tree(&world);
    let unasked = world.run(&["sync", "deploy", "--prune"]);
    assert_eq!(
        unasked.code, 64,
        "no terminal to ask on: {}",
        unasked.stderr
    );
    let dry = world.run(&["sync", "deploy", "--prune", "--dry-run"]);
    assert!(
        dry.stdout.ends_with("stdshell/old would be deleted\n"),
        "{}",
        dry.whole()
    );

    world.write("bare/hello.yaml", "kind: stdshell\nname: hello\nspec: {}\n");
    assert_eq!(world.run(&["sync", "bare", "--prune", "--yes"]).code, 64);

    world.write("empty/converge.yaml", "app: shop\n");
    let empty = world.run(&["sync", "empty", "--prune", "--yes"]);
    assert_eq!(empty.code, 1, "{}", empty.whole());
    assert!(
        !fake.lines().iter().any(|line| line.starts_with("DELETE")),
        "{:?}",
        fake.lines()
    );
}
