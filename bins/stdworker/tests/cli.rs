//! The command line, from outside: what a person or a script sees of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn stdworker(args: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stdworker"));
    command
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(variables.iter().copied());
    command
}

fn output(args: &[&str], variables: &[(&str, &str)]) -> Output {
    stdworker(args, variables)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn kinds(variables: &[(&str, &str)]) -> Vec<String> {
    let output = output(&["kinds", "-o", "name"], variables);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn refused(args: &[&str], variables: &[(&str, &str)]) -> String {
    let output = output(args, variables);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        output.status.code(),
        Some(64),
        "{args:?} {variables:?}: {stderr}"
    );
    assert!(output.stdout.is_empty());
    stderr
}

#[test]
fn all_kinds_are_served_by_default_and_lists_replace_those_of_stdio() {
    let all = kinds(&[]);
    for kind in [
        "stdio",
        "stdio-composer",
        "stdshell",
        "stdterraform",
        "stdcel",
        "stdstarlark",
    ] {
        assert!(all.iter().any(|known| known == kind), "{kind} in {all:?}");
    }
    let own = kinds(&[
        ("STDIO_KINDS", "dns, mail,dns"),
        ("STDIO_COMPOSER_KINDS", ""),
    ]);
    assert!(
        own.starts_with(&["dns".to_owned(), "mail".to_owned(), "stdshell".to_owned()]),
        "{own:?}"
    );
    assert_eq!(
        kinds(&[("WORKER_KINDS", "stdcel,stdshell")]),
        ["stdshell", "stdcel"]
    );
}

#[test]
fn a_flag_wins_over_its_variable() {
    let output = output(
        &["kinds", "-o", "json", "--worker-kinds", "stdshell"],
        &[("WORKER_KINDS", "stdcel")],
    );
    let kinds: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(kinds.as_array().unwrap().len(), 1);
    assert_eq!(
        (&kinds[0]["kind"], &kinds[0]["kind_version"]),
        (&"stdshell".into(), &1.into())
    );
}

#[test]
fn what_makes_no_sense_is_refused_with_64_and_named() {
    let both = [("STDIO_KINDS", "a,b"), ("STDIO_COMPOSER_KINDS", "b")];
    assert!(refused(&[], &both).contains("b is in STDIO_KINDS and in STDIO_COMPOSER_KINDS"));
    assert!(refused(&[], &[("STDIO_KINDS", "A!")]).contains("\"A!\""));
    assert!(refused(&[], &[("STDIO_KINDS", "a,,b")]).contains("empty name"));
    assert!(refused(&[], &[("STDIO_KINDS", "stdshell")]).contains("stdshell"));
    assert!(refused(&["kinds"], &[("WORKER_KINDS", "nope")]).contains("nope"));
    assert!(refused(&["--no-such-flag"], &[]).contains("--no-such-flag"));
    let problems = refused(
        &[],
        &[
            ("WORKER_MAX_PARALLEL", "0"),
            ("LOG_FORMAT", "xml"),
            ("WORKER_DRAIN_TIMEOUT", "50"),
            ("STDIO_KINDS", "stdshell,,A!,both"),
            ("STDIO_COMPOSER_KINDS", "both,B!"),
        ],
    );
    for name in [
        "BROKER_ADDR",
        "WORKER_MAX_PARALLEL",
        "LOG_FORMAT",
        "WORKER_DRAIN_TIMEOUT",
        "stdshell is in STDIO_KINDS, but this worker serves stdshell itself",
        "has an empty name",
        "\"A!\"",
        "\"B!\"",
        "both is in STDIO_KINDS and in STDIO_COMPOSER_KINDS",
    ] {
        assert!(problems.contains(name), "{name} in {problems}");
    }
    let unknown = [
        ("BROKER_ADDR", "127.0.0.1:1"),
        ("WORKER_KINDS", "stdshell,nope"),
    ];
    assert!(refused(&[], &unknown).contains("nope"));
}

#[test]
fn the_help_names_every_variable_and_shows_how_to_start() {
    let output = output(&["--help"], &[("STDIO_COMMAND", "s3cr3t-path")]);
    let help = String::from_utf8(output.stdout).unwrap();
    for part in [
        "BROKER_ADDR",
        "WORKER_KINDS",
        "WORKER_MAX_PARALLEL",
        "WORKER_DRAIN_TIMEOUT",
        "HEALTH_ADDR",
        "LOG_LEVEL",
        "LOG_FORMAT",
        "TLS_CERT_FILE",
        "TLS_KEY_FILE",
        "BROKER_CA_FILE",
        "WORKER_HEARTBEAT_INTERVAL",
        "TLS_RELOAD_INTERVAL",
        "STDIO_KINDS",
        "STDIO_COMPOSER_KINDS",
        "STDIO_COMMAND",
        "Examples:",
        "stdworker kinds",
    ] {
        assert!(help.contains(part), "{part}");
    }
    assert!(!help.contains("s3cr3t-path"));
}

#[test]
fn serving_says_so_in_one_line_and_a_signal_ends_it_in_order() {
    let variables = [
        ("BROKER_ADDR", "http://127.0.0.1:9"),
        ("LOG_LEVEL", "error"),
        ("WORKER_KINDS", "stdshell,stdcel"),
    ];
    let mut worker = stdworker(&[], &variables)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(worker.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(
        line.starts_with("stdworker ") && line.contains("serves stdshell/v1, stdcel/v1"),
        "{line}"
    );
    assert!(line.contains("http://127.0.0.1:9"), "{line}");
    kill(
        Pid::from_raw(worker.id().try_into().unwrap()),
        Signal::SIGTERM,
    )
    .unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(
        (worker.wait().unwrap().code(), rest.as_str()),
        (Some(0), "")
    );
}

/// The answer to a GET, from a server that closes the connection behind it.
fn get(addr: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn probes_and_prometheus_are_answered_where_health_addr_says() {
    let variables = [
        ("BROKER_ADDR", "http://127.0.0.1:9"),
        ("WORKER_KINDS", "stdshell,stdcel"),
        ("WORKER_MAX_PARALLEL", "7"),
    ];
    let mut worker = stdworker(&["--health-addr", "127.0.0.1:0"], &variables)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines();
    let addr = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, addr) = line.split_once("/metrics addr=")?;
        Some(addr.to_owned())
    });
    let addr = addr.expect("the log says where");
    let live = get(&addr, "/livez");
    assert!(live.starts_with("HTTP/1.1 200 "), "{live}");
    let ready = get(&addr, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(
        ready.contains("\"stream\",\"ok\":false") && ready.contains("pair stdshell/v1"),
        "{ready}"
    );
    let metrics = get(&addr, "/metrics");
    assert!(metrics.contains("\nconverge_worker_slots 7\n"), "{metrics}");

    let taken = output(&["--health-addr", &addr], &variables);
    let stderr = String::from_utf8(taken.stderr).unwrap();
    assert_eq!(taken.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains(&format!("HEALTH_ADDR={addr}")) && stderr.contains("in use"),
        "{stderr}"
    );

    let pid = Pid::from_raw(worker.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    let rest = lines.map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(worker.wait().unwrap().code(), Some(0), "{rest:?}");
}

#[test]
fn each_command_shows_the_flags_that_mean_something_to_it() {
    let help = |args: &[&str]| {
        let output = output(args, &[]);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let serving = ["--broker-addr", "--worker-max-parallel", "--tls-cert-file"];
    for (args, shown, hidden) in [
        (&["--help"][..], &serving[..], &[][..]),
        (&["serve", "--help"], &serving, &[]),
        (
            &["kinds", "--help"],
            &["--worker-kinds", "--stdio-kinds"],
            &serving,
        ),
        (
            &["render", "--help"],
            &["--kind", "--stdio-command", "--stdio-composer-kinds"],
            &[
                "--broker-addr",
                "--worker-kinds",
                "--log-level",
                "--tls-cert-file",
            ],
        ),
    ] {
        let text = help(args);
        for flag in shown {
            assert!(text.contains(flag), "{args:?} without {flag}: {text}");
        }
        for flag in hidden {
            assert!(!text.contains(flag), "{args:?} with {flag}: {text}");
        }
    }
    // Who has them in an alias is not refused, before the command or after it.
    for args in [
        &["--worker-kinds", "stdcel", "kinds", "-o", "name"][..],
        &["kinds", "-o", "name", "--worker-kinds", "stdcel"],
        &[
            "kinds",
            "-o",
            "name",
            "--worker-kinds",
            "stdcel",
            "--broker-addr",
            "http://h:1",
        ],
    ] {
        let output = output(args, &[]);
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "stdcel\n",
            "{args:?}"
        );
    }
}
