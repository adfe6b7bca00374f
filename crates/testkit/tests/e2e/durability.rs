//! A control plane that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use converge_testkit::Plane;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completed_apply_survives_kill_minus_nine() {
    let mut plane = Plane::start(Duration::from_secs(10)).await;
    plane.kind("stdshell").await;
    for round in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let mut appliers = JoinSet::new();
        for applier in 0..8 {
            let (client, stop) = (plane.client.clone(), stop.clone());
            appliers.spawn(async move {
                let mut done = Vec::new();
                for at in 0.. {
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    let name = format!("r{round}-{applier}-{at}");
                    let body = serde_json::json!({"kind": "stdshell", "name": name, "spec": {"script": format!("echo {at}")}});
                    match client.resource_apply(Bytes::from(body.to_string())).await {
                        Ok(_) => done.push((name, at)),
                        Err(_) => break,
                    }
                }
                done
            });
        }
        // Killed while all of them write: not before a good number was answered.
        converge_testkit::wait::until("applies to be under way", || async {
            let page = plane
                .client
                .page(
                    &["resources"],
                    &[("name", &format!("r{round}-")), ("limit", "500")],
                )
                .await
                .ok()?;
            (page.items.len() >= 40).then_some(())
        })
        .await;
        plane = plane.kill_and_restart().await;
        stop.store(true, Ordering::Release);
        let mut completed = 0;
        while let Some(done) = appliers.join_next().await {
            for (name, at) in done.expect("no panic") {
                let resource = plane.resource("stdshell", &name).await;
                let resource =
                    resource.unwrap_or_else(|| panic!("{name} was answered and is gone"));
                assert_eq!(resource["spec"]["script"], format!("echo {at}"));
                completed += 1;
            }
        }
        assert!(
            completed >= 40,
            "only {completed} applies were under way when it was killed"
        );
    }
    assert_eq!(plane.stop().await, Some(0), "it ends in order when asked");
}
