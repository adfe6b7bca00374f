//! The real binary: where it listens, who may start it, and how it ends.
#![expect(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test, as the test itself may"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Nothing here should take this long; a busy machine may.
const LIMIT: Duration = Duration::from_secs(60);
const MANIFEST: &str = r#"{"kind":"demo","kind_version":1,"reactions":[{"name":"work","trigger":"specChange","emits":["status"]}]}"#;

/// What a developer may have set for a server of his own.
const CLEARED: [&str; 3] = ["LISTEN_ADDR", "BROKER_LISTEN_ADDR", "RUST_LOG"];
const PORTS: &[&str] = &["--listen", "127.0.0.1:0", "--broker-listen", "127.0.0.1:0"];

fn command(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_converge"));
    command
        .arg("dev")
        .arg("--data-dir")
        .arg(dir)
        .args(more)
        .stdin(Stdio::null());
    for name in CLEARED {
        command.env_remove(name);
    }
    command
}

struct Server {
    child: Child,
    api: String,
    broker: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(dir: &Path, more: &[&str]) -> Server {
    let mut command = command(dir, PORTS);
    command.args(more);
    start_by(command)
}

fn start_by(mut command: Command) -> Server {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It prints the addresses when they answer, and nothing before.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut address = |word: &str| {
        let line = lines
            .next()
            .expect("it ended without saying where it listens")
            .unwrap();
        let (name, url) = line.split_once(char::is_whitespace).unwrap();
        assert_eq!(name, word);
        url.trim().strip_prefix("http://").unwrap().to_owned()
    };
    let (api, broker) = (address("API"), address("broker"));
    Server { child, api, broker }
}

fn request(api: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(api).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: {api}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

impl Server {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// The exit code once it has ended, and how long that took.
    fn ended(&mut self) -> (Option<i32>, Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), began.elapsed());
            }
            assert!(began.elapsed() < LIMIT, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn failed(output: &Output, code: i32) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(output.stdout.is_empty(), "data alone goes to stdout");
    text
}

#[test]
fn it_says_where_it_listens_and_keeps_what_was_applied() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path(), &[]);
    let file = std::fs::read_to_string(dir.path().join("addresses.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["api"], format!("http://{}", server.api));
    assert_eq!(file["broker"], format!("http://{}", server.broker));
    TcpStream::connect(&server.broker).unwrap();
    assert_eq!(
        request(&server.api, "PUT", "/api/v1/kinds/demo/manifest", MANIFEST).0,
        201
    );
    // What the system sends to who writes over its limit of file sizes: the write fails, and that is all.
    server.signal(Signal::SIGXFSZ);
    let (status, body) = request(
        &server.api,
        "POST",
        "/api/v1/resources",
        r#"{"kind":"demo","name":"a","spec":{"n":987654321098765432109876543210}}"#,
    );
    assert_eq!((status, &body["waiting"]), (201, &"NoWorker".into()));
    server.signal(Signal::SIGTERM);
    let (code, took) = server.ended();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(
        !dir.path().join("addresses.json").exists(),
        "nobody shall read where nobody listens"
    );
    let server = start(dir.path(), &[]);
    let (status, body) = request(&server.api, "GET", "/api/v1/resources/demo/a", "");
    assert_eq!(status, 200);
    assert_eq!(
        body["spec"]["n"].to_string(),
        "987654321098765432109876543210"
    );
}

/// Its connection is not broken before it has sent all and reads.
#[test]
fn a_client_that_sends_too_much_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &[]);
    let body = format!(
        r#"{{"kind":"demo","name":"a","spec":"{}"}}"#,
        "x".repeat(40 << 20)
    );
    let (status, problem) = request(&server.api, "POST", "/api/v1/resources", &body);
    assert_eq!(status, 413, "{problem}");
}

#[test]
fn a_second_process_on_the_directory_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = start(dir.path(), &[]);
    let before = std::fs::read(dir.path().join("addresses.json")).unwrap();
    let second = command(dir.path(), PORTS).output().unwrap();
    let text = failed(&second, 1);
    assert!(
        text.contains(&format!("process {}", server.child.id())),
        "{text}"
    );
    assert_eq!(
        std::fs::read(dir.path().join("addresses.json")).unwrap(),
        before,
        "nothing there is touched"
    );
}

#[test]
fn wrong_usage_is_told_at_once_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let output = command(
        &data,
        &[
            "--listen",
            "0.0.0.0:0",
            "--broker-listen",
            "nowhere",
            "--lease",
            "1s",
        ],
    )
    .output()
    .unwrap();
    let text = failed(&output, 64);
    for part in ["--insecure", "nowhere", "three heartbeats"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    failed(&command(&data, &["--no-such-flag"]).output().unwrap(), 64);
    assert!(!data.exists());
}

#[test]
fn a_client_that_sits_there_does_not_hold_the_end_up_and_a_second_signal_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = start(dir.path(), &[]);
    // Half a request, and an idle connection to the broker.
    let mut half = TcpStream::connect(&server.api).unwrap();
    half.write_all(b"POST /api/v1/resources HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").unwrap();
    let _idle = TcpStream::connect(&server.broker).unwrap();
    // An answer on a later connection: the half request has been accepted by then.
    assert_eq!(request(&server.api, "GET", "/livez", "").0, 200);
    server.signal(Signal::SIGTERM);
    let (code, took) = server.ended();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");

    let mut server = start(dir.path(), &[]);
    let mut half = TcpStream::connect(&server.api).unwrap();
    half.write_all(b"POST /api/v1/resources HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").unwrap();
    assert_eq!(request(&server.api, "GET", "/livez", "").0, 200);
    server.signal(Signal::SIGINT);
    // The first signal has arrived when the listener is closed.
    let began = Instant::now();
    while TcpStream::connect(&server.api).is_ok() {
        assert!(began.elapsed() < LIMIT, "the listener stays open");
    }
    server.signal(Signal::SIGTERM);
    let (code, took) = server.ended();
    assert_eq!(code, Some(128 + 15));
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// A shell without job control starts its background commands that way.
#[test]
fn sigint_ends_it_also_when_it_was_started_with_sigint_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let converge = command(dir.path(), PORTS);
    let mut shell = Command::new("bash");
    shell
        .args(["-c", "trap '' INT; exec \"$0\" \"$@\""])
        .arg(converge.get_program())
        .args(converge.get_args())
        .stdin(Stdio::null());
    for name in CLEARED {
        shell.env_remove(name);
    }
    let mut server = start_by(shell);
    assert_eq!(request(&server.api, "GET", "/livez", "").0, 200);
    server.signal(Signal::SIGINT);
    assert_eq!(server.ended().0, Some(0));
}

#[test]
fn a_worker_beside_it_is_started_again_and_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("worker");
    // Ends at once the first time, stays the second.
    let script = format!(
        "#!/bin/sh\ncd {}\necho \"$BROKER_ADDR\" >> starts\n[ \"$(wc -l < starts)\" -gt 1 ] || exit 1\ntrap 'echo > ended; exit 0' TERM\ntouch running\nwhile :; do sleep 0.05; done\n",
        dir.path().display()
    );
    std::fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let data = dir.path().join("data");
    let mut server = start(&data, &["--worker", program.to_str().unwrap()]);
    let began = Instant::now();
    while !dir.path().join("running").exists() {
        assert!(began.elapsed() < LIMIT, "the worker was not started again");
        std::thread::sleep(Duration::from_millis(5));
    }
    let starts = std::fs::read_to_string(dir.path().join("starts")).unwrap();
    assert_eq!(starts, format!("http://{0}\nhttp://{0}\n", server.broker));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().0, Some(0));
    assert!(
        dir.path().join("ended").exists(),
        "the worker was not asked to end"
    );
}

#[test]
fn a_worker_beside_it_is_not_told_where_the_secrets_of_the_control_plane_are() {
    let dir = tempfile::tempdir().unwrap();
    let (program, token) = (dir.path().join("worker"), dir.path().join("token"));
    let script = format!(
        "#!/bin/sh\ncd {}\nenv > seen && mv seen variables\nexec sleep 600\n",
        dir.path().display()
    );
    std::fs::write(&program, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    std::fs::write(&token, "a-token-that-nobody-guesses").unwrap();
    let mut command = command(&dir.path().join("data"), PORTS);
    command
        .args(["--worker", program.to_str().unwrap()])
        .env("CONVERGE_TOKEN_FILE", &token)
        .env("CONVERGE_TLS_RELOAD_INTERVAL", "2s")
        .env("KEPT", "1");
    let mut server = start_by(command);
    let began = Instant::now();
    let seen = loop {
        if let Ok(seen) = std::fs::read_to_string(dir.path().join("variables")) {
            break seen;
        }
        assert!(began.elapsed() < LIMIT, "the worker was not started");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(seen.contains("KEPT=1"), "{seen}");
    assert!(seen.contains("BROKER_ADDR="), "{seen}");
    for name in ["CONVERGE_TOKEN_FILE", "a-token-that-nobody-guesses"] {
        assert!(!seen.contains(name), "{seen}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().0, Some(0));
}
