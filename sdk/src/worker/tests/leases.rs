//! Claims: heartbeats, lost leases, lost streams, results that wait.

use super::*;
use crate::testing::Relay;
use crate::{LeaseState, Outcome, TaskContext, TaskError};

/// A provider whose handlers wait until they are told to go on.
fn waiting(notes: &Notes, release: &CancellationToken) -> FnProvider {
    let (notes, release) = (notes.clone(), release.clone());
    FnProvider::new(demo(), move |ctx, request| {
        let (notes, release) = (notes.clone(), release.clone());
        async move {
            notes.add(format!(
                "start {} {}",
                request.resource.name,
                ctx.claim_epoch()
            ));
            tokio::select! {
                () = release.cancelled() => {}
                reason = ctx.cancelled() => {
                    notes.add(format!("cancelled {:?} {:?}", reason, ctx.lease()));
                    return Err(TaskError::terminal("cut"));
                }
            }
            Ok(Outcome::new().with_status(json!({"epoch": ctx.claim_epoch()})))
        }
    })
}

#[tokio::test]
async fn heartbeats_keep_the_claims_of_running_and_of_waiting_tasks() {
    let lease = Duration::from_millis(600);
    let broker = broker_with(|options| options.lease = lease).await;
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let mut options = options(&broker.addr());
    options.max_parallel = 2;
    let worker = start(options, vec![Arc::new(waiting(&notes, &release))]);
    for name in ["a", "b"] {
        broker.apply(&demo(), name, empty());
        assert_eq!(notes.next().await, format!("start {name} 1"));
    }
    let seen = broker.heartbeats();
    let started = Instant::now();
    until("two leases pass", || {
        started.elapsed() > lease * 2 && broker.heartbeats() > seen + 3
    })
    .await;
    release.cancel();
    broker
        .until(LIMIT, "both land", |broker| {
            is_synced(broker, "a") && is_synced(broker, "b")
        })
        .await;
    for name in ["a", "b"] {
        assert_eq!(broker.job(&demo(), name).unwrap().lost, 0);
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_newer_claim_cancels_the_older_handler_and_starts_when_it_has_ended() {
    let broker = broker().await;
    let (notes, cleaned) = (Notes::default(), CancellationToken::new());
    let (said, go) = (notes.clone(), cleaned.clone());
    let provider = FnProvider::new(demo(), move |ctx, _| {
        let (said, go) = (said.clone(), go.clone());
        async move {
            said.add(format!("start {}", ctx.claim_epoch()));
            if ctx.claim_epoch() == 1 {
                let reason = ctx.cancelled().await;
                said.add(format!("cancelled {reason:?} {:?}", ctx.lease()));
                go.cancelled().await;
                said.add("end 1");
                return Err(TaskError::terminal("cut"));
            }
            Ok(Outcome::new().with_status(json!({"epoch": ctx.claim_epoch()})))
        }
    });
    let worker = start_one(&broker.addr(), provider);
    broker.apply(&demo(), "a", empty());
    assert_eq!(notes.next().await, "start 1");
    broker.steal(&demo(), "a");
    assert_eq!(notes.next().await, "cancelled LeaseLost Lost");
    let seen = broker.heartbeats();
    broker
        .until(LIMIT, "a while passes", |broker| {
            broker.heartbeats() > seen + 2
        })
        .await;
    assert!(
        broker.job(&demo(), "a").unwrap().is_claimed && notes.is_empty(),
        "the newer waits"
    );
    cleaned.cancel();
    assert_eq!(notes.next().await, "end 1");
    assert_eq!(notes.next().await, "start 2");
    broker
        .until(LIMIT, "the newer lands", |broker| is_synced(broker, "a"))
        .await;
    assert_eq!(broker.fenced(), 1, "the older result changed nothing");
    let status = broker.look(&demo(), "a").unwrap().status.unwrap();
    assert_eq!(status.as_str(), Some(r#"{"epoch":2}"#));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_lost_stream_cancels_nothing_and_the_result_waits_for_the_next() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let worker = start_one(&relay.addr(), waiting(&notes, &release));
    broker.apply(&demo(), "a", empty());
    assert_eq!(notes.next().await, "start a 1");
    relay.cut();
    // It dials again only once it knows that the stream is lost.
    until("it dials again", || relay.connections() > 1).await;
    relay.down();
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    release.cancel();
    relay.up();
    broker
        .until(LIMIT, "the result lands", |broker| is_synced(broker, "a"))
        .await;
    assert_eq!(broker.job(&demo(), "a").unwrap().epoch, 1);
    assert!(notes.is_empty());
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_sent_result_is_sent_again_on_the_next_stream_and_forgotten_after_a_lease() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let provider = FnProvider::new(demo(), async |_, _| Ok(Outcome::new()));
    let mut options = options(&relay.addr());
    options.lease = Duration::from_millis(300);
    let worker = start(options, vec![Arc::new(provider)]);
    broker.apply(&demo(), "a", empty());
    broker
        .until(LIMIT, "it lands", |broker| is_synced(broker, "a"))
        .await;
    relay.cut();
    broker
        .until(LIMIT, "the repeat is fenced", |broker| broker.fenced() == 1)
        .await;
    let seen = broker.heartbeats();
    let up = Instant::now();
    until("a lease passes", || {
        up.elapsed() > Duration::from_millis(500) && broker.heartbeats() > seen + 5
    })
    .await;
    relay.cut();
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    broker.apply(&demo(), "b", empty());
    broker
        .until(LIMIT, "the next lands", |broker| is_synced(broker, "b"))
        .await;
    assert_eq!(broker.fenced(), 1, "it was not sent a third time");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn results_that_find_no_room_keep_their_slots_and_none_is_lost() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let (notes, release) = (Notes::default(), CancellationToken::new());
    let mut options = options(&relay.addr());
    options.max_parallel = 4;
    options.result_buffer = 4;
    // Two results of this size fill the buffer.
    options.result_buffer_bytes = 100;
    let worker = start(options, vec![Arc::new(waiting(&notes, &release))]);
    for name in ["a", "b", "c", "d"] {
        broker.apply(&demo(), name, empty());
    }
    for _ in 0..4 {
        notes.next().await;
    }
    relay.down();
    broker
        .until(LIMIT, "the stream is gone", |broker| broker.sessions() == 0)
        .await;
    release.cancel();
    relay.up();
    broker
        .until(LIMIT, "all land", |broker| {
            ["a", "b", "c", "d"]
                .iter()
                .all(|name| is_synced(broker, name))
        })
        .await;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(broker.job(&demo(), name).unwrap().epoch, 1, "{name}");
    }
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_is_uncertain_after_one_lease_without_a_stream_and_held_again_after() {
    let broker = broker().await;
    let relay = Relay::to(&broker.addr()).await.unwrap();
    let context: Arc<Mutex<Option<TaskContext>>> = Arc::default();
    let kept = Arc::clone(&context);
    let release = CancellationToken::new();
    let go = release.clone();
    let provider = FnProvider::new(demo(), move |ctx, _| {
        *kept.lock().unwrap() = Some(ctx);
        let go = go.clone();
        async move {
            go.cancelled().await;
            Ok(Outcome::new())
        }
    });
    let mut options = options(&relay.addr());
    options.lease = Duration::from_millis(200);
    let worker = start(options, vec![Arc::new(provider)]);
    broker.apply(&demo(), "a", empty());
    until("it starts", || context.lock().unwrap().is_some()).await;
    let ctx = context.lock().unwrap().clone().unwrap();
    assert_eq!(ctx.lease(), LeaseState::Held);
    let down = Instant::now();
    relay.down();
    until("it is uncertain", || ctx.lease() == LeaseState::Uncertain).await;
    assert!(down.elapsed() >= Duration::from_millis(200));
    relay.up();
    until("it is held again", || ctx.lease() == LeaseState::Held).await;
    release.cancel();
    broker
        .until(LIMIT, "it lands", |broker| is_synced(broker, "a"))
        .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_accepts_and_says_nothing_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = format!("http://{}", silent.local_addr().unwrap());
    let mut options = options(&addr);
    options.connect_timeout = Duration::from_millis(50);
    let worker = start(
        options,
        vec![Arc::new(FnProvider::new(demo(), async |_, _| {
            Ok(Outcome::new())
        }))],
    );
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(
            tokio::time::timeout(LIMIT, silent.accept())
                .await
                .expect("it dials again")
                .unwrap(),
        );
    }
    let started = Instant::now();
    worker.stop().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "with nothing to deliver it ends at once"
    );
}
