//! What the provider says before it runs anything.

use converge_sdk::{Provider as _, Stage};
use serde_json::{Value, json};

use crate::support::{Bench, Job};

#[tokio::test]
async fn without_a_config_it_waits_and_with_a_wrong_one_it_does_not() {
    let bench = Bench::new();
    let provider = bench.provider();
    let error = Job::apply(json!({"source": "s3://b/k.tar.gz"}), Value::Null)
        .work(&provider)
        .await
        .unwrap_err();
    assert!(
        !error.is_terminal() && error.message().contains("no providerconfig"),
        "{error}"
    );

    let error = Job::apply(
        json!({"source": "s3://b/k.tar.gz"}),
        json!({"backend": "etcd", "x": 1}),
    )
    .work(&provider)
    .await
    .unwrap_err();
    assert!(
        error.is_terminal()
            && error.message().contains("/backend")
            && error.message().contains("/x"),
        "{error}"
    );
}

#[tokio::test]
async fn a_wrong_spec_names_all_its_problems() {
    let bench = Bench::new();
    let job = bench
        .job("x", json!({}))
        .with_spec(json!({"source": "ftp://h/x", "vars": [], "tf_version": "new", "size": 1}));
    let error = job.work(&bench.provider()).await.unwrap_err();
    assert!(error.is_terminal());
    for part in ["/source", "/vars", "/tf_version", "/size"] {
        assert!(error.message().contains(part), "{part} in {error}");
    }
    assert_eq!(error.conditions()[0].reason, "SpecInvalid");
}

#[tokio::test]
async fn an_unknown_reaction_is_terminal() {
    let bench = Bench::new();
    for (stage, reaction) in [
        (Stage::Work, "teardown"),
        (Stage::Delete, "work"),
        (Stage::Compose, "work"),
        (Stage::Work, "rework"),
    ] {
        let mut job = bench.job("s3://b/k.tar.gz", json!({}));
        (job.stage, job.reaction) = (stage, reaction);
        assert!(job.work(&bench.provider()).await.unwrap_err().is_terminal());
    }
}

#[test]
fn it_serves_its_kind_and_asks_for_time_to_save_a_state() {
    let provider = Bench::new().provider();
    assert_eq!(
        (provider.kind().kind(), provider.kind().version()),
        ("stdterraform", 1)
    );
    assert!(provider.cleanup_grace().as_secs() >= 300);
}

#[test]
fn the_manifest_names_what_the_provider_answers() {
    let manifest: Value =
        serde_json::from_str(include_str!("../../stdterraform.kind.json")).unwrap();
    let reactions: Vec<_> = manifest["reactions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reaction| {
            (
                reaction["name"].as_str().unwrap(),
                reaction["trigger"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        reactions,
        [
            ("work", "specChange"),
            ("teardown", "deleteRequested"),
            ("drift", "resync")
        ]
    );
    assert_eq!(manifest["finalizer_name"], "converge.dev/stdterraform");
    assert_eq!(manifest["orphan_grace_secs"], 3600);
}
