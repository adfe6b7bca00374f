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
///
/// A look costs the control plane and us CPU that is measured: the next one comes when most of what is missing should be there.
pub(crate) fn await_ready(http: &Http, count: u64) -> Result<()> {
    let started = Instant::now();
    let limit = started + LIMIT;
    let first = ready(http)?;
    let mut now = first;
    while now < count {
        interrupt::check()?;
        if Instant::now() > limit {
            bail!(
                "only {now} of {count} resources became Ready within {} s",
                LIMIT.as_secs()
            );
        }
        std::thread::sleep(pause(started.elapsed(), now - first, count - now));
        now = ready(http)?;
    }
    Ok(())
}

/// Three quarters of the time that `missing` will take if they come as `came` did in `elapsed`.
fn pause(elapsed: Duration, came: u64, missing: u64) -> Duration {
    let each = elapsed.as_secs_f64() / came.max(1) as f64;
    let pause = Duration::try_from_secs_f64(each * missing as f64 * 0.75).unwrap_or_default();
    pause.clamp(
        Duration::from_millis(1),
        Duration::from_millis(1).max(elapsed.min(Duration::from_millis(500))),
    )
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
    fn looks_are_few_and_the_last_one_is_on_time() {
        // 1,000 a second: how often is looked, and how late it is seen that 3,000 are there.
        let (mut at, mut looks) = (Duration::ZERO, 0);
        while at < Duration::from_secs(3) {
            let came = at.as_millis() as u64;
            at += pause(at, came, 3_000 - came);
            looks += 1;
        }
        assert!(looks < 40, "{looks}");
        assert!(at < Duration::from_millis(3_003), "{at:?}");
    }

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
