//! Handlers: parallelism, deadlines, panics, tasks that cannot be run.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::wire;
use crate::{CancelReason, Outcome, TaskError};

fn task_message(change: impl FnOnce(&mut wire::StageTask)) -> wire::WorkStreamServerMsg {
    let mut task = wire::StageTask {
        stage: 2,
        kind: "demo".to_owned(),
        kind_version: 1,
        resource_id: vec![7; 16].into(),
        lease_token: "raw".to_owned(),
        claim_epoch: 1,
        work_req: Some(wire::WorkRequest {
            resource: Some(wire::Resource {
                name: "raw".to_owned(),
                ..wire::Resource::default()
            }),
            ..wire::WorkRequest::default()
        }),
        ..wire::StageTask::default()
    };
    change(&mut task);
    wire::WorkStreamServerMsg {
        body: Some(wire::work_stream_server_msg::Body::Task(task)),
    }
}

#[tokio::test]
async fn at_most_max_parallel_handlers_run_and_all_tasks_end() {
    let broker = broker().await;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, max) = (Arc::clone(&running), Arc::clone(&most));
    let provider = FnProvider::new(demo(), move |_, _| {
        let (now, max) = (Arc::clone(&now), Arc::clone(&max));
        async move {
            max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Outcome::new())
        }
    });
    let mut options = options(&broker.addr());
    options.max_parallel = 3;
    let worker = start(options, vec![Arc::new(provider)]);
    for n in 0..100 {
        broker.apply(&demo(), &format!("r{n}"), empty());
    }
    broker
        .until(LIMIT, "all are synced", |broker| {
            (0..100).all(|n| is_synced(broker, &format!("r{n}")))
        })
        .await;
    assert!(most.load(Ordering::SeqCst) <= 3);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_panic_fails_its_task_terminally_with_its_message_and_nothing_else() {
    let broker = broker().await;
    let provider = FnProvider::new(demo(), async |_, request| {
        assert!(
            request.resource.name != "bad",
            "the reason of {}",
            request.resource.name
        );
        Ok(Outcome::new())
    });
    let worker = start_one(&broker.addr(), provider);
    broker.apply(&demo(), "bad", empty());
    broker.apply(&demo(), "good", empty());
    broker
        .until(LIMIT, "one fails, one is synced", |broker| {
            broker
                .look(&demo(), "bad")
                .is_some_and(|look| look.is_failed)
                && is_synced(broker, "good")
        })
        .await;
    let look = broker.look(&demo(), "bad").unwrap();
    assert_eq!(look.message, "the handler panicked: the reason of bad");
    assert_eq!(look.attempts, 0);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_deadline_cancels_the_handler_and_reports_a_transient_failure() {
    let broker = broker().await;
    let notes = Notes::default();
    let said = notes.clone();
    let provider = FnProvider::new(demo(), move |ctx, request| {
        let said = said.clone();
        async move {
            let stubborn = request.resource.name == "stubborn";
            assert!(ctx.deadline().is_some());
            let reason = ctx.cancelled().await;
            said.add(format!("{reason:?}"));
            if stubborn {
                std::future::pending::<()>().await;
            }
            Err(TaskError::terminal("stopped half way"))
        }
    })
    .with_cleanup_grace(Duration::from_millis(20));
    let worker = start_one(&broker.addr(), provider);
    until("the worker is there", || broker.is_served(&demo())).await;
    for (name, says) in [
        ("polite", "the task's deadline is over: stopped half way"),
        (
            "stubborn",
            "the task's deadline is over and the handler did not end within its cleanup grace",
        ),
    ] {
        let wire::WorkStreamServerMsg { body } = task_message(|task| task.task_deadline_ms = 30);
        let Some(wire::work_stream_server_msg::Body::Task(mut task)) = body else {
            unreachable!()
        };
        task.work_req
            .as_mut()
            .unwrap()
            .resource
            .as_mut()
            .unwrap()
            .name = name.to_owned();
        task.resource_id = vec![name.len() as u8; 16].into();
        broker.put(&demo(), name, task);
        assert_eq!(notes.next().await, format!("{:?}", CancelReason::Deadline));
        broker
            .until(LIMIT, "the attempt is counted", |broker| {
                broker
                    .look(&demo(), name)
                    .is_some_and(|look| look.attempts > 0)
            })
            .await;
        let last = broker.last(&demo(), name).unwrap();
        assert_eq!((last.terminal, last.failed_stage), (false, 2));
        assert_eq!(last.error_message, says);
    }
    drop(worker);
}

#[tokio::test]
async fn tasks_that_cannot_be_run_are_terminal_failures_and_the_worker_goes_on() {
    let broker = broker().await;
    let worker = start_one(
        &broker.addr(),
        FnProvider::new(demo(), async |_, _| Ok(Outcome::new())),
    );
    until("the worker is there", || broker.is_served(&demo())).await;
    type Change = fn(&mut wire::StageTask);
    let cases: [(&str, Change, &str); 5] = [
        (
            "unknown-stage",
            |task| task.stage = 77,
            "stage 77 is not known to this worker",
        ),
        (
            "no-stage",
            |task| task.stage = 0,
            "stage 0 is not known to this worker",
        ),
        (
            "no-request",
            |task| task.work_req = None,
            "the task lacks the request of stage work",
        ),
        (
            "other-request",
            |task| {
                task.work_req = None;
                task.delete_req = Some(wire::DeleteRequest::default());
            },
            "the task lacks the request of stage work",
        ),
        (
            "no-id",
            |task| task.resource_id = vec![1; 5].into(),
            "the task's resource_id is not a UUID of 16 bytes",
        ),
    ];
    for (name, change, says) in cases {
        let Some(wire::work_stream_server_msg::Body::Task(task)) = task_message(change).body else {
            unreachable!()
        };
        let stage = task.stage;
        broker.put(&demo(), name, task);
        broker
            .until(LIMIT, name, |broker| {
                broker
                    .look(&demo(), name)
                    .is_some_and(|look| look.is_failed)
            })
            .await;
        let last = broker.last(&demo(), name).unwrap();
        assert_eq!(
            (&*last.error_message, last.stage, last.failed_stage),
            (says, stage, stage),
            "{name}"
        );
    }
    // An empty message, a task of a pair that nobody serves here, a config of one: nothing happens.
    broker.send(wire::WorkStreamServerMsg::default());
    broker.send(task_message(|task| task.kind = "other".to_owned()));
    broker.send(wire::WorkStreamServerMsg {
        body: Some(wire::work_stream_server_msg::Body::Config(
            wire::ProviderConfigUpdate {
                kind: "other".to_owned(),
                ..wire::ProviderConfigUpdate::default()
            },
        )),
    });
    broker.apply(&demo(), "good", empty());
    broker
        .until(LIMIT, "the worker goes on", |broker| {
            is_synced(broker, "good")
        })
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn more_tasks_than_anyone_may_send_are_given_back() {
    let broker = broker().await;
    let notes = Notes::default();
    let release = CancellationToken::new();
    let (said, go) = (notes.clone(), release.clone());
    let provider = FnProvider::new(demo(), move |_, request| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(request.resource.name);
            go.cancelled().await;
            Ok(Outcome::new())
        }
    });
    let worker = start_one(&broker.addr(), provider);
    until("the worker is there", || broker.is_served(&demo())).await;
    for n in 0..1100_u16 {
        broker.send(task_message(|task| {
            task.lease_token = format!("raw-{n}");
            task.resource_id = [n.to_be_bytes(); 8].concat().into();
        }));
    }
    // Each answer is a result that the broker does not know: it counts them as fenced.
    broker
        .until(LIMIT, "what is too much is answered", |broker| {
            broker.fenced() == 1100 - 1024
        })
        .await;
    let mut started = 0;
    while started < 16 {
        notes.next().await;
        started += 1;
    }
    assert!(
        notes.is_empty(),
        "as many run as there are slots, whatever is sent"
    );
    release.cancel();
    broker
        .until(LIMIT, "the rest runs", |broker| broker.fenced() == 1100)
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_unready_pair_is_shed_and_its_tasks_wait_a_while() {
    let broker = broker().await;
    let ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let says = Arc::clone(&ready);
    let provider = FnProvider::new(demo(), async |_, _| Ok(Outcome::new()))
        .with_ready(move || says.load(Ordering::SeqCst));
    let mut options = options(&broker.addr());
    options.ready_wait = Duration::from_millis(50);
    let worker = start(options, vec![Arc::new(provider)]);
    broker
        .until(LIMIT, "the stream is up", |broker| broker.sessions() == 1)
        .await;
    broker
        .until(LIMIT, "the pair is shed", |broker| {
            !broker.is_served(&demo())
        })
        .await;
    // One that was under way already waits, and is given back.
    broker.send(task_message(|_| {}));
    broker
        .until(LIMIT, "it is given back", |broker| broker.fenced() == 1)
        .await;
    ready.store(true, Ordering::SeqCst);
    broker
        .until(LIMIT, "the pair is back", |broker| {
            broker.is_served(&demo())
        })
        .await;
    broker.apply(&demo(), "a", empty());
    broker
        .until(LIMIT, "it runs", |broker| is_synced(broker, "a"))
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn providers_that_cannot_be_served_are_refused_together() {
    let none = |kind: &str| -> Arc<dyn Provider> {
        Arc::new(FnProvider::new(KindVersion::new(kind, 1), async |_, _| {
            Ok(Outcome::new())
        }))
    };
    let mut options = options("127.0.0.1:1");
    options.kinds = Some(vec!["a".to_owned(), "missing".to_owned()]);
    let error = run_worker(
        vec![none("a"), none("a"), none("B")],
        options.clone(),
        std::future::pending(),
    )
    .await
    .unwrap_err()
    .to_string();
    for part in [
        "a/v1 is registered twice",
        "\"B\" is not valid",
        "WORKER_KINDS names \"missing\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
    options.kinds = None;
    let error = run_worker(vec![], options, std::future::pending())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no provider"), "{error}");
}
