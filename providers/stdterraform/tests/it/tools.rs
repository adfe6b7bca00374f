//! The command lines of tools that cannot be had here: stand-ins note what they were told and behave like them.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::{Bench, ECHO, status, web};

/// Notes its arguments, one a line, and copies the module to where the last argument (less `--file=`) says.
fn stand_in(bench: &mut Bench, name: &str) -> std::path::PathBuf {
    let directory = bench.path().join("tools");
    let module = bench.path().join("module.tar.gz");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(&module, web::archive(&[("main.tf", ECHO)])).unwrap();
    let notes = bench.path().join(format!("{name}-args"));
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > {notes}\nfor a; do case $a in --file=*) to=${{a#--file=}};; *.tar.gz) [ \"${{a#gs:}}\" != \"$a\" ] || to=$a;; esac; done\ncase \"$*\" in *missing*) echo 'ERROR: BlobNotFound' >&2; exit 3;; esac\ncp {module} \"$to\"\n",
        notes = notes.display(),
        module = module.display(),
    );
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.display(), bench.environment["PATH"]);
    bench.environment.insert("PATH".to_owned(), path);
    notes
}

fn args(notes: &std::path::Path) -> Vec<String> {
    std::fs::read_to_string(notes)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn gcloud_copies_an_object() {
    let mut bench = Bench::new();
    let notes = stand_in(&mut bench, "gcloud");
    let job = bench.job("gs://modules/team/vpc.tar.gz", json!({"text": "x"}));
    let outcome = job.work(&bench.provider()).await.unwrap();
    assert_eq!(
        status(&outcome)["applied"]["source"],
        "gs://modules/team/vpc.tar.gz"
    );
    let args = args(&notes);
    assert_eq!(args[..3], ["storage", "cp", "gs://modules/team/vpc.tar.gz"]);
    assert!(args[3].starts_with('/') && args.len() == 4, "{args:?}");
}

#[tokio::test]
async fn az_downloads_a_blob_with_a_login_or_a_connection_string() {
    let mut bench = Bench::new();
    let notes = stand_in(&mut bench, "az");
    let job = bench.job("azblob://acct/modules/a/vpc.tar.gz", json!({"text": "x"}));
    job.work(&bench.provider()).await.unwrap();
    let with_login = args(&notes);
    assert_eq!(
        with_login[..6],
        [
            "storage",
            "blob",
            "download",
            "--no-progress",
            "--only-show-errors",
            "--container-name=modules"
        ]
    );
    assert_eq!(with_login[6], "--name=a/vpc.tar.gz");
    assert_eq!(
        with_login[8..],
        ["--account-name=acct", "--auth-mode=login"]
    );

    let secret =
        "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=c2VjcmV0LWF6dXJlLWtleQ==";
    bench.environment.insert(
        "AZURE_STORAGE_CONNECTION_STRING".to_owned(),
        secret.to_owned(),
    );
    job.work(&bench.provider()).await.unwrap();
    let with_string = args(&notes);
    assert_eq!(with_string.len(), 8, "{with_string:?}");
    assert!(
        !with_string
            .iter()
            .any(|arg| arg.contains("AccountKey") || arg.contains("auth-mode"))
    );

    let error = bench
        .job("azblob://acct/modules/missing.tar.gz", json!({"text": "x"}))
        .work(&bench.provider())
        .await
        .unwrap_err();
    assert!(
        !error.is_terminal()
            && error
                .message()
                .contains("az exited with code 3: ERROR: BlobNotFound"),
        "{error}"
    );
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_named() {
    let mut bench = Bench::new();
    bench
        .environment
        .insert("PATH".to_owned(), "/nowhere".to_owned());
    for (source, tool) in [
        ("gs://b/k.tar.gz", "gcloud"),
        ("azblob://a/c/k.tar.gz", "az"),
        ("s3://b/k.tar.gz", "aws"),
        ("https://h/k.tar.gz", "curl"),
        ("git::https://h/r.git", "git"),
    ] {
        let error = bench
            .job(source, json!({}))
            .work(&bench.provider())
            .await
            .unwrap_err();
        assert!(
            error.is_terminal()
                && error
                    .message()
                    .contains(&format!("{tool} could not be run")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_cold_plugin_cache_serves_many_runs_at_once() {
    let mut bench = Bench::new();
    let mirror = bench
        .path()
        .join("mirror/registry.terraform.io/acme/dummy/1.0.0/linux_amd64");
    std::fs::create_dir_all(&mirror).unwrap();
    let plugin = mirror.join("terraform-provider-dummy_v1.0.0");
    std::fs::write(&plugin, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
    let rc = bench.path().join("mirror.rc");
    let mirror = bench.path().join("mirror");
    let text = format!(
        "provider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
        mirror.display()
    );
    std::fs::write(&rc, text).unwrap();
    bench.environment.insert(
        "TF_CLI_CONFIG_FILE".to_owned(),
        rc.to_string_lossy().into_owned(),
    );
    let main = "terraform {\n  required_providers {\n    dummy = {\n      source = \"acme/dummy\"\n    }\n  }\n}\nresource \"dummy_thing\" \"x\" {}\n";
    let source = bench.module("dummy", &[("main.tf", main)]);
    let provider = bench.provider();
    let jobs: Vec<_> = (0..6)
        .map(|_| {
            bench
                .job(&source, json!({}))
                .with_config("inherit_env", json!(["TF_CLI_CONFIG_FILE"]))
        })
        .collect();
    let (a, b, c, d, e, f) = tokio::join!(
        jobs[0].work(&provider),
        jobs[1].work(&provider),
        jobs[2].work(&provider),
        jobs[3].work(&provider),
        jobs[4].work(&provider),
        jobs[5].work(&provider),
    );
    for result in [a, b, c, d, e, f] {
        // The plugin is none, which only the apply finds out: every init went well. That is not the module's fault.
        let error = result.unwrap_err();
        assert!(
            !error.is_terminal() && error.message().starts_with("apply failed"),
            "{error}"
        );
    }
    let cached = bench.data().join("plugins/registry.terraform.io/acme/dummy/1.0.0/linux_amd64/terraform-provider-dummy_v1.0.0");
    assert!(cached.exists());
}
