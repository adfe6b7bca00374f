//! `apply` and what it reads.

use serde_json::json;

use crate::fake::{Fake, applied, ok, refused};
use crate::run::World;

const BIG: &str = "987654321098765432109876543210";

const ALL: &str = r#"# every type, in the wrong order
kind: stdshell
name: hello
labels: {team: a}
spec:
  script: |
    echo yes
  answer: yes
  big: 987654321098765432109876543210
---
name: notify
watch_kind: demo
transition: failed
reactor: pager
---
type: providerconfig
name: fast
kind: stdshell
spec: {n: 1.10}
---
kind: demo
kind_version: 2
spec_schema: {maximum: 987654321098765432109876543210}
reactions: []
"#;

fn everything(world: &World) -> Fake {
    Fake::start()
        .on(
            "PUT /kinds/demo/manifest",
            [applied("created", world.golden("manifest"))],
        )
        .on(
            "POST /providerconfigs",
            [applied("configured", world.golden("providerconfig"))],
        )
        .on(
            "POST /reactor-bindings",
            [applied("unchanged", world.golden("reactor_binding"))],
        )
        .on(
            "POST /resources",
            [applied("created", world.golden("resource"))],
        )
}

#[test]
fn documents_go_in_the_order_in_which_they_need_each_other_and_keep_every_digit() {
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    world.write("all.yaml", ALL);
    insta::assert_snapshot!(world.run(&["apply", "-f", "all.yaml"]).whole());
    assert_eq!(
        fake.lines(),
        [
            "PUT /kinds/demo/manifest",
            "POST /providerconfigs",
            "POST /reactor-bindings",
            "POST /resources"
        ]
    );
    assert_eq!(
        fake.bodies("POST /resources"),
        [format!(
            r#"{{"kind":"stdshell","name":"hello","labels":{{"team":"a"}},"spec":{{"script":"echo yes\n","answer":"yes","big":{BIG}}}}}"#
        )]
    );
    assert_eq!(
        fake.bodies("POST /providerconfigs"),
        [r#"{"type":"providerconfig","name":"fast","kind":"stdshell","spec":{"n":1.10}}"#]
    );
    for asked in fake.asked() {
        assert_eq!(asked.headers["content-type"], "application/json");
    }
}

#[test]
fn output_is_the_body_or_names() {
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    world.write("all.yaml", ALL);
    let names = world.run(&["apply", "-f", "all.yaml", "-o", "name"]);
    assert_eq!(
        names.stdout,
        "manifest/demo/v2\nproviderconfig/fast\nreactorbinding/notify\nstdshell/hello\n"
    );
    let json = world.run_with(
        &["apply", "-f", "-", "-o", "json"],
        r#"{"kind":"stdshell","name":"hello","spec":{}}"#,
    );
    assert_eq!(json.code, 0);
    let stored: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(stored["name"], "hello");
    assert!(
        json.stdout.contains(&format!("\"big\": {BIG}")),
        "{}",
        json.stdout
    );
}

#[test]
fn a_directory_is_its_documents_and_recursion_is_asked_for() {
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    world.write("d/b.yml", "{kind: stdshell, name: b, spec: {}}");
    world.write("d/a.json", r#"{"kind":"stdshell","name":"a","spec":{}}"#);
    world.write("d/demo.kind.json", r#"{"kind":"demo","kind_version":2}"#);
    world.write("d/README.md", "no document");
    world.write("d/.hidden.yaml", "- nonsense: [");
    world.write("d/sub/c.yaml", "{kind: stdshell, name: c, spec: {}}");
    assert_eq!(world.run(&["apply", "-f", "d"]).code, 0);
    assert_eq!(
        fake.lines(),
        [
            "PUT /kinds/demo/manifest",
            "POST /resources",
            "POST /resources"
        ]
    );
    assert!(fake.bodies("POST /resources")[0].contains("\"a\""));
    assert_eq!(world.run(&["apply", "-R", "-f", "d"]).code, 0);
    assert_eq!(fake.lines().len(), 3 + 4);
}

#[test]
fn the_type_comes_from_the_option_then_the_document_then_the_name_then_the_keys() {
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    for (args, name, text, line) in [
        (
            &["--type", "pc"][..],
            "a.yaml",
            "{kind: stdshell, name: fast, spec: {}}",
            "POST /providerconfigs",
        ),
        (
            &["--type", "pc"],
            "b.kind.yaml",
            "{type: resource, kind: stdshell, name: fast}",
            "POST /providerconfigs",
        ),
        (
            &[],
            "c.kind.yaml",
            "{type: resource, kind: stdshell, name: a, spec: {}}",
            "POST /resources",
        ),
        (
            &[],
            "d.kind.yaml",
            "{kind: demo, kind_version: 2}",
            "PUT /kinds/demo/manifest",
        ),
        (
            &[],
            "e.yaml",
            "{kind: stdshell, name: fast, is_default: true}",
            "POST /providerconfigs",
        ),
        (
            &[],
            "f.yaml",
            "{kind: demo, kind_version: 2, reactions: []}",
            "PUT /kinds/demo/manifest",
        ),
        (
            &[],
            "g.yaml",
            "{name: x, reactor: pager, watch_kind: demo}",
            "POST /reactor-bindings",
        ),
        (
            &[],
            "h.yaml",
            "{kind: stdshell, name: a}",
            "POST /resources",
        ),
    ] {
        world.write(name, text);
        let ran = world.run(&[&["apply", "-f", name], args].concat());
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        let asked = fake.asked().pop().unwrap();
        assert_eq!(asked.line, line, "{name}");
        if args.is_empty() {
            continue;
        }
        assert!(
            !asked.body.contains("\"type\""),
            "what --type overrules is not sent: {}",
            asked.body
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_place_and_nothing_is_sent() {
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    world.write(
        "twice.yaml",
        "kind: stdshell\nname: a\nspec:\n  script: a\n  script: b\n",
    );
    world.write(
        "broken.json",
        "{\n  \"kind\": \"stdshell\",\n  \"name\": }\n",
    );
    world.write(
        "what.yaml",
        "colour: blue\n---\nkind: stdshell\nname: fine\nspec: {}\n",
    );
    world.write("type.yaml", "type: thing\nname: a\n");
    insta::assert_snapshot!(
        world
            .run(&["apply", "-f", "twice.yaml", "-f", "broken.json"])
            .whole()
    );
    insta::assert_snapshot!(
        world
            .run(&["apply", "-f", "what.yaml", "-f", "type.yaml"])
            .whole()
    );
    assert_eq!(fake.lines(), Vec::<String>::new());
}

#[test]
fn a_refusal_points_into_the_file_and_does_not_stop_the_others() {
    let world = World::new();
    let errors = &[
        ("/spec/script", "must not be blank"),
        ("/spec/extra", "is not allowed"),
        ("", "and in general"),
    ];
    let fake = Fake::start().on(
        "POST /resources",
        [
            refused(
                400,
                "the spec does not match the schema of stdshell/v1",
                errors,
            ),
            applied("created", world.golden("resource")),
        ],
    );
    let world = world.talk_to(&fake);
    world.write("two.yaml", "kind: stdshell\nname: bad\nspec:\n  script: ''\n  extra: 1\n---\n{kind: stdshell, name: hello, spec: {}}\n");
    insta::assert_snapshot!(world.run(&["apply", "-f", "two.yaml"]).whole());
}

#[test]
fn a_conflict_is_four() {
    let world = World::new();
    let fake = Fake::start().on(
        "POST /resources",
        [refused(409, "stdshell/hello is being deleted", &[])],
    );
    let world = world.talk_to(&fake);
    let ran = world.run_with(
        &["apply", "-f", "-"],
        r#"{"kind":"stdshell","name":"hello","spec":{}}"#,
    );
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: -:1: stdshell/hello is being deleted\n")
    );
}

const HELLO: &str = "{kind: stdshell, name: hello, spec: {}}";

#[test]
fn waiting_is_for_the_applied_generation() {
    let world = World::new();
    // Ready, but of the generation before: not what was applied.
    let stale = world.resource(json!({ "generation": 4, "synced_gen": 3 }));
    let ready = world.resource(json!({ "generation": 4, "synced_gen": 4 }));
    let fake = Fake::start()
        .on(
            "POST /resources",
            [applied(
                "configured",
                world.resource(json!({ "generation": 4, "synced_gen": 3 })),
            )],
        )
        .on(
            "GET /resources/stdshell/hello",
            [ok(stale.clone()), ok(stale), ok(ready)],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(
        world
            .run_with(&["apply", "-f", "-", "--wait"], HELLO)
            .whole()
    );
    assert_eq!(fake.lines().len(), 4);
}

#[test]
fn waiting_ends_with_one_when_the_resource_failed_and_with_five_when_time_is_up() {
    let world = World::new();
    let failed = world.resource(json!({
        "phase": "Failed", "synced_gen": 2,
        "failure": { "message": "exit 1: boom", "terminal": true, "attempts": 1 }
    }));
    let busy =
        world.resource(json!({ "phase": "Reconciling", "synced_gen": 2, "waiting": "NoWorker" }));
    let fake = Fake::start()
        .on(
            "POST /resources",
            [applied("configured", world.golden("resource"))],
        )
        .on("GET /resources/stdshell/hello", [ok(failed), ok(busy)]);
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(
        world
            .run_with(&["apply", "-f", "-", "--wait"], HELLO)
            .whole()
    );
    insta::assert_snapshot!(
        world
            .run_with(&["apply", "-f", "-", "--wait", "--timeout", "1s"], HELLO)
            .whole()
    );
}

#[test]
fn what_get_gives_can_be_applied_again() {
    let world = World::new();
    let fake = everything(&world).on(
        "GET /resources/stdshell/hello",
        [ok(world.golden("resource"))],
    );
    let world = world.talk_to(&fake);
    let got = world.run(&["get", "stdshell/hello", "-o", "yaml"]);
    assert_eq!(world.run_with(&["apply", "-f", "-"], &got.stdout).code, 0);
    let sent = fake.bodies("POST /resources").remove(0);
    assert_eq!(
        sent,
        format!(
            r#"{{"kind":"stdshell","kind_version":1,"name":"hello","labels":{{"converge.sh/app":"demo"}},"spec":{{"script":"echo hi","big":{BIG}}}}}"#
        )
    );
}

#[test]
fn a_bundle_is_packed_into_the_one_providerconfig() {
    use base64::Engine as _;
    let world = World::new();
    let fake = everything(&world);
    let world = world.talk_to(&fake);
    world.write(
        "policies/compose.star",
        "def compose(spec, config): return struct()\n",
    );
    world.write("policies/.git/config", "not in a bundle");
    world.write(
        "pc.yaml",
        "{type: providerconfig, name: fast, kind: stdstarlark, is_default: true}",
    );
    let ran = world.run(&[
        "apply",
        "-f",
        "pc.yaml",
        "--bundle",
        "policies",
        "--replace-default",
    ]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "not packed: .git is hidden\n")
    );
    assert_eq!(
        world
            .run(&["bundle", "pack", "policies", "-o", "p.zip"])
            .code,
        0
    );
    let zip = std::fs::read(world.path("p.zip")).unwrap();
    let sent = fake
        .bodies("POST /providerconfigs?replace_default=true")
        .remove(0);
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!(
        base64::prelude::BASE64_STANDARD
            .decode(sent["data"].as_str().unwrap())
            .unwrap(),
        zip
    );

    world.write("res.yaml", HELLO);
    let ran = world.run(&["apply", "-f", "res.yaml", "--bundle", "policies"]);
    assert_eq!(ran.code, 64);
    assert!(
        ran.stderr.contains("exactly one providerconfig"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_failure_from_before_an_edit_of_its_config_is_not_the_answer() {
    let world = World::new();
    let failed = world.resource(json!({
        "phase": "Failed", "failure": { "message": "old", "terminal": true, "attempts": 1 }
    }));
    let fake = Fake::start()
        .on(
            "POST /providerconfigs",
            [applied("configured", world.golden("providerconfig"))],
        )
        .on("POST /resources", [applied("unchanged", failed.clone())])
        .on(
            "GET /resources/stdshell/hello",
            [ok(failed), ok(world.golden("resource"))],
        );
    let world = world.talk_to(&fake);
    let config = "{type: providerconfig, name: fast, kind: stdshell, spec: {}}";
    let ran = world.run_with(
        &["apply", "-f", "-", "--wait"],
        &format!("{config}\n---\n{HELLO}\n"),
    );
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "stdshell/hello is Ready\n")
    );
}

#[test]
fn one_violation_is_told_once_with_its_place() {
    let world = World::new();
    let wrong = "must not be blank";
    let fake = Fake::start().on(
        "POST /resources",
        [
            refused(
                400,
                &format!("the spec does not fit stdshell/v1: /spec/script: {wrong}"),
                &[("/spec/script", wrong)],
            ),
            refused(
                400,
                &format!("/spec/script: {wrong}"),
                &[("/spec/script", wrong)],
            ),
        ],
    );
    let world = world.talk_to(&fake);
    world.write(
        "bad.yaml",
        "kind: stdshell\nname: bad\nspec:\n  script: \"\"\n",
    );
    let ran = world.run(&["apply", "-f", "bad.yaml"]);
    assert_eq!(
        ran.stderr,
        "error: bad.yaml:1: stdshell/bad: the spec does not fit stdshell/v1\n  bad.yaml:4:11: /spec/script: must not be blank\n"
    );
    let ran = world.run(&["apply", "-f", "bad.yaml"]);
    assert_eq!(
        ran.stderr,
        "error: bad.yaml:4:11: /spec/script: must not be blank\n"
    );
}

#[test]
fn places_count_from_one_and_are_said_once() {
    let world = World::new();
    for (text, place) in [("", "(line 1, column 1)"), ("{\n", "(line 2, column 1)")] {
        let ran = world.run(&["ops", "demo/db", "--run", "x", "--input", text]);
        assert_eq!(ran.code, 64, "{}", ran.stderr);
        assert!(ran.stderr.contains(place), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("line ").count(), 1, "{}", ran.stderr);
        world.write("open.json", &format!("{{{text}"));
        let ran = world.run(&["apply", "-f", "open.json"]);
        assert!(!ran.stderr.contains(" column "), "{}", ran.stderr);
        assert!(!ran.stderr.contains(":0: "), "{}", ran.stderr);
    }
}
