//! Runs that must stop: what they save, what they let go of, what is left of them.

use std::process::Command;

use converge_sdk::{CancelReason, Provider as _};
use serde_json::json;

use crate::support::daemon::{Daemon, aws, s3};
use crate::support::program::{real_terraform, script};
use crate::support::{Bench, ECHO, Job, ready, resources_of, status, wait_for_async};

fn state(endpoint: &str, job: &Job) -> Vec<String> {
    let key = format!("s3://states/terraform/stdterraform/{}.tfstate", job.uid);
    resources_of(&aws(endpoint, &["s3", "cp", &key, "-"]))
}

fn is_locked(endpoint: &str, job: &Job) -> bool {
    aws(endpoint, &["s3", "ls", "--recursive", "s3://states"])
        .contains(&format!("{}.tfstate.tflock", job.uid))
}

#[tokio::test]
async fn a_timeout_interrupts_once_and_waits_for_the_state() {
    let mut bench = Bench::new();
    let config = bench.s3(&s3().url());
    let provider = bench.provider();
    let (source, release) = bench.waiting("timeout");
    let mut job = Job::apply(json!({"source": source}), config);
    let mut seconds = 4;
    // A slow machine may need longer than that to come to the apply at all.
    let error = loop {
        job = job.with_config("timeout_seconds", json!(seconds));
        let error = job.work(&provider).await.unwrap_err();
        if bench.path().join("timeout-begun").exists() || seconds > 60 {
            break error;
        }
        seconds *= 2;
    };
    assert!(!error.is_terminal());
    let said = format!("apply was interrupted by the timeout of {seconds} s; its state is saved");
    assert!(error.message().contains(&said), "{error}");
    assert_eq!(error.conditions()[0].reason, "Interrupted");
    assert!(
        error.status().is_some(),
        "where the state is and what was applied is reported"
    );
    bench.assert_clean();
    assert!(!is_locked(&s3().url(), &job));
    assert!(state(&s3().url(), &job).contains(&"terraform_data.first".to_owned()));

    std::fs::write(release, "").unwrap();
    job = job.with_config("timeout_seconds", json!(0));
    job.status = error.status().cloned();
    let outcome = job.work(&provider).await.unwrap();
    assert_eq!(
        ready(&outcome).message,
        "1 added, 0 changed, 1 destroyed",
        "the interrupted one is made anew, the other one stays"
    );
}

#[tokio::test]
async fn what_does_not_end_in_its_grace_is_killed_and_said_to_be() {
    let mut bench = Bench::new();
    let server = Daemon::start("moto_server", &["-H", "127.0.0.1", "-p", "{port}"]);
    aws(&server.url(), &["s3", "mb", "s3://states"]);
    let config = bench.s3(&server.url());
    let provider = bench.provider();
    let (source, release) = bench.waiting("hung");
    let job =
        Job::apply(json!({"source": source}), config).with_config("kill_grace_seconds", json!(2));
    let (ctx, control) = job.context();
    let run = provider.work(&ctx, job.request());
    let stop = async {
        bench.begun("hung").await;
        server.signal("STOP");
        control.cancel(CancelReason::Deadline);
    };
    let (result, ()) = tokio::join!(run, stop);
    server.signal("CONT");
    let error = result.unwrap_err();
    assert!(
        !error.is_terminal()
            && error
                .message()
                .contains("did not end within 2 s and was killed"),
        "{error}"
    );
    bench.assert_clean();
    assert!(is_locked(&server.url(), &job));

    // The run that left the lock is known to be over: it was this worker's own.
    std::fs::write(release, "").unwrap();
    let outcome = job.work(&provider).await.unwrap();
    assert!(status(&outcome)["outputs"]["first"].is_string());
    assert!(!is_locked(&server.url(), &job));
}

#[tokio::test]
async fn a_stop_before_anything_began_begins_nothing() {
    let bench = Bench::new();
    let source = bench.module("never", &[("main.tf", ECHO)]);
    let job = bench.job(&source, json!({"text": "x"}));
    let (ctx, control) = job.context();
    control.cancel(CancelReason::Drain);
    let error = bench
        .provider()
        .work(&ctx, job.request())
        .await
        .unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("stopped before"),
        "{error}"
    );
    assert!(bench.web.requests().is_empty());

    let (ctx, control) = job.context();
    control.set_uncertain(true);
    let error = bench
        .provider()
        .work(&ctx, job.request())
        .await
        .unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("was not begun"),
        "{error}"
    );
    assert!(bench.web.requests().is_empty());
}

#[tokio::test]
async fn a_lease_that_becomes_uncertain_stops_the_next_phase() {
    let bench = Bench::new();
    let (source, release) = bench.waiting("lease");
    let job = bench.job(&source, json!({}));
    let (ctx, control) = job.context();
    let provider = bench.provider();
    let run = provider.work(&ctx, job.request());
    let doubt = async {
        bench.begun("lease").await;
        control.set_uncertain(true);
        std::fs::write(&release, "").unwrap();
    };
    let (result, ()) = tokio::join!(run, doubt);
    // The apply went on to its end: stopping it would save nothing. What follows it was not begun.
    let outcome = result.unwrap();
    assert_eq!(ready(&outcome).message, "2 added, 0 changed, 0 destroyed");
    assert_eq!(bench.resources(job.uid).len(), 2);
    let status = status(&outcome);
    assert!(status["outputs"]["first"].is_null(), "{status}");
}

#[tokio::test]
async fn a_lease_that_becomes_uncertain_before_the_apply_leaves_everything_as_it_is() {
    let mut bench = Bench::new();
    let begun = bench.path().join("begun");
    let release = bench.path().join("release");
    // Terraform, but its init waits.
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = init ]; then touch {}; while [ ! -e {} ]; do sleep 0.05; done; fi\nexec {} \"$@\"\n",
        begun.display(),
        release.display(),
        real_terraform()
    );
    let programs = bench.path().join("programs");
    script(&programs.join("terraform"), &text);
    bench.search_first(&programs);
    let source = bench.module("doubt", &[("main.tf", ECHO)]);
    let job = bench.job(&source, json!({"text": "x"}));
    let (ctx, control) = job.context();
    let provider = bench.provider();
    let run = provider.work(&ctx, job.request());
    let doubt = async {
        wait_for_async("init runs", || begun.exists()).await;
        control.set_uncertain(true);
        std::fs::write(&release, "").unwrap();
    };
    let (result, ()) = tokio::join!(run, doubt);
    let error = result.unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("apply was not begun"),
        "{error}"
    );
    assert_eq!(bench.resources(job.uid), [""; 0]);
    bench.assert_clean();
}

#[tokio::test]
async fn one_interrupt_is_sent_not_two() {
    let bench = Bench::new();
    let provider = bench.provider();
    let counted = bench.path().join("count");
    let begun = bench.path().join("begun");
    // The provisioner's shell counts what reaches the group, and lives a while after the first.
    let script = format!(
        "trap 'echo INT >> {c}' INT; trap 'echo TERM >> {c}' TERM; touch {b}; i=0; while [ $i -lt 100 ]; do sleep 0.05; [ -s {c} ] && i=$((i+1)); done",
        c = counted.display(),
        b = begun.display()
    );
    let main = format!(
        "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    command = \"{script}\"\n  }}\n}}\n"
    );
    let source = bench.module("once", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({}));
    let (ctx, control) = job.context();
    let stop = async {
        wait_for_async("the provisioner runs", || begun.exists()).await;
        control.cancel(CancelReason::Drain);
    };
    let (result, ()) = tokio::join!(provider.work(&ctx, job.request()), stop);
    result.unwrap_err();
    let text = std::fs::read_to_string(&counted).unwrap_or_default();
    assert!(
        !text.contains("TERM") && text.lines().count() <= 1,
        "{text}"
    );
    bench.assert_clean();
}

impl Daemon {
    /// Sends a signal to the server itself.
    fn signal(&self, name: &str) {
        let port = self.port.to_string();
        let is_server = |pid: &str| {
            let command =
                std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut args = command.split('\0');
            args.next()
                .is_some_and(|program| program.contains("python"))
                && args.any(|arg| arg == port)
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes
            .filter_map(|process| process.file_name().into_string().ok())
            .filter(|pid| is_server(pid));
        for pid in pids {
            assert!(
                Command::new("kill")
                    .args([format!("-{name}"), pid])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }
}
