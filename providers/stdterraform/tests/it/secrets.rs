//! Secrets appear nowhere but in the resource's own spec and in the state.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::{Bench, ECHO, log, status};

/// Everything a secret could look like where a person reads.
fn forms(secret: &str) -> Vec<String> {
    let json = Value::String(secret.to_owned()).to_string();
    let inner = json[1..json.len() - 1].to_owned();
    let url: String = secret
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    let base64 = base64::engine::general_purpose::STANDARD;
    let mut forms = vec![
        secret.to_owned(),
        inner.clone(),
        inner
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026"),
        url.clone(),
        url.to_lowercase(),
        url.replace("%20", "+"),
        base64.encode(secret),
        base64.encode(format!("{secret}\n")),
        base64.encode(format!("user:{secret}")),
        base64::engine::general_purpose::URL_SAFE.encode(secret),
        secret.bytes().map(|b| format!("{b:02x}")).collect(),
    ];
    forms.extend(
        secret
            .lines()
            .filter(|line| line.len() > 4)
            .map(str::to_owned),
    );
    forms
}

fn assert_hidden(what: &str, text: &str, secret: &str) {
    for form in forms(secret) {
        assert!(!text.contains(&form), "{what} holds {form:?}");
    }
}

fn everything(result: &Result<converge_sdk::Outcome, converge_sdk::TaskError>) -> String {
    match result {
        Ok(outcome) => format!(
            "{outcome:?} {}",
            outcome
                .status
                .as_ref()
                .map(|s| s.as_str().unwrap().to_owned())
                .unwrap_or_default()
        ),
        Err(error) => format!(
            "{error:?} {error} {}",
            error
                .status()
                .map(|s| s.as_str().unwrap().to_owned())
                .unwrap_or_default()
        ),
    }
}

#[tokio::test]
async fn a_secret_is_hidden_whatever_a_module_does_with_it() {
    let mut bench = Bench::new();
    let secret = "s3cr3t <&> \"quoted\" wörd\nsecond-line-of-it";
    let access_key = "AKIA/wJalrXUtnFEMI+bPxRfi";
    bench
        .environment
        .insert("AWS_SECRET_ACCESS_KEY".to_owned(), access_key.to_owned());
    bench.environment.insert(
        "HTTPS_PROXY".to_owned(),
        "http://me:pr0xy-p%40ss@127.0.0.1:9".to_owned(),
    );
    let main = r#"
variable "secret" {
  type      = string
  sensitive = true
}
variable "plain" {
  type = string
}
resource "terraform_data" "loud" {
  input = nonsensitive(var.secret)
  provisioner "local-exec" {
    command     = "printf '%s\\n' \"$S\"; printf '%s' \"$S\" | base64 -w0; echo; printf 'user:%s' \"$S\" | base64; printf '%s' \"$S\" | od -An -tx1 | tr -d ' \\n'; echo; echo \"$J\"; echo \"$U\"; echo \"$AWS_SECRET_ACCESS_KEY\"; echo \"$HTTPS_PROXY\"; echo loud-was-here-1"
    environment = {
      S = nonsensitive(var.secret)
      J = jsonencode({ x = nonsensitive(var.secret) })
      U = urlencode(nonsensitive(var.secret))
    }
  }
}
output "leak" { value = "x ${nonsensitive(var.secret)} y" }
output "encoded" { value = { j = jsonencode([nonsensitive(var.secret)]), b = base64encode(nonsensitive(var.secret)) } }
output "kept" {
  value     = var.secret
  sensitive = true
}
output "plain" { value = var.plain }
"#;
    let source = bench.module("loud", &[("main.tf", main)]);
    let provider = bench.provider();
    let job = bench.job(&source, json!({"secret": secret, "plain": "public words"}));
    let result = job.work(&provider).await;
    let text = everything(&result);
    for secret in [secret, access_key, "pr0xy-p@ss"] {
        assert_hidden("the outcome", &text, secret);
        assert_hidden("the log", &log::text(), secret);
    }
    let outcome = result.unwrap();
    let found = status(&outcome);
    assert_eq!(found["outputs"]["plain"], "public words");
    assert_eq!(found["outputs"]["leak"], "x (sensitive) y");
    assert_eq!(found["sensitive_outputs"], json!(["kept"]));
    assert_eq!(found["applied"]["vars"], json!({"plain": "public words"}));
    assert!(log::has_line(&["loud-was-here-1"]));

    let result = job.after(&outcome).teardown().work(&provider).await;
    assert_hidden("the teardown", &everything(&result), secret);
    assert_hidden("the log", &log::text(), secret);
    result.unwrap();
}

#[tokio::test]
async fn a_refused_value_costs_no_other_its_secrecy() {
    let bench = Bench::new();
    let main = "variable \"zones\" {\n  type = list(string)\n}\nvariable \"secret\" {\n  type = string\n}\nvariable \"checked\" {\n  type = string\n  sensitive = true\n  validation {\n    condition = length(var.checked) > 100\n    error_message = \"too short\"\n  }\n}\n";
    let source = bench.module("refused", &[("main.tf", main)]);
    let vars = json!({"zones": "notalist", "secret": "s3cr3t-refused-x", "checked": "TOPSECRET-3-checked"});
    let result = bench.job(&source, vars).work(&bench.provider()).await;
    let text = everything(&result);
    assert!(result.unwrap_err().is_terminal());
    assert_hidden("the failure", &text, "TOPSECRET-3-checked");
    assert_hidden("the log", &log::text(), "TOPSECRET-3-checked");
    // Not even declared sensitive, but on the next line of the file that Terraform quotes.
    assert_hidden("the failure", &text, "s3cr3t-refused-x");
    assert_hidden("the log", &log::text(), "s3cr3t-refused-x");

    let vars = json!({"zones": [], "secret": "s3cr3t-refused-x", "checked": "TOPSECRET-3-checked"});
    let result = bench.job(&source, vars).work(&bench.provider()).await;
    assert_hidden("the failure", &everything(&result), "TOPSECRET-3-checked");
    assert_hidden("the log", &log::text(), "TOPSECRET-3-checked");
    assert!(result.unwrap_err().is_terminal());
}

#[tokio::test]
async fn a_module_that_cannot_be_read_keeps_all_its_variables_secret() {
    let bench = Bench::new();
    let source = bench.module(
        "unreadable",
        &[("main.tf", ECHO), ("odd.tf", "locals {\n  x = [")],
    );
    let result = bench
        .job(&source, json!({"text": "maybe-a-secret-9"}))
        .work(&bench.provider())
        .await;
    assert_hidden("the failure", &everything(&result), "maybe-a-secret-9");
    result.unwrap_err();
}

#[tokio::test]
async fn signed_links_and_extra_variables_are_hidden() {
    let mut bench = Bench::new();
    bench
        .environment
        .insert("DEPLOY_TOKEN".to_owned(), "tok-en-0815-abc".to_owned());
    bench.environment.insert(
        "DATABASE_URL".to_owned(),
        "postgres://app:db-p%24ss-1@h/x".to_owned(),
    );
    let main = "resource \"terraform_data\" \"x\" {\n  provisioner \"local-exec\" {\n    command = \"env; exit 3\"\n  }\n}\n";
    let source = format!(
        "{}?X-Amz-Signature=5igna7ure-0123456789",
        bench.module("signed", &[("main.tf", main)])
    );
    let job = bench
        .job(&source, json!({}))
        .with_config("inherit_env", json!(["DEPLOY_*", "DATABASE_URL"]));
    let result = job.work(&bench.provider()).await;
    let text = everything(&result);
    for secret in ["5igna7ure-0123456789", "tok-en-0815-abc", "db-p$ss-1"] {
        assert_hidden("the failure", &text, secret);
        assert_hidden("the log", &log::text(), secret);
    }
    assert!(
        bench.web.requests()[0].contains("X-Amz-Signature=5igna7ure-0123456789"),
        "the server got it"
    );

    // Where nothing was applied in the sense of the status, the link still works for the teardown: it is in the spec.
    let mut job = job;
    job.status = result.unwrap_err().status().cloned();
    job.teardown().work(&bench.provider()).await.unwrap();
}

#[tokio::test]
async fn nothing_secret_stands_in_a_command_line_or_stays_on_the_disk() {
    let bench = Bench::new();
    let (source, release) = bench.waiting("visible");
    let main = format!(
        "{}\nvariable \"pin\" {{\n  sensitive = true\n}}\n",
        "# more"
    );
    bench.module("unused", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({"pin": "hidden-pin-77123"}));
    let provider = bench.provider();
    let run = job.work(&provider);
    let look = async {
        bench.begun("visible").await;
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let command = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&command).contains("hidden-pin-77123"));
        }
        std::fs::write(&release, "").unwrap();
    };
    let (outcome, ()) = tokio::join!(run, look);
    outcome.unwrap();
    let found = std::process::Command::new("grep")
        .args(["-rl", "hidden-pin-77123"])
        .arg(bench.data())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}
