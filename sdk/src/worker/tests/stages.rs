//! What a provider sees of each stage, and what lanes tasks keep to.

use super::*;
use crate::wire;
use crate::{Outcome, ReactionRequest, Stage, Transition};

fn resource(name: &str) -> wire::Resource {
    wire::Resource {
        id: vec![9; 16].into(),
        kind: "demo".to_owned(),
        name: name.to_owned(),
        spec: bytes::Bytes::from_static(br#"{"n": 1.0}"#),
        status: bytes::Bytes::from_static(br#"{"old": 1}"#),
        owner_id: vec![8; 16].into(),
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ..wire::Resource::default()
    }
}

fn task(stage: wire::Stage, name: &str) -> wire::StageTask {
    let mut task = wire::StageTask {
        stage: stage.into(),
        kind: "demo".to_owned(),
        resource_id: vec![9; 16].into(),
        reaction: "r".to_owned(),
        ..wire::StageTask::default()
    };
    let subject = Some(resource(name));
    let status = bytes::Bytes::from_static(br#"{"so": "far"}"#);
    match stage {
        wire::Stage::Unspecified => {}
        wire::Stage::Compose => {
            task.compose_req = Some(wire::ComposeRequest {
                root: subject,
                observed: vec![resource("child")],
                ..wire::ComposeRequest::default()
            });
        }
        wire::Stage::Work => {
            task.work_req = Some(wire::WorkRequest {
                resource: subject,
                status,
            });
        }
        wire::Stage::Rollup => {
            task.rollup_req = Some(wire::RollupRequest {
                root: subject,
                descendants: vec![resource("below")],
                status,
            });
        }
        wire::Stage::Delete => task.delete_req = Some(wire::DeleteRequest { resource: subject }),
        wire::Stage::Operate => {
            task.operate_req = Some(wire::OperateRequest {
                resource: subject,
                operation: Some(wire::Operation {
                    verb: "restart".to_owned(),
                    input: bytes::Bytes::from_static(b"[1]"),
                    attempts: 2,
                    requested_by: "ann".to_owned(),
                    ..wire::Operation::default()
                }),
            });
        }
        wire::Stage::React => {
            task.react_req = Some(wire::ReactRequest {
                resource: subject,
                transition: wire::Transition::Degraded.into(),
                dedup_token: format!("binding/{name}/1"),
            });
        }
    }
    task
}

const STAGES: [(wire::Stage, Stage, &str); 6] = [
    (wire::Stage::Compose, Stage::Compose, "specChange"),
    (wire::Stage::Work, Stage::Work, "specChange"),
    (wire::Stage::Rollup, Stage::Rollup, "childrenSettled"),
    (wire::Stage::Delete, Stage::Delete, "deleteRequested"),
    (wire::Stage::Operate, Stage::Operate, "operation"),
    (wire::Stage::React, Stage::React, "reactor"),
];

#[tokio::test]
async fn each_stage_brings_its_request() {
    let broker = broker().await;
    let seen: Arc<Mutex<Vec<ReactionRequest>>> = Arc::default();
    let keep = Arc::clone(&seen);
    let provider = FnProvider::new(demo(), move |_, request| {
        keep.lock().unwrap().push(request);
        async { Ok(Outcome::new()) }
    });
    let worker = start_one(&broker.addr(), provider);
    for (at, (number, stage, trigger)) in STAGES.into_iter().enumerate() {
        broker.put(&demo(), stage.as_str(), task(number, stage.as_str()));
        broker
            .until(LIMIT, stage.as_str(), |broker| {
                is_synced(broker, stage.as_str())
            })
            .await;
        let request = seen.lock().unwrap()[at].clone();
        assert_eq!((request.stage, request.trigger.as_str()), (stage, trigger));
        assert_eq!((&*request.reaction, request.generation), ("r", 1));
        assert_eq!(request.kind_version, demo(), "a missing version means 1");
        assert_eq!(request.resource.name, stage.as_str());
        assert_eq!(
            request.resource.spec.as_str(),
            Some(r#"{"n": 1.0}"#),
            "verbatim"
        );
        assert_eq!(
            request.resource.uid.to_string(),
            "09090909-0909-0909-0909-090909090909"
        );
        assert!(request.resource.owner.is_some() && request.resource.root.is_none());
        assert_eq!(request.resource.labels["a"], "b");
        let status = request.status.as_ref().and_then(crate::Json::as_str);
        let expected = if matches!(stage, Stage::Work | Stage::Rollup) {
            r#"{"so": "far"}"#
        } else {
            r#"{"old": 1}"#
        };
        assert_eq!(status, Some(expected));
        assert_eq!(request.observed.len(), usize::from(stage == Stage::Compose));
        assert_eq!(
            request.descendants.len(),
            usize::from(stage == Stage::Rollup)
        );
        let operation = request
            .operation
            .map(|operation| (operation.verb, operation.attempts, operation.requested_by));
        let expected =
            (stage == Stage::Operate).then(|| ("restart".to_owned(), 2, "ann".to_owned()));
        assert_eq!(operation, expected);
        assert_eq!(
            request.transition,
            (stage == Stage::React).then_some(Transition::Degraded)
        );
        assert_eq!(request.dedup_token.is_some(), stage == Stage::React);
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn deliveries_to_reactors_overtake_nothing_and_run_beside_work() {
    let broker = broker().await;
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let (said, go) = (notes.clone(), release.clone());
    let provider = FnProvider::new(demo(), move |ctx, request| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(request.resource.name);
            tokio::select! {
                () = go.cancelled() => Ok(Outcome::new()),
                reason = ctx.cancelled() => panic!("cancelled: {reason:?}"),
            }
        }
    });
    let worker = start_one(&broker.addr(), provider);
    // The same resource, with epochs of their own.
    for (stage, name) in [
        (wire::Stage::Work, "work"),
        (wire::Stage::React, "one"),
        (wire::Stage::React, "two"),
    ] {
        broker.put(&demo(), name, task(stage, name));
        assert_eq!(notes.next().await, name, "it starts beside the others");
    }
    release.cancel();
    broker
        .until(LIMIT, "all land", |broker| {
            ["work", "one", "two"]
                .iter()
                .all(|name| is_synced(broker, name))
        })
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_resource_s_override_is_merged_over_the_default() {
    let broker = broker().await;
    let default = json!({"a": {"x": 1, "y": 2}, "b": 3});
    broker.set_config(
        &demo(),
        crate::ProviderConfig::new()
            .with_spec(default)
            .with_bundle(&b"default"[..]),
    );
    let notes = Notes::default();
    let said = notes.clone();
    let provider = FnProvider::new(demo(), move |ctx, _| {
        let bundle = String::from_utf8_lossy(ctx.bundle().unwrap()).into_owned();
        said.add(format!(
            "{} {bundle}",
            ctx.effective_config().unwrap().as_str().unwrap()
        ));
        async { Ok(Outcome::new()) }
    });
    let worker = start_one(&broker.addr(), provider);
    let mut overridden = task(wire::Stage::Work, "a");
    overridden.provider_config = bytes::Bytes::from_static(br#"{"a":{"y":null},"c":4}"#);
    overridden.provider_bundle = bytes::Bytes::from_static(b"override");
    broker.put(&demo(), "a", overridden);
    assert_eq!(notes.next().await, r#"{"a":{"x":1},"b":3,"c":4} override"#);
    worker.stop().await.unwrap();
}
