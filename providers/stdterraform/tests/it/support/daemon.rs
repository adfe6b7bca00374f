//! Programs that serve a test and end with it, even when it is killed: each hangs on a pipe that closes with this process.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use super::wait_for;

/// A program in the background.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) port: u16,
}

impl Daemon {
    /// Starts `program`; it must serve on the port that `args` say with `{port}`.
    pub(crate) fn start(program: &str, args: &[&str]) -> Self {
        Self::start_on(free_port(), program, args)
    }

    /// The same on a port of the caller's choice.
    pub(crate) fn start_on(port: u16, program: &str, args: &[&str]) -> Self {
        // Ends when stdin closes, which happens when this process ends in whatever way.
        const LEASH: &str = "\"$@\" </dev/null >/dev/null 2>&1 & pid=$!; cat >/dev/null; kill -KILL $pid 2>/dev/null; wait 2>/dev/null";
        let child = Command::new("bash")
            .args(["-c", LEASH, "leash", program])
            .args(
                args.iter()
                    .map(|arg| arg.replace("{port}", &port.to_string())),
            )
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for(&format!("{program} listens on {port}"), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { child, port }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// An S3 that all tests of this process share.
pub(crate) fn s3() -> &'static Daemon {
    static S3: OnceLock<Daemon> = OnceLock::new();
    S3.get_or_init(|| {
        let daemon = Daemon::start("moto_server", &["-H", "127.0.0.1", "-p", "{port}"]);
        aws(&daemon.url(), &["s3", "mb", "s3://states"]);
        daemon
    })
}

/// Runs the aws command line tool against an endpoint; gives its stdout.
pub(crate) fn aws(endpoint: &str, args: &[&str]) -> String {
    let output = Command::new("aws")
        .args(["--endpoint-url", endpoint])
        .args(args)
        .envs(CREDENTIALS)
        .stdin(Stdio::null())
        .output()
        .expect("aws is installed");
    assert!(
        output.status.success(),
        "aws {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// What the s3 of the tests takes for a login.
pub(crate) const CREDENTIALS: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "testing-key-id"),
    ("AWS_SECRET_ACCESS_KEY", "testing-secret-access-key"),
    ("AWS_REGION", "us-east-1"),
    ("AWS_EC2_METADATA_DISABLED", "true"),
];
