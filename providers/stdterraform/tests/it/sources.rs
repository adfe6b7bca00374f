//! Modules from git and over https, against servers on loopback, and what is refused.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::{Bench, ECHO, log, status, web};

/// A repository and a server in front of it.
struct Hub {
    server: Daemon,
    root: PathBuf,
    scheme: &'static str,
}

/// What the server takes below `/private/`.
const LOGIN: &str = "robot:p@ss/w:rd-4711";
const LOGIN_IN_URL: &str = "robot:p%40ss%2Fw%3Ard-4711";

fn git(directory: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.com",
            "-c",
            "init.defaultBranch=main",
            "-c",
            "tag.gpgSign=false",
        ])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn says(text: &str) -> String {
    format!("output \"text\" {{\n  value = \"{text}\"\n}}\n")
}

impl Hub {
    /// `repo.git` with: an old commit, tag `v1` (annotated), branches `feat/example` and `main`, modules below `modules/` and `lib`.
    fn start(bench: &Bench, tls: bool) -> Self {
        let root = bench.path().join("hub");
        let repo = root.join("repo.git");
        std::fs::create_dir_all(repo.join("modules/vpc")).unwrap();
        git(&repo, &["init", "-q"]);
        let commit = |text: &str| {
            std::fs::write(repo.join("main.tf"), says(text)).unwrap();
            git(&repo, &["add", "-A"]);
            git(&repo, &["commit", "-q", "-m", text]);
        };
        commit("old");
        commit("tagged");
        git(&repo, &["tag", "-a", "v1", "-m", "v1"]);
        git(&repo, &["checkout", "-q", "-b", "feat/example"]);
        commit("branch");
        git(&repo, &["checkout", "-q", "main"]);
        std::fs::create_dir_all(repo.join("lib")).unwrap();
        std::fs::write(repo.join("lib/main.tf"), says("from the sibling")).unwrap();
        let vpc = "module \"lib\" {\n  source = \"../../lib\"\n}\noutput \"text\" {\n  value = module.lib.text\n}\n";
        std::fs::write(repo.join("modules/vpc/main.tf"), vpc).unwrap();
        commit("newest");
        let hub = Self {
            server: Self::serve(bench, &root, tls),
            root,
            scheme: if tls { "https" } else { "http" },
        };
        std::fs::write(
            hub.root.join("m.tar.gz"),
            web::archive(&[("main.tf", &says("archive"))]),
        )
        .unwrap();
        hub
    }

    fn serve(bench: &Bench, root: &Path, tls: bool) -> Daemon {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/git_server.py");
        let mut args = vec![
            script.to_str().unwrap(),
            "{port}",
            root.to_str().unwrap(),
            LOGIN,
        ];
        let (certificate, key) = (
            bench.path().join("server.pem"),
            bench.path().join("server.key"),
        );
        if tls {
            make_certificate(bench.path());
            args.extend([certificate.to_str().unwrap(), key.to_str().unwrap()]);
        }
        Daemon::start("python3", &args)
    }

    fn url(&self, rest: &str) -> String {
        format!("{}://127.0.0.1:{}/{rest}", self.scheme, self.server.port)
    }

    fn private(&self, rest: &str) -> String {
        format!(
            "{}://{LOGIN_IN_URL}@127.0.0.1:{}/private/{rest}",
            self.scheme, self.server.port
        )
    }

    fn repo(&self) -> PathBuf {
        self.root.join("repo.git")
    }
}

/// A CA of our own and a certificate for 127.0.0.1: `ca.pem`, `server.pem`, `server.key`.
fn make_certificate(directory: &Path) {
    let run = |args: &[&str]| {
        let output = Command::new("openssl")
            .args(args)
            .current_dir(directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "openssl: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let key = ["-newkey", "rsa:2048", "-nodes"];
    run(&[
        &["req", "-x509"],
        &key[..],
        &[
            "-subj",
            "/CN=test-ca",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "2",
        ],
    ]
    .concat());
    run(&[
        &["req"],
        &key[..],
        &[
            "-subj",
            "/CN=127.0.0.1",
            "-keyout",
            "server.key",
            "-out",
            "server.csr",
        ],
    ]
    .concat());
    std::fs::write(directory.join("san"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    run(&[
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-extfile",
        "san",
        "-out",
        "server.pem",
        "-days",
        "2",
    ]);
}

async fn text_of(bench: &Bench, source: &str) -> Result<Value, converge_sdk::TaskError> {
    let outcome = bench.job(source, json!({})).work(&bench.provider()).await?;
    Ok(status(&outcome)["outputs"]["text"].clone())
}

#[tokio::test]
async fn every_way_to_name_a_commit_works() {
    let bench = Bench::new();
    let hub = Hub::start(&bench, false);
    let old = git(&hub.repo(), &["rev-parse", "main~2"]);
    let newest = git(&hub.repo(), &["rev-parse", "main"]);
    for (rest, text) in [
        ("repo.git".to_owned(), "newest"),
        ("repo.git?ref=main".to_owned(), "newest"),
        ("repo.git?ref=v1".to_owned(), "tagged"),
        ("repo.git?ref=feat/example".to_owned(), "branch"),
        ("repo.git?ref=feat%2Fexample".to_owned(), "branch"),
        ("repo.git?ref=refs/heads/feat/example".to_owned(), "branch"),
        (format!("repo.git?ref={old}"), "old"),
        (format!("repo.git?ref={}", &old[..8]), "old"),
        (format!("repo.git?ref={newest}"), "newest"),
        ("repo.git//modules/vpc".to_owned(), "from the sibling"),
        ("repo.git//lib?ref=main".to_owned(), "from the sibling"),
        ("repo.git//.?ref=main".to_owned(), "newest"),
    ] {
        let source = format!("git::{}", hub.url(&rest));
        assert_eq!(
            text_of(&bench, &source)
                .await
                .unwrap_or_else(|error| panic!("{rest}: {error}")),
            text,
            "{rest}"
        );
    }
    let outcome = bench
        .job(&format!("git::{}", hub.url("repo.git")), json!({}))
        .work(&bench.provider())
        .await
        .unwrap();
    assert_eq!(
        status(&outcome)["applied"]["digest"],
        format!("git:{newest}")
    );
    bench.assert_clean();
}

#[tokio::test]
async fn what_is_not_there_says_so_at_once() {
    let bench = Bench::new();
    let hub = Hub::start(&bench, false);
    let began = Instant::now();
    for (source, terminal, part) in [
        (
            format!("git::{}", hub.url("repo.git?ref=nothing")),
            false,
            "nothing could not be fetched",
        ),
        (
            format!("git::{}", hub.url("repo.git?ref=0123456789")),
            false,
            "no commit 0123456789",
        ),
        (
            format!("git::{}", hub.url("none.git")),
            false,
            "could not be fetched",
        ),
        (
            format!("git::{}", hub.url("private/repo.git")),
            false,
            "could not be fetched",
        ),
        (
            format!("git::{}", hub.url("repo.git//nowhere")),
            true,
            "has no directory nowhere",
        ),
        (
            format!("git::{}", hub.url("repo.git//modules")),
            true,
            "holds no module",
        ),
        (hub.url("none.tar.gz"), false, "curl exited with code 22"),
        (
            hub.url("private/m.tar.gz"),
            false,
            "curl exited with code 22",
        ),
    ] {
        let error = text_of(&bench, &source).await.unwrap_err();
        assert!(
            error.is_terminal() == terminal && error.message().contains(part),
            "{source}: {error}"
        );
    }
    assert!(
        began.elapsed() < Duration::from_secs(300),
        "nobody waited for a prompt"
    );
}

#[tokio::test]
async fn logins_of_urls_and_of_netrc_are_used_and_never_shown() {
    let mut bench = Bench::new();
    let hub = Hub::start(&bench, false);
    for source in [
        format!("git::{}", hub.private("repo.git")),
        hub.private("m.tar.gz"),
    ] {
        let outcome = bench
            .job(&source, json!({}))
            .work(&bench.provider())
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        let shown = outcome.status.unwrap();
        assert!(!shown.as_str().unwrap().contains("4711"), "{shown:?}");
    }
    let wrong = hub.private("repo.git").replace("rd-4711", "rd-4712");
    let error = text_of(&bench, &format!("git::{wrong}")).await.unwrap_err();
    assert!(
        !error.is_terminal() && !error.message().contains("4712"),
        "{error}"
    );

    let home = bench.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(
        home.join(".netrc"),
        "machine 127.0.0.1 login robot password p@ss/w:rd-4711\n",
    )
    .unwrap();
    bench
        .environment
        .insert("HOME".to_owned(), home.to_string_lossy().into_owned());
    for source in [
        format!("git::{}", hub.url("private/repo.git")),
        hub.url("private/m.tar.gz"),
    ] {
        text_of(&bench, &source)
            .await
            .unwrap_or_else(|error| panic!("{source}: {error}"));
    }
    for part in [
        "rd-4711",
        "rd-4712",
        "rd%2D4711",
        "cm9ib3Q6cEBzcy93OnJkLTQ3MTE",
    ] {
        assert!(!log::text().contains(part), "{part} was logged");
    }
}

#[tokio::test]
async fn a_private_module_inside_a_module_gets_the_login() {
    let bench = Bench::new();
    let hub = Hub::start(&bench, false);
    let root = hub.root.join("root.git");
    std::fs::create_dir(&root).unwrap();
    git(&root, &["init", "-q"]);
    let main = format!(
        "module \"inner\" {{\n  source = \"git::{}\"\n}}\noutput \"text\" {{\n  value = module.inner.text\n}}\n",
        hub.url("private/repo.git")
    );
    std::fs::write(root.join("main.tf"), main).unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "root"]);
    let source = format!("git::{}", hub.private("root.git"));
    assert_eq!(text_of(&bench, &source).await.unwrap(), "newest");
}

#[tokio::test]
async fn https_needs_a_certificate_that_is_trusted() {
    let mut bench = Bench::new();
    let hub = Hub::start(&bench, true);
    let git_source = format!("git::{}", hub.private("repo.git?ref=v1"));
    for source in [&git_source, &hub.url("m.tar.gz")] {
        let error = text_of(&bench, source).await.unwrap_err();
        assert!(
            !error.is_terminal() && error.message().contains("certificate"),
            "{error}"
        );
    }
    let ca = bench.path().join("ca.pem").to_string_lossy().into_owned();
    bench
        .environment
        .insert("GIT_SSL_CAINFO".to_owned(), ca.clone());
    bench.environment.insert("CURL_CA_BUNDLE".to_owned(), ca);
    assert_eq!(text_of(&bench, &git_source).await.unwrap(), "tagged");
    assert_eq!(
        text_of(&bench, &hub.url("m.tar.gz")).await.unwrap(),
        "archive"
    );

    let mut options = bench.options();
    options.allow_plain_http = false;
    let provider = stdterraform::StdTerraform::new(options);
    bench
        .job(&git_source, json!({}))
        .work(&provider)
        .await
        .unwrap();
    for plain in [
        bench.module("plain", &[("main.tf", ECHO)]),
        git_source.replace("https", "http"),
    ] {
        let error = bench
            .job(&plain, json!({}))
            .work(&provider)
            .await
            .unwrap_err();
        assert!(
            error.is_terminal() && error.message().contains("only https"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_redirect_leads_to_no_other_protocol() {
    let bench = Bench::new();
    bench.web.redirect("/file.tar.gz", "file:///etc/passwd");
    bench.web.redirect("/loop.tar.gz", "/loop.tar.gz");
    bench.module("real", &[("main.tf", &says("followed"))]);
    bench.web.redirect("/good.tar.gz", "/real.tar.gz");
    let source = |name: &str| format!("{}/{name}.tar.gz", bench.web.url());
    assert_eq!(text_of(&bench, &source("good")).await.unwrap(), "followed");
    for name in ["file", "loop"] {
        let error = text_of(&bench, &source(name)).await.unwrap_err();
        assert!(
            !error.is_terminal() && error.message().contains("curl exited with code"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn hostile_archives_are_refused() {
    let bench = Bench::new();
    let link = |target: &str| {
        let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, "main.tf", target).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    };
    bench.web.put("/link.tar.gz", link("/etc/passwd"));
    bench
        .web
        .put("/html.tar.gz", b"<html>please log in</html>".to_vec());
    bench.web.put("/empty.tar.gz", Vec::new());
    bench
        .web
        .put("/none.tar.gz", web::archive(&[("README.md", "no module")]));
    let whole = web::archive(&[("main.tf", &"# long\n".repeat(10_000))]);
    bench
        .web
        .put("/cut.tar.gz", whole[..whole.len() - 12].to_vec());
    for (name, part) in [
        ("link", "is a link"),
        ("html", "cannot be read"),
        ("empty", "cannot be read"),
        ("none", "holds no module"),
        ("cut", "cannot be read"),
    ] {
        let error = text_of(&bench, &format!("{}/{name}.tar.gz", bench.web.url()))
            .await
            .unwrap_err();
        assert!(
            error.is_terminal() && error.message().contains(part),
            "{name}: {error}"
        );
        assert!(!error.message().contains("root:x:0"));
    }
    assert!(!log::text().contains("root:x:0"));
    bench.assert_clean();
}

#[tokio::test]
async fn a_download_without_end_is_ended() {
    let bench = Bench::new();
    bench.web.endless("/endless.tar.gz");
    let mut options = bench.options();
    options.limits.packed_bytes = 4 << 20;
    let provider = stdterraform::StdTerraform::new(options);
    let job = bench.job(&format!("{}/endless.tar.gz", bench.web.url()), json!({}));
    let error = job.work(&provider).await.unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("larger than 4194304 bytes"),
        "{error}"
    );
    bench.assert_clean();
}

#[tokio::test]
async fn one_directory_on_top_is_entered() {
    let bench = Bench::new();
    let source = bench.module(
        "top",
        &[
            ("repo-1.0/main.tf", &says("inside")),
            ("repo-1.0/x/README", "x"),
        ],
    );
    assert_eq!(text_of(&bench, &source).await.unwrap(), "inside");
}

#[tokio::test]
async fn links_and_oversize_in_git_are_refused_before_anything_is_written() {
    let bench = Bench::new();
    let hub = Hub::start(&bench, false);
    let repo = hub.repo();
    std::os::unix::fs::symlink("/etc/passwd", repo.join("leak.tf")).unwrap();
    std::os::unix::fs::symlink("/root", repo.join("esc")).unwrap();
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-q", "-m", "links"]);
    let error = text_of(&bench, &format!("git::{}", hub.url("repo.git")))
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("holds the link"),
        "{error}"
    );
    // A link elsewhere in the repository is not the module's.
    assert_eq!(
        text_of(
            &bench,
            &format!("git::{}", hub.url("repo.git//modules/vpc"))
        )
        .await
        .unwrap(),
        "from the sibling"
    );
    assert!(!log::text().contains("root:x:0"));

    let mut options = bench.options();
    options.limits.unpacked_bytes = 10;
    let provider = stdterraform::StdTerraform::new(options);
    let error = bench
        .job(&format!("git::{}", hub.url("repo.git?ref=v1")), json!({}))
        .work(&provider)
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("at most"),
        "{error}"
    );
}

#[tokio::test]
async fn a_destroy_goes_back_to_the_commit_that_was_applied() {
    let bench = Bench::new();
    let hub = Hub::start(&bench, false);
    let provider = bench.provider();
    let repo = hub.repo();
    let witness = bench.path().join("witness");
    let module = |word: &str| {
        format!(
            "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    when    = destroy\n    command = \"echo {word} > {}\"\n  }}\n}}\n",
            witness.display()
        )
    };
    let commit = |word: &str| {
        std::fs::write(repo.join("main.tf"), module(word)).unwrap();
        git(&repo, &["add", "-A"]);
        git(&repo, &["commit", "-q", "-m", word]);
    };
    commit("applied");
    let job = bench.job(&format!("git::{}", hub.url("repo.git?ref=main")), json!({}));
    let applied = job.work(&provider).await.unwrap();
    commit("later");
    std::fs::remove_dir_all(bench.data().join("trees")).unwrap();
    job.after(&applied)
        .teardown()
        .work(&provider)
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(witness).unwrap(), "applied\n");
}
