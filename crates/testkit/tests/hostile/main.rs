//! What no worker sends, to a real broker: it must serve on, and hold on to nothing.

mod wire;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use converge_sdk::testing::FnProvider;
use converge_sdk::{KindVersion, Outcome, RunOptions, run_worker};
use converge_testkit::{Plane, wait};
use fastrand::Rng;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use wire::{
    ACK, DATA, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, bytes, call, complete,
    data, fields, frame, greeting, int, message, noise, prefixed, spoil, subscribe,
};

/// How much more memory the process may have after all of it than before.
const MEMORY_KIB: u64 = 256 << 10;
/// How many more descriptors once the connections are gone: a reader of the store or two.
const DESCRIPTORS: usize = 16;
/// How long one connection listens for an answer that may not come.
const PATIENCE: Duration = Duration::from_millis(100);

/// A control plane, and one worker that behaves.
struct Target {
    plane: Plane,
    address: String,
    probes: u32,
    _worker: JoinSet<()>,
    memory_kib: u64,
    descriptors: usize,
}

impl Target {
    async fn new() -> Self {
        let plane = Plane::start(Duration::from_secs(30)).await;
        for (kind, emits) in [
            ("good", "\"status\", \"conditions\""),
            ("demo", "\"status\", \"conditions\""),
            ("app", "\"children\", \"status\", \"conditions\""),
        ] {
            let manifest = format!(
                r#"{{"kind":"{kind}","kind_version":1,"reactions":[{{"name":"work","trigger":"specChange","emits":[{emits}]}}]}}"#
            );
            plane.manifest(kind, Bytes::from(manifest)).await;
        }
        let provider = FnProvider::new(KindVersion::new("good", 1), async |_, _| {
            Ok(Outcome::new().with_status(json!({"ok": true})))
        });
        let options = RunOptions::new(plane.broker.parse().expect("an address"));
        let mut worker = JoinSet::new();
        worker.spawn(async move {
            let running = run_worker(vec![Arc::new(provider)], options, std::future::pending());
            running.await.expect("the good worker goes on");
        });
        let address = plane.broker.trim_start_matches("http://").to_owned();
        let mut target = Self {
            plane,
            address,
            probes: 0,
            _worker: worker,
            memory_kib: 0,
            descriptors: 0,
        };
        target.still_serves("nothing").await;
        (target.memory_kib, target.descriptors) = (target.memory(), target.open());
        target
    }

    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.plane.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.expect("a size").parse().expect("a number")
    }

    fn open(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.plane.pid()));
        open.expect("it runs").count()
    }

    /// The good worker gets a task and its result lands.
    async fn still_serves(&mut self, after: &str) {
        self.probes += 1;
        let name = format!("after-{}", self.probes);
        self.plane.apply("good", &name, json!({})).await;
        self.plane.wait_for("good", &name, "Ready").await;
        let said = self.plane.output();
        assert!(!said.contains("panicked"), "after {after}:\n{said}");
        println!("serves after {after}");
    }

    /// And what was there for the hostile is given up.
    async fn holds_nothing(&self, after: &str) {
        wait::until(&format!("descriptors to be closed after {after}"), || {
            let open = self.open();
            async move { (open <= self.descriptors + DESCRIPTORS).then_some(()) }
        })
        .await;
        let memory = self.memory();
        assert!(
            memory <= self.memory_kib + MEMORY_KIB,
            "{memory} KiB after {after}, {} before",
            self.memory_kib
        );
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(&self.address)
            .await
            .expect("the broker listens")
    }

    /// Sends each on a connection of its own, some at a time, and listens a moment.
    async fn send_all(&self, all: Vec<Vec<u8>>) {
        let mut under_way = JoinSet::new();
        for bytes in all {
            if under_way.len() >= 64 {
                under_way.join_next().await;
            }
            let mut stream = self.dial().await;
            under_way.spawn(async move {
                // It may have been closed already, which is what it is here for.
                if stream.write_all(&bytes).await.is_ok() {
                    let mut sink = [0; 4096];
                    while let Ok(Ok(1..)) = timeout(PATIENCE, stream.read(&mut sink)).await {}
                }
            });
        }
        under_way.join_all().await;
    }
}

/// A stream that subscribes and then says these.
fn session(messages: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut out = [greeting(), call(1, "WorkStream")].concat();
    out.extend(data(1, &subscribe(&["demo"], 0)));
    for message in messages {
        out.extend(data(1, &message));
    }
    out
}

fn random_bytes(rng: &mut Rng) -> Vec<Vec<u8>> {
    (0..200).map(|_| noise(rng, 4_000)).collect()
}

fn garbage_behind_a_greeting(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for n in 0..200 {
        let mut bytes = if n % 2 == 0 {
            PREFACE.to_vec()
        } else {
            greeting()
        };
        bytes.extend(noise(rng, 2_000));
        all.push(bytes);
    }
    all
}

fn spoilt_frames(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for _ in 0..200 {
        let mut bytes = session((0..5).map(|_| message(rng)));
        let behind = bytes.split_off(PREFACE.len());
        let mut spoilt = behind;
        spoil(rng, &mut spoilt);
        bytes.extend(spoilt);
        for _ in 0..rng.u8(0..4) {
            let payload = noise(rng, 60);
            bytes.extend(frame(rng.u8(0..12), rng.u8(..), rng.u32(0..8), &payload));
        }
        all.push(bytes);
    }
    all
}

fn messages(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for n in 0..200 {
        // One message that cannot be read ends its stream, so only some streams have such.
        let spoils = n % 2 == 0;
        all.push(session((0..20).map(|_| {
            let mut message = message(rng);
            if spoils {
                spoil(rng, &mut message);
            }
            message
        })));
    }
    for _ in 0..200 {
        let mut first = [greeting(), call(1, "WorkStream")].concat();
        let mut message = message(rng);
        spoil(rng, &mut message);
        first.extend(data(1, &message));
        all.push(first);
        let mut pull = [greeting(), call(1, "GetProviderConfig")].concat();
        pull.extend(data(1, &noise(rng, 200)));
        all.push(pull);
    }
    all
}

fn sizes(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for length in [u32::MAX, 1 << 31, 513 << 20, 511 << 20, 1 << 20] {
        for compressed in [0, 1, 2, 255] {
            let mut bytes = [greeting(), call(1, "WorkStream")].concat();
            bytes.extend(prefixed(1, compressed, length, &noise(rng, 1_000)));
            all.push(bytes);
        }
    }
    // Frames larger than may be, and heads without end.
    let mut frame_too_large = greeting();
    frame_too_large.extend([0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1]);
    all.push(frame_too_large);
    let mut head = greeting();
    head.extend(frame(HEADERS, 0, 1, &[0x83, 0x86]));
    for _ in 0..500 {
        head.extend(frame(9, 0, 1, &noise(rng, 500)));
    }
    all.push(head);
    // Many of everything that may be many.
    let kinds: Vec<String> = (0..20_000).map(|n| format!("k{n}")).collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let mut many = [greeting(), call(1, "WorkStream")].concat();
    many.extend(data(1, &subscribe(&kinds, u64::from(u32::MAX))));
    all.push(many);
    let repeated: Vec<u8> = (0..50_000).flat_map(|_| bytes(1, b"demo")).collect();
    let mut pull = [greeting(), call(1, "GetProviderConfig")].concat();
    pull.extend(data(1, &repeated));
    all.push(pull);
    let mut beat = Vec::new();
    for n in 0..20_000_u64 {
        let token = format!("00000000-0000-7000-8000-{n:012}.{n:032x}");
        beat.extend(bytes(1, token.as_bytes()));
        beat.extend(int(2, 1));
    }
    all.push(session((0..5).map(|_| bytes(4, &beat))));
    // Streams that are begun and reset at once.
    let mut resets = greeting();
    for stream in (1..4_000).step_by(2) {
        resets.extend(call(stream, "WorkStream"));
        resets.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    all.push(resets);
    let mut pings = greeting();
    for _ in 0..5_000 {
        pings.extend(frame(PING, 0, 0, &[0; 8]));
        pings.extend(frame(SETTINGS, 0, 0, &[]));
    }
    all.push(pings);
    all
}

/// A connection that speaks the wire and answers this many tasks with whatever comes.
async fn answer_wrongly(target: &Target, rng: &mut Rng, enough: usize) {
    let mut stream = target.dial().await;
    let mut first = [greeting(), call(1, "WorkStream")].concat();
    first.extend(data(1, &subscribe(&["demo", "app"], 16)));
    stream.write_all(&first).await.expect("it listens");
    let (mut raw, mut down) = (Vec::new(), Vec::new());
    let mut answered = 0;
    while answered < enough {
        let mut chunk = [0; 16_384];
        let read = match stream.read(&mut chunk).await {
            Ok(read @ 1..) => read,
            ended => panic!("the stream ended after {answered} answers: {ended:?}"),
        };
        raw.extend(&chunk[..read]);
        let mut up = Vec::new();
        while raw.len() >= 9 {
            let length = u32::from_be_bytes([0, raw[0], raw[1], raw[2]]) as usize;
            if raw.len() < 9 + length {
                break;
            }
            let got: Vec<u8> = raw.drain(..9 + length).collect();
            match (got[3], got[4]) {
                (DATA, _) => down.extend(&got[9..]),
                (SETTINGS, 0) => up.extend(frame(SETTINGS, ACK, 0, &[])),
                (PING, 0) => up.extend(frame(PING, ACK, 0, &got[9..])),
                (HEADERS, flags) if flags & END_STREAM != 0 => {
                    panic!("the stream ended after {answered} answers")
                }
                _ => {}
            }
        }
        let mut window = 0;
        while down.len() >= 5 {
            let length = u32::from_be_bytes([down[1], down[2], down[3], down[4]]) as usize;
            if down.len() < 5 + length {
                break;
            }
            let message: Vec<u8> = down.drain(..5 + length).skip(5).collect();
            window += u32::try_from(5 + length).expect("small");
            for (_, task) in fields(&message)
                .into_iter()
                .filter(|(field, _)| *field == 1)
            {
                let task = fields(&task);
                let of = |wanted| task.iter().find(|(field, _)| *field == wanted);
                let (Some((_, token)), Some((_, epoch))) = (of(7), of(8)) else {
                    panic!("a task without a claim: {task:?}");
                };
                let epoch = u64::from_be_bytes(epoch[..].try_into().expect("a number"));
                up.extend(data(1, &complete(rng, token, epoch)));
                answered += 1;
            }
        }
        if window > 0 {
            for stream in [0, 1] {
                up.extend(frame(8, 0, stream, &window.to_be_bytes()));
            }
        }
        stream.write_all(&up).await.expect("it goes on");
    }
}

fn seed() -> u64 {
    let given = std::env::var("HOSTILE_SEED").ok();
    let seed = given.and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HOSTILE_SEED={seed}");
    seed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_outlives_what_no_worker_sends() {
    let mut rng = Rng::with_seed(seed());
    let mut target = Target::new().await;
    type Attack = fn(&mut Rng) -> Vec<Vec<u8>>;
    let attacks: [(&str, Attack); 5] = [
        ("random bytes", random_bytes),
        ("garbage behind a greeting", garbage_behind_a_greeting),
        ("spoilt frames", spoilt_frames),
        ("spoilt messages", messages),
        ("sizes", sizes),
    ];
    for (name, attack) in attacks {
        target.send_all(attack(&mut rng)).await;
        target.still_serves(name).await;
        target.holds_nothing(name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_outlives_answers_of_any_content() {
    let mut rng = Rng::with_seed(seed());
    let mut target = Target::new().await;
    for n in 0..300 {
        let kind = if n % 3 == 0 { "app" } else { "demo" };
        target.plane.apply(kind, &format!("r{n}"), json!({})).await;
    }
    // It also shows that the frames of these tests are understood.
    let answered = timeout(
        wait::LIMIT,
        Box::pin(answer_wrongly(&target, &mut rng, 300)),
    )
    .await;
    assert!(answered.is_ok(), "not every resource came as a task");
    target.still_serves("answers of any content").await;
    target.holds_nothing("answers of any content").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_do_nothing_are_closed_and_many_are_borne() {
    let mut target = Target::new().await;
    let mut idle = Vec::new();
    for n in 0..600 {
        let mut stream = target.dial().await;
        let said: &[u8] = [b"", &PREFACE[..10], PREFACE][n % 3];
        stream.write_all(said).await.expect("sent");
        idle.push(stream);
    }
    target.still_serves("many idle connections").await;
    assert!(target.open() > target.descriptors + 500, "they are there");
    // Nobody here hangs up, nor answers a ping.
    target.holds_nothing("many idle connections").await;
    drop(idle);
    let mut busy = Vec::new();
    for _ in 0..600 {
        let mut stream = target.dial().await;
        stream.write_all(&session([])).await.expect("sent");
        busy.push(stream);
    }
    target.still_serves("many streams").await;
    drop(busy);
    target.holds_nothing("many streams").await;
    assert_eq!(target.plane.stop().await, Some(0));
}
