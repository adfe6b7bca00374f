//! Usage, connections, files: what needs no answers of the API.

use std::process::Stdio;

use crate::fake::{Fake, ok};
use crate::run::World;

#[test]
fn a_command_line_that_makes_no_sense_is_sixty_four() {
    let world = World::new();
    for args in [
        &[][..],
        &["frobnicate"],
        &["get"],
        &["get", "hello"],
        &["get", "cluster", "x"],
        &["apply"],
        &["apply", "-f", "missing.yaml"],
        &["list", "--phase", "Happy"],
        &["list", "-l", "novalue"],
        &["list", "--kv", "stdshell"],
        &["list", "--kv", "stdshell/v0"],
        &["list", "--owner", "app"],
        &["list", "--root", "a/b/c"],
        &["list", "kinds", "-w"],
        &["wait", "a/b", "--for", "luck"],
        &["wait", "a/b", "--timeout", "soon"],
        &["--server", "localhost:8080", "list"],
        &["--token-file", "missing", "list"],
        &["completion", "tcsh9"],
    ] {
        let ran = world.run(args);
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (64, ""),
            "{args:?}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn help_teaches_with_examples() {
    let world = World::new();
    insta::assert_snapshot!(world.run(&["--help"]).whole());
    for verb in [
        "apply",
        "get",
        "list",
        "describe",
        "delete",
        "events",
        "graph",
        "wait",
        "reconcile",
        "quarantine",
        "unquarantine",
        "rollback",
        "ops",
        "cluster",
        "sync",
        "diff",
        "completion",
    ] {
        let ran = world.run(&[verb, "--help"]);
        assert_eq!(ran.code, 0, "{verb}");
        assert!(ran.stdout.contains("Examples:"), "{verb}: {}", ran.stdout);
    }
    assert!(
        world
            .run(&["bundle", "pack", "--help"])
            .stdout
            .contains("Examples:")
    );
}

#[test]
fn a_server_that_is_not_there_is_six_and_one_that_is_something_else_is_one() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let world = World::new();
    let server = format!("http://127.0.0.1:{port}");
    let ran = world.run(&["--server", &server, "list"]);
    assert_eq!(ran.code, 6);
    assert!(
        ran.stderr
            .starts_with(&format!("error: cannot reach the server at {server}: ")),
        "{}",
        ran.stderr
    );
    // TLS to a server that speaks none.
    let fake = Fake::start().on("GET /resources", [ok("<html>hello</html>")]);
    let tls = world.run(&[
        "--server",
        &fake.url.replace("http://", "https://"),
        "--insecure",
        "list",
    ]);
    assert_eq!(tls.code, 6, "{}", tls.stderr);
    let page = world.run(&["--server", &fake.url, "list"]);
    assert_eq!(page.code, 1);
    assert!(
        page.stderr.contains("is not a converge server"),
        "{}",
        page.stderr
    );
}

#[test]
fn the_token_is_sent_and_a_proxy_is_not_asked_about_loopback() {
    let fake = Fake::start().on("GET /resources", [ok(r#"{"items":[],"revision":1}"#)]);
    let world = World::with(&fake);
    world.write("token", "s3cret\n");
    let mut command = world.command(&["list", "--token-file", "token"]);
    let output = command
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("http_proxy", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fake.asked()[0].headers["authorization"], "Bearer s3cret");
}

#[test]
fn every_shell_has_its_completion() {
    let world = World::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = world.run(&["completion", shell]);
        assert_eq!(ran.code, 0);
        assert!(
            ran.stdout.contains("conctl") && ran.stdout.contains("unquarantine"),
            "{shell}"
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let world = World::new();
    let mut child = world
        .command(&["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stderr.as_slice()),
        (Some(0), &b""[..])
    );
}

#[test]
fn packing_the_same_tree_gives_the_same_bytes() {
    let world = World::new();
    for tree in ["one", "two"] {
        world.write(
            &format!("{tree}/compose.star"),
            "def compose(spec, config): pass\n",
        );
        world.write(&format!("{tree}/lib/x.star"), "x = 1\n");
        world.write(&format!("{tree}/.env"), "SECRET=1\n");
    }
    insta::assert_snapshot!(
        world
            .run(&["bundle", "pack", "one", "-o", "one.zip"])
            .whole()
    );
    assert_eq!(
        world.run(&["bundle", "pack", "two", "-o", "two.zip"]).code,
        0
    );
    assert_eq!(
        std::fs::read(world.path("one.zip")).unwrap(),
        std::fs::read(world.path("two.zip")).unwrap()
    );
    world.write("one/big.star", &"#".repeat(600 * 1024));
    let ran = world.run(&["bundle", "pack", "one", "-o", "big.zip"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("big.star has 614400 bytes"),
        "{}",
        ran.stderr
    );
    assert!(!world.path("big.zip").exists());
}
