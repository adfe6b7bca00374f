//! What the benches do to a control plane, and the bare loop they are compared with.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::{Value, json};

use crate::http::Http;
use crate::interrupt;

/// How long a batch may take before the bench gives up.
const LIMIT: Duration = Duration::from_secs(300);

/// Applies `count` resources of `kind` named `PREFIX-N`, from several connections.
pub(crate) fn apply(api: &str, kind: &str, prefix: &str, count: usize, spec: &Value) -> Result<()> {
    const CLIENTS: usize = 8;
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let http = Http::new(api);
                    loop {
                        let n = next.fetch_add(1, Ordering::Relaxed);
                        if n >= count || interrupt::asked() {
                            return Ok(());
                        }
                        http.post(
                            "/resources",
                            &json!({"kind": kind, "name": format!("{prefix}-{n}"), "spec": spec}),
                        )?;
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or_else(|_| bail!("a client panicked")))
    })
}

/// How many resources are Ready.
pub(crate) fn ready(http: &Http) -> Result<u64> {
    Ok(http.get("/resources/summary")?["phases"]["Ready"]
        .as_u64()
        .unwrap_or_default())
}

/// Waits until `count` resources are Ready in all.
pub(crate) fn await_ready(http: &Http, count: u64) -> Result<()> {
    let started = Instant::now();
    let limit = started + LIMIT;
    loop {
        interrupt::check()?;
        let now = ready(http)?;
        if now >= count {
            return Ok(());
        }
        if Instant::now() > limit {
            bail!(
                "only {now} of {count} resources became Ready within {} s",
                LIMIT.as_secs()
            );
        }
        // A look costs the control plane CPU: one each hundredth of the time that has passed is as exact as the rest.
        let pause = started.elapsed() / 100;
        std::thread::sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(20)));
    }
}

/// Waits until a worker serves every one of its kinds.
pub(crate) fn await_worker(http: &Http) -> Result<()> {
    let serves = |worker: &&Value| {
        worker["kinds"].as_array().is_some_and(|kinds| {
            !kinds.is_empty() && kinds.iter().all(|kind| kind["ready"] == true)
        })
    };
    await_workers(http, "no worker serves", |workers| {
        workers.iter().any(serves)
    })
}

/// Waits until no worker is connected any more.
pub(crate) fn await_nobody(http: &Http) -> Result<()> {
    await_workers(http, "a stopped worker is still listed", |workers| {
        workers.is_empty()
    })
}

/// Waits until the workers that are connected are as wanted.
fn await_workers(
    http: &Http,
    otherwise: &str,
    are_as_wanted: impl Fn(&[&Value]) -> bool,
) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        interrupt::check()?;
        let members = http.get("/cluster-members")?;
        let workers: Vec<&Value> = members["items"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|broker| broker["workers"].as_array().into_iter().flatten())
            .collect();
        if are_as_wanted(&workers) {
            return Ok(());
        }
        if Instant::now() > limit {
            bail!("{otherwise} after 30 s: {members}");
        }
    }
}

/// Spawns `bash FILE` `count` times with three pipes, `parallel` at a time.
pub(crate) fn bare_loop(file: &Path, count: usize, parallel: usize) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let loops: Vec<_> = (0..parallel)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let child = Command::new("bash")
                            .arg(file)
                            .stdin(Stdio::piped())
                            .stdout(Stdio::piped())
                            .stderr(Stdio::piped())
                            .spawn();
                        let output = child
                            .and_then(std::process::Child::wait_with_output)
                            .context("could not run bash")?;
                        if !output.status.success() {
                            bail!("bash failed ({})", output.status);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        loops
            .into_iter()
            .try_for_each(|one| one.join().unwrap_or_else(|_| bail!("a loop panicked")))
    })
}

/// CPU time of this process and the children it has waited for.
pub(crate) fn own_cpu() -> Result<Duration> {
    let mut micros = 0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).context("could not read the CPU time used")?;
        micros += usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    }
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_loop_runs_every_task_once() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("task");
        std::fs::write(
            &file,
            format!("echo x >> {}", dir.path().join("ran").display()),
        )
        .unwrap();
        bare_loop(&file, 7, 3).unwrap();
        assert_eq!(
            std::fs::read_to_string(dir.path().join("ran"))
                .unwrap()
                .lines()
                .count(),
            7
        );
        std::fs::write(&file, "exit 3").unwrap();
        assert!(bare_loop(&file, 1, 1).is_err());
    }
}
