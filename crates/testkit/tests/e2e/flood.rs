//! Much at once.

use std::time::Duration;

use bytes::Bytes;
use converge_testkit::{Plane, Worker, wait};
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_resources_applied_at_once_converge() {
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    let _worker = Worker::start(&plane, "stdshell", 16).await;
    let mut applies = JoinSet::new();
    for at in 0..1_000 {
        let client = plane.client.clone();
        applies.spawn(async move {
            let body = serde_json::json!({"kind": "stdshell", "name": format!("r{at}"), "spec": {"script": ":"}});
            client.resource_apply(Bytes::from(body.to_string())).await.map(drop)
        });
    }
    while let Some(applied) = applies.join_next().await {
        applied.expect("no panic").expect("every apply is taken");
    }
    wait::until_within(
        "1,000 resources to be Ready",
        Duration::from_secs(120),
        || async {
            let summary = plane.client.object(&["resources", "summary"]).await.ok()?;
            let page = plane
                .client
                .page(
                    &["resources"],
                    &[("phase", "Ready"), ("kind", "stdshell"), ("limit", "500")],
                )
                .await
                .ok()?;
            let text = summary.value.get().replace(char::is_whitespace, "");
            (text.contains("1000") && page.items.len() == 500).then_some(())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_of_60_mib_travels_from_a_program_to_the_api() {
    const SIZE: usize = 60 << 20;
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdio").await;
    let script = format!(
        r#"cat >/dev/null; printf '{{"status":{{"big":"'; head -c {SIZE} /dev/zero | tr '\0' x; printf '"}}}}'"#
    );
    let config = serde_json::json!({
        "name": "big", "kind": "stdio", "is_default": true, "spec": {"command": "bash", "args": ["-c", script]},
    });
    let applied = plane
        .client
        .providerconfig_apply(Bytes::from(config.to_string()), false)
        .await;
    applied
        .map(drop)
        .unwrap_or_else(|error| panic!("the config is refused: {error}"));
    let _worker = Worker::start(&plane, "stdio", 1).await;
    plane.apply("stdio", "big", serde_json::json!({})).await;
    let done = plane.wait_for("stdio", "big", "Ready").await;
    assert_eq!(done["status"]["big"].as_str().map(str::len), Some(SIZE));
}
