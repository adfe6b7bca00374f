//! The provider as a worker drives it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::{Duration, Instant};

use converge_sdk::{
    CancelReason, ConditionStatus, KindVersion, Outcome, Provider, ProviderConfig, ReactionRequest,
    Resource, Stage, TaskContext, TaskContextBuilder, TaskError,
};
use serde_json::{Value, json};
use stdshell::Stdshell;

fn context(config: Option<Value>) -> TaskContextBuilder {
    let builder = TaskContext::builder(KindVersion::new("stdshell", 1)).claim_epoch(7);
    match config {
        Some(config) => builder.default_config(ProviderConfig::new().with_spec(config)),
        None => builder,
    }
}

fn request(spec: Value) -> ReactionRequest {
    let resource = Resource::new("stdshell", "a")
        .with_spec(spec)
        .with_generation(3);
    ReactionRequest::builder(
        Stage::Work,
        "work",
        KindVersion::new("stdshell", 1),
        resource,
    )
    .build()
}

async fn run(config: Option<Value>, spec: Value) -> Result<Outcome, TaskError> {
    Stdshell.work(&context(config).build(), request(spec)).await
}

async fn status(config: Option<Value>, spec: Value) -> Value {
    let outcome = run(config, spec).await.unwrap();
    assert_eq!(outcome.conditions[0].reason, "ScriptSucceeded");
    outcome.status.unwrap().decode().unwrap()
}

async fn stdout(config: Option<Value>, spec: Value) -> String {
    status(config, spec).await["stdout"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_script_that_succeeds_says_all_about_its_run() {
    let mut status = status(None, json!({"script": "echo out; echo err >&2"})).await;
    assert!(status["duration_ms"].take().as_u64().is_some());
    let expected = json!({
        "exit_code": 0, "stdout": "out\n", "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4, "duration_ms": null
    });
    assert_eq!(status, expected);
}

#[tokio::test]
async fn a_failed_run_delivers_its_status_and_says_why() {
    for (script, terminal, text) in [
        ("echo done; exit 1", false, "code 1"),
        ("echo done; exit 2", true, "code 2"),
        ("echo done; no-such-command-here", false, "not found"),
        ("echo done; kill -KILL $$", false, "signal 9"),
    ] {
        let error = run(None, json!({"script": script})).await.unwrap_err();
        assert_eq!(error.is_terminal(), terminal, "{script}: {error}");
        assert!(error.message().contains(text), "{script}: {error}");
        let status: Value = error.status().unwrap().decode().unwrap();
        assert_eq!(status["stdout"], "done\n");
        assert_eq!(error.conditions()[0].status, ConditionStatus::False);
    }
}

#[tokio::test]
async fn carriage_returns_are_taken_out_unless_the_config_says_not_to() {
    let spec = json!({"script": "echo 1\r\n\r\nexit 0\r\n"});
    let clean = status(None, spec.clone()).await;
    assert_eq!(
        (&clean["stdout"], &clean["stderr"]),
        (&json!("1\n"), &json!(""))
    );
    let error = run(Some(json!({"normalize_newlines": false})), spec)
        .await
        .unwrap_err();
    assert!(error.is_terminal(), "bash exits 2 for a raw one: {error}");
}

#[tokio::test]
async fn a_spec_that_cannot_run_is_terminal_and_names_the_field() {
    for (spec, text) in [
        (json!({}), "script"),
        (json!({"script": " \n "}), "spec.script is blank"),
        (
            json!({"script": ":", "interpreter": ""}),
            "spec.interpreter",
        ),
        (json!({"script": ":", "skript": 1}), "skript"),
        (json!({"script": ":", "env": {"A": [1]}}), "A is an array"),
        (
            json!({"script": ":", "env": {"A": "x\u{0}y"}}),
            "spec.env.A contains a NUL byte",
        ),
        (json!({"script": ":", "env": {"A=B": "x"}}), "A=B"),
        (json!({"script": ":", "args": ["x\u{0}y"]}), "NUL"),
        (
            json!({"script": ":", "timeout_seconds": -1}),
            "timeout_seconds",
        ),
        (
            json!({"script": ":", "interpreter": "no-such-shell"}),
            "no-such-shell",
        ),
        (
            json!({"script": ":", "interpreter": "/tmp"}),
            "is a directory",
        ),
    ] {
        let error = run(None, spec.clone()).await.unwrap_err();
        assert!(error.is_terminal(), "{spec}: {error}");
        assert!(error.message().contains(text), "{spec}: {error}");
    }
    let error = run(Some(json!({"interpretr": "sh"})), json!({"script": ":"}))
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("interpretr"),
        "{error}"
    );
}

#[tokio::test]
async fn a_nul_byte_is_terminal_wherever_it_stands() {
    let nul = "x\u{0}y";
    for (config, spec, text) in [
        (
            json!({}),
            json!({"script": "echo a\necho b\u{0}c\n"}),
            "spec.script contains a NUL byte in line 2",
        ),
        (
            json!({"normalize_newlines": false}),
            json!({"script": "\u{0}"}),
            "spec.script contains a NUL byte in line 1",
        ),
        (
            json!({}),
            json!({"script": "print(1)\u{0}", "interpreter": "python3"}),
            "spec.script contains a NUL byte in line 1",
        ),
        (
            json!({}),
            json!({"script": ":", "interpreter": nul}),
            "the program's name contains a NUL byte",
        ),
        (
            json!({}),
            json!({"script": ":", "args": ["-e", nul]}),
            "argument 2 contains a NUL byte",
        ),
        (
            json!({}),
            json!({"script": ":", "env": {"A": nul}}),
            "spec.env.A contains a NUL byte",
        ),
        (
            json!({}),
            json!({"script": ":", "env": {nul: "a"}}),
            "spec.env.x\u{FFFD}y contains a NUL byte",
        ),
        (
            json!({"default_interpreter": nul}),
            json!({"script": ":"}),
            "the program's name contains a NUL byte",
        ),
        (
            json!({"default_args": [nul]}),
            json!({"script": ":"}),
            "argument 1 contains a NUL byte",
        ),
        (
            json!({"env": {"A": nul}}),
            json!({"script": ":"}),
            "config.env.A contains a NUL byte",
        ),
    ] {
        let error = run(Some(config.clone()), spec.clone()).await.unwrap_err();
        assert!(error.is_terminal(), "{config} {spec}: {error}");
        assert!(error.message().contains(text), "{config} {spec}: {error}");
    }
}

#[tokio::test]
async fn an_unknown_reaction_is_terminal() {
    let resource = Resource::new("stdshell", "a");
    let kind = KindVersion::new("stdshell", 1);
    let request = ReactionRequest::builder(Stage::Delete, "teardown", kind, resource).build();
    let error = Stdshell
        .work(&context(None).build(), request)
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("teardown"),
        "{error}"
    );
}

#[tokio::test]
async fn the_spec_decides_before_the_config_and_both_before_the_worker() {
    let config = json!({
        "default_interpreter": "sh", "default_args": ["-u"], "env": {"A": "config", "B": "config", "HOME": "/config"},
    });
    let script = "echo $A $B $HOME $CONVERGE_KIND $CONVERGE_NAME $CONVERGE_GENERATION $CONVERGE_CLAIM_EPOCH; ps -o args= -p $$";
    let spec = json!({"script": script, "env": {"A": 1.50, "C": true, "CONVERGE_NAME": "forged"}});
    let text = stdout(Some(config.clone()), spec).await;
    let (variables, command) = text.split_once('\n').unwrap();
    assert_eq!(variables, "1.5 config /config stdshell a 3 7");
    let (interpreter, arguments) = command.split_once(' ').unwrap();
    assert!(interpreter.ends_with("/sh"), "{text}");
    assert!(arguments.starts_with("-u /"), "{text}");

    let text = stdout(
        Some(config),
        json!({"script": "ps -o args= -p $$; echo ${D-unset}", "interpreter": "bash"}),
    )
    .await;
    let (interpreter, rest) = text.split_once(' ').unwrap();
    assert!(interpreter.ends_with("/bash"), "{text}");
    assert!(rest.starts_with('/') && rest.ends_with("unset\n"), "{text}");
}

#[tokio::test]
async fn nothing_is_inherited_when_the_config_says_so() {
    let config = json!({"inherit_env": false, "default_interpreter": "/bin/sh", "env": {"PATH": "/usr/bin:/bin"}});
    let text = stdout(Some(config), json!({"script": "env"})).await;
    for line in text.lines() {
        let name = line.split('=').next().unwrap();
        let known = ["PATH", "PWD", "_", "SHLVL", "OLDPWD"].contains(&name)
            || name.starts_with("CONVERGE_");
        assert!(known, "{line}");
    }
}

/// A shell would find out for itself where it is; awk says what it was told.
#[tokio::test]
async fn the_directory_in_the_environment_is_the_one_it_runs_in() {
    let spec = json!({"interpreter": "awk", "args": ["-f"],
        "script": r#"BEGIN { print ENVIRON["PWD"]; system("pwd -P") }"#});
    let text = stdout(None, spec.clone()).await;
    let (told, is) = text.split_once('\n').unwrap();
    assert_eq!(told, is.trim_end());
    let text = stdout(Some(json!({"env": {"PWD": "/config"}})), spec).await;
    assert!(text.starts_with("/config\n"), "{text}");
}

#[tokio::test]
async fn the_status_holds_the_tail_as_valid_text_and_exact_counts() {
    let script = r"printf '\x88\xff\xc3'; head -c 70000 /dev/urandom; printf 'é'";
    let status = status(None, json!({"script": script})).await;
    assert_eq!(status["stdout_bytes"], 70_005);
    let text = status["stdout"].as_str().unwrap();
    assert!(text.len() <= 8 * 1024 && text.ends_with('é') && !text.contains('\0'));
}

#[tokio::test]
async fn a_timeout_ends_the_whole_group_and_is_transient() {
    let script =
        r#"trap 'echo TERM' TERM; bash -c 'trap "echo CHILD" TERM; sleep 60 & wait' & wait; wait"#;
    let error = run(None, json!({"script": script, "timeout_seconds": 1}))
        .await
        .unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("timeout of 1 s"),
        "{error}"
    );
    let status: Value = error.status().unwrap().decode().unwrap();
    let text = status["stdout"].as_str().unwrap();
    assert!(text.contains("TERM") && text.contains("CHILD"), "{text:?}");
}

#[tokio::test]
async fn a_cancelled_task_ends_its_script_within_the_configured_grace() {
    let config = json!({"kill_grace_seconds": 0.2});
    let (ctx, control) = context(Some(config)).build_with_control();
    let dir = tempfile::tempdir().unwrap();
    let up = dir.path().join("up");
    let script = format!(
        "trap '' TERM; touch {}; while :; do sleep 60; done",
        up.display()
    );
    let work = Stdshell.work(&ctx, request(json!({"script": script})));
    let cancel = async {
        let limit = Instant::now() + Duration::from_secs(10);
        while !up.exists() {
            assert!(Instant::now() < limit, "the script did not come up");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        control.cancel(CancelReason::Drain);
        Instant::now()
    };
    let (result, started) = tokio::join!(work, cancel);
    assert!(!result.unwrap_err().is_terminal());
    assert!(
        started.elapsed() < Duration::from_millis(1500),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(ctx.cleanup_grace(), Duration::from_millis(1200));
}

#[tokio::test]
async fn a_daemon_and_the_private_directory_are_gone_after_the_run() {
    converge_sdk::process::prepare_worker().await;
    let script = "pwd; (setsid sleep 300 & echo $!) & touch x; echo ok >&2";
    let started = Instant::now();
    let text = stdout(None, json!({"script": script, "timeout_seconds": 5})).await;
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let (dir, pid) = (
        lines.iter().find(|line| line.starts_with('/')).unwrap(),
        lines[1].min(lines[0]),
    );
    assert!(!std::path::Path::new(dir).exists());
    assert!(
        !std::path::Path::new("/proc").join(pid).exists(),
        "{pid} lives"
    );
}

/// `noexec` does not matter, because the script's file is read, not executed.
#[tokio::test]
async fn a_noexec_directory_for_temporary_files_is_fine() {
    let dir = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o noexec none {0} && TMPDIR={0} {1} --exact noexec_helper --nocapture",
        dir.path().display(),
        std::env::current_exe().unwrap().display()
    );
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", &mount])
        .env("NOEXEC", "1")
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stdout).contains("test result") => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
        _ => eprintln!("SKIPPED: no permission to mount a file system"),
    }
}

/// Not a test by itself: run by the one above with a noexec `TMPDIR`.
#[tokio::test]
async fn noexec_helper() {
    if std::env::var_os("NOEXEC").is_some() {
        let script = "cp /bin/true here; ./here 2>/dev/null || echo noexec";
        assert_eq!(stdout(None, json!({"script": script})).await, "noexec\n");
    }
}

/// Two thousand runs, sixteen at a time, while other threads start programs: a descriptor of a fresh script that such a start
/// inherits for a moment makes none of them fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_all_succeed() {
    let noise: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..300 {
                    std::process::Command::new("/bin/true").status().unwrap();
                }
            })
        })
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..2_000 {
        if tasks.len() >= 16 {
            tasks.join_next().await.unwrap().unwrap();
        }
        tasks.spawn(async move {
            run(None, json!({"script": ":"}))
                .await
                .unwrap_or_else(|error| panic!("run {number}: {error}"));
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap();
    }
    for thread in noise {
        thread.join().unwrap();
    }
}
