//! Much at once.

use std::time::{Duration, Instant};

use bytes::Bytes;
use converge_sdk::testing::Relay;
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

/// A worker cannot send a heartbeat while it sends a result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_takes_longer_than_a_lease_to_arrive_is_not_lost() {
    const SIZE: u32 = 12 << 20;
    let lease = Duration::from_secs(2);
    let plane = Plane::start(lease).await;
    plane.kind("stdio").await;
    let config = program_of_size(SIZE);
    let applied = plane.client.providerconfig_apply(config, false).await;
    applied
        .map(drop)
        .unwrap_or_else(|error| panic!("the config is refused: {error}"));
    let relay = Relay::to(&plane.broker).await.expect("a port is free");
    let dials = relay.addr();
    let _worker = Worker::start_with(&plane, "stdio", 1, &[("BROKER_ADDR", &dials)]).await;
    relay.slow(SIZE / 6);
    let began = Instant::now();
    plane.apply("stdio", "big", serde_json::json!({})).await;
    let done = plane.wait_for("stdio", "big", "Ready").await;
    assert!(began.elapsed() > lease * 2, "it was slow enough to matter");
    assert_eq!(
        done["status"]["big"].as_str().map(str::len),
        Some(SIZE as usize)
    );
    let events = plane.events("stdio", "big").await;
    assert!(
        events.iter().all(|event| event["type"] != "leaseLost"),
        "{events:?}"
    );
}

/// A config of `stdio` whose program answers with a status of this many bytes.
fn program_of_size(bytes: u32) -> Bytes {
    let script = format!(
        r#"cat >/dev/null; printf '{{"status":{{"big":"'; head -c {bytes} /dev/zero | tr '\0' x; printf '"}}}}'"#
    );
    let config = serde_json::json!({
        "name": "big", "kind": "stdio", "is_default": true, "spec": {"command": "bash", "args": ["-c", script]},
    });
    Bytes::from(config.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_of_60_mib_travels_from_a_program_to_the_api() {
    const SIZE: u32 = 60 << 20;
    let plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdio").await;
    let config = program_of_size(SIZE);
    let applied = plane.client.providerconfig_apply(config, false).await;
    applied
        .map(drop)
        .unwrap_or_else(|error| panic!("the config is refused: {error}"));
    let _worker = Worker::start(&plane, "stdio", 1).await;
    plane.apply("stdio", "big", serde_json::json!({})).await;
    let done = plane.wait_for("stdio", "big", "Ready").await;
    assert_eq!(
        done["status"]["big"].as_str().map(str::len),
        Some(SIZE as usize)
    );
    // The next task brings it back down.
    plane
        .apply("stdio", "big", serde_json::json!({"again": true}))
        .await;
    let again = plane.wait_for("stdio", "big", "Ready").await;
    assert_eq!(again["synced_gen"], 2);
}
