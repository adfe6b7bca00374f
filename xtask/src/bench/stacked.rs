//! Benches of the whole stack: control plane, wire, worker.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::harness::{Goal, Sample, Variant, compare};
use super::{Setting, load};
use crate::http::Http;
use crate::manifest::kind_file;
use crate::stack::Stack;
use crate::tree;

/// Tasks at a time, in the worker (its default) and in the bare loop.
const PARALLEL: usize = 16;
const SHELL_TASKS: usize = 3_000;
const NOOP_TASKS: usize = 10_000;

fn stdshell(http: &Http) -> Result<()> {
    let path = kind_file(&tree::root(), "stdshell");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("could not read {}", path.display()))?;
    http.put(
        "/kinds/stdshell/manifest",
        &serde_json::from_str(&text)
            .with_context(|| format!("could not parse {}", path.display()))?,
    )
}

pub(super) fn noop_kind(http: &Http) -> Result<()> {
    let any = json!({"type": "object"});
    let manifest = json!({"kind": "noop", "kind_version": 1, "spec_schema": any, "status_schema": any, "config_schema": any,
        "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]}]});
    http.put("/kinds/noop/manifest", &manifest)
}

pub(super) fn worker(stack: &mut Stack, program: &Path, parallel: usize) -> Result<()> {
    let env = BTreeMap::from([
        ("WORKER_MAX_PARALLEL".to_owned(), parallel.to_string()),
        ("LOG_LEVEL".to_owned(), "warn".to_owned()),
    ]);
    stack.worker(program, &tree::root(), &env)
}

pub(super) fn per_second(count: usize, started: Instant, cpu: Duration) -> Sample {
    Sample {
        value: count as f64 / started.elapsed().as_secs_f64(),
        cpu: Some(cpu / u32::try_from(count).unwrap_or(u32::MAX)),
    }
}

/// stdshell `:` against a loop that only spawns: with all tasks waiting when the worker comes, and applied over REST meanwhile.
pub(crate) fn shell(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let stack = RefCell::new(Stack::start(&programs.converge)?);
    let api = stack.borrow().at.api.clone();
    let http = Http::new(&api);
    stdshell(&http)?;
    let script = stack.borrow().dir().join("script");
    std::fs::write(&script, ":")
        .with_context(|| format!("could not write {}", script.display()))?;
    let bare = Variant {
        name: format!("bash FILE, {PARALLEL} at a time"),
        goal: None,
        run: Box::new(|_| {
            let (cpu, started) = (load::own_cpu()?, Instant::now());
            load::bare_loop(&script, SHELL_TASKS, PARALLEL)?;
            Ok(per_second(
                SHELL_TASKS,
                started,
                load::own_cpu()?.saturating_sub(cpu),
            ))
        }),
    };
    let tasks = Tasks {
        stack: &stack,
        http: &http,
        kind: "stdshell",
        spec: json!({"script": ":"}),
        count: SHELL_TASKS,
        program: &programs.stdworker,
        parallel: PARALLEL,
    };
    let waiting = Variant {
        name: format!("stdshell, {SHELL_TASKS} waiting, a worker comes"),
        goal: Some(Goal::Ratio(0.9)),
        run: Box::new(|round| tasks.wait_for_a_worker(round)),
    };
    let applied = Variant {
        name: "stdshell, applied over REST meanwhile".into(),
        goal: None,
        run: Box::new(|round| tasks.are_applied_meanwhile(round)),
    };
    compare("per s", setting.rounds, vec![bare, waiting, applied])
}

/// A batch of equal tasks, and the worker that runs them.
struct Tasks<'a> {
    stack: &'a RefCell<Stack>,
    http: &'a Http,
    kind: &'a str,
    spec: serde_json::Value,
    count: usize,
    program: &'a Path,
    parallel: usize,
}

impl Tasks<'_> {
    fn apply(&self, prefix: &str) -> Result<()> {
        let api = self.stack.borrow().at.api.clone();
        load::apply(&api, self.kind, prefix, self.count, &self.spec)
    }

    /// From the worker's start until all that was applied before is Ready.
    fn wait_for_a_worker(&self, round: u32) -> Result<Sample> {
        self.stack.borrow_mut().stop_worker();
        let before = load::ready(self.http)?;
        self.apply(&format!("d{round}"))?;
        let mut stack = self.stack.borrow_mut();
        worker(&mut stack, self.program, self.parallel)?;
        let (cpu, started) = (stack.cpu()?, Instant::now());
        load::await_ready(self.http, before + self.count as u64)?;
        Ok(per_second(
            self.count,
            started,
            stack.cpu()?.saturating_sub(cpu),
        ))
    }

    /// From the first apply until all are Ready; the worker is the one that runs already.
    fn are_applied_meanwhile(&self, round: u32) -> Result<Sample> {
        let (cpu, before, started) = (
            self.stack.borrow().cpu()?,
            load::ready(self.http)?,
            Instant::now(),
        );
        self.apply(&format!("a{round}"))?;
        load::await_ready(self.http, before + self.count as u64)?;
        Ok(per_second(
            self.count,
            started,
            self.stack.borrow().cpu()?.saturating_sub(cpu),
        ))
    }
}

/// How many reconciles a second the control plane and the wire carry.
pub(crate) fn noop(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let stack = RefCell::new(Stack::start(&programs.converge)?);
    let api = stack.borrow().at.api.clone();
    let http = Http::new(&api);
    noop_kind(&http)?;
    let tasks = Tasks {
        stack: &stack,
        http: &http,
        kind: "noop",
        spec: json!({}),
        count: NOOP_TASKS,
        program: &programs.noop,
        parallel: 256,
    };
    let drain = Variant {
        name: format!("{NOOP_TASKS} waiting, a worker comes"),
        goal: Some(Goal::Value(20_000.0)),
        run: Box::new(|round| tasks.wait_for_a_worker(round)),
    };
    let apply = Variant {
        name: "applied over REST meanwhile".into(),
        goal: None,
        run: Box::new(|round| tasks.are_applied_meanwhile(round)),
    };
    compare("per s", setting.rounds, vec![drain, apply])
}

/// From the start of the process until the broker counts on it.
pub(crate) fn start(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let stack = RefCell::new(Stack::start(&programs.converge)?);
    let http = Http::new(&stack.borrow().at.api);
    let help = Variant {
        name: "stdworker --help".into(),
        goal: None,
        run: Box::new(|_| {
            let started = Instant::now();
            Command::new(&programs.stdworker)
                .arg("--help")
                .stdout(Stdio::null())
                .status()
                .context("could not start stdworker")?;
            Ok(Sample {
                value: started.elapsed().as_secs_f64() * 1e3,
                cpu: None,
            })
        }),
    };
    let serving = Variant {
        name: "start to serving".into(),
        goal: None,
        run: Box::new(|_| {
            let mut stack = stack.borrow_mut();
            let started = Instant::now();
            worker(&mut stack, &programs.stdworker, PARALLEL)?;
            load::await_worker(&http)?;
            let value = started.elapsed().as_secs_f64() * 1e3;
            stack.stop_worker();
            load::await_nobody(&http)?;
            Ok(Sample { value, cpu: None })
        }),
    };
    compare("ms", setting.rounds, vec![help, serving])
}

/// What doing nothing costs.
pub(crate) fn memory(setting: &Setting) -> Result<()> {
    let programs = &setting.programs;
    let stack = RefCell::new(None::<Stack>);
    let mib = |bytes: u64| Sample {
        value: bytes as f64 / (1024.0 * 1024.0),
        cpu: None,
    };
    let control = Variant {
        name: "converge".into(),
        goal: None,
        run: Box::new(|_| {
            *stack.borrow_mut() = None;
            let mut fresh = Stack::start(&programs.converge)?;
            let http = Http::new(&fresh.at.api);
            worker(&mut fresh, &programs.stdworker, 16)?;
            load::await_worker(&http)?;
            // Two heartbeats and a readiness poll: the steady state, not the moment of start.
            std::thread::sleep(Duration::from_secs(12));
            let value = mib(fresh.resident()?.0);
            *stack.borrow_mut() = Some(fresh);
            Ok(value)
        }),
    };
    let worker = Variant {
        name: "stdworker".into(),
        goal: None,
        run: Box::new(|_| {
            Ok(mib(stack
                .borrow()
                .as_ref()
                .context("nothing runs")?
                .resident()?
                .1))
        }),
    };
    compare("MiB", setting.rounds, vec![control, worker])
}
