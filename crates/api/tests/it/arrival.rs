//! Bodies that arrive slowly, or not at all. Time is paused: hours pass at once.

use std::time::Duration;

use axum::body::{Body, Bytes};
use converge_conformance::world::leaf;
use futures::stream;
use tokio::time::{Instant, sleep};

use crate::harness::Harness;

/// Sends `pieces` one by one, each after `pause`, then nothing, for ever.
fn trickle(pieces: Vec<Bytes>, pause: Duration, ends: bool) -> Body {
    let pieces = stream::unfold(pieces.into_iter(), move |mut left| async move {
        sleep(pause).await;
        match left.next() {
            Some(piece) => Some((Ok::<_, std::io::Error>(piece), left)),
            None if ends => None,
            None => std::future::pending().await,
        }
    });
    Body::from_stream(pieces)
}

fn bytes_of(text: &str) -> Vec<Bytes> {
    text.as_bytes()
        .chunks(1)
        .map(Bytes::copy_from_slice)
        .collect()
}

fn body_of(spec_bytes: usize) -> Vec<u8> {
    let text = "x".repeat(spec_bytes);
    format!(r#"{{"kind":"demo","name":"a","spec":{{"text":"{text}"}}}}"#).into_bytes()
}

async fn with_demo() -> Harness {
    let harness = Harness::new();
    harness.world.manifest(&leaf("demo")).await;
    harness
}

#[tokio::test(start_paused = true)]
async fn a_body_of_a_byte_a_minute_is_given_up() {
    let harness = with_demo().await;
    for (method, path) in [
        ("POST", "/api/v1/resources"),
        ("DELETE", "/api/v1/resources/demo/a"),
        ("POST", "/api/v1/resources/demo/a/reconcile"),
    ] {
        let began = Instant::now();
        let spaces = bytes_of(&" ".repeat(500));
        let body = trickle(spaces, Duration::from_secs(59), false);
        let told = harness.write(method, path, body).await.problem(408);
        assert!(told.contains("stopped arriving after 1 bytes"), "{told}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(90), "{method} {path}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_body_may_take_its_time_on_a_slow_line() {
    let harness = with_demo().await;
    let body = body_of(8 << 20);
    let began = Instant::now();
    let pieces = body.chunks(8 << 10).map(Bytes::copy_from_slice).collect();
    let body = trickle(pieces, Duration::from_secs(1), true);
    harness
        .write("POST", "/api/v1/resources", body)
        .await
        .ok(201);
    assert!(began.elapsed() > Duration::from_secs(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_large_body_that_stops_is_given_up_however_fast_it_came() {
    let harness = with_demo().await;
    let mut body = body_of(8 << 20);
    body.truncate(7 << 20);
    let pieces = body.chunks(64 << 10).map(Bytes::copy_from_slice).collect();
    let began = Instant::now();
    let body = trickle(pieces, Duration::from_millis(1), false);
    let answer = harness.write("POST", "/api/v1/resources", body).await;
    let told = answer.problem(408);
    assert!(told.contains("256 KiB"), "{told}");
    assert!(began.elapsed() < Duration::from_secs(90));
    assert!(harness.world.get("demo/a").await.is_none());
}
