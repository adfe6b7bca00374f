//! One run, from spawn to the last byte: exit, timeout, cancellation and oversized output all end in the same few lines.
//!
//! Order at the end: the pipes drain, what is left of the tree is killed while the leader still holds the group's number, the
//! leader is reaped, what escaped is swept, the pipes get a last look. A run never outlives timeout + grace + one second, even
//! with a process that cannot be killed.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::command::{Capture, Command};
use super::error::exhausted;
use super::leash::Leash;
use super::outcome::{Ending, Exit, Finished};
use super::pressure::PRESSURE;
use super::pump::{Pumped, Pumps, Sink};
use super::spawner::{self, Launch, Started};
use super::{SpawnError, lines};
use crate::{TaskContext, TaskError};

/// After an exit the pipes are read until nothing came for so long…
const DRAIN_SILENCE: Duration = Duration::from_millis(500);
/// … and in all for so long.
const DRAIN_TOTAL: Duration = Duration::from_secs(5);
/// After a kill they are read for so long at most.
const DRAIN_KILLED: Duration = Duration::from_millis(500);
/// A program that is being started when its task is cancelled is waited for so long, to be stopped in order.
const STARTING: Duration = Duration::from_secs(1);
/// From the kill to the end of the run, whatever happens.
const AFTER_KILL: Duration = Duration::from_millis(900);

/// Runs a program for a task to its end and gives what it did; the program's tree is gone then.
///
/// When the task is cancelled the program's group is asked to stop, has its grace, and is killed; the task's cleanup grace is
/// set so that there is time for that.
///
/// # Errors
/// The program did not start: terminal where only somebody's edit can help. Everything that happens afterwards, a failing exit
/// included, is a [`Finished`].
pub async fn run(ctx: &TaskContext, command: Command) -> Result<Finished, TaskError> {
    ctx.set_cleanup_grace(command.grace.saturating_add(Duration::from_secs(1)));
    Ok(run_until(command, ctx.cancelled()).await?)
}

/// Runs a program to its end, or until `cancel` resolves and it was ended; the program's tree is gone then.
///
/// Dropping the future kills the tree without grace. Call it on a tokio runtime with time and I/O enabled, on Linux 5.3 or
/// newer.
///
/// # Errors
/// The program did not start. Everything that happens afterwards, a failing exit included, is a [`Finished`].
pub async fn run_until<C: Future>(mut command: Command, cancel: C) -> Result<Finished, SpawnError> {
    command.check()?;
    super::signals::hear_ignored();
    tokio::pin!(cancel);
    // It is asked again after it has said so.
    let mut is_cancelled = false;
    let cancel = poll_fn(move |cx| {
        is_cancelled = is_cancelled || cancel.as_mut().poll(cx).is_ready();
        if is_cancelled {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    tokio::pin!(cancel);
    let started = start(&mut command, cancel.as_mut()).await;
    PRESSURE.note(
        started.as_ref().is_err_and(SpawnError::is_exhaustion),
        std::time::Instant::now(),
    );
    let (mut program, mut pumps) = attach(&mut command, started?)?;
    let begun = Instant::now();

    let ending = program
        .wait(&mut pumps, command.timeout, command.stdout, cancel)
        .await;
    pumps.close_stdin();
    let mut killed_at = Instant::now();
    match ending {
        Ending::Exited => {
            drain(&mut pumps, DRAIN_SILENCE, Instant::now() + DRAIN_TOTAL).await;
            killed_at = Instant::now();
        }
        Ending::OutputTooLarge { .. } => {}
        Ending::TimedOut { .. } | Ending::Cancelled => {
            program.leash.tree().ask_to_stop(command.stop);
            let grace_ends = Instant::now() + command.grace;
            if program.exits_before(grace_ends, &mut pumps).await {
                drain(
                    &mut pumps,
                    DRAIN_SILENCE,
                    grace_ends.min(Instant::now() + DRAIN_TOTAL),
                )
                .await;
            }
            killed_at = Instant::now();
        }
    }
    let drain_truncated = ending == Ending::Exited && !pumps.is_closed();
    let survivors = if command.allow_background && ending == Ending::Exited {
        program.leash.tree().let_go();
        Vec::new()
    } else {
        let survivors = program.leash.tree().end().await;
        let last_look = (Instant::now() + DRAIN_KILLED).min(killed_at + AFTER_KILL);
        drain(&mut pumps, DRAIN_KILLED, last_look).await;
        survivors
    };
    if !survivors.is_empty() {
        tracing::warn!(target: lines::TARGET, pids = ?survivors, "processes of this task could not be killed");
    }
    let nothing_left = survivors.is_empty() && !command.allow_background;
    program.leash.tree().remove_scratch(nothing_left).await;
    let (stdout, stderr) = pumps.finish();
    Ok(Finished {
        ending,
        exit: program.leash.tree().status().map(Exit::of),
        stdout,
        stderr,
        duration: begun.elapsed(),
        drain_truncated,
        survivors,
    })
}

async fn start<C: Future>(
    command: &mut Command,
    mut cancel: Pin<&mut C>,
) -> Result<Started, SpawnError> {
    let program = command.program.clone();
    // A task that is cancelled already starts nothing.
    if poll_fn(|cx| Poll::Ready(cancel.as_mut().poll(cx).is_ready())).await {
        return Err(SpawnError::Cancelled { program });
    }
    let mut asked = spawner::submit(Launch::of(command))?;
    tokio::select! {
        biased;
        answer = asked.answer(&program) => return answer,
        _ = cancel => {}
    }
    if asked.withdraw() {
        return Err(SpawnError::Cancelled { program });
    }
    // It is on its way: it may run before we hear of it, and is then stopped the way it wants. A start that hangs is not waited for.
    match tokio::time::timeout(STARTING, asked.answer(&program)).await {
        Ok(answer) => answer,
        Err(_) => Err(SpawnError::Cancelled { program }),
    }
}

/// Brings the program's descriptors to this runtime. On an error the program is ended by dropping it.
fn attach(command: &mut Command, started: Started) -> Result<(Program, Pumps), SpawnError> {
    let failed = |source: std::io::Error| match exhausted(&source) {
        Some(resource) => SpawnError::Exhausted {
            resource,
            program: command.program.clone(),
            source,
        },
        None => SpawnError::Other {
            program: command.program.clone(),
            source,
        },
    };
    #[expect(
        deprecated,
        reason = "sound for an owned descriptor that stays where it is; the replacement is an unsafe fn"
    )]
    let exit = AsyncFd::with_interest(started.pidfd, Interest::READABLE).map_err(failed)?;
    let stdin = started
        .stdin
        .map(ChildStdin::from_std)
        .transpose()
        .map_err(failed)?;
    let stdout = started
        .stdout
        .map(ChildStdout::from_std)
        .transpose()
        .map_err(failed)?;
    let stderr = started
        .stderr
        .map(ChildStderr::from_std)
        .transpose()
        .map_err(failed)?;
    let redactions = std::mem::take(&mut command.redactions);
    let pumps = Pumps::new(
        stdin.zip(command.stdin.take()),
        stdout,
        stderr,
        Sink::stdout(
            command.stdout,
            command.on_stdout_line.take(),
            redactions.clone(),
        ),
        Sink::stderr(command.stderr_tail, command.log_stderr, redactions),
    );
    Ok((
        Program {
            leash: started.leash,
            exit,
        },
        pumps,
    ))
}

struct Program {
    leash: Leash,
    /// The pidfd: readable when the leader has ended.
    exit: AsyncFd<std::os::fd::OwnedFd>,
}

impl Program {
    async fn wait<C: Future>(
        &mut self,
        pumps: &mut Pumps,
        timeout: Option<Duration>,
        stdout: Capture,
        mut cancel: Pin<&mut C>,
    ) -> Ending {
        // A time beyond what the clock can hold is for ever.
        let deadline = timeout.and_then(|after| Some((after, Instant::now().checked_add(after)?)));
        let timed_out = async {
            match deadline {
                Some((after, at)) => {
                    sleep_until(at).await;
                    after
                }
                None => pending().await,
            }
        };
        tokio::pin!(timed_out);
        loop {
            tokio::select! {
                biased;
                pumped = pumps.pump(), if !pumps.is_closed() => {
                    if let (Pumped::TooLarge, Capture::Whole(limit_bytes)) = (pumped, stdout) {
                        return Ending::OutputTooLarge { limit_bytes };
                    }
                }
                _ = self.exit.readable() => return Ending::Exited,
                _ = cancel.as_mut() => return Ending::Cancelled,
                after = &mut timed_out => return Ending::TimedOut { after },
            }
        }
    }

    /// Pumps on until the leader has ended; `false` when it has not by `limit`.
    async fn exits_before(&mut self, limit: Instant, pumps: &mut Pumps) -> bool {
        let exit = &self.exit;
        let exits = async {
            loop {
                tokio::select! {
                    biased;
                    _ = pumps.pump(), if !pumps.is_closed() => {}
                    _ = exit.readable() => return,
                }
            }
        };
        timeout_at(limit, exits).await.is_ok()
    }
}

/// Reads until both outputs are closed, nothing came for `silence`, or `limit`.
async fn drain(pumps: &mut Pumps, silence: Duration, limit: Instant) {
    let begun = Instant::now();
    while !pumps.is_closed() {
        let until = (pumps.last_data().max(begun) + silence).min(limit);
        if until <= Instant::now() {
            return;
        }
        // Bytes that arrive meanwhile move the end; a flood past a hard limit is no news here.
        let _ = timeout_at(until, pumps.pump()).await;
    }
}
