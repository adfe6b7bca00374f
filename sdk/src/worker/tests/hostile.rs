//! A broker that sends what none would: the worker must live, and serve the next one that behaves.

use bytes::Bytes;
use fastrand::Rng;
use prost::Message;
use tokio::io::AsyncWriteExt;

use super::frames::{Peer, config, listen, task};
use super::*;
use crate::wire::work_stream_client_msg::Body as Up;
use crate::wire::work_stream_server_msg::Body as Down;
use crate::{Json, Outcome, wire};

/// Connections that end badly, and what is sent on each.
const SESSIONS: usize = 120;
const MESSAGES: usize = 30;

fn seed() -> u64 {
    let given = std::env::var("HOSTILE_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HOSTILE_SEED={seed}");
    seed
}

fn noise(rng: &mut Rng, at_most: usize) -> Vec<u8> {
    let length = rng.usize(0..=at_most);
    std::iter::repeat_with(|| rng.u8(..)).take(length).collect()
}

fn text(rng: &mut Rng) -> String {
    let texts = ["", "a", "b", "work", "lease-1", "../x", "a\0b", "\u{FFFD}"];
    match rng.u8(0..4) {
        0 => String::from_utf8_lossy(&noise(rng, 30)).into_owned(),
        _ => texts[rng.usize(0..texts.len())].to_owned(),
    }
}

fn document(rng: &mut Rng) -> Bytes {
    let deep = "[".repeat(500);
    let texts = [
        "",
        "{}",
        "null",
        "[1]",
        "{\"a\":1,\"a\":{}}",
        "{\"n\":1e999999}",
        "{",
        &deep,
    ];
    match rng.u8(0..4) {
        0 => noise(rng, 60).into(),
        _ => texts[rng.usize(0..texts.len())].to_owned().into(),
    }
}

fn number(rng: &mut Rng) -> i64 {
    let edges = [0, 1, 2, -1, i64::MIN, i64::MAX, 1 << 40];
    match rng.u8(0..4) {
        0 => rng.i64(..),
        _ => edges[rng.usize(0..edges.len())],
    }
}

fn small(rng: &mut Rng) -> i32 {
    match rng.u8(0..4) {
        0 => rng.i32(..),
        _ => rng.i32(-1..8),
    }
}

fn resource(rng: &mut Rng) -> wire::Resource {
    wire::Resource {
        id: noise(rng, 20).into(),
        kind: text(rng),
        name: text(rng),
        owner_id: noise(rng, 20).into(),
        root_id: noise(rng, 20).into(),
        spec: document(rng),
        status: document(rng),
        generation: number(rng),
        synced_gen: number(rng),
        is_ready: rng.bool(),
        deletion_requested_at_ms: number(rng),
        frozen_until_ms: number(rng),
        labels: [(text(rng), text(rng))].into(),
        ..wire::Resource::default()
    }
}

fn resources(rng: &mut Rng) -> Vec<wire::Resource> {
    (0..rng.u8(0..4)).map(|_| resource(rng)).collect()
}

fn stage_task(rng: &mut Rng) -> wire::StageTask {
    let resource_of = |rng: &mut Rng| rng.bool().then(|| resource(rng));
    wire::StageTask {
        stage: small(rng),
        kind: "a".to_owned(),
        kind_version: if rng.bool() { 2 } else { small(rng) },
        resource_id: if rng.bool() {
            vec![rng.u8(0..4); 16].into()
        } else {
            noise(rng, 20).into()
        },
        generation: number(rng),
        reaction: text(rng),
        lease_token: text(rng),
        claim_epoch: number(rng),
        manifest_version: number(rng),
        provider_config: document(rng),
        provider_bundle: document(rng),
        task_deadline_ms: number(rng),
        compose_req: rng.bool().then(|| wire::ComposeRequest {
            root: resource_of(rng),
            observed: resources(rng),
            desired: vec![wire::ChildSpec {
                kind: text(rng),
                name: text(rng),
                spec: document(rng),
                kind_version: small(rng),
                ..wire::ChildSpec::default()
            }],
            edges: vec![wire::DepEdge::default()],
            configs: vec![wire::ProviderConfigSpec {
                spec: document(rng),
                kind_version: small(rng),
                ..wire::ProviderConfigSpec::default()
            }],
        }),
        work_req: rng.bool().then(|| wire::WorkRequest {
            resource: resource_of(rng),
            status: document(rng),
        }),
        rollup_req: rng.bool().then(|| wire::RollupRequest {
            root: resource_of(rng),
            descendants: resources(rng),
            status: document(rng),
        }),
        delete_req: rng.bool().then(|| wire::DeleteRequest {
            resource: resource_of(rng),
        }),
        operate_req: rng.bool().then(|| wire::OperateRequest {
            resource: resource_of(rng),
            operation: rng.bool().then(|| wire::Operation {
                verb: text(rng),
                input: document(rng),
                attempts: small(rng),
                ..wire::Operation::default()
            }),
        }),
        react_req: rng.bool().then(|| wire::ReactRequest {
            resource: resource_of(rng),
            transition: small(rng),
            dedup_token: text(rng),
        }),
    }
}

fn message(rng: &mut Rng) -> Vec<u8> {
    let body = match rng.u8(0..8) {
        0 => None,
        1 => Some(Down::Config(wire::ProviderConfigUpdate {
            kind: "a".to_owned(),
            kind_version: if rng.bool() { 2 } else { small(rng) },
            config: document(rng),
            bundle: document(rng),
        })),
        _ => Some(Down::Task(stage_task(rng))),
    };
    wire::WorkStreamServerMsg { body }.encode_to_vec()
}

/// Gets a message wrong.
fn spoil(rng: &mut Rng, message: &mut Vec<u8>) {
    for _ in 0..rng.u8(0..4) {
        if message.is_empty() {
            return;
        }
        let at = rng.usize(0..message.len());
        match rng.u8(0..3) {
            0 => message[at] ^= 1 << rng.u8(0..8),
            1 => message.truncate(at),
            _ => {
                let more = noise(rng, 8);
                message.splice(at..at, more);
            }
        }
    }
}

fn framed(compressed: u8, length: usize, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![compressed];
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message);
    frame
}

/// A provider that looks at all it is given, as a provider would.
fn curious() -> FnProvider {
    FnProvider::new(KindVersion::new("a", 2), async |ctx, request| {
        let _ = request.spec::<serde_json::Value>();
        let _ = request.status_as::<serde_json::Value>();
        let _ = ctx.effective_config_if_any();
        let _ = (ctx.bundle_if_any(), ctx.deadline(), ctx.lease());
        let _ = format!("{request:?} {ctx:?}");
        Ok(Outcome::new().with_status(json!(request.resource.name)))
    })
}

/// Takes what the worker says until it is quiet or gone; no handler of it may have panicked.
async fn listen_to(peer: &mut Peer) {
    while let Ok(Ok(body)) = tokio::time::timeout(Duration::from_millis(20), peer.next()).await {
        if let Up::Complete(complete) = body {
            let said = &complete.error_message;
            assert!(!said.contains("panicked"), "{said}");
        }
    }
}

async fn misbehave(rng: &mut Rng, listener: &tokio::net::TcpListener, session: usize) {
    if session % 10 == 9 {
        let (mut socket, _) = listener.accept().await.unwrap();
        // It may hang up before it has heard all.
        let _ = socket.write_all(&noise(rng, 4_000)).await;
        return;
    }
    let mut peer = Peer::accept(listener).await;
    let spoils = session.is_multiple_of(3);
    for _ in 0..MESSAGES {
        let mut message = message(rng);
        if spoils {
            spoil(rng, &mut message);
        }
        if !peer.send_raw(framed(0, message.len(), &message)) {
            break;
        }
    }
    listen_to(&mut peer).await;
    // How such a session ends: without a word, with lengths and flags there are none of, or with a status of the broker's own.
    match session % 4 {
        0 => {}
        1 => {
            let (compressed, length) = (rng.u8(..), rng.usize(0..1 << 33));
            peer.send_raw(framed(compressed, length, &noise(rng, 100)));
            listen_to(&mut peer).await;
        }
        2 => {
            peer.trail(["0", "13", "99", "-1", "x"][rng.usize(0..5)]);
            listen_to(&mut peer).await;
        }
        _ => {
            peer.send_raw(noise(rng, 1_000));
            listen_to(&mut peer).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_outlives_a_broker_that_sends_anything() {
    let mut rng = Rng::with_seed(seed());
    let (listener, addr) = listen().await;
    let mut options = options(&addr);
    options.lease = Duration::from_millis(500);
    let mut worker = start(options, vec![Arc::new(curious())]);
    for session in 0..SESSIONS {
        let done = tokio::time::timeout(LIMIT, misbehave(&mut rng, &listener, session));
        done.await.expect("the worker dials again");
    }
    assert!(worker.worker.try_join_next().is_none(), "it goes on");
    // And now one that behaves.
    let mut sent = task(7);
    sent.lease_token = "the last".to_owned();
    let mut peer = Peer::accept(&listener).await;
    peer.send(Down::Config(wire::ProviderConfigUpdate {
        config: Json::empty_object().into_bytes(),
        ..config()
    }));
    peer.send(Down::Task(sent));
    let landed = async {
        loop {
            match peer.next().await.expect("the stream goes on") {
                Up::Complete(complete) if complete.lease_token == "the last" => return complete,
                _ => {}
            }
        }
    };
    let complete = tokio::time::timeout(LIMIT, landed).await.expect("a result");
    assert_eq!(
        (&*complete.error_message, &complete.status[..]),
        ("", &br#""7""#[..])
    );
}
