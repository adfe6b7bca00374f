//! Apply, re-apply and destroy with the local backend.

use serde_json::{Value, json};

use crate::support::{Bench, ECHO, log, ready, status};

#[tokio::test]
async fn a_module_is_applied_applied_again_and_destroyed() {
    let bench = Bench::new();
    let provider = bench.provider();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let job = bench.job(&source, json!({"text": "one"}));

    let first = job.work(&provider).await.unwrap();
    assert_eq!(
        (
            ready(&first).reason.as_str(),
            ready(&first).message.as_str()
        ),
        ("Applied", "1 added, 0 changed, 0 destroyed")
    );
    let found = status(&first);
    assert_eq!(found["outputs"], json!({"text": "one"}));
    assert_eq!(
        found["state"],
        json!({"backend": "local", "key": bench.state_file(job.uid)})
    );
    assert_eq!(found["applied"]["source"], json!(source));
    assert_eq!(found["applied"]["vars"], json!({"text": "one"}));
    assert!(
        found["applied"]["digest"]
            .as_str()
            .unwrap()
            .starts_with("sha256:")
    );
    assert!(
        found["applied"]["tf_version"]
            .as_str()
            .unwrap()
            .starts_with("1.")
    );
    assert_eq!(bench.resources(job.uid), ["terraform_data.echo"]);

    let job = job.after(&first);
    let again = job.work(&provider).await.unwrap();
    assert_eq!(ready(&again).message, "0 added, 0 changed, 0 destroyed");
    assert_eq!(again.status, first.status);

    let job = job.with_spec(json!({"source": source, "vars": {"text": "two"}}));
    let changed = job.work(&provider).await.unwrap();
    assert_eq!(ready(&changed).message, "0 added, 1 changed, 0 destroyed");
    assert_eq!(status(&changed)["outputs"]["text"], "two");

    let outcome = job
        .after(&changed)
        .teardown()
        .work(&provider)
        .await
        .unwrap();
    assert_eq!((outcome.status, outcome.conditions.len()), (None, 0));
    let left: Vec<_> = std::fs::read_dir(bench.states().join("terraform/stdterraform"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert!(left.is_empty(), "the empty state is left: {left:?}");
    assert_eq!(
        std::fs::read_dir(bench.data().join("trees"))
            .unwrap()
            .count(),
        0,
        "the kept module goes with the resource"
    );
    bench.assert_clean();
}

#[tokio::test]
async fn values_arrive_typed_and_come_back_typed() {
    let bench = Bench::new();
    let source = bench.module(
        "types",
        &[(
            "main.tf",
            r#"
variable "any" { type = any }
variable "number" { type = number }
variable "list" { type = list(string) }
variable "object" {
  type = object({ a = number, b = optional(bool, true) })
}
variable "text" { type = string }
variable "none" {
  type    = string
  default = "fallback"
}
output "any" { value = var.any }
output "number" { value = var.number }
output "list" { value = var.list }
output "object" { value = var.object }
output "text" { value = var.text }
output "length" { value = length(var.text) }
output "none" { value = var.none == null ? "null" : var.none }
"#,
        )],
    );
    let spec = format!(
        r#"{{"source":"{source}","vars":{{"any":{{"x":[1,"a",null]}},"number":9007199254740993,"list":["p@ss word","${{path.root}}","%{{if}}"],
            "object":{{"a":1.5}},"text":"a\"b\\c\u00e9\n\ud83d\ude00","none":null}}}}"#
    );
    let mut job = bench.job(&source, json!({}));
    job.spec = spec;
    let outcome = job.work(&bench.provider()).await.unwrap();
    let text = outcome
        .status
        .as_ref()
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.contains(r#""number":9007199254740993"#), "{text}");
    let outputs = &status(&outcome)["outputs"];
    assert_eq!(outputs["any"], json!({"x": [1, "a", null]}));
    assert_eq!(
        outputs["list"],
        json!(["p@ss word", "${path.root}", "%{if}"])
    );
    assert_eq!(
        outputs["object"],
        json!({"a": serde_json::from_str::<Value>("1.5").unwrap(), "b": true})
    );
    assert_eq!(
        (&outputs["text"], &outputs["length"]),
        (&json!("a\"b\\cé\n😀"), &json!(8))
    );
    assert_eq!(outputs["none"], json!("null"));
}

#[tokio::test]
async fn a_typing_mistake_in_a_variable_is_visible() {
    let bench = Bench::new();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let outcome = bench
        .job(&source, json!({"text": "x", "txet": "y"}))
        .work(&bench.provider())
        .await
        .unwrap();
    assert_eq!(
        status(&outcome)["warnings"],
        json!(["the variable \"txet\" is set, but the module declares no such variable"])
    );
}

#[tokio::test]
async fn what_the_spec_got_wrong_is_terminal() {
    let bench = Bench::new();
    let provider = bench.provider();
    let echo = bench.module("echo", &[("main.tf", ECHO)]);
    let list = bench.module(
        "list",
        &[("main.tf", "variable \"list\" {\n  type = list(string)\n}\n")],
    );
    let broken = bench.module("broken", &[("main.tf", "resource \"terraform_data\" {")]);
    let wrong = bench.module(
        "wrong",
        &[("main.tf", "output \"x\" {\n  value = var.nothing\n}\n")],
    );
    let old = bench.module(
        "old",
        &[(
            "main.tf",
            "terraform {\n  required_version = \"= 0.1.2\"\n}\n",
        )],
    );
    for (source, vars, part) in [
        (&echo, json!({}), "No value for required variable"),
        (
            &list,
            json!({"list": 5}),
            "Invalid value for input variable",
        ),
        (
            &broken,
            json!({}),
            "init failed: Unclosed configuration block",
        ),
        (&wrong, json!({}), "undeclared"),
        (&old, json!({}), "= 0.1.2"),
    ] {
        let error = bench.job(source, vars).work(&provider).await.unwrap_err();
        assert!(
            error.is_terminal() && error.message().contains(part),
            "{error}"
        );
    }
    bench.assert_clean();
}

#[tokio::test]
async fn a_failed_apply_keeps_what_it_made_and_the_next_one_goes_on() {
    let bench = Bench::new();
    let provider = bench.provider();
    let flag = bench.path().join("flag");
    let main = format!(
        r#"
resource "terraform_data" "first" {{}}
resource "terraform_data" "second" {{
  depends_on = [terraform_data.first]
  provisioner "local-exec" {{
    command = "test -e {}"
  }}
}}
output "first" {{ value = terraform_data.first.id }}
"#,
        flag.display()
    );
    let source = bench.module("flaky", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({}));
    let error = job.work(&provider).await.unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("local-exec provisioner error"),
        "{error}"
    );
    let failed: Value = error.status().unwrap().decode().unwrap();
    assert_eq!(failed["applied"]["source"], json!(source));
    assert!(
        failed["outputs"]["first"].is_string(),
        "outputs known by then are reported: {failed}"
    );
    assert_eq!(error.conditions()[0].reason, "RunFailed");

    std::fs::write(&flag, "").unwrap();
    let mut job = job;
    job.status = error.status().cloned();
    let outcome = job.work(&provider).await.unwrap();
    assert_eq!(
        status(&outcome)["outputs"]["first"],
        failed["outputs"]["first"]
    );
    assert_eq!(ready(&outcome).message, "1 added, 0 changed, 1 destroyed");
}

#[tokio::test]
async fn messages_reach_the_log_while_the_run_goes_on() {
    let bench = Bench::new();
    let release = bench.path().join("release");
    let main = format!(
        r#"
resource "terraform_data" "slow" {{
  provisioner "local-exec" {{
    command = "echo live-marker-4711; while [ ! -e {} ]; do sleep 0.05; done"
  }}
}}
"#,
        release.display()
    );
    let source = bench.module("slow", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({}));
    let provider = bench.provider();
    let run = job.work(&provider);
    let watch = async {
        crate::support::wait_for_async("the line is logged", || {
            log::has_line(&["(local-exec): live-marker-4711", "phase=\"apply\""])
        })
        .await;
        std::fs::write(&release, "").unwrap();
    };
    let (outcome, ()) = tokio::join!(run, watch);
    outcome.unwrap();
}

#[tokio::test]
async fn prevent_destroy_is_terminal_with_a_hint() {
    let bench = Bench::new();
    let provider = bench.provider();
    let main = "resource \"terraform_data\" \"precious\" {\n  lifecycle {\n    prevent_destroy = true\n  }\n}\n";
    let source = bench.module("precious", &[("main.tf", main)]);
    let job = bench.job(&source, json!({}));
    let applied = job.work(&provider).await.unwrap();
    let error = job
        .after(&applied)
        .teardown()
        .work(&provider)
        .await
        .unwrap_err();
    assert!(
        error.is_terminal() && error.message().contains("prevent_destroy"),
        "{error}"
    );
    assert!(error.message().contains("abandon"), "{error}");
}

#[tokio::test]
async fn destroying_what_was_never_made_needs_no_source() {
    let bench = Bench::new();
    let provider = bench.provider();
    let gone = format!("{}/nowhere.tar.gz", bench.web.url());
    let job = bench.job(&gone, json!({}));
    let error = job.work(&provider).await.unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("could not be fetched"),
        "{error}"
    );
    assert!(error.status().is_none());
    job.copy().teardown().work(&provider).await.unwrap();
    job.with_spec(json!({"source": "not a source"}))
        .teardown()
        .work(&provider)
        .await
        .unwrap();
    bench.assert_clean();
}

#[tokio::test]
async fn a_destroy_uses_what_was_applied() {
    let bench = Bench::new();
    let provider = bench.provider();
    let witness = bench.path().join("witness");
    let main = format!(
        r#"
variable "word" {{ type = string }}
variable "secret" {{
  type      = string
  sensitive = true
}}
resource "terraform_data" "x" {{
  input = {{ word = var.word, secret = var.secret }}
  provisioner "local-exec" {{
    when    = destroy
    command = "echo ${{self.input.word}} > {}"
  }}
}}
"#,
        witness.display()
    );
    let source = bench.module("applied", &[("main.tf", &main)]);
    let job = bench.job(
        &source,
        json!({"word": "was-applied", "secret": "s3cr3t-word"}),
    );
    let applied = job.work(&provider).await.unwrap();
    assert_eq!(
        status(&applied)["applied"]["vars"],
        json!({"word": "was-applied"}),
        "the sensitive one is left out"
    );

    // Today's spec names another module and another word; the secret is only there.
    let job = job.after(&applied).with_spec(json!({"source": bench.module("other", &[("main.tf", ECHO)]), "vars": {"word": "today", "secret": "s3cr3t-word"}}));
    job.teardown().work(&provider).await.unwrap();
    assert_eq!(std::fs::read_to_string(&witness).unwrap(), "was-applied\n");
}

#[tokio::test]
async fn a_source_that_is_gone_is_destroyed_from_the_kept_copy_or_waits() {
    let bench = Bench::new();
    let provider = bench.provider();
    let source = bench.module("leaving", &[("main.tf", ECHO)]);
    let one = bench.job(&source, json!({"text": "x"}));
    let two = bench.job(&source, json!({"text": "y"}));
    let (one, two) = (
        one.copy().after(&one.work(&provider).await.unwrap()),
        two.copy().after(&two.work(&provider).await.unwrap()),
    );
    bench.web.remove("/leaving.tar.gz");

    one.teardown().work(&provider).await.unwrap();
    std::fs::remove_dir_all(bench.data().join("trees")).unwrap();
    let error = two.copy().teardown().work(&provider).await.unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("cannot be fetched any more"),
        "{error}"
    );

    bench.module("leaving", &[("main.tf", ECHO)]);
    two.teardown().work(&provider).await.unwrap();
}

#[tokio::test]
async fn the_backend_of_a_module_never_wins() {
    let bench = Bench::new();
    let provider = bench.provider();
    let stray = bench.path().join("stray.tfstate");
    let local = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{}\"\n  }}\n}}\n",
        stray.display()
    );
    let cloud = "terraform {\n  cloud {\n    organization = \"x\"\n    workspaces {\n      name = \"y\"\n    }\n  }\n}\n";
    let empty_s3 = "terraform {\n  backend \"s3\" {}\n}\n";
    let shipped = r#"{"version":3,"backend":{"type":"local","config":{"path":"/nowhere/x.tfstate"},"hash":1}}"#;
    let state = r#"{"version":4,"terraform_version":"1.0.0","serial":9,"lineage":"other","outputs":{},"resources":[]}"#;
    for (name, files) in [
        ("plain", vec![("backend.tf", local.as_str())]),
        ("cloud", vec![("backend.tf", cloud)]),
        ("partial", vec![("backend.tf", empty_s3)]),
        (
            "override",
            vec![
                ("backend.tf", empty_s3),
                ("zzzzz_override.tf", local.as_str()),
                ("override.tf", local.as_str()),
            ],
        ),
        ("later", vec![("~~~_override.tf", local.as_str())]),
        (
            "shipped",
            vec![
                (".terraform/terraform.tfstate", shipped),
                ("terraform.tfstate", state),
                (".terraform/environment", "foo"),
            ],
        ),
    ] {
        let mut files = files;
        files.push(("main.tf", ECHO));
        let source = bench.module(name, &files);
        let job = bench.job(&source, json!({"text": name}));
        let outcome = job
            .work(&provider)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(bench.resources(job.uid), ["terraform_data.echo"], "{name}");
        assert_eq!(status(&outcome)["outputs"]["text"], json!(name));
        assert!(!stray.exists(), "{name}");
    }
}

#[tokio::test]
async fn what_could_bend_a_run_does_not_reach_it() {
    let mut bench = Bench::new();
    for (name, value) in [
        ("TF_CLI_ARGS", "-bogus"),
        ("TF_CLI_ARGS_apply", "-destroy"),
        ("TF_WORKSPACE", "foo"),
        ("TF_DATA_DIR", "/nowhere"),
        ("TF_VAR_text", "from the worker"),
        ("SECRET_DB_URL", "postgres://u:hunter2@h"),
        ("WANTED_NAME", "wanted"),
    ] {
        bench.environment.insert(name.to_owned(), value.to_owned());
    }
    let seen = bench.path().join("env");
    let main = format!(
        "{ECHO}\nresource \"terraform_data\" \"env\" {{\n  provisioner \"local-exec\" {{\n    command = \"env > {}\"\n  }}\n}}\n",
        seen.display()
    );
    let source = bench.module("env", &[("main.tf", &main)]);
    let job = bench
        .job(&source, json!({"text": "from the spec"}))
        .with_config("inherit_env", json!(["WANTED_*"]));
    let outcome = job.work(&bench.provider()).await.unwrap();
    assert_eq!(status(&outcome)["outputs"]["text"], "from the spec");
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(
        seen.contains("WANTED_NAME=wanted") && seen.contains(&format!("CONVERGE_UID={}", job.uid)),
        "{seen}"
    );
    for part in ["hunter2", "bogus", "TF_VAR", "TF_WORKSPACE", "TF_DATA_DIR"] {
        assert!(!seen.contains(part), "{part} in {seen}");
    }
}

#[tokio::test]
async fn the_variable_file_has_the_last_word_and_is_nobody_elses() {
    let bench = Bench::new();
    let witness = bench.path().join("witness");
    let main = format!(
        "{ECHO}\nresource \"terraform_data\" \"look\" {{\n  provisioner \"local-exec\" {{\n    command = \"ls; stat -c %a ../*.tfvars.json ../../*.tfvars.json > {} 2>/dev/null || true\"\n  }}\n}}\n",
        witness.display()
    );
    let source = bench.module(
        "auto",
        &[
            ("main.tf", &main),
            ("terraform.tfvars", "text = \"a\"\n"),
            ("zzzz.auto.tfvars.json", r#"{"text":"b"}"#),
        ],
    );
    let outcome = bench
        .job(&source, json!({"text": "ours"}))
        .work(&bench.provider())
        .await
        .unwrap();
    assert_eq!(status(&outcome)["outputs"]["text"], "ours");
    assert_eq!(std::fs::read_to_string(witness).unwrap(), "600\n");
}

#[tokio::test]
async fn parallelism_is_passed_on_and_two_resources_run_at_once() {
    let bench = Bench::new();
    let provider = bench.provider();
    let source = bench.module("echo", &[("main.tf", ECHO)]);
    let jobs: Vec<_> = (0..4)
        .map(|n| {
            bench
                .job(&source, json!({"text": n.to_string()}))
                .with_config("parallelism", json!(2))
        })
        .collect();
    let (a, b, c, d) = tokio::join!(
        jobs[0].work(&provider),
        jobs[1].work(&provider),
        jobs[2].work(&provider),
        jobs[3].work(&provider)
    );
    for (index, outcome) in [a, b, c, d].into_iter().enumerate() {
        assert_eq!(
            status(&outcome.unwrap())["outputs"]["text"],
            json!(index.to_string())
        );
    }
    bench.assert_clean();
}
