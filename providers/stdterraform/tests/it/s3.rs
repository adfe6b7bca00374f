//! The s3 backend with its own locks, and modules from s3, against a real server.

use std::time::Duration;

use serde_json::{Value, json};
use stdterraform::{Options, StdTerraform};

use crate::support::daemon::{Daemon, aws, s3};
use crate::support::proxy::Proxy;
use crate::support::{Bench, ECHO, Job, ready, resources_of, status, web};

fn key(job: &Job) -> String {
    format!("terraform/stdterraform/{}.tfstate", job.uid)
}

fn objects(bucket: &str, job: &Job) -> Vec<String> {
    let listed = aws(
        &s3().url(),
        &["s3", "ls", "--recursive", &format!("s3://{bucket}")],
    );
    let uid = job.uid.to_string();
    listed
        .lines()
        .filter(|line| line.contains(&uid))
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect()
}

fn state(bucket: &str, job: &Job) -> Vec<String> {
    resources_of(&aws(
        &s3().url(),
        &["s3", "cp", &format!("s3://{bucket}/{}", key(job)), "-"],
    ))
}

#[tokio::test]
async fn a_state_lives_and_dies_in_s3() {
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let provider = bench.provider();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let job = Job::apply(json!({"source": source, "vars": {"text": "one"}}), config);
    let applied = job.work(&provider).await.unwrap();
    assert_eq!(
        status(&applied)["state"],
        json!({"backend": "s3", "bucket": "states", "region": "us-east-1", "endpoint": s3().url(), "key": key(&job)})
    );
    assert_eq!(
        objects("states", &job),
        [key(&job)],
        "the lock is gone, the probe too"
    );
    assert_eq!(state("states", &job), ["terraform_data.echo"]);

    let job = job.after(&applied);
    assert_eq!(
        ready(&job.work(&provider).await.unwrap()).message,
        "0 added, 0 changed, 0 destroyed"
    );
    let job = job.teardown();
    job.work(&provider).await.unwrap();
    assert!(objects("states", &job).is_empty(), "no trace is left");
    // Once more, as after a lost result.
    job.work(&provider).await.unwrap();
    assert!(objects("states", &job).is_empty());
    bench.assert_clean();
}

#[tokio::test]
async fn two_workers_never_apply_one_resource_at_once() {
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let (source, release) = bench.waiting("both");
    let job = Job::apply(json!({"source": source}), config);
    let first = bench.provider();
    let hasty = StdTerraform::new(other_worker(&bench, 1));
    let patient = StdTerraform::new(other_worker(&bench, 30));

    let holding = job.work(&first);
    let trying = async {
        bench.begun("both").await;
        let error = job.work(&hasty).await.unwrap_err();
        assert!(!error.is_terminal());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(
            error.message().contains("is locked by")
                && error.message().contains(&format!("@{}", host.trim())),
            "{error}"
        );
        assert_eq!(error.conditions()[0].reason, "WaitingForLock");
        let waiting = job.work(&patient);
        let letting_go = async {
            crate::support::wait_for_async("the patient one waits", || {
                crate::support::log::has_line(&["phase=\"apply\"", "Acquiring state lock"])
            })
            .await;
            std::fs::write(&release, "").unwrap();
        };
        tokio::join!(waiting, letting_go).0
    };
    let (held, waited) = tokio::join!(holding, trying);
    assert_eq!(
        ready(&held.unwrap()).message,
        "2 added, 0 changed, 0 destroyed"
    );
    assert_eq!(
        ready(&waited.unwrap()).message,
        "0 added, 0 changed, 0 destroyed"
    );
}

fn other_worker(bench: &Bench, patience: u64) -> Options {
    let mut options = bench.options();
    options.data_dir = bench.path().join(format!("data-{patience}"));
    options.lock_timeout = Duration::from_secs(patience);
    options
}

#[tokio::test]
async fn a_lock_that_says_nothing_is_waited_for_with_a_hint() {
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let job = Job::apply(json!({"source": source, "vars": {"text": "x"}}), config);
    let garbage = bench.path().join("garbage");
    std::fs::write(&garbage, "not json").unwrap();
    let lock = format!("s3://states/{}.tflock", key(&job));
    aws(
        &s3().url(),
        &["s3", "cp", &garbage.to_string_lossy(), &lock],
    );
    let error = job.work(&bench.provider()).await.unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("remove the lock object"),
        "{error}"
    );
    aws(&s3().url(), &["s3", "rm", &lock]);
    job.work(&bench.provider()).await.unwrap();
}

#[tokio::test]
async fn a_config_that_would_move_a_state_is_refused_or_copies_it_first() {
    let mut bench = Bench::new();
    let there = bench.s3(&s3().url());
    let provider = bench.provider();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let job = bench.job(&source, json!({"text": "one"}));
    let applied = job.work(&provider).await.unwrap();
    let id = std::fs::read_to_string(bench.state_file(job.uid)).unwrap();

    let mut job = job.after(&applied);
    job.config = there.clone();
    for job in [job.copy(), job.copy().teardown(), job.copy().drift()] {
        let error = job.work(&provider).await.unwrap_err();
        assert!(error.is_terminal(), "{error}");
        for part in [
            bench.state_file(job.uid).to_str().unwrap(),
            "bucket states",
            "migrate_state",
        ] {
            assert!(error.message().contains(part), "{part} in {error}");
        }
    }
    assert!(objects("states", &job).is_empty(), "nothing was run");

    let moving = job.copy().with_config("migrate_state", json!(true));
    let moved = moving.work(&provider).await.unwrap();
    assert_eq!(
        ready(&moved).message,
        "0 added, 0 changed, 0 destroyed",
        "the resource came along"
    );
    assert_eq!(status(&moved)["state"]["bucket"], "states");
    assert_eq!(
        std::fs::read_to_string(bench.state_file(job.uid)).unwrap(),
        id,
        "the old one stays"
    );
    // The result was lost: the status still names the old place. What is there is not copied over.
    let again = moving.work(&provider).await.unwrap();
    assert_eq!(ready(&again).message, "0 added, 0 changed, 0 destroyed");

    // Another state in the new place is never overwritten.
    let other = bench.job(&source, json!({"text": "two"}));
    let other_applied = other.work(&provider).await.unwrap();
    aws(
        &s3().url(),
        &[
            "s3",
            "cp",
            &format!("s3://states/{}", key(&job)),
            &format!("s3://states/{}", key(&other)),
        ],
    );
    let mut other = other.after(&other_applied).with_config("x", Value::Null);
    other.config = there;
    let error = other
        .with_config("migrate_state", json!(true))
        .work(&provider)
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("another state"),
        "{error}"
    );
    bench.assert_clean();
}

/// A backend file of an operator, who does not like to wait.
fn raw_backend(endpoint: &str) -> String {
    format!(
        r#"
terraform {{
  backend "s3" {{
    bucket                      = "states"
    key                         = "raw/__CONVERGE_STATE_KEY__"
    region                      = "us-east-1"
    use_lockfile                = true
    use_path_style              = true
    skip_credentials_validation = true
    skip_requesting_account_id  = true
    max_retries                 = 1
    endpoints                   = {{ s3 = "{endpoint}" }}
  }}
}}
"#
    )
}

#[tokio::test]
async fn a_raw_backend_file_is_used_as_it_stands() {
    let mut bench = Bench::new();
    bench.s3(&s3().url());
    let provider = bench.provider();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let mut job = Job::apply(
        json!({"source": source, "vars": {"text": "raw"}}),
        Value::Null,
    );
    job.bundle = Some(raw_backend(&s3().url()));
    let applied = job.work(&provider).await.unwrap();
    assert_eq!(objects("states", &job), [format!("raw/{}", key(&job))]);
    assert_eq!(status(&applied)["state"]["raw"], true);
    let job = job.after(&applied);
    job.copy().teardown().work(&provider).await.unwrap();

    let mut job = job;
    job.bundle =
        Some("terraform {\n  backend \"s3\" {\n    key = \"one-for-all\"\n  }\n}\n".to_owned());
    let error = job.work(&provider).await.unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("__CONVERGE_STATE_KEY__"),
        "{error}"
    );
}

#[tokio::test]
async fn a_store_that_cannot_lock_is_refused() {
    let mut bench = Bench::new();
    let proxy = Proxy::start(s3().port, Some("if-none-match"));
    let config = bench.s3(&proxy.url());
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let job = Job::apply(json!({"source": source, "vars": {"text": "x"}}), config);
    let error = job.work(&bench.provider()).await.unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("ignores If-None-Match"),
        "{error}"
    );
    assert!(
        objects("states", &job).is_empty(),
        "nothing was run, the probe left nothing"
    );
}

#[tokio::test]
async fn a_module_comes_from_s3() {
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let provider = bench.provider();
    let file = bench.path().join("m.tar.gz");
    std::fs::write(&file, web::archive(&[("main.tf", ECHO)])).unwrap();
    aws(&s3().url(), &["s3", "mb", "s3://modules"]);
    for name in ["team/vpc/1.0.0.tar.gz", "--recursive/é+%20.tar.gz"] {
        aws(
            &s3().url(),
            &[
                "s3",
                "cp",
                &file.to_string_lossy(),
                &format!("s3://modules/{name}"),
            ],
        );
        let job = Job::apply(
            json!({"source": format!("s3://modules/{name}"), "vars": {"text": name}}),
            config.clone(),
        );
        assert_eq!(
            status(&job.work(&provider).await.unwrap())["outputs"]["text"],
            name
        );
    }
    let job = Job::apply(
        json!({"source": "s3://modules/none.tar.gz", "vars": {"text": "x"}}),
        config,
    );
    let error = job.work(&provider).await.unwrap_err();
    assert!(
        !error.is_terminal()
            && error
                .message()
                .contains("s3://modules/none.tar.gz could not be fetched"),
        "{error}"
    );
}

#[tokio::test]
async fn a_state_that_could_not_be_saved_is_pushed_first() {
    let mut bench = Bench::new();
    let server = Daemon::start("moto_server", &["-H", "127.0.0.1", "-p", "{port}"]);
    aws(&server.url(), &["s3", "mb", "s3://states"]);
    let proxy = Proxy::start(server.port, None);
    bench.s3(&proxy.url());
    let provider = bench.provider();
    let (source, release) = bench.waiting("down");
    let mut job = Job::apply(json!({"source": source}), Value::Null);
    job.bundle = Some(raw_backend(&proxy.url()));
    let going_down = async {
        bench.begun("down").await;
        proxy.set_down(true);
        std::fs::write(&release, "").unwrap();
    };
    let (result, ()) = tokio::join!(job.work(&provider), going_down);
    let error = result.unwrap_err();
    let kept = bench
        .data()
        .join(format!("kept/{}/errored.tfstate", job.uid));
    assert!(
        !error.is_terminal() && error.message().contains(kept.to_str().unwrap()),
        "{error}"
    );
    let mut made = resources_of(&std::fs::read_to_string(&kept).unwrap());
    made.sort();
    assert_eq!(made, ["terraform_data.first", "terraform_data.waiting"]);
    bench.assert_clean();

    // Still down: nothing is lost by another try.
    job.status = error.status().cloned();
    assert!(!job.work(&provider).await.unwrap_err().is_terminal());
    assert!(kept.exists());

    proxy.set_down(false);
    let outcome = job.work(&provider).await.unwrap();
    assert_eq!(
        ready(&outcome).message,
        "0 added, 0 changed, 0 destroyed",
        "nothing is made twice"
    );
    assert!(!kept.exists());
    let left = aws(&server.url(), &["s3", "ls", "--recursive", "s3://states"]);
    assert!(!left.contains("tflock"), "{left}");
}
