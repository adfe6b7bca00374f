//! What a session sends, seen in its outbox.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::world::{World, leaf};
use futures::StreamExt as _;
use http_body::Frame;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::codec::Codec as _;

use super::*;
use crate::{Broker, Options};

/// A config as `config TEXT`, a task as `task NAME`.
fn sent(outbox: &Outbox) -> Vec<String> {
    let mut stream = outbox.stream();
    let mut words = Vec::new();
    while let Some(Some(Ok(message))) = stream.next().now_or_never() {
        words.push(match message.body {
            Some(Out::Config(config)) => {
                format!("config {}", String::from_utf8_lossy(&config.config))
            }
            Some(Out::Task(task)) => {
                let resource = task.work_req.and_then(|request| request.resource);
                format!("task {}", resource.unwrap_or_default().name)
            }
            None => "nothing".to_owned(),
        });
    }
    words
}

#[tokio::test]
async fn the_config_a_task_was_claimed_under_goes_before_it_although_nobody_has_told_of_the_edit() {
    let clock = ManualClock::at(1_700_000_000_000);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let world = World::on(store.clone(), clock);
    world.manifest(&leaf("demo")).await;
    let broker = Broker::new(store, Options::default());
    let outbox = Outbox::default();
    let subscribe = Subscribe {
        kinds: vec!["demo".to_owned()],
        kind_versions: vec![1],
        max_inflight: 4,
        resumed: Vec::new(),
    };
    let activity = Activity::new();
    let mut session = Session::new(
        broker.shared(),
        1,
        "worker".to_owned(),
        outbox.clone(),
        activity,
        subscribe,
    );
    session.push_configs().await.unwrap();
    assert_eq!(sent(&outbox), ["config "]);
    // The edit is committed while a claim is under way, so the session sees the task before it hears of the edit.
    world.config("c", "demo", true, r#"{"n":1}"#).await.unwrap();
    for name in ["demo/a", "demo/b"] {
        world.apply(name, "{}").await;
    }
    let tasks = world.claim("worker", &["demo"], 2).await;
    session.send(tasks).await.unwrap();
    assert_eq!(
        sent(&outbox),
        [r#"config {"n":1}"#, "task a", "task b"],
        "once, and first"
    );
}

/// What a worker sends, as the body of its request.
struct Upstream(mpsc::Receiver<In>);

impl http_body::Body for Upstream {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.0.poll_recv(cx).map(|body| {
            let message = WorkStreamClientMsg { body: Some(body?) }.encode_to_vec();
            let mut frame = BytesMut::new();
            frame.put_u8(0);
            frame.put_u32(u32::try_from(message.len()).unwrap());
            frame.extend_from_slice(&message);
            Some(Ok(Frame::data(frame.freeze())))
        })
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

/// A stream of `demo`, whose worker has four slots.
fn start(broker: &Broker, outbox: &Outbox) -> (mpsc::Sender<In>, tokio::task::JoinSet<()>) {
    let (upstream, sent_up) = mpsc::channel(8);
    let decoder = tonic_prost::ProstCodec::<(), WorkStreamClientMsg>::default().decoder();
    let inbound = Streaming::new_request(decoder, Upstream(sent_up), None, None);
    let (broker, outbox) = (broker.clone(), outbox.clone());
    let mut session = tokio::task::JoinSet::new();
    session.spawn(async move {
        let activity = Activity::new();
        let name = "worker".to_owned();
        run(broker.shared(), 1, name, inbound, outbox, activity).await;
    });
    let subscribe = In::Subscribe(Subscribe {
        kinds: vec!["demo".to_owned()],
        kind_versions: vec![1],
        max_inflight: 4,
        resumed: Vec::new(),
    });
    upstream.try_send(subscribe).unwrap();
    (upstream, session)
}

fn success(task: crate::generated::StageTask) -> In {
    In::Complete(crate::generated::StageComplete {
        lease_token: task.lease_token,
        claim_epoch: task.claim_epoch,
        stage: task.stage,
        status: Bytes::from_static(b"{}"),
        ..Default::default()
    })
}

/// A worker with nothing to do has a claim with the store, for as long as it may have one.
#[tokio::test]
async fn a_claim_stands_while_there_is_nothing_to_do_and_goes_when_none_may_be_made() {
    let clock = ManualClock::at(1_700_000_000_000);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let world = World::on(store.clone(), clock);
    world.manifest(&leaf("demo")).await;
    let broker = Broker::new(store.clone(), Options::default());
    let outbox = Outbox::default();
    let (upstream, mut session) = start(&broker, &outbox);
    let send = |body| upstream.try_send(body).unwrap();
    let mut down = outbox.stream();
    let mut next = async || down.next().await.unwrap().unwrap().body.unwrap();
    until("a claim stands", || store.standing() == 1).await;

    // It is carried out with the apply, and while the task is out none stands.
    world.apply("demo/a", "{}").await;
    assert!(world.view("demo/a").await.row.claim.is_some());
    assert!(matches!(next().await, Out::Config(_)));
    let Out::Task(task) = next().await else {
        panic!("no task")
    };
    assert_eq!(store.standing(), 0);
    send(success(task));
    until("a claim stands again", || store.standing() == 1).await;

    // A pair that has no worker for now is not claimed, another word and it is.
    let interest = |has_worker| {
        In::Interest(Interest {
            kind: "demo".to_owned(),
            kind_version: 1,
            has_worker,
            credit: 0,
        })
    };
    send(interest(false));
    until("it is taken back", || store.standing() == 0).await;
    world.apply("demo/b", "{}").await;
    assert!(world.view("demo/b").await.row.claim.is_none());
    send(interest(true));
    let Out::Task(task) = next().await else {
        panic!("no task")
    };
    send(success(task));
    until("a claim stands again", || store.standing() == 1).await;

    // Nor is anything claimed once claims are held.
    broker.hold_claims();
    until("it is taken back", || store.standing() == 0).await;
    world.apply("demo/c", "{}").await;
    assert!(world.view("demo/c").await.row.claim.is_none());
    drop(upstream);
    tokio::time::timeout(Duration::from_secs(10), session.join_next())
        .await
        .expect("the session ends with its stream")
        .unwrap()
        .unwrap();
}

/// What becomes claimable goes to a worker that is there, if there is one.
#[tokio::test]
async fn no_claim_stands_for_a_worker_that_is_silent() {
    let clock = ManualClock::at(1_700_000_000_000);
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let world = World::on(store.clone(), clock);
    world.manifest(&leaf("demo")).await;
    let options = Options {
        // Silent after a second: a machine that stands still for a moment is none.
        lease: Duration::from_secs(4),
        ..Options::default()
    };
    let broker = Broker::new(store.clone(), options);
    let (upstream, _session) = start(&broker, &Outbox::default());
    until("a claim stands", || store.standing() == 1).await;
    until("nothing was heard for long", || store.standing() == 0).await;
    upstream
        .try_send(In::Heartbeat(WorkHeartbeat::default()))
        .unwrap();
    until("it is there again", || store.standing() == 1).await;
}
