//! For callers without a runtime: `stdworker render`.

use std::future::Future;

use converge_sdk::{Json, Outcome, TaskError};

use crate::bundle::Bundle;
use crate::engine::Engine;
use crate::protocol::Meta;

/// Runs `compose` of a bundle once, in a child of this binary, and waits for it.
///
/// May be called from anywhere, also from inside a runtime (it blocks the calling thread for up to a few seconds).
///
/// # Errors
/// What a task would fail with: terminal when the program or its result is wrong, transient when no child could be had.
pub fn compose_offline(
    bundle: &Bundle,
    spec: &Json,
    config: &Json,
    meta: &Meta,
) -> Result<Outcome, TaskError> {
    wait(async {
        Engine::of_this_binary()?
            .compose(bundle, spec, config, meta)
            .await
    })
}

/// Checks a bundle without an instance: every file loads, and `compose.star` defines a callable `compose`.
///
/// # Errors
/// As [`compose_offline`].
pub fn check_offline(bundle: &Bundle) -> Result<(), TaskError> {
    wait(async { Engine::of_this_binary()?.check(bundle).await })
}

fn wait<T: Send>(work: impl Future<Output = Result<T, TaskError>> + Send) -> Result<T, TaskError> {
    // A thread of its own, because a runtime cannot be started inside another one.
    let outcome = std::thread::scope(|scope| {
        let run = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?
                .block_on(work)
        };
        scope.spawn(run).join()
    });
    outcome.unwrap_or_else(|_| Err(TaskError::terminal("the evaluation panicked")))
}
