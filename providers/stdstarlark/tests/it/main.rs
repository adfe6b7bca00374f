//! The provider as its users meet it: real child processes, real bundles.

mod bundle;
mod corpus;
mod hostile;
mod language;
mod pipeline;
mod pool;
mod provider;
mod results;

use converge_sdk::{Json, Outcome, TaskError};
use stdstarlark::{Bundle, Engine, Meta};

/// An engine of its own for each test: children belong to the runtime they were started on. The variable names another
/// binary to test as the child, an optimised one or a whole worker.
pub(crate) fn new_engine() -> Engine {
    match std::env::var_os("STDSTARLARK_TEST_CHILD") {
        Some(path) => Engine::of_program(path),
        None => Engine::of_program(env!("CARGO_BIN_EXE_stdstarlark-child")),
    }
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).expect("test documents are JSON")
}

pub(crate) fn meta() -> Meta {
    Meta {
        name: "shop".into(),
        kind: "stdstarlark".into(),
        uid: "0197c0de".into(),
        labels: [("team".to_owned(), "blue".to_owned())].into(),
    }
}

pub(crate) fn bundle(files: &[(&str, &str)]) -> Bundle {
    Bundle::from_files(files.iter().map(|(name, content)| (*name, *content)))
        .expect("test bundles are good")
}

/// Runs a program of one file on a runtime of its own.
pub(crate) fn run(program: &str, spec: &str, config: &str) -> Result<Outcome, TaskError> {
    run_files(&[("compose.star", program)], spec, config)
}

pub(crate) fn run_files(
    files: &[(&str, &str)],
    spec: &str,
    config: &str,
) -> Result<Outcome, TaskError> {
    let bundle = bundle(files);
    block_on(async {
        new_engine()
            .compose(&bundle, &json(spec), &json(config), &meta())
            .await
    })
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts")
        .block_on(work)
}

/// The specs of all children, as text.
pub(crate) fn specs(outcome: &Outcome) -> Vec<String> {
    let children = outcome.children.as_deref().unwrap_or_default();
    children
        .iter()
        .map(|child| child.spec.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The spec of the one child `{"out": expression}`.
pub(crate) fn value_of(expression: &str, spec: &str) -> Result<String, TaskError> {
    let program =
        format!("def compose(spec, config, meta):\n    return struct(status={expression})\n");
    run(&program, spec, "{}").map(|outcome| {
        outcome
            .status
            .and_then(|status| status.as_str().map(str::to_owned))
            .unwrap_or_default()
    })
}

/// The message of a failure that no retry can cure.
pub(crate) fn terminal<T: std::fmt::Debug>(result: Result<T, TaskError>) -> String {
    let error = result.expect_err("must fail");
    assert!(error.is_terminal(), "must be terminal: {error}");
    error.message().to_owned()
}
