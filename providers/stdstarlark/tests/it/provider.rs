//! The provider under the SDK's types: bundles, configs, reactions, cancellation, the log.

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use converge_sdk::{
    CancelReason, Json, KindVersion, Outcome, Provider, ProviderConfig, ReactionRequest, Resource,
    Stage, TaskContext, TaskError,
};
use stdstarlark::StarlarkProvider;

use crate::{block_on, json, new_engine, specs, terminal};

pub(crate) fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        writer
            .start_file(*name, zip::write::SimpleFileOptions::default())
            .expect("a name");
        writer.write_all(content.as_bytes()).expect("memory");
    }
    writer.finish().expect("memory").into_inner()
}

fn kind() -> KindVersion {
    KindVersion::new("stdstarlark", 1)
}

fn request(stage: Stage, reaction: &str, spec: &str) -> ReactionRequest {
    let resource = Resource::new("stdstarlark", "shop")
        .with_spec(json(spec))
        .with_label("team", "blue");
    ReactionRequest::builder(stage, reaction, kind(), resource).build()
}

fn context(default: ProviderConfig, over: ProviderConfig) -> TaskContext {
    TaskContext::builder(kind())
        .default_config(default)
        .override_config(over)
        .build()
}

fn work(context: &TaskContext, request: ReactionRequest) -> Result<Outcome, TaskError> {
    let provider = StarlarkProvider::new(new_engine());
    block_on(async { provider.work(context, request).await })
}

const PROGRAM: &str = "def compose(spec, config, meta):\n    print('composing', meta.name)\n    return struct(children=[struct(kind='a', name='x', spec={'n': spec.n, 'zone': getattr(config, 'zone', None), 'team': meta.labels.team})])\n";

#[test]
fn a_task_composes_with_its_effective_config_and_bundle() {
    let default = ProviderConfig::new()
        .with_spec(json(r#"{"zone":"eu","x":1}"#))
        .with_bundle(zip(&[("compose.star", PROGRAM)]));
    let outcome = work(
        &context(default.clone(), ProviderConfig::new()),
        request(Stage::Compose, "compose", r#"{"n":1}"#),
    );
    assert_eq!(
        specs(&outcome.expect("composes")),
        [r#"{"n":1,"zone":"eu","team":"blue"}"#]
    );
    let over = ProviderConfig::new().with_spec(json(r#"{"zone":"us"}"#));
    let outcome = work(
        &context(default, over),
        request(Stage::Compose, "compose", r#"{"n":1}"#),
    );
    assert_eq!(
        specs(&outcome.expect("composes")),
        [r#"{"n":1,"zone":"us","team":"blue"}"#]
    );
    let bundle_only = ProviderConfig::new().with_bundle(zip(&[("compose.star", PROGRAM)]));
    let outcome = work(
        &context(bundle_only, ProviderConfig::new()),
        request(Stage::Compose, "compose", r#"{"n":1}"#),
    );
    assert_eq!(
        specs(&outcome.expect("composes")),
        [r#"{"n":1,"zone":null,"team":"blue"}"#]
    );
}

#[test]
fn no_bundle_yet_is_transient_and_a_bad_one_is_terminal() {
    let error = work(
        &context(ProviderConfig::new(), ProviderConfig::new()),
        request(Stage::Compose, "compose", "{}"),
    )
    .expect_err("no bundle");
    assert!(!error.is_terminal(), "{error}");
    let bad = ProviderConfig::new().with_bundle(b"not a zip, but long enough to look at".to_vec());
    let message = terminal(work(
        &context(bad, ProviderConfig::new()),
        request(Stage::Compose, "compose", "{}"),
    ));
    assert!(message.contains("not a plain zip archive"), "{message}");
    let empty = ProviderConfig::new().with_bundle(zip(&[("readme.md", "x")]));
    let message = terminal(work(
        &context(empty, ProviderConfig::new()),
        request(Stage::Compose, "compose", "{}"),
    ));
    assert_eq!(message, "the bundle has no compose.star at its root");
}

#[test]
fn unknown_reactions_are_terminal() {
    for (stage, reaction) in [
        (Stage::Compose, "other"),
        (Stage::Work, "compose"),
        (Stage::Delete, "teardown"),
    ] {
        let message = terminal(work(
            &context(ProviderConfig::new(), ProviderConfig::new()),
            request(stage, reaction, "{}"),
        ));
        assert!(message.contains("has no reaction"), "{message}");
    }
}

#[test]
fn a_cancelled_task_ends_at_once_and_transiently() {
    let attack = "def compose(spec, config):\n    return struct(status=max(range(2000000000)))\n";
    let config = ProviderConfig::new().with_bundle(zip(&[("compose.star", attack)]));
    let (context, control) = TaskContext::builder(kind())
        .default_config(config)
        .build_with_control();
    let provider = StarlarkProvider::new(new_engine());
    block_on(async {
        let cancel = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            control.cancel(CancelReason::Drain);
        };
        let run = tokio::time::timeout(
            Duration::from_secs(2),
            provider.work(&context, request(Stage::Compose, "compose", "{}")),
        );
        let (result, ()) = tokio::join!(run, cancel);
        let error = result.expect("ends soon").expect_err("was cancelled");
        assert!(!error.is_terminal(), "{error}");
    });
}

#[test]
fn the_manifest_is_for_what_the_provider_serves() {
    let manifest: serde_json::Value = serde_json::from_str(stdstarlark::MANIFEST).expect("is JSON");
    let provider = StarlarkProvider::new(new_engine());
    assert_eq!(manifest["kind"], provider.kind().kind());
    assert_eq!(
        manifest["kind_version"].to_string(),
        provider.kind().version().to_string()
    );
    assert_eq!(manifest["reactions"][0]["name"], "compose");
}

/// A writer that keeps what was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn printed_lines_go_to_the_log_as_they_come_and_are_bounded() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let program = "def compose(spec, config):\n    print('one', 2, spec)\n    for i in range(600):\n        print(i)\n    print('long', 'x' * 100000)\n    fail('after')\n";
    let config = ProviderConfig::new().with_bundle(zip(&[("compose.star", program)]));
    let context = context(config, ProviderConfig::new());
    let provider = StarlarkProvider::new(new_engine());
    let result = tracing::subscriber::with_default(subscriber, || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime starts")
            .block_on(provider.work(
                &context,
                request(Stage::Compose, "compose", r#"{"a":[1,"x"]}"#),
            ))
    });
    assert!(terminal(result).contains("fail: after"));
    let text = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("text");
    assert!(
        text.contains(r#"stdstarlark::print: one 2 {"a": [1, "x"]}"#),
        "{}",
        &text[..300]
    );
    assert_eq!(
        text.lines().count(),
        501,
        "500 lines and the count of the rest"
    );
    assert!(text.trim_end().ends_with("(102 more lines)"));
}

#[test]
fn this_binary_keeps_thirty_digits_in_plain_serde_json() {
    let text = r#"{"n":123456789012345678901234567890}"#;
    let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(value.to_string(), text);
    assert_eq!(Json::parse(text).expect("JSON").as_str(), Some(text));
}
