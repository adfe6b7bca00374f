//! Looking whether the world still is what was applied.

use serde_json::json;

use crate::support::{Bench, ready, status};

#[tokio::test]
async fn drift_is_reported_and_applied_when_asked() {
    let bench = Bench::new();
    let provider = bench.provider();
    let world = bench.path().join("world");
    std::fs::write(&world, "one").unwrap();
    let main = format!(
        "resource \"terraform_data\" \"world\" {{\n  input = file(\"{}\")\n}}\noutput \"world\" {{\n  value = terraform_data.world.output\n}}\n",
        world.display()
    );
    let source = bench.module("world", &[("main.tf", &main)]);
    let job = bench.job(&source, json!({}));
    let applied = job.work(&provider).await.unwrap();
    let job = job.after(&applied).drift();

    let same = job.work(&provider).await.unwrap();
    assert_eq!(
        (ready(&same).reason.as_str(), ready(&same).message.as_str()),
        ("Applied", "no drift")
    );

    std::fs::write(&world, "two").unwrap();
    let drifted = job.work(&provider).await.unwrap();
    assert_eq!(
        (
            ready(&drifted).reason.as_str(),
            ready(&drifted).message.as_str()
        ),
        ("Drifted", "terraform_data.world")
    );
    assert_eq!(ready(&drifted).status.as_str(), "False");
    assert_eq!(
        status(&drifted)["outputs"]["world"],
        "one",
        "a look changes nothing"
    );

    let fixed = job
        .with_config("drift", json!("apply"))
        .work(&provider)
        .await
        .unwrap();
    assert_eq!(
        (
            ready(&fixed).reason.as_str(),
            ready(&fixed).message.as_str()
        ),
        ("Applied", "0 added, 1 changed, 0 destroyed")
    );
    assert_eq!(status(&fixed)["outputs"]["world"], "two");
    bench.assert_clean();
}
