//! The provider as a worker drives it, with programs in bash.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::{Duration, Instant};

use converge_sdk::{
    Json, KindVersion, Operation, Outcome, Provider, ProviderConfig, ReactionRequest, Resource,
    Stage, TaskContext, TaskError, Transition, Uid,
};
use serde_json::{Value, json};
use stdio::Stdio;

fn resource() -> Resource {
    Resource::new("stdio", "a")
        .with_spec(json!({"size": 1}))
        .with_generation(3)
}

fn request(stage: Stage, reaction: &str) -> ReactionRequest {
    ReactionRequest::builder(stage, reaction, KindVersion::new("stdio", 1), resource()).build()
}

fn context(config: Value) -> TaskContext {
    let config = ProviderConfig::new()
        .with_spec(config)
        .with_bundle(&b"\x00bundle"[..]);
    TaskContext::builder(KindVersion::new("stdio", 1))
        .default_config(config)
        .build()
}

fn bash(script: &str) -> Value {
    json!({"command": "bash", "args": ["-c", script], "settings": {"z": 1.50, "a": [null]}})
}

async fn work(script: &str) -> Result<Outcome, TaskError> {
    Stdio::leaf("stdio")
        .work(&context(bash(script)), request(Stage::Work, "work"))
        .await
}

/// What the program was sent.
async fn sent(provider: Stdio, config: Value, request: ReactionRequest) -> Value {
    let mut config = config;
    config["command"] = json!("bash");
    config["args"] = json!(["-c", "printf '{\"status\":'; cat; printf '}'"]);
    let outcome = provider.work(&context(config), request).await.unwrap();
    outcome.status.unwrap().decode().unwrap()
}

#[tokio::test]
async fn a_request_says_what_there_is_and_leaves_out_what_there_is_not() {
    let received = sent(
        Stdio::leaf("stdio"),
        json!({}),
        request(Stage::Work, "work"),
    )
    .await;
    let expected = json!({
        "reaction": "work", "trigger": "specChange", "kind": "stdio", "kind_version": 1, "name": "a",
        "uid": Uid::default().to_string(), "generation": 3, "spec": {"size": 1}, "bundle": "AGJ1bmRsZQ==",
    });
    assert_eq!(received, expected);
}

#[tokio::test]
async fn a_compose_request_shows_the_children_and_an_operation_its_verb() {
    let child = Resource::new("b", "x")
        .with_ready(true)
        .with_status(json!({"id": 7}));
    let parent = resource()
        .with_status(json!({"was": 1}))
        .with_label("k", "v");
    let kind = KindVersion::new("stdio-composer", 1);
    let compose = ReactionRequest::builder(Stage::Compose, "compose", kind.clone(), parent)
        .observed([child.clone(), Resource::new("b", "y")])
        .build();
    let received = sent(
        Stdio::composer("stdio-composer"),
        json!({"settings": {"s": 1}}),
        compose,
    )
    .await;
    assert_eq!(
        received["observed"],
        json!([{"kind": "b", "name": "x", "ready": true, "status": {"id": 7}}, {"kind": "b", "name": "y", "ready": false}])
    );
    assert_eq!(
        (&received["status"], &received["labels"]),
        (&json!({"was": 1}), &json!({"k": "v"}))
    );
    assert_eq!(received["config"], json!({"s": 1}));

    let operate = ReactionRequest::builder(Stage::Operate, "restart", kind.clone(), resource())
        .operation(Operation::new("restart").with_input(json!({"now": true})))
        .build();
    let received = sent(Stdio::leaf("stdio"), json!({}), operate).await;
    assert_eq!(
        received["operation"],
        json!({"verb": "restart", "input": {"now": true}})
    );

    let react = ReactionRequest::builder(Stage::React, "notify", kind.clone(), resource())
        .transition(Transition::Synced, "b/r/1")
        .build();
    let received = sent(Stdio::leaf("stdio"), json!({}), react).await;
    assert_eq!(
        (&received["transition"], &received["dedup_token"]),
        (&json!("synced"), &json!("b/r/1"))
    );

    let rollup = ReactionRequest::builder(Stage::Rollup, "rollup", kind, resource())
        .descendants([child.with_owner(Uid::default())])
        .build();
    let received = sent(Stdio::composer("stdio-composer"), json!({}), rollup).await;
    assert_eq!(
        received["descendants"][0]["owner"],
        json!(Uid::default().to_string())
    );
    assert_eq!(received["trigger"], "childrenSettled");
}

#[tokio::test]
async fn the_spec_arrives_byte_for_byte() {
    let spec = r#"{"b" : 1.50, "a":12345678901234567890123, "a":"é"}"#;
    let resource = Resource::new("stdio", "a").with_spec(Json::from_bytes_unchecked(spec));
    let request =
        ReactionRequest::builder(Stage::Work, "work", KindVersion::new("stdio", 1), resource)
            .build();
    let outcome = Stdio::leaf("stdio")
        .work(
            &context(bash(
                "printf '{\"status\":'; sed 's/.*\"spec\"://; s/,\"config\".*/}/'",
            )),
            request,
        )
        .await
        .unwrap();
    assert_eq!(outcome.status.unwrap().as_str(), Some(spec));
}

#[tokio::test]
async fn blank_stdout_is_an_empty_success() {
    assert_eq!(work("cat >/dev/null; echo").await.unwrap(), Outcome::new());
}

#[tokio::test]
async fn what_goes_wrong_is_terminal_or_not_as_its_code_says() {
    for (script, terminal, text) in [
        ("exit 1", false, "code 1"),
        ("echo 'bad zone' >&2; exit 2", true, "bad zone"),
        ("exit 127", false, "not found"),
        ("kill -KILL $$", false, "signal 9"),
        ("bash -c 'kill -KILL $$'; exit $?", false, "128+9"),
        ("echo oops", true, "it begins: oops"),
        ("echo '[1]'", true, "not one JSON object"),
    ] {
        let error = work(script).await.unwrap_err();
        assert_eq!(error.is_terminal(), terminal, "{script}: {error}");
        assert!(error.message().contains(text), "{script}: {error}");
    }
}

#[tokio::test]
async fn a_failure_delivers_status_and_conditions() {
    let script = r#"echo '{"status":{"step":2},"conditions":[{"type":"Ready","status":"False","reason":"Half"}],"children":3}'; exit 1"#;
    let error = work(script).await.unwrap_err();
    assert!(!error.is_terminal());
    assert_eq!(error.status().unwrap().as_str(), Some(r#"{"step":2}"#));
    assert_eq!(error.conditions()[0].reason, "Half");
}

#[tokio::test]
async fn a_program_that_reads_nothing_or_writes_first_neither_fails_nor_hangs() {
    let big = Resource::new("stdio", "a").with_spec(json!({"pad": "x".repeat(8 << 20)}));
    let request = || {
        ReactionRequest::builder(
            Stage::Work,
            "work",
            KindVersion::new("stdio", 1),
            big.clone(),
        )
        .build()
    };
    let provider = Stdio::leaf("stdio");
    for script in ["echo '{}'", "exec 0<&-; sleep .3; echo '{}'"] {
        let outcome = provider.work(&context(bash(script)), request()).await;
        assert_eq!(outcome.unwrap(), Outcome::new(), "{script}");
    }
    let flood = "head -c 8388608 /dev/zero | tr '\\0' x; cat >/dev/null";
    let error = provider
        .work(&context(bash(flood)), request())
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("not one JSON object"),
        "{error}"
    );
    let echo = "printf '{\"status\":'; cat; printf '}'";
    let outcome = provider
        .work(&context(bash(echo)), request())
        .await
        .unwrap();
    assert!(outcome.status.unwrap().len() > 8 << 20);
}

#[tokio::test]
async fn a_nul_byte_for_the_program_is_terminal_wherever_it_stands() {
    let nul = "x\u{0}y";
    for (config, text) in [
        (
            json!({"command": nul}),
            "the program's name contains a NUL byte",
        ),
        (
            json!({"command": "cat", "args": ["a", nul]}),
            "argument 2 contains a NUL byte",
        ),
        (
            json!({"command": "cat", "env": {"A": nul}}),
            "config.env.A contains a NUL byte",
        ),
        (
            json!({"command": "cat", "env": {nul: "a"}}),
            "config.env.x\u{FFFD}y contains a NUL byte",
        ),
    ] {
        let error = Stdio::leaf("stdio")
            .work(&context(config.clone()), request(Stage::Work, "work"))
            .await
            .unwrap_err();
        assert!(error.is_terminal(), "{config}: {error}");
        assert!(error.message().contains(text), "{config}: {error}");
    }
    // What is no name, argument or variable rides inside JSON, where it is a character like another.
    let received = sent(
        Stdio::leaf("stdio"),
        json!({"settings": {"text": nul}}),
        request(Stage::Work, "work"),
    )
    .await;
    assert_eq!(received["config"], json!({"text": nul}));
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_terminal() {
    let error = work("head -c 70000000 /dev/zero | tr '\\0' ' '; echo '{}'")
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("68157440 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_background_child_that_holds_stdout_does_not_hold_the_task() {
    let started = Instant::now();
    assert_eq!(work("sleep 60 & echo '{}'").await.unwrap(), Outcome::new());
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn each_way_not_to_start_has_a_message_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("noshebang");
    std::fs::write(&script, "echo hi\n").unwrap();
    std::process::Command::new("chmod")
        .arg("+x")
        .arg(&script)
        .status()
        .unwrap();
    let mut messages = std::collections::BTreeSet::new();
    for config in [
        json!({"command": "/no/such"}),
        json!({"command": "no-such-name"}),
        json!({"command": dir.path()}),
        json!({"command": script}),
        json!({"command": " "}),
        json!({"settings": 1}),
        json!({"command": "true", "comand": "x"}),
        json!({"command": "true", "args": ["a\u{0}"]}),
        json!({"command": "true", "env": {"A": "\u{0}"}}),
    ] {
        let provider = Stdio::leaf("stdio").with_fallback(None);
        let error = provider
            .work(&context(config.clone()), request(Stage::Work, "work"))
            .await
            .unwrap_err();
        assert!(error.is_terminal(), "{config}: {error}");
        assert!(messages.insert(error.message().to_owned()), "{error}");
    }
}

#[tokio::test]
async fn the_workers_command_serves_where_the_config_has_none() {
    let ctx = TaskContext::builder(KindVersion::new("stdio", 1)).build();
    let provider = Stdio::leaf("stdio").with_fallback(Some("true".to_owned()));
    assert_eq!(
        provider
            .work(&ctx, request(Stage::Work, "work"))
            .await
            .unwrap(),
        Outcome::new()
    );
    let error = provider
        .with_fallback(None)
        .work(&ctx, request(Stage::Work, "work"))
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("STDIO_COMMAND"),
        "{error}"
    );
}

#[tokio::test]
async fn a_leaf_is_not_asked_to_compose() {
    let error = Stdio::leaf("stdio")
        .work(&context(bash(":")), request(Stage::Compose, "compose"))
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("STDIO_COMPOSER_KINDS"),
        "{error}"
    );
}

/// The example's program, as a leaf and as a composer.
#[tokio::test]
async fn the_example_program_answers_both_roles() {
    let handler = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/stdio/handler.sh"
    );
    if !std::path::Path::new(handler).exists() {
        eprintln!("SKIPPED: the examples are not beside this crate");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config =
        || json!({"command": "bash", "args": [handler], "env": {"EXAMPLE_TMP": dir.path()}});
    let site =
        Resource::new("stdio-composer", "shop").with_spec(json!({"services": ["api", "web"]}));
    let kind = KindVersion::new("stdio-composer", 1);
    let compose = ReactionRequest::builder(Stage::Compose, "compose", kind, site).build();
    let outcome = Stdio::composer("stdio-composer")
        .work(&context(config()), compose)
        .await
        .unwrap();
    let children = outcome.children.unwrap();
    assert_eq!(children.len(), 3);
    assert_eq!(outcome.edges.len(), 2);

    let network = Resource::new("stdio", &*children[0].name).with_spec(children[0].spec.clone());
    let work = ReactionRequest::builder(Stage::Work, "work", KindVersion::new("stdio", 1), network)
        .build();
    let first = Stdio::leaf("stdio")
        .work(&context(config()), work.clone())
        .await
        .unwrap();
    let again = Stdio::leaf("stdio")
        .work(&context(config()), work)
        .await
        .unwrap();
    assert_eq!(
        first.status, again.status,
        "a second run ends where the first did"
    );
    assert_eq!(first.conditions[0].type_, "Ready");
}
