//! The verbs that read.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::json;

use crate::fake::{Fake, ok, refused};
use crate::run::World;

fn list(items: &[String], revision: u64) -> String {
    format!(
        "{{\"items\":[{}],\"revision\":{revision}}}",
        items.join(",")
    )
}

#[test]
fn get_shows_a_row_the_body_yaml_or_the_name() {
    let world = World::new();
    let fake = Fake::start()
        .on(
            "GET /resources/stdshell/hello",
            [ok(world.golden("resource"))],
        )
        .on(
            "GET /resources/stdshell/web",
            [ok(world.golden("resource_deleting"))],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["get", "stdshell/hello"]).whole());
    insta::assert_snapshot!(
        world
            .run(&["get", "res", "stdshell/hello", "stdshell/web", "-o", "wide"])
            .whole()
    );
    insta::assert_snapshot!(world.run(&["get", "stdshell/hello", "-o", "yaml"]).whole());
    assert_eq!(
        world.run(&["get", "stdshell/hello", "-o", "name"]).stdout,
        "stdshell/hello\n"
    );
    let json = world.run(&["get", "stdshell/hello", "-o", "json"]).stdout;
    let golden = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../crates/api-types/tests/golden/resource.json"
    ));
    let compact = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(
        compact(&json),
        compact(&golden.unwrap()),
        "json is the API's body, every digit of it"
    );
}

#[test]
fn get_reads_every_type() {
    let world = World::new();
    let fake = Fake::start()
        .on("GET /kinds", [ok(world.golden("kinds"))])
        .on(
            "GET /kinds/demo/versions/2/manifest",
            [ok(world.golden("manifest"))],
        )
        .on(
            "GET /providerconfigs/fast",
            [ok(world.golden("providerconfig"))],
        )
        .on(
            "GET /providerconfigs",
            [ok(list(&[world.golden("providerconfig")], 9))],
        )
        .on(
            "GET /reactor-bindings/notify",
            [ok(world.golden("reactor_binding"))],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["get", "crd", "demo"]).whole());
    insta::assert_snapshot!(world.run(&["get", "pc", "fast", "-o", "wide"]).whole());
    insta::assert_snapshot!(world.run(&["get", "rb", "notify"]).whole());
    assert_eq!(
        world.run(&["get", "pc"]).stdout,
        world.run(&["list", "providerconfigs"]).stdout
    );
    assert_eq!(
        world.run(&["get", "manifest", "demo", "-o", "name"]).stdout,
        "manifest/demo/v2\n"
    );
    assert_eq!(world.run(&["get", "manifest", "nobody"]).code, 3);
}

#[test]
fn what_is_not_there_is_three_and_says_when_it_went() {
    let world = World::new();
    let went = "stdshell/old was removed at 2026-01-02T03:04:05.678Z";
    let gone = format!("{went}; its events: /api/v1/resources/stdshell/old/events?deleted=true");
    let fake = Fake::start()
        .on("GET /resources/stdshell/old", [refused(404, &gone, &[])])
        .on(
            "GET /resources/stdshell/old/events",
            [refused(404, &gone, &[])],
        );
    let world = world.talk_to(&fake);
    for args in [
        &["get", "stdshell/old"][..],
        &["describe", "stdshell/old"],
        &["events", "stdshell/old"],
        &["events", "stdshell/old", "-f"],
        &["wait", "stdshell/old"],
    ] {
        let ran = world.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (3, ""), "{args:?}");
        assert_eq!(
            ran.stderr,
            format!("error: {went}; `conctl events stdshell/old --deleted` shows what happened\n"),
            "{args:?}"
        );
    }
}

#[test]
fn list_reads_every_page_and_passes_its_filters_on() {
    let world = World::new();
    let first = world.resource(json!({ "spec": null, "status": null }));
    let second = world.golden("resource_deleting");
    let page = "GET /resources?kind=stdshell&name=h&root=stdcel%2Fapp&limit=500&phase=Failed&phase=Ready&label=team%3Aa";
    let next = page.replace("&limit=500", "&limit=500&cursor=abc");
    let fake = Fake::start()
        .on(
            page,
            [ok(list(&[first], 41)).header("x-next-cursor", "abc")],
        )
        .on(&next, [ok(list(&[second], 42))]);
    let world = world.talk_to(&fake);
    let filters = [
        "list",
        "--kind",
        "stdshell",
        "--phase",
        "failed",
        "--phase",
        "Ready",
        "-l",
        "team=a",
        "--name",
        "h",
        "--root",
        "stdcel/app",
    ];
    insta::assert_snapshot!(world.run(&filters).whole());
    assert_eq!(
        world.run(&[&filters[..], &["-o", "name"]].concat()).stdout,
        "stdshell/hello\nstdshell/web\n"
    );
    let json = world.run(&[&filters[..], &["-o", "json"]].concat()).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (json["items"].as_array().unwrap().len(), &json["revision"]),
        (2, &json!(41))
    );
}

#[test]
fn an_empty_list_is_no_output_and_no_error() {
    let fake = Fake::start().on("GET /resources", [ok(list(&[], 1))]);
    insta::assert_snapshot!(World::with(&fake).run(&["list"]).whole());
}

#[test]
fn list_reads_the_other_types() {
    let world = World::new();
    let fake = Fake::start()
        .on("GET /kinds", [ok(world.golden("kinds"))])
        .on(
            "GET /cluster-members",
            [ok(world.golden("cluster_members"))],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["list", "kinds", "-o", "wide"]).whole());
    insta::assert_snapshot!(world.run(&["cluster", "-o", "wide"]).whole());
    assert_eq!(
        world.run(&["list", "nodes"]).stdout,
        world.run(&["cluster"]).stdout
    );
}

/// Starts a command that goes on by itself, reads as many lines as are wanted, and ends it.
fn first_lines(world: &World, args: &[&str], count: usize) -> Vec<String> {
    let mut child = world
        .command(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("conctl starts");
    let (tell, told) = std::sync::mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("it works"));
    let reader = std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    let limit = std::time::Duration::from_secs(30);
    let lines: Vec<String> = (0..count)
        .map_while(|_| told.recv_timeout(limit).ok())
        .collect();
    child.kill().expect("it works");
    child.wait().expect("it works");
    drop(told);
    reader.join().expect("it works");
    lines
}

#[test]
fn a_watch_shows_what_changed_and_what_went_one_object_a_line() {
    let world = World::new();
    let a = |phase: &str| {
        world.resource(
            json!({ "name": "a", "uid": "u-a", "phase": phase, "spec": null, "status": null }),
        )
    };
    let b = world.resource(json!({ "name": "b", "uid": "u-b", "spec": null, "status": null }));
    let fake = Fake::start()
        .on(
            "GET /resources?limit=500",
            [
                ok(list(&[a("Reconciling"), b.clone()], 1)),
                ok(list(&[a("Ready"), b], 2)),
                ok(list(&[a("Ready")], 3)),
            ],
        )
        .on(
            "GET /resources?limit=1",
            [
                ok(list(&[], 1)),
                ok(list(&[], 2)),
                ok(list(&[], 2)),
                ok(list(&[], 3)),
            ],
        );
    let world = world.talk_to(&fake);
    let lines = first_lines(&world, &["list", "-w", "-o", "json"], 4);
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            (
                value["name"].as_str().unwrap().to_owned(),
                value["phase"].as_str().unwrap_or("removed").to_owned(),
            )
        })
        .collect();
    let expected = [
        ("a", "Reconciling"),
        ("b", "Ready"),
        ("a", "Ready"),
        ("b", "removed"),
    ];
    assert_eq!(
        seen,
        expected.map(|(name, phase)| (name.to_owned(), phase.to_owned()))
    );
}

#[test]
fn describe_says_why_it_is_not_well() {
    let world = World::new();
    let base = "GET /resources/stdshell/web";
    let fake = Fake::start()
        .on(base, [ok(world.golden("resource_deleting"))])
        .on(&format!("{base}/events"), [ok(world.golden("events"))])
        .on(
            &format!("{base}/dependencies"),
            [ok(world.golden("dependencies"))],
        )
        .on(
            &format!("{base}/children"),
            [ok(world.golden("resource_list"))],
        )
        .on(
            "GET /providerconfigs/fast",
            [ok(world.golden("providerconfig"))],
        )
        .on(
            "GET /kinds/demo/versions/2/manifest",
            [ok(world.golden("manifest"))],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["describe", "stdshell/web"]).whole());
    insta::assert_snapshot!(world.run(&["describe", "pc", "fast"]).whole());
    insta::assert_snapshot!(world.run(&["describe", "crd", "demo/v2"]).whole());
}

#[test]
fn describe_shows_a_message_of_several_lines_whole_and_harmless() {
    let world = World::new();
    let message =
        "compose.star:3:5: name 'x' is not defined\n    3 |     x()\n            ^\n\u{1b}[31mred";
    let failed = world.resource(json!({
        "phase": "Failed", "failure": { "message": message, "terminal": true, "attempts": 1 }, "spec": null,
        "status": null, "conditions": []
    }));
    let fake = Fake::start().on("GET /resources/stdshell/hello", [ok(failed)]);
    insta::assert_snapshot!(
        world
            .talk_to(&fake)
            .run(&["describe", "stdshell/hello"])
            .whole()
    );
}

fn event(world: &World, seq: u64, count: u64) -> String {
    let mut list: serde_json::Value = serde_json::from_str(&world.golden("events")).expect("JSON");
    let mut event = list["items"][0].take();
    event["seq"] = json!(seq);
    event["count"] = json!(count);
    event.to_string()
}

#[test]
fn events_are_shown_and_followed_until_the_resource_is_gone() {
    let world = World::new();
    let route = "GET /resources/stdshell/hello/events";
    let one = list(&[event(&world, 1, 1)], 1);
    let fake = Fake::start()
        .on(
            route,
            [
                ok(one.clone()),
                ok(one.clone()),
                ok(one),
                ok(list(&[event(&world, 1, 2), event(&world, 2, 1)], 2)),
                refused(404, "stdshell/hello is gone", &[]),
            ],
        )
        .on(
            &format!("{route}?deleted=true"),
            [ok(list(&[event(&world, 2, 1), event(&world, 3, 1)], 3))],
        );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["events", "stdshell/hello"]).whole());
    let ran = world.run(&["events", "stdshell/hello", "-f", "-o", "json"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (0, "stdshell/hello is gone\n")
    );
    let seen: Vec<_> = ran
        .stdout
        .lines()
        .map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            (
                value["seq"].as_u64().unwrap(),
                value["count"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [(1, 1), (1, 2), (2, 1), (3, 1)],
        "new and counted-on ones, each once"
    );
    assert_eq!(world.run(&["events", "stdshell/hello"]).code, 3);
    assert_eq!(
        world
            .run(&["events", "stdshell/hello", "--deleted", "-o", "json"])
            .code,
        0
    );
}

#[test]
fn a_graph_has_three_forms() {
    let world = World::new();
    let fake = Fake::start().on(
        "GET /resources/stdcel/app/graph",
        [ok(world.golden("graph"))],
    );
    let world = world.talk_to(&fake);
    insta::assert_snapshot!(world.run(&["graph", "stdcel/app"]).whole());
    insta::assert_snapshot!(world.run(&["graph", "stdcel/app", "-o", "dot"]).whole());
    insta::assert_snapshot!(world.run(&["graph", "stdcel/app", "-o", "mermaid"]).whole());
}

#[test]
fn wait_ends_with_what_happened() {
    let world = World::new();
    let busy = world.resource(json!({ "phase": "Reconciling", "waiting": "Queued" }));
    let failed = world.resource(json!({
        "phase": "Failed", "failure": { "message": "boom", "terminal": true, "attempts": 3 }
    }));
    let fake = Fake::start()
        .on(
            "GET /resources/stdshell/good",
            [ok(busy.clone()), ok(world.golden("resource"))],
        )
        .on(
            "GET /resources/stdshell/bad",
            [ok(busy.clone()), ok(failed)],
        )
        .on("GET /resources/stdshell/slow", [ok(busy.clone())])
        .on(
            "GET /resources/stdshell/newer",
            [ok(world.resource(json!({ "generation": 9 })))],
        )
        .on(
            "GET /resources/stdshell/going",
            [ok(busy), refused(404, "gone", &[])],
        );
    let world = world.talk_to(&fake);
    let ready = world.run(&["wait", "stdshell/good", "--for", "phase=Ready"]);
    assert_eq!(
        (ready.code, ready.stdout.as_str()),
        (0, "stdshell/good Ready\n")
    );
    let holds = world.run(&["wait", "stdshell/good", "--for", "condition=Ready"]);
    assert_eq!(
        (holds.code, holds.stdout.as_str()),
        (0, "stdshell/good Ready=True\n")
    );
    let failed = world.run(&["wait", "stdshell/bad", "--for", "phase=Ready"]);
    assert_eq!(
        (failed.code, failed.stderr.as_str()),
        (1, "error: stdshell/hello is Failed: boom\n")
    );
    assert_eq!(
        world
            .run(&["wait", "stdshell/bad", "--for", "phase=Failed"])
            .code,
        0
    );
    let slow = world.run(&["wait", "stdshell/slow", "--timeout", "1s"]);
    assert_eq!(slow.code, 5);
    assert_eq!(
        slow.stderr,
        "error: stdshell/hello is Reconciling, waiting: Queued (waited 1s)\n"
    );
    // What was so of an older spec says nothing of this one.
    for (resource, condition, says) in [
        (
            "stdshell/newer",
            "Ready",
            "; Ready is True of generation 3, and the newest is 9",
        ),
        ("stdshell/slow", "Ready=False", "; Ready is True"),
        (
            "stdshell/slow",
            "Nope",
            "; it has no condition Nope: it has Ready",
        ),
    ] {
        let goal = format!("condition={condition}");
        let missed = world.run(&["wait", resource, "--for", &goal, "--timeout", "1s"]);
        assert_eq!(missed.code, 5, "{goal}");
        assert!(missed.stderr.contains(says), "{goal}: {}", missed.stderr);
    }
    let gone = world.run(&["wait", "stdshell/going", "--for", "delete"]);
    assert_eq!(
        (gone.code, gone.stdout.as_str()),
        (0, "stdshell/going gone\n")
    );
}
