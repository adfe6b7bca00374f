//! Which binary runs: managers through stand-ins that follow their command line, and the one on PATH.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::program::{real_terraform, script};
use crate::support::{Bench, ECHO, status};

/// A `tfenv` or `tofuenv` that installs what it is told to: a script that says its version and is the real Terraform otherwise.
struct Manager {
    root: PathBuf,
    name: &'static str,
}

const MANAGER: &str = r#"#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd)
echo "$*" >> "$root/calls"
case $1 in
list-remote)
  [ ! -e "$root/offline" ] || { echo "curl: (6) Could not resolve host: releases" >&2; exit 1; }
  cat "$root/remote" ;;
list)
  ls "$root/versions" 2>/dev/null | sed 's/^/  /' ;;
install)
  [ ! -e "$root/offline" ] || { echo "Error: could not download $2" >&2; exit 127; }
  [ ! -e "$root/versions/$2" ] || echo "INSTALLED TWICE" >> "$root/calls"
  sleep 0.3
  mkdir -p "$root/versions/$2"
  printf '#!/bin/sh\n[ "$1" = version ] && { echo "{\\"terraform_version\\":\\"%s\\"}"; exit 0; }\nexec %s "$@"\n' "$2" "$REAL" > "$root/versions/$2/BINARY"
  chmod +x "$root/versions/$2/BINARY" ;;
*)
  echo "unknown command $1" >&2; exit 1 ;;
esac
"#;

impl Manager {
    fn install(bench: &mut Bench, name: &'static str, binary: &str) -> Self {
        let root = bench.path().join(name);
        let text = MANAGER
            .replace("BINARY", binary)
            .replace("$REAL", &real_terraform());
        script(&root.join("bin").join(name), &text);
        std::fs::create_dir_all(root.join("versions")).unwrap();
        let remote = [
            "1.12.0-beta1",
            "1.11.4",
            "1.11.3",
            "1.10.0",
            "1.7.5",
            "1.7.4",
            "1.4.0",
        ];
        std::fs::write(root.join("remote"), remote.join("\n")).unwrap();
        bench.search_first(&root.join("bin"));
        Self { root, name }
    }

    fn calls(&self) -> Vec<String> {
        std::fs::read_to_string(self.root.join("calls"))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn go_offline(&self) {
        std::fs::write(self.root.join("offline"), "").unwrap();
    }
}

async fn version_of(
    bench: &Bench,
    files: &[(&str, &str)],
    wanted: Value,
) -> Result<String, String> {
    let mut all = vec![("main.tf", ECHO)];
    all.extend(files);
    let source = bench.module("versioned", &all);
    let mut spec = json!({"source": source, "vars": {"text": "x"}});
    if !wanted.is_null() {
        spec["tf_version"] = wanted;
    }
    let result = bench
        .job(&source, json!({}))
        .with_spec(spec)
        .work(&bench.provider())
        .await;
    match result {
        Ok(outcome) => Ok(status(&outcome)["applied"]["tf_version"]
            .as_str()
            .unwrap()
            .to_owned()),
        Err(error) => Err(format!(
            "{}{error}",
            if error.is_terminal() {
                "terminal: "
            } else {
                "transient: "
            }
        )),
    }
}

#[tokio::test]
async fn the_spec_then_the_module_then_the_newest_decide() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tfenv", "terraform");
    let required = (
        "versions.tf",
        "terraform {\n  required_version = \"~> 1.4, < 1.11.4\"\n}\n",
    );
    let file = (".terraform-version", "1.7.4\n");
    // The real binary behind the stand-in is checked by nobody but the module's own constraint, so it must not refuse itself.
    let loose = (
        "versions.tf",
        "terraform {\n  required_version = \">= 1.7.5\"\n}\n",
    );
    for (files, wanted, version) in [
        (vec![], Value::Null, "1.11.4"),
        (vec![], json!("1.7.5"), "1.7.5"),
        (vec![], json!("latest:^1\\.7"), "1.7.5"),
        (vec![file], Value::Null, "1.7.4"),
        (vec![file], json!("latest"), "1.11.4"),
        (vec![file, loose], json!("min-required"), "1.7.5"),
        (vec![loose], Value::Null, "1.11.4"),
    ] {
        assert_eq!(
            version_of(&bench, &files, wanted).await.as_deref(),
            Ok(version),
            "{files:?}"
        );
    }
    // What the constraint allows is chosen, and then the real one refuses, for it is 1.11.4 or newer.
    let refused = version_of(&bench, &[required], Value::Null)
        .await
        .unwrap_err();
    assert!(
        refused.starts_with("terminal: ") && refused.contains("Unsupported Terraform Core version"),
        "{refused}"
    );
    assert!(
        manager.calls().contains(&"install 1.11.3".to_owned()),
        "{:?}",
        manager.calls()
    );
}

#[tokio::test]
async fn two_runs_install_a_missing_version_once() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tfenv", "terraform");
    let (one, two) = tokio::join!(
        version_of(&bench, &[], json!("1.10.0")),
        version_of(&bench, &[], json!("1.10.0"))
    );
    assert_eq!(
        (one.as_deref(), two.as_deref()),
        (Ok("1.10.0"), Ok("1.10.0"))
    );
    assert_eq!(manager.calls(), ["install 1.10.0"]);
}

#[tokio::test]
async fn without_a_network_what_is_installed_serves_and_the_rest_is_one_clear_error() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tfenv", "terraform");
    version_of(&bench, &[], json!("1.7.5")).await.unwrap();
    manager.go_offline();
    assert_eq!(
        version_of(&bench, &[], Value::Null).await.as_deref(),
        Ok("1.7.5"),
        "the newest that is here"
    );
    let error = version_of(&bench, &[], json!("1.4.0")).await.unwrap_err();
    assert!(
        error.starts_with("transient: ")
            && error.contains("1.4.0 could not be installed: tfenv exited with code 127"),
        "{error}"
    );
    let none = version_of(&bench, &[], json!("latest:^9"))
        .await
        .unwrap_err();
    assert!(
        none.starts_with("terminal: ")
            && none.contains("knows no version that fits version latest:^9"),
        "{none}"
    );
}

#[tokio::test]
async fn a_version_file_cannot_make_a_path() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tfenv", "terraform");
    let witness = bench.path().join("ran");
    script(
        &manager.root.join("evil/terraform"),
        &format!("#!/bin/sh\ntouch {}\n", witness.display()),
    );
    let error = version_of(&bench, &[(".terraform-version", "../evil")], Value::Null)
        .await
        .unwrap_err();
    assert!(
        error.starts_with("terminal: ") && error.contains(".terraform-version"),
        "{error}"
    );
    assert!(!witness.exists() && manager.calls().is_empty());
}

#[tokio::test]
async fn tofu_is_found_the_same_way() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tofuenv", "tofu");
    assert_eq!(manager.name, "tofuenv");
    let source = bench.module(
        "tofu",
        &[("main.tf", ECHO), (".opentofu-version", "1.10.0")],
    );
    let job = bench
        .job(&source, json!({"text": "x"}))
        .with_config("binary", json!("tofu"));
    let outcome = job.work(&bench.provider()).await.unwrap();
    assert_eq!(status(&outcome)["applied"]["tf_version"], "1.10.0");
    assert_eq!(manager.calls(), ["install 1.10.0"]);
}

#[tokio::test]
async fn the_binary_on_path_serves_when_it_fits_and_is_named_when_it_does_not() {
    let bench = Bench::new();
    let real = version_of(&bench, &[], Value::Null).await.unwrap();
    assert!(crate::support::log::has_line(&[
        "on PATH",
        "there is no tfenv here",
        &real
    ]));
    assert_eq!(
        version_of(&bench, &[], json!(real)).await.as_deref(),
        Ok(real.as_str())
    );
    for (files, wanted, part) in [
        (vec![], json!("0.12.31"), "version 0.12.31 is asked for"),
        (
            vec![("v.tf", "terraform {\n  required_version = \"< 0.13\"\n}\n")],
            Value::Null,
            "version < 0.13 (latest-allowed) is asked for",
        ),
    ] {
        let error = version_of(&bench, &files, wanted).await.unwrap_err();
        assert!(
            error.starts_with("terminal: ") && error.contains(part) && error.contains(&real),
            "{error}"
        );
    }
}

#[tokio::test]
async fn no_binary_at_all_says_what_was_looked_for() {
    let mut bench = Bench::new();
    let only = bench.path().join("only");
    std::fs::create_dir(&only).unwrap();
    for tool in ["curl", "sh"] {
        let found = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .output()
            .unwrap();
        std::os::unix::fs::symlink(
            String::from_utf8(found.stdout).unwrap().trim(),
            only.join(tool),
        )
        .unwrap();
    }
    bench
        .environment
        .insert("PATH".to_owned(), only.to_string_lossy().into_owned());
    let error = version_of(&bench, &[], Value::Null).await.unwrap_err();
    assert!(
        error.starts_with("terminal: ")
            && error.contains("neither tfenv nor terraform on its PATH"),
        "{error}"
    );
}

#[tokio::test]
async fn a_version_that_cannot_lock_in_s3_is_refused() {
    let mut bench = Bench::new();
    let manager = Manager::install(&mut bench, "tfenv", "terraform");
    let source = bench.module("old", &[("main.tf", ECHO)]);
    let job = bench
        .job(&source, json!({}))
        .with_spec(json!({"source": source, "vars": {"text": "x"}, "tf_version": "1.7.5"}));
    let mut job = job;
    job.config = json!({"s3": {"bucket": "states"}});
    let error = job.work(&bench.provider()).await.unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("1.10 or newer"),
        "{error}"
    );
    assert_eq!(manager.calls(), ["install 1.7.5"]);
}
