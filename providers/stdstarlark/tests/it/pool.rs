//! Children: reuse, replacement, isolation, and what leaves with them.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use converge_sdk::Outcome;
use stdstarlark::Engine;

use crate::{block_on, bundle, json, meta, new_engine, specs, terminal};

const ECHO: &str = "def compose(spec, config):\n    return struct(children=[struct(kind='a', name='x', spec={'n': spec.n})])\n";

async fn echo(engine: &Engine, n: usize) -> Outcome {
    let bundle = bundle(&[("compose.star", ECHO)]);
    engine
        .compose(
            &bundle,
            &json(&format!(r#"{{"n":{n}}}"#)),
            &json("{}"),
            &meta(),
        )
        .await
        .expect("composes")
}

/// By its number: the kernel sends it at the end of a processor time.
const SIGXCPU: i32 = 24;

fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_child_is_kept_and_used_again() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let first = engine.idle_children();
        assert_eq!(first.len(), 1);
        for n in 0..20 {
            assert_eq!(specs(&echo(&engine, n).await), [format!(r#"{{"n":{n}}}"#)]);
        }
        assert_eq!(engine.idle_children(), first);
    });
}

#[test]
fn a_child_retires_after_a_thousand_runs() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 0).await;
        let first = engine.idle_children();
        for n in 1..1_000 {
            echo(&engine, n).await;
        }
        assert!(engine.idle_children().is_empty());
        echo(&engine, 0).await;
        assert_ne!(engine.idle_children(), first);
    });
}

#[test]
fn there_are_never_more_children_than_cores() {
    let engine = new_engine();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    block_on(async {
        let mut runs = tokio::task::JoinSet::new();
        let engine = std::sync::Arc::new(engine);
        for n in 0..64 {
            let engine = std::sync::Arc::clone(&engine);
            runs.spawn(async move { specs(&echo(&engine, n).await) });
        }
        assert_eq!(runs.join_all().await.len(), 64);
        let idle = engine.idle_children().len();
        assert!(
            (1..=cores).contains(&idle),
            "{idle} children on {cores} cores"
        );
    });
}

#[test]
fn a_child_that_was_killed_while_idle_is_replaced_without_anyone_noticing() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        send("-9", pid);
        assert_eq!(specs(&echo(&engine, 2).await), [r#"{"n":2}"#]);
        assert_ne!(engine.idle_children(), [pid]);
        until("the killed child is reaped", || !is_alive(pid)).await;
    });
}

#[test]
fn a_signal_to_the_workers_group_does_not_reach_a_run() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        for signal in ["-INT", "-TERM", "-HUP"] {
            send(signal, pid);
        }
        assert_eq!(specs(&echo(&engine, 2).await), [r#"{"n":2}"#]);
        assert_eq!(engine.idle_children(), [pid]);
    });
}

fn send(signal: &str, pid: u32) {
    let status = std::process::Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .expect("kill is there");
    assert!(status.success());
}

#[test]
fn a_dropped_run_takes_its_child_with_it() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        let attack = bundle(&[(
            "compose.star",
            "def compose(spec, config):\n    return struct(status=max(range(2000000000)))\n",
        )]);
        let (spec, config, meta) = (json("{}"), json("{}"), meta());
        let mut run = Box::pin(engine.compose(&attack, &spec, &config, &meta));
        assert!(
            tokio::time::timeout(Duration::from_millis(200), &mut run)
                .await
                .is_err()
        );
        // One that stands still uses up no time of its own.
        send("-STOP", pid);
        drop(run);
        until("the child is gone", || !is_alive(pid)).await;
        echo(&engine, 2).await;
    });
}

#[test]
fn a_run_that_uses_no_processor_time_is_ended_by_the_clock() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        send("-STOP", pid);
        let limit = Duration::from_secs(20);
        let program = bundle(&[("compose.star", ECHO)]);
        let (spec, config, meta) = (json("{}"), json("{}"), meta());
        let run = engine.compose(&program, &spec, &config, &meta);
        let ended = tokio::time::timeout(limit, run).await;
        let message = terminal(ended.expect("it is not waited for without end"));
        assert!(message.contains("took longer than 3.5 s"), "{message}");
        until("the child is gone", || !is_alive(pid)).await;
        echo(&engine, 2).await;
    });
}

/// The worker's clock has no part in it: here nobody looks, as when the worker itself was killed.
#[test]
fn a_run_ends_with_its_processor_time_whoever_waits_for_it() {
    let attack = "def compose(spec, config):\n    return struct(status=max(range(2000000000)))\n";
    let request = serde_json::json!({
        "task": "compose", "files": {"compose.star": attack}, "spec": {}, "config": {},
        "meta": {"name": "a", "kind": "stdstarlark", "uid": "0", "labels": {}},
    })
    .to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_stdstarlark-child"))
        .arg("--stdstarlark-evaluate-stdin")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    let mut input = child.stdin.take().expect("it is piped");
    let length = u32::try_from(request.len()).expect("it is short");
    let frame = [b"q", &length.to_be_bytes()[..], request.as_bytes()].concat();
    input.write_all(&frame).expect("it reads");
    let limit = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        if Instant::now() > limit {
            child.kill().expect("it is ours");
            panic!("the run goes on without end");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.signal(), Some(SIGXCPU), "{status}");
}

#[test]
fn children_end_with_their_engine() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        drop(engine);
        until("the child is gone", || !is_alive(pid)).await;
    });
}

#[test]
fn nothing_leaks_from_one_run_to_the_next() {
    let engine = new_engine();
    block_on(async {
        let lib = "STATE = []\ndef add(x):\n    STATE.append(x)\n    return len(STATE)\n";
        let keeps = bundle(&[
            ("lib.star", lib),
            (
                "compose.star",
                "load('lib.star', 'add')\ndef compose(spec, config):\n    return struct(status=add(1))\n",
            ),
        ]);
        // Globals are frozen once their file has run, so they cannot even remember within a run.
        let message = terminal(
            engine
                .compose(&keeps, &json("{}"), &json("{}"), &meta())
                .await,
        );
        assert!(message.contains("Immutable"), "{message}");
        // The same path with other content must be the other content.
        for n in 0..3 {
            let bundle = bundle(&[
                ("lib.star", &format!("VALUE = {n}\n")),
                (
                    "compose.star",
                    "load('lib.star', 'VALUE')\ndef compose(spec, config):\n    return struct(status=[VALUE, match('*', 'x')])\n",
                ),
            ]);
            let outcome = engine
                .compose(&bundle, &json("{}"), &json("{}"), &meta())
                .await
                .expect("composes");
            assert_eq!(
                outcome.status.unwrap().as_str(),
                Some(format!("[{n},true]").as_str())
            );
        }
        assert_eq!(engine.idle_children().len(), 1);
    });
}

#[test]
fn a_child_sees_nothing_of_the_workers_environment_and_has_its_limits() {
    let engine = new_engine();
    block_on(async {
        echo(&engine, 1).await;
        let pid = engine.idle_children()[0];
        let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("ours to read");
        assert_eq!(
            String::from_utf8_lossy(&environment),
            "MALLOC_ARENA_MAX=1\0"
        );
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("ours to read");
        let line = |name: &str| {
            limits
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default()
                .to_owned()
        };
        assert!(line("Max core file size").contains(" 0 "), "{limits}");
        assert!(line("Max file size").contains(" 0 "), "{limits}");
        assert!(line("Max open files").contains(" 16 "), "{limits}");
        assert!(!line("Max address space").contains("unlimited"), "{limits}");
        assert!(line("Max cpu time").contains("unlimited"), "{limits}");
    });
}

#[test]
fn two_processes_give_the_same_bytes() {
    let program = r#"
def compose(spec, config):
    d = {k: len(k) for k in ["z", "a", "mm", "b"]}
    d["s"] = struct(z=1, a=2.5, m=[None, True])
    names = ["n%d" % i for i in range(50)]
    return struct(
        children=[struct(kind="a", name=n, spec=d, labels={"x": n, "a": "1"}) for n in names],
        edges=[struct(dependent=struct(kind="a", name=n), dependency=struct(kind="a", name="n0")) for n in names[1:]],
        status=[dir(spec), json.encode(d), str(d), spec],
    )
"#;
    let run = || {
        let engine = new_engine();
        block_on(async {
            let bundle = bundle(&[("compose.star", program)]);
            let outcome = engine
                .compose(
                    &bundle,
                    &json(r#"{"b":1,"a":{"z":0,"y":1e5}}"#),
                    &json("{}"),
                    &meta(),
                )
                .await;
            format!("{:?}", outcome.expect("composes"))
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn a_binary_that_cannot_be_a_child_is_told_so() {
    let engine = Engine::of_this_binary().expect("there is a path");
    let message = terminal(block_on(async {
        engine.check(&bundle(&[("compose.star", ECHO)])).await
    }));
    assert!(
        message.contains("must begin with stdstarlark::enter_child_if_asked()"),
        "{message}"
    );
    let engine = Engine::of_program("/no/such/binary");
    let error = block_on(async { engine.check(&bundle(&[("compose.star", ECHO)])).await })
        .expect_err("cannot start");
    assert!(
        !error.is_terminal() && error.message().contains("/no/such/binary"),
        "{error}"
    );
    let engine = Engine::of_program("/bin/true");
    let error = block_on(async { engine.check(&bundle(&[("compose.star", ECHO)])).await })
        .expect_err("is no child");
    assert!(!error.is_terminal(), "{error}");
}

#[test]
fn check_loads_every_file_without_calling_compose() {
    let engine = new_engine();
    block_on(async {
        let good = bundle(&[
            (
                "compose.star",
                "def compose(spec, config):\n    fail('called')\n",
            ),
            ("lib/a.star", "x = 1\n"),
        ]);
        engine.check(&good).await.expect("is good");
        let bad = bundle(&[("compose.star", ECHO), ("lib/unused.star", "x = 1 +\n")]);
        let message = terminal(engine.check(&bad).await);
        assert!(message.starts_with("lib/unused.star:1:"), "{message}");
    });
}
