//! Tests of `backend`.

use std::path::Path;

use super::*;

fn backend(config: &str, bundle: Option<&str>) -> StateBackend {
    let config = Config::parse(
        config.as_bytes(),
        bundle.map(str::as_bytes),
        Path::new("/data/states"),
    )
    .unwrap();
    StateBackend::of(&config, "stdterraform", "0190-uid")
}

#[test]
fn an_s3_backend_locks_with_a_lock_file_and_holds_no_credentials() {
    let s3 = backend(r#"{"s3":{"bucket":"b","region":"eu-west-1"}}"#, None);
    let body: Value = serde_json::from_str(&s3.text).unwrap();
    assert_eq!(
        body,
        json!({"terraform":[{"backend":{"s3":{"bucket":"b","key":"terraform/stdterraform/0190-uid.tfstate","region":"eu-west-1","use_lockfile":true}}}]})
    );
    let s3 = backend(
        r#"{"s3":{"bucket":"b","endpoint":"http://127.0.0.1:9"}}"#,
        None,
    );
    let body: Value = serde_json::from_str(&s3.text).unwrap();
    let s3 = &body["terraform"][0]["backend"]["s3"];
    assert_eq!(
        (&s3["use_path_style"], &s3["region"]),
        (&json!(true), &json!("us-east-1"))
    );
    assert_eq!(s3["endpoints"], json!({"s3":"http://127.0.0.1:9"}));
}

#[test]
fn the_other_backends_get_their_own_names() {
    let azure = backend(
        r#"{"backend":"azurerm","azurerm":{"storage_account":"acct","container":"c","resource_group":"g","use_azuread_auth":true}}"#,
        None,
    );
    let body: Value = serde_json::from_str(&azure.text).unwrap();
    assert_eq!(
        body["terraform"][0]["backend"]["azurerm"],
        json!({"storage_account_name":"acct","container_name":"c","resource_group_name":"g","use_azuread_auth":true,"key":"terraform/stdterraform/0190-uid.tfstate"})
    );
    let gcs = backend(
        r#"{"backend":"gcs","gcs":{"bucket":"b"},"state_prefix":"p-"}"#,
        None,
    );
    let body: Value = serde_json::from_str(&gcs.text).unwrap();
    assert_eq!(
        body["terraform"][0]["backend"]["gcs"],
        json!({"bucket":"b","prefix":"p-stdterraform/0190-uid"})
    );
    let local = backend(r#"{"backend":"local","local":{"path":"/s"}}"#, None);
    assert_eq!(
        local.place.key,
        "/s/terraform/stdterraform/0190-uid.tfstate"
    );
}

#[test]
fn a_raw_file_must_hold_the_key_and_one_backend() {
    for bad in [
        "terraform { backend \"pg\" {} }",
        "__CONVERGE_STATE_KEY__",
        "terraform { cloud { workspaces { name = \"__CONVERGE_STATE_KEY__\" } } }",
        "terraform {\n backend \"a\" {}\n backend \"b\" { key = \"__CONVERGE_STATE_KEY__\" }\n}",
        "{\"terraform\":{\"backend\":{\"a\":{},\"b\":{\"k\":\"__CONVERGE_STATE_KEY__\"}}}}",
        "{ not json __CONVERGE_STATE_KEY__",
    ] {
        assert!(RawBackend::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(RawBackend::parse(&[0xff, 0xfe]).is_err());
}

#[test]
fn a_raw_file_is_used_as_it_stands_with_the_key_put_in() {
    let text = "# ours\nterraform {\n  backend \"s3\" {\n    bucket = \"b\"\n    key = \"x/__CONVERGE_STATE_KEY__\"\n    secret_key = \"hunter2-key\"\n    endpoints = { s3 = \"http://h\" }\n  }\n}\n";
    let raw = backend("{}", Some(text));
    assert_eq!(raw.suffix, ".tf");
    assert!(
        raw.text
            .contains("key = \"x/terraform/stdterraform/0190-uid.tfstate\"")
    );
    assert_eq!(raw.place.setting("bucket"), Some("b"));
    assert_eq!(raw.place.setting("endpoint"), Some("http://h"));
    assert!(!raw.place.to_json().to_string().contains("hunter2"));
    let secrets = RawBackend::parse(text.as_bytes()).unwrap().secrets();
    assert!(secrets.redactor().finds("hunter2-key"));
    assert!(StateBackend::recorded(&raw.place).is_err());
}

#[test]
fn the_check_after_init_fails_closed() {
    let s3 = backend(r#"{"s3":{"bucket":"b"}}"#, None);
    let written = |kind: &str, bucket: &str, key: &str| {
        json!({"version":3,"backend":{"type":kind,"config":{"bucket":bucket,"key":key}}})
            .to_string()
    };
    let key = "terraform/stdterraform/0190-uid.tfstate";
    assert_eq!(s3.check_effective(Some(&written("s3", "b", key))), Ok(()));
    for bad in [
        None,
        Some("{}".to_owned()),
        Some("garbage".to_owned()),
        Some(written("local", "b", key)),
        Some(written("s3", "c", key)),
        Some(written("s3", "b", "other")),
    ] {
        assert!(s3.check_effective(bad.as_deref()).is_err(), "{bad:?}");
    }
    let raw = backend(
        "{}",
        Some("terraform {\n backend \"http\" { address = \"http://h/__CONVERGE_STATE_KEY__\" }\n}"),
    );
    let good = json!({"backend":{"type":"http","config":{"address":format!("http://h/{key}")}}})
        .to_string();
    assert_eq!(raw.check_effective(Some(&good)), Ok(()));
    let other =
        json!({"backend":{"type":"http","config":{"address":"http://h/other"}}}).to_string();
    assert!(raw.check_effective(Some(&other)).is_err());
}

#[test]
fn our_override_sorts_last() {
    for overrides in [
        vec![],
        vec!["override.tf"],
        vec!["zzzzz_override.tf", "a_override.tf.json"],
        vec!["~~zz_override.tf"],
    ] {
        let overrides: Vec<_> = overrides.into_iter().map(str::to_owned).collect();
        let name = override_name(&overrides, ".tf.json");
        assert!(
            overrides.iter().all(|other| *other < name),
            "{name} {overrides:?}"
        );
        assert!(name.ends_with("_override.tf.json"));
    }
}
