//! `conctl` against the real server: what it prints of a graph that converges, and what it exits with.
//!
//! The graph is the demo's: a program in bash fans a site out into scripts. How `conctl` draws, waits and words things in detail is tested
//! in its own crate against a stand-in; here it is the two together.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use converge_testkit::process::{Process, program};
use converge_testkit::{Plane, Worker, wait};
use tokio::process::Command;

/// How a run of `conctl` ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// Its stdout, given that it ended with 0.
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self.out
    }

    /// It ended with this code and said this on stderr.
    #[track_caller]
    fn fails(&self, code: i32, says: &str) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert!(self.err.contains(says), "no {says:?} in {self:#?}");
    }
}

fn command(server: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program("conctl"));
    command
        .args(args)
        .env("CONVERGE_SERVER", server)
        .env("NO_COLOR", "1")
        .env_remove("TLS_CA_FILE")
        .env_remove("TLS_CERT_FILE")
        .env_remove("TLS_KEY_FILE")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn at(server: &str, args: &[&str]) -> Ran {
    let ended = tokio::time::timeout(wait::LIMIT, command(server, args).output()).await;
    let output = ended
        .unwrap_or_else(|_| panic!("conctl {args:?} does not end"))
        .expect("it starts");
    Ran {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

async fn conctl(plane: &Plane, args: &[&str]) -> Ran {
    at(&plane.api, args).await
}

/// A file to apply, and where it is.
fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("it can be written");
    path.to_str().expect("UTF-8").to_owned()
}

/// A control plane with the demo's composer, and a worker that serves it.
async fn composing() -> (Plane, Worker) {
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    plane.kind("stdio-composer").await;
    let worker = Worker::start(&plane, "stdshell,stdio-composer", 8).await;
    let compose = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo/compose.sh");
    let config = serde_json::json!({
        "name": "composer", "kind": "stdio-composer", "is_default": true,
        "spec": {"command": "bash", "args": [compose]}
    });
    let config = file(plane.data(), "composer.json", &config.to_string());
    let applied = conctl(&plane, &["apply", "-f", &config]).await.ok();
    assert_eq!(applied, "providerconfig/composer created\n");
    (plane, worker)
}

const SITE: &str = "kind: stdio-composer\nname: site\nspec:\n  regions: [eu, us]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graph_is_applied_drawn_followed_and_deleted() {
    let (plane, _worker) = composing().await;
    let site = file(plane.data(), "site.yaml", SITE);
    let listed = Process::start("conctl list -w", command(&plane.api, &["list", "-w"]));

    let applied = conctl(&plane, &["apply", "-f", &site, "--wait"]).await.ok();
    assert_eq!(applied, "stdio-composer/site created\n");
    let again = conctl(&plane, &["apply", "-f", &site, "--wait"]).await.ok();
    assert_eq!(again, "stdio-composer/site unchanged\n");

    let tree = conctl(&plane, &["graph", "stdio-composer/site"]).await.ok();
    assert_eq!(
        tree,
        "\
stdio-composer/site  Ready
├── stdshell/site-eu  Ready  <- stdshell/site-network (/stdout)
├── stdshell/site-front  Ready  <- stdshell/site-eu (/stdout), stdshell/site-us (/stdout)
├── stdshell/site-network  Ready
└── stdshell/site-us  Ready  <- stdshell/site-network (/stdout)
"
    );
    let dot = conctl(&plane, &["graph", "stdio-composer/site", "-o", "dot"])
        .await
        .ok();
    assert!(
        dot.starts_with("digraph {\n") && dot.ends_with("}\n"),
        "{dot}"
    );
    assert_eq!(
        dot.matches(" [label=\"/stdout -> /env/").count(),
        4,
        "{dot}"
    );
    let mermaid = conctl(&plane, &["graph", "stdio-composer/site", "-o", "mermaid"])
        .await
        .ok();
    assert!(mermaid.starts_with("flowchart LR\n"), "{mermaid}");
    assert_eq!(mermaid.matches(":::Ready").count(), 5, "{mermaid}");
    assert_eq!(mermaid.matches(" -->|").count(), 4, "{mermaid}");

    let described = conctl(&plane, &["describe", "stdshell/site-front"])
        .await
        .ok();
    for wanted in [
        "Owner:       stdio-composer/site",
        "BACKEND_us: us@10.42.0.0",
        "stdshell/site-us   Ready   /stdout -> /env/BACKEND_us",
    ] {
        assert!(described.contains(wanted), "no {wanted:?} in\n{described}");
    }

    let mut followed = Process::start(
        "conctl events -f",
        command(&plane.api, &["events", "-f", "stdio-composer/site"]),
    );
    wait::until("the events so far to be shown", || async {
        followed
            .output()
            .contains("Reconciling → Ready")
            .then_some(())
    })
    .await;
    let gone = conctl(&plane, &["delete", "stdio-composer/site", "--wait"])
        .await
        .ok();
    assert_eq!(
        gone,
        "stdio-composer/site deletion requested\nstdio-composer/site gone\n"
    );
    assert_eq!(followed.ended().await, Some(0), "{}", followed.output());
    let followed = followed.output();
    for wanted in [
        "4 children, 4 edges",
        "deletionRequested",
        "removed",
        "is gone",
    ] {
        assert!(followed.contains(wanted), "no {wanted:?} in\n{followed}");
    }
    assert_eq!(
        conctl(&plane, &["list"]).await.ok(),
        "",
        "all of it is gone"
    );
    wait::until("the watch to show that all of it went", || async {
        let shown = listed.output();
        let removed = shown.lines().filter(|line| line.ends_with("Removed"));
        (removed.count() == 5).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_says_how_it_went() {
    let (plane, _worker) = composing().await;
    let dir = plane.data();
    let site = file(dir, "site.yaml", SITE);
    conctl(&plane, &["apply", "-f", &site, "--wait"]).await.ok();

    // 1: refused, by the server's schema or by the composer; a script that gives up.
    let wrong = file(
        dir,
        "wrong.yaml",
        "kind: stdshell\nname: w\nspec:\n  scrip: echo\n",
    );
    let ran = conctl(&plane, &["apply", "-f", &wrong]).await;
    ran.fails(1, "scrip");
    let none = file(dir, "none.yaml", &SITE.replace("eu, us", ""));
    let ran = conctl(&plane, &["apply", "-f", &none, "--wait"]).await;
    ran.fails(1, "list at least one region");
    let tree = conctl(&plane, &["graph", "stdio-composer/site"]).await.ok();
    assert_eq!(tree.lines().count(), 5, "the last good graph stays\n{tree}");
    let fails = file(
        dir,
        "fails.yaml",
        "kind: stdshell\nname: f\nspec:\n  script: exit 2\n",
    );
    let ran = conctl(&plane, &["apply", "-f", &fails, "--wait"]).await;
    ran.fails(1, "stdshell/f is Failed");

    // 3: not there.
    for args in [
        ["get", "stdshell/nobody"],
        ["describe", "stdshell/nobody"],
        ["graph", "stdshell/nobody"],
        ["delete", "stdshell/nobody"],
        ["get", "pc/nobody"],
    ] {
        let ran = conctl(&plane, &args).await;
        ran.fails(3, "nobody");
    }
    let unknown = file(dir, "unknown.yaml", "kind: unknown\nname: u\nspec: {}\n");
    conctl(&plane, &["apply", "-f", &unknown])
        .await
        .fails(3, "unknown");

    // 4: it belongs to somebody else.
    let child = "kind: stdshell\nname: site-eu\nspec:\n  script: echo mine\n";
    let child = file(dir, "child.yaml", child);
    let ran = conctl(&plane, &["apply", "-f", &child]).await;
    ran.fails(4, "stdio-composer/site");
    let ran = conctl(&plane, &["delete", "stdshell/site-eu"]).await;
    ran.fails(4, "stdio-composer/site");

    // 5: not in time. Nobody serves `stdio` here.
    plane.kind("stdio").await;
    let waits = file(dir, "waits.yaml", "kind: stdio\nname: s\nspec: {}\n");
    let ran = conctl(
        &plane,
        &["apply", "-f", &waits, "--wait", "--timeout", "300ms"],
    )
    .await;
    ran.fails(5, "NoWorker");

    // 6: nobody answers. 64: the command line makes no sense.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = nobody.local_addr().expect("it is bound");
    drop(nobody);
    let ran = at(&format!("http://{address}"), &["list"]).await;
    ran.fails(6, "Is it running?");
    let ran = conctl(&plane, &["graph", "stdshell"]).await;
    ran.fails(64, "kind/name");
}
