//! One run of a provider's `work`, from the request to the result.
//!
//! Runs on the caller's runtime. Whatever happens in it ends as a result: a panic is a terminal failure, and an error after a
//! cancellation says what cut it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use tracing::Instrument;

use super::convert::{self, Claim};
use crate::wire::{StageComplete, StageTask};
use crate::{CancelReason, Provider, TaskContext};

/// Runs a task to its result.
pub(crate) async fn run(
    provider: Arc<dyn Provider>,
    ctx: TaskContext,
    claim: Claim,
    task: Box<StageTask>,
) -> StageComplete {
    let span = ctx.span().clone();
    run_in_span(provider, ctx, claim, task)
        .instrument(span)
        .await
}

async fn run_in_span(
    provider: Arc<dyn Provider>,
    ctx: TaskContext,
    claim: Claim,
    task: Box<StageTask>,
) -> StageComplete {
    let Some((request, accepted)) = convert::request(*task, ctx.kind_version().clone()) else {
        return convert::failed(
            &claim,
            true,
            "the task lacks the request that belongs to its stage",
        );
    };
    let stage = request.stage;
    let work = AssertUnwindSafe(|| provider.work(&ctx, request));
    // The call that makes the future can panic too: a provider need not be an async fn.
    let mut work = match catch_unwind(work) {
        Ok(work) => work,
        Err(panic) => return panicked(&claim, &*panic),
    };
    let result = std::future::poll_fn(|cx| {
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(Ok(result)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await;
    // What it holds is let go before the result says that it has ended; that can panic as well.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
        return panicked(&claim, &*panic);
    }
    match result {
        Err(panic) => panicked(&claim, &*panic),
        Ok(Ok(outcome)) => {
            tracing::debug!("task succeeded");
            convert::succeeded(&claim, stage, outcome, accepted)
        }
        Ok(Err(error)) => {
            let reason = ctx.cancel_reason();
            let (mut terminal, mut message, status, conditions) = error.into_parts();
            if let Some(reason) = reason {
                terminal = false;
                message = match reason {
                    CancelReason::Deadline => format!("the task's deadline is over: {message}"),
                    CancelReason::Drain => {
                        format!("interrupted: the worker is shutting down: {message}")
                    }
                    CancelReason::LeaseLost => {
                        format!("interrupted: the lease was lost: {message}")
                    }
                };
            }
            tracing::warn!(terminal, error = message, "task failed");
            convert::failed_with(&claim, terminal, &message, status, conditions)
        }
    }
}

fn panicked(claim: &Claim, panic: &(dyn Any + Send)) -> StageComplete {
    let message = panic_message(panic);
    tracing::error!(panic = message, "the handler panicked");
    convert::failed(claim, true, &format!("the handler panicked: {message}"))
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a text"
    }
}

/// The result of a handler that was dropped because it did not end within its cleanup grace.
pub(crate) fn dropped(claim: &Claim, reason: Option<CancelReason>) -> StageComplete {
    const LATE: &str = "the handler did not end within its cleanup grace";
    match reason {
        Some(CancelReason::Deadline) => convert::failed(
            claim,
            false,
            &format!("the task's deadline is over and {LATE}"),
        ),
        Some(CancelReason::LeaseLost) => {
            convert::interrupted(claim, &format!("the lease was lost and {LATE}"))
        }
        Some(CancelReason::Drain) | None => {
            convert::interrupted(claim, &format!("the worker is shutting down and {LATE}"))
        }
    }
}
