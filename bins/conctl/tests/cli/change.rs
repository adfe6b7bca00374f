//! The verbs that change something on the server, apply and sync aside.

use serde_json::json;

use crate::fake::{Fake, accepted, applied, no_route, ok, refused};
use crate::run::World;

#[test]
fn delete_asks_and_waits_until_that_very_resource_is_gone() {
    let world = World::new();
    let here = world.golden("resource");
    let going = world.resource(json!({ "phase": "Deleting" }));
    let again = world.resource(json!({ "uid": "another", "phase": "Reconciling" }));
    let fake = Fake::start()
        .on("DELETE /resources/stdshell/hello", [accepted()])
        .on(
            "GET /resources/stdshell/hello",
            [ok(here), ok(going), ok(again)],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(
        world
            .run(&["delete", "stdshell/hello", "--wait", "--force"])
            .whole()
    );
    assert_eq!(
        fake.lines()[1],
        "DELETE /resources/stdshell/hello?force=true"
    );
    assert_eq!(fake.lines().len(), 4);
}

#[test]
fn a_deletion_that_hangs_is_five_and_says_what_holds_it() {
    let world = World::new();
    let going = world.resource(json!({ "phase": "Deleting", "waiting": "HeldBy stdshell/db" }));
    let fake = Fake::start()
        .on("DELETE /resources/stdshell/hello", [accepted()])
        .on("GET /resources/stdshell/hello", [ok(going)]);
    let world = world.talk_to(&fake);
    let ran = world.run(&["delete", "stdshell/hello", "--wait", "--timeout", "1"]);
    assert_eq!(ran.code, 5);
    assert!(
        ran.stderr
            .contains("is Deleting, waiting: HeldBy stdshell/db"),
        "{}",
        ran.stderr
    );
}

#[test]
fn delete_takes_files_backwards_and_every_type() {
    let fake = Fake::start()
        .on("DELETE /resources/stdshell/a", [accepted()])
        .on("DELETE /providerconfigs/fast", [accepted()])
        .on("DELETE /kinds/demo/versions/2/manifest", [accepted()]);
    let world = World::with(&fake);
    world.write(
        "all.yaml",
        "{kind: demo, kind_version: 2, reactions: []}\n---\n{type: providerconfig, kind: demo, name: fast}\n---\n{kind: stdshell, name: a, spec: {}}\n",
    );
    let ran = world.run(&["delete", "-f", "all.yaml"]);
    assert_eq!(
        ran.stdout,
        "stdshell/a deletion requested\nproviderconfig/fast deleted\nmanifest/demo/v2 deleted\n"
    );
    assert_eq!(
        fake.lines(),
        [
            "DELETE /resources/stdshell/a",
            "DELETE /providerconfigs/fast",
            "DELETE /kinds/demo/versions/2/manifest"
        ]
    );
    for asked in fake.asked() {
        assert_eq!(
            asked.headers["content-type"], "application/json",
            "every write says what it is"
        );
    }
}

#[test]
fn a_deletion_that_is_refused_or_names_nothing_says_so() {
    let fake = Fake::start().on(
        "DELETE /resources/stdshell/child",
        [refused(409, "stdshell/child belongs to stdcel/app", &[])],
    );
    let world = World::with(&fake);
    let owned = world.run(&["delete", "stdshell/child"]);
    assert_eq!(
        (owned.code, owned.stderr.as_str()),
        (4, "error: stdshell/child belongs to stdcel/app\n")
    );
    assert_eq!(world.run(&["delete", "stdshell/nobody"]).code, 3);
    assert_eq!(
        world
            .run(&["delete", "stdshell/nobody", "--ignore-not-found"])
            .code,
        0
    );
    assert_eq!(world.run(&["delete", "pc", "fast", "--force"]).code, 64);
}

#[test]
fn reconcile_and_quarantine_reach_as_far_as_asked() {
    let world = World::new();
    let fake = Fake::start()
        .on("POST /resources/stdshell/hello/reconcile", [accepted()])
        .on(
            "POST /kinds/stdshell/reconcile",
            [ok(world.golden("kind_reconciled"))],
        )
        .on("POST /resources/stdshell/hello/quarantine", [accepted()])
        .on("POST /resources/stdshell/hello/unquarantine", [accepted()]);
    let world = world.talk_to(&fake);
    assert_eq!(
        world
            .run(&["reconcile", "stdshell/hello", "--recursive"])
            .stdout,
        "stdshell/hello reconciling\n"
    );
    assert_eq!(
        world
            .run(&["reconcile", "--kind", "stdshell", "--phase", "failed"])
            .stdout,
        "12 resources of stdshell reconciling\n"
    );
    assert_eq!(
        world.run(&["quarantine", "stdshell/hello"]).stdout,
        "stdshell/hello quarantined\n"
    );
    assert_eq!(
        world
            .run(&["unquarantine", "stdshell/hello", "--recursive"])
            .stdout,
        "stdshell/hello unquarantined\n"
    );
    assert_eq!(
        fake.lines(),
        [
            "POST /resources/stdshell/hello/reconcile?recursive=true",
            "POST /kinds/stdshell/reconcile?phase=Failed",
            "POST /resources/stdshell/hello/quarantine",
            "POST /resources/stdshell/hello/unquarantine?recursive=true",
        ]
    );
    assert!(!fake.asked()[0].headers["idempotency-key"].is_empty());
}

#[test]
fn rollback_goes_to_the_state_before_the_last() {
    let world = World::new();
    let state = |generation: u64| {
        let mut list: serde_json::Value =
            serde_json::from_str(&world.golden("spec_history")).unwrap();
        let mut item = list["items"][0].take();
        item["generation"] = json!(generation);
        item
    };
    let history = json!({ "items": [state(5), state(3), state(2)], "revision": 1 }).to_string();
    let fake = Fake::start()
        .on(
            "GET /resources/stdshell/hello/spec-history",
            [
                ok(history),
                ok(json!({ "items": [state(5)], "revision": 1 }).to_string()),
            ],
        )
        .on(
            "POST /resources/stdshell/hello/rollback",
            [applied(
                "configured",
                world.resource(json!({ "generation": 6 })),
            )],
        );
    let world = world.talk_to(&fake);
    let ran = world.run(&["rollback", "stdshell/hello"]);
    assert_eq!(
        ran.stdout, "stdshell/hello rolled back to 3 (generation 6)\n",
        "{}",
        ran.stderr
    );
    assert_eq!(
        fake.bodies("POST /resources/stdshell/hello/rollback"),
        [r#"{"generation":3}"#]
    );
    assert_eq!(
        world.run(&["rollback", "stdshell/hello"]).code,
        1,
        "there is nothing before the only one"
    );
    assert_eq!(
        world.run(&["rollback", "stdshell/hello", "--history"]).code,
        0
    );
}

#[test]
fn an_operation_is_run_waited_for_and_its_failure_is_one() {
    let world = World::new();
    let state = |state: &str| {
        world
            .golden("operation")
            .replace("\"Failed\"", &format!("\"{state}\""))
    };
    let uid = "0198c0de-0000-7000-8000-000000000001";
    let fake = Fake::start()
        .on("POST /resources/demo/db/ops", [ok(state("Pending"))])
        .on(
            "GET /resources/demo/db/ops",
            [ok(world.golden("operation_list"))],
        )
        .on(
            &format!("GET /resources/demo/db/ops/{uid}"),
            [ok(state("Running")), ok(state("Failed"))],
        );
    let world = world.talk_to(&fake);
    let big = "123456789012345678901234567890";
    let input = format!("{{\"n\": {big}}}");
    let ran = world.run(&[
        "ops", "demo/db", "--run", "restart", "--input", &input, "--wait",
    ]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "error: demo/db: the operation failed: no such process\n")
    );
    assert_eq!(
        fake.bodies("POST /resources/demo/db/ops"),
        [format!(
            "{{\"verb\":\"restart\",\"input\":{{\"n\": {big}}}}}"
        )]
    );
    assert!(!fake.asked()[0].headers["idempotency-key"].is_empty());
    insta::assert_snapshot!(world.run(&["ops", "demo/db"]).whole());
    assert_eq!(
        world
            .run(&["ops", "demo/db", "--run", "x", "--input", "{"])
            .code,
        64
    );
}

#[test]
fn what_the_server_does_not_serve_is_said_plainly_and_is_one() {
    let world = World::new();
    let ops = "/resources/demo/db/ops";
    let bindings = "/reactor-bindings";
    let fake = Fake::start()
        .on(&format!("GET {ops}"), [no_route(ops)])
        .on(&format!("POST {ops}"), [no_route(ops)])
        .on(&format!("GET {bindings}"), [no_route(bindings)])
        .on(
            &format!("GET {bindings}/a"),
            [no_route("/reactor-bindings/a")],
        )
        .on(
            "POST /resources/demo/db/quarantine",
            [refused(405, "it does not take POST", &[])],
        );
    let world = world.talk_to(&fake);
    for (args, what) in [
        (&["ops", "demo/db"][..], "operations"),
        (&["ops", "demo/db", "--run", "backup"], "operations"),
        (&["list", "rb"], "reactor bindings"),
        (&["get", "rb", "a"], "reactor bindings"),
        (
            &["quarantine", "demo/db"],
            "POST /resources/demo/db/quarantine",
        ),
    ] {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}");
        let said = format!("error: the control plane at [server] does not serve {what}\n");
        assert!(ran.stderr.starts_with(&said), "{args:?}: {}", ran.stderr);
    }
}

#[test]
fn diff_shows_differences_by_value_alone() {
    let world = World::new();
    let fake = Fake::start().on(
        "GET /resources/stdshell/hello",
        [ok(world.golden("resource"))],
    );
    let world = world.talk_to(&fake);
    world.write(
        "same.yaml",
        "kind: stdshell\nname: hello\nlabels: {converge.sh/app: demo}\nspec:\n  big: 987654321098765432109876543210.0\n  script: echo hi\n",
    );
    let same = world.run(&["diff", "-f", "same.yaml", "--exit-code"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, ""));
    world.write(
        "other.yaml",
        "kind: stdshell\nname: hello\nspec:\n  big: 987654321098765432109876543211\n  script: echo hi\n---\nkind: stdshell\nname: new\nspec: {}\n",
    );
    insta::assert_snapshot!(world.run(&["diff", "-f", "other.yaml"]).whole());
    assert_eq!(
        world.run(&["diff", "-f", "other.yaml", "--exit-code"]).code,
        1
    );
}
