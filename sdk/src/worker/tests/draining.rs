//! How a worker ends.

use super::*;
use crate::testing::Relay;
use crate::{Outcome, TaskError};

#[tokio::test]
async fn with_nothing_to_do_a_worker_ends_at_once() {
    let broker = broker().await;
    let worker = start_one(
        &broker.addr(),
        FnProvider::new(demo(), async |_, _| Ok(Outcome::new())),
    );
    broker
        .until(LIMIT, "the stream is up", |broker| broker.sessions() == 1)
        .await;
    let started = Instant::now();
    worker.stop().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
}

#[tokio::test]
async fn an_unreachable_broker_is_no_reason_not_to_end() {
    let worker = start_one(
        "127.0.0.1:1",
        FnProvider::new(demo(), async |_, _| Ok(Outcome::new())),
    );
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn running_tasks_finish_within_the_budget_and_no_new_ones_come() {
    let broker = broker().await;
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let (said, go) = (notes.clone(), release.clone());
    let provider = FnProvider::new(demo(), move |ctx, request| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(request.resource.name);
            go.cancelled().await;
            // A cut asks only, and the grace after it is long: a handler that does not look would succeed all the same.
            match ctx.cancel_reason() {
                None => Ok(Outcome::new()),
                Some(reason) => Err(TaskError::transient(format!("{reason:?}"))),
            }
        }
    });
    let mut worker = start_one(&broker.addr(), provider);
    broker.apply(&demo(), "a", empty());
    assert_eq!(notes.next().await, "a");
    worker.stop.cancel();
    broker
        .until(LIMIT, "it takes no more", |broker| {
            !broker.is_served(&demo())
        })
        .await;
    broker.apply(&demo(), "b", empty());
    release.cancel();
    worker.ended().await.unwrap();
    assert!(is_synced(&broker, "a"));
    assert_eq!(
        broker.job(&demo(), "b").unwrap().epoch,
        0,
        "it was not claimed"
    );
    assert_eq!(broker.job(&demo(), "a").unwrap().interrupted, 0);
}

#[tokio::test]
async fn what_outlives_the_budget_is_cut_and_given_back_without_an_attempt() {
    let broker = broker_with(|options| options.retry_after = Duration::from_secs(60)).await;
    let notes = Notes::default();
    let said = notes.clone();
    let provider = FnProvider::new(demo(), move |ctx, request| {
        let said = said.clone();
        async move {
            said.add(&*request.resource.name);
            ctx.cancelled().await;
            match &*request.resource.name {
                "fails" => Err(TaskError::terminal("half done").with_status(json!({"half": true}))),
                "succeeds" => Ok(Outcome::new()),
                "panics" => panic!("oh"),
                _ => std::future::pending().await,
            }
        }
    })
    .with_cleanup_grace(Duration::from_millis(50));
    let mut options = options(&broker.addr());
    options.drain_timeout = Duration::from_millis(50);
    let worker = start(options, vec![Arc::new(provider)]);
    for name in ["fails", "succeeds", "panics", "stubborn"] {
        broker.apply(&demo(), name, empty());
        assert_eq!(notes.next().await, name);
    }
    worker.stop().await.unwrap();
    let seen = |name: &str| {
        (
            broker.look(&demo(), name).unwrap(),
            broker.last(&demo(), name).unwrap(),
        )
    };
    let (look, last) = seen("fails");
    assert_eq!(look.attempts, 0);
    assert!(!last.terminal);
    assert_eq!(
        last.error_message,
        "interrupted: the worker is shutting down: half done"
    );
    assert_eq!(&last.status[..], br#"{"half":true}"#);
    assert!(seen("succeeds").0.is_synced());
    let (look, last) = seen("panics");
    assert!(look.is_failed, "a panic is the handler's own outcome");
    assert_eq!(last.error_message, "the handler panicked: oh");
    let (look, last) = seen("stubborn");
    assert_eq!(look.attempts, 0);
    assert!(
        last.error_message.starts_with("interrupted: "),
        "{}",
        last.error_message
    );
}

#[tokio::test]
async fn a_worker_redials_to_deliver_its_results_before_it_ends() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let (started, release) = (CancellationToken::new(), CancellationToken::new());
    let (said, go) = (started.clone(), release.clone());
    let provider = FnProvider::new(demo(), move |_, _| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.cancel();
            go.cancelled().await;
            Ok(Outcome::new())
        }
    });
    let mut worker = start_one(&relay.addr(), provider);
    broker.apply(&demo(), "a", empty());
    started.cancelled().await;
    relay.down();
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    worker.stop.cancel();
    release.cancel();
    relay.up();
    worker.ended().await.unwrap();
    assert!(is_synced(&broker, "a"));
}

#[tokio::test]
async fn what_cannot_be_delivered_within_the_budget_is_named() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let (started, release) = (CancellationToken::new(), CancellationToken::new());
    let (said, go) = (started.clone(), release.clone());
    let provider = FnProvider::new(demo(), move |_, _| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.cancel();
            go.cancelled().await;
            Ok(Outcome::new())
        }
    });
    let mut options = options(&relay.addr());
    options.drain_timeout = Duration::from_millis(200);
    let mut worker = start(options, vec![Arc::new(provider)]);
    broker.apply(&demo(), "a", empty());
    started.cancelled().await;
    relay.down();
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    let begun = Instant::now();
    worker.stop.cancel();
    release.cancel();
    match worker.ended().await {
        Err(WorkerError::Unsent { unsent }) => assert_eq!(unsent, ["demo/a (epoch 1)"]),
        other => panic!("{other:?}"),
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(200),
        "it tried until the budget was spent"
    );
}

#[tokio::test]
async fn dropping_the_worker_drops_its_handlers_and_releases_nothing() {
    struct OnDrop(CancellationToken);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.cancel();
        }
    }
    let broker = broker().await;
    let (started, dropped) = (CancellationToken::new(), CancellationToken::new());
    let (said, gone) = (started.clone(), dropped.clone());
    let provider = FnProvider::new(demo(), move |_, _| {
        let (said, guard) = (said.clone(), OnDrop(gone.clone()));
        async move {
            let _guard = guard;
            said.cancel();
            std::future::pending().await
        }
    });
    let worker = start_one(&broker.addr(), provider);
    broker.apply(&demo(), "a", empty());
    started.cancelled().await;
    drop(worker);
    tokio::time::timeout(LIMIT, dropped.cancelled())
        .await
        .expect("the handler is dropped");
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    assert!(
        broker.job(&demo(), "a").unwrap().is_claimed,
        "the claim stays until its lease runs out"
    );
}
