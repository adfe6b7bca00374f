//! The health endpoint and the metrics of a worker that runs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::mpsc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::testing::Relay;
use crate::worker::{Endpoint, run_worker_at};
use crate::{Outcome, TaskError};

/// A worker with an endpoint on a free port.
fn start_probed(options: RunOptions, providers: Vec<Arc<dyn Provider>>) -> (Running, SocketAddr) {
    let endpoint = Endpoint::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = endpoint.addr;
    let stop = CancellationToken::new();
    let mut worker = JoinSet::new();
    let ended = run_worker_at(
        providers,
        options,
        Some(endpoint),
        stop.clone().cancelled_owned(),
    );
    worker.spawn(ended);
    (Running { stop, worker }, addr)
}

/// Options under which a slow machine makes no loop look stuck.
fn patient(addr: &str) -> RunOptions {
    let mut options = options(addr);
    options.heartbeat_interval = Duration::from_secs(10);
    options
}

fn idle() -> FnProvider {
    FnProvider::new(demo(), async |_, _| Ok(Outcome::new()))
}

/// The status and the body of an answer; `None` if nobody listens.
async fn ask(addr: SocketAddr, path: &str) -> Option<(u16, String)> {
    let answer = async {
        let mut stream = TcpStream::connect(addr).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    };
    tokio::time::timeout(LIMIT, answer)
        .await
        .expect("an answer comes")
}

/// Asks until the answer is this.
async fn until_told(addr: SocketAddr, path: &str, status: u16, parts: &[&str]) {
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    loop {
        pause.tick().await;
        let told = ask(addr, path).await;
        if told.as_ref().is_some_and(|(told, body)| {
            *told == status && parts.iter().all(|part| body.contains(part))
        }) {
            return;
        }
        assert!(
            started.elapsed() < LIMIT,
            "{path} is not {status} with {parts:?}, but {told:?}"
        );
    }
}

async fn until_counted(addr: SocketAddr, lines: &[&str]) {
    let lines: Vec<String> = lines
        .iter()
        .map(|line| format!("converge_worker_{line}\n"))
        .collect();
    let lines: Vec<&str> = lines.iter().map(|line| &**line).collect();
    until_told(addr, "/metrics", 200, &lines).await;
}

#[tokio::test]
async fn ready_follows_the_stream_and_the_configs_and_says_why_not() {
    let broker = broker().await;
    broker.hold_pulls(true);
    let relay = Relay::to(&broker.addr()).await.unwrap();
    relay.down();
    let (worker, addr) = start_probed(patient(&relay.addr()), vec![Arc::new(idle())]);
    let down = [r#""name":"stream","ok":false,"message":"down for "#];
    until_told(addr, "/readyz", 503, &down).await;
    until_told(addr, "/livez", 200, &[]).await;
    relay.up();
    until_told(
        addr,
        "/readyz",
        200,
        &[r#"{"name":"pair demo/v1","ok":true}"#],
    )
    .await;
    until_told(addr, "/healthz", 200, &[]).await;
    relay.down();
    until_told(addr, "/readyz", 503, &down).await;
    until_told(addr, "/livez", 200, &[]).await;
    until_counted(
        addr,
        &["stream_up 0", "streams_total 1", "streams_lost_total 1"],
    )
    .await;
    relay.up();
    until_told(addr, "/readyz", 200, &[]).await;
    until_counted(
        addr,
        &["stream_up 1", "streams_total 2", "streams_lost_total 1"],
    )
    .await;
    worker.stop().await.unwrap();
    assert_eq!(ask(addr, "/livez").await, None, "it has stopped");
}

#[tokio::test]
async fn a_pair_that_is_not_primed_is_named_and_one_that_is_shed_is_none_the_worse() {
    let broker = broker_with(|options| options.push_configs = false).await;
    broker.hold_pulls(true);
    let shed = FnProvider::new(KindVersion::new("shed", 3), async |_, _| Ok(Outcome::new()))
        .with_ready(|| false);
    let (worker, addr) = start_probed(
        patient(&broker.addr()),
        vec![Arc::new(idle()), Arc::new(shed)],
    );
    let parts = [
        r#"{"name":"stream","ok":true}"#,
        r#"{"name":"pair demo/v1","ok":false,"message":"not primed: "#,
        r#"{"name":"pair shed/v3","ok":true,"message":"shed: "#,
    ];
    until_told(addr, "/readyz", 503, &parts).await;
    broker.hold_pulls(false);
    until_told(addr, "/readyz", 200, &parts[2..]).await;
    until_counted(
        addr,
        &[
            r#"pair_ready{kind="demo",version="1"} 1"#,
            r#"pair_ready{kind="shed",version="3"} 0"#,
            r#"pair_shed{kind="demo",version="1"} 0"#,
            r#"pair_shed{kind="shed",version="3"} 1"#,
        ],
    )
    .await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_draining_worker_answers_to_the_end_that_it_is_not_ready() {
    let broker = broker().await;
    let (release, started) = (CancellationToken::new(), CancellationToken::new());
    let (go, begun) = (release.clone(), started.clone());
    let provider = FnProvider::new(demo(), move |_, _| {
        let (go, begun) = (go.clone(), begun.clone());
        async move {
            begun.cancel();
            go.cancelled().await;
            Ok(Outcome::new())
        }
    });
    let (mut worker, addr) = start_probed(patient(&broker.addr()), vec![Arc::new(provider)]);
    broker.apply(&demo(), "a", empty());
    tokio::time::timeout(LIMIT, started.cancelled())
        .await
        .expect("the task runs");
    until_told(addr, "/readyz", 200, &[]).await;
    worker.stop.cancel();
    until_told(addr, "/readyz", 503, &[r#""message":"draining: "#]).await;
    until_told(addr, "/livez", 200, &[]).await;
    until_counted(
        addr,
        &[
            "draining 1",
            r#"tasks_running{kind="demo",version="1"} 1"#,
            "slots_used 1",
        ],
    )
    .await;
    release.cancel();
    worker.ended().await.unwrap();
    assert_eq!(ask(addr, "/livez").await, None, "it has stopped");
}

#[tokio::test]
async fn a_loop_that_is_stuck_is_not_live_until_it_goes_on() {
    let broker = broker().await;
    let (release, blocks) = mpsc::channel::<()>();
    let blocks = Mutex::new(blocks);
    let provider = idle().with_on_config(move |config| {
        if config.spec.is_some() {
            let _ = blocks.lock().unwrap().recv_timeout(LIMIT);
        }
    });
    let mut options = options(&broker.addr());
    options.heartbeat_interval = Duration::from_millis(100);
    let (worker, addr) = start_probed(options, vec![Arc::new(provider)]);
    until_told(addr, "/livez", 200, &[]).await;
    until_told(addr, "/readyz", 200, &[]).await;
    broker.set_config(
        &demo(),
        crate::ProviderConfig {
            spec: Some(empty()),
            ..crate::ProviderConfig::default()
        },
    );
    until_told(
        addr,
        "/livez",
        503,
        &[r#""name":"loop","ok":false,"message":"stuck: "#],
    )
    .await;
    until_told(addr, "/healthz", 503, &[]).await;
    until_told(addr, "/readyz", 503, &["stuck"]).await;
    until_told(addr, "/metrics", 200, &[]).await;
    release.send(()).unwrap();
    until_told(addr, "/livez", 200, &[]).await;
    worker.stop().await.unwrap();
}

#[test]
fn a_handler_that_blocks_its_runtime_blocks_no_answer() {
    let (release, blocks) = mpsc::channel::<()>();
    let (begun, begins) = mpsc::channel();
    let (found, finds) = mpsc::channel();
    let blocks = Mutex::new(blocks);
    let worker = std::thread::Builder::new();
    let worker = worker.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let broker = broker().await;
            let provider = FnProvider::new(demo(), move |_, _| {
                begun.send(()).unwrap();
                let _ = blocks.lock().unwrap().recv_timeout(LIMIT);
                async { Ok(Outcome::new()) }
            });
            let (worker, addr) = start_probed(patient(&broker.addr()), vec![Arc::new(provider)]);
            found.send(addr).unwrap();
            broker.apply(&demo(), "a", empty());
            until("the task is done", || is_synced(&broker, "a")).await;
            worker.stop().await.unwrap();
        });
    });
    let worker = worker.unwrap();
    let addr = finds.recv_timeout(LIMIT).unwrap();
    begins.recv_timeout(LIMIT).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // The broker of this test is blocked as well: it is what says nothing.
        assert_eq!(ask(addr, "/livez").await.unwrap().0, 200);
        until_counted(addr, &[r#"tasks_running{kind="demo",version="1"} 1"#]).await;
    });
    release.send(()).unwrap();
    worker.join().unwrap();
}

#[tokio::test]
async fn what_tasks_come_to_is_counted_by_pair_and_outcome() {
    let broker = broker_with(|options| options.retry_after = Duration::from_secs(3600)).await;
    let provider = FnProvider::new(demo(), async |ctx, request| match &*request.resource.name {
        "well" => Ok(Outcome::new()),
        "transient" => Err(TaskError::transient("not now")),
        "terminal" => Err(TaskError::terminal("never")),
        "panic" => panic!("a bug"),
        _ => {
            ctx.cancelled().await;
            Err(TaskError::terminal("cut"))
        }
    });
    let other = FnProvider::new(
        KindVersion::new("other", 2),
        async |_, _| Ok(Outcome::new()),
    );
    let mut options = options(&broker.addr());
    options.max_parallel = 5;
    let (worker, addr) = start_probed(options, vec![Arc::new(provider), Arc::new(other)]);
    for name in ["well", "transient", "terminal", "panic", "lost"] {
        broker.apply(&demo(), name, empty());
    }
    until_counted(
        addr,
        &[
            r#"tasks_total{kind="demo",version="1",outcome="success"} 1"#,
            r#"tasks_total{kind="demo",version="1",outcome="transient"} 1"#,
            r#"tasks_total{kind="demo",version="1",outcome="terminal"} 2"#,
            r#"tasks_total{kind="demo",version="1",outcome="interrupted"} 0"#,
            r#"tasks_total{kind="other",version="2",outcome="success"} 0"#,
            r#"tasks_running{kind="demo",version="1"} 1"#,
            r#"task_duration_seconds_count{kind="demo",version="1"} 4"#,
            r#"task_duration_seconds_bucket{kind="demo",version="1",le="+Inf"} 4"#,
            r#"task_duration_seconds_count{kind="other",version="2"} 0"#,
            "slots 5",
            "slots_used 1",
            "results_buffered 4",
        ],
    )
    .await;
    // The newer claim takes the lease from the older: one is interrupted and the other runs.
    broker.steal(&demo(), "lost");
    until_counted(
        addr,
        &[
            r#"tasks_total{kind="demo",version="1",outcome="interrupted"} 1"#,
            r#"tasks_running{kind="demo",version="1"} 1"#,
            r#"task_duration_seconds_count{kind="demo",version="1"} 5"#,
            "results_buffered 5",
        ],
    )
    .await;
    let (_, before) = ask(addr, "/metrics").await.unwrap();
    assert!(
        !before.contains("\nconverge_worker_results_buffered_bytes 0\n"),
        "{before}"
    );
    // What was sent may not have arrived when the connection breaks.
    broker.cut();
    until_counted(addr, &["results_resent_total 5", "streams_lost_total 1"]).await;
    broker
        .until(LIMIT, "heartbeats come", |broker| broker.heartbeats() > 3)
        .await;
    let value = |text: &str, name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("converge_worker_{name} ")));
        line.unwrap().parse::<u64>().unwrap()
    };
    let (_, after) = ask(addr, "/metrics").await.unwrap();
    assert!(value(&after, "heartbeats_total") > 3, "{after}");
    assert!(value(&after, "dials_total") >= 2, "{after}");
    drop(worker);
}

#[tokio::test]
async fn a_task_of_a_kind_that_is_not_served_makes_no_series() {
    let broker = broker().await;
    let (worker, addr) = start_probed(patient(&broker.addr()), vec![Arc::new(idle())]);
    until_told(addr, "/readyz", 200, &[]).await;
    let series = |text: String| {
        let names = text.lines().filter_map(|line| line.rsplit_once(' '));
        names
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>()
    };
    let before = series(ask(addr, "/metrics").await.unwrap().1);
    for n in 0..100_u8 {
        broker.send(crate::wire::WorkStreamServerMsg {
            body: Some(crate::wire::work_stream_server_msg::Body::Task(
                crate::wire::StageTask {
                    kind: format!("made-up-{n}\"}}\n"),
                    stage: 2,
                    resource_id: vec![n; 16].into(),
                    work_req: Some(crate::wire::WorkRequest {
                        resource: Some(crate::wire::Resource::default()),
                        ..crate::wire::WorkRequest::default()
                    }),
                    ..crate::wire::StageTask::default()
                },
            )),
        });
    }
    until_counted(addr, &["tasks_refused_total 100"]).await;
    assert_eq!(series(ask(addr, "/metrics").await.unwrap().1), before);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn config_pushes_are_counted() {
    let broker = broker().await;
    let (worker, addr) = start_probed(patient(&broker.addr()), vec![Arc::new(idle())]);
    until_counted(addr, &[r#"config_pushes_total{kind="demo",version="1"} 1"#]).await;
    broker.set_config(
        &demo(),
        crate::ProviderConfig {
            spec: Some(empty()),
            ..crate::ProviderConfig::default()
        },
    );
    until_counted(addr, &[r#"config_pushes_total{kind="demo",version="1"} 2"#]).await;
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_an_error_before_anything_is_dialled() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    broker.set_nonblocking(true).unwrap();
    let mut options = options(&broker.local_addr().unwrap().to_string());
    options.health_addr = Some(addr);
    let mut worker = start(options, vec![Arc::new(idle())]);
    let error = worker.ended().await.unwrap_err();
    assert!(matches!(&error, WorkerError::Health { addr: at, .. } if *at == addr));
    assert!(
        error.to_string().contains(&format!("HEALTH_ADDR={addr}")),
        "{error}"
    );
    let dialled = broker.accept().map(|_| ()).unwrap_err();
    assert_eq!(dialled.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test]
async fn a_worker_that_is_dropped_stops_answering() {
    let broker = broker().await;
    let (worker, addr) = start_probed(patient(&broker.addr()), vec![Arc::new(idle())]);
    until_told(addr, "/readyz", 200, &[]).await;
    drop(worker);
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(2));
    while ask(addr, "/livez").await.is_some() {
        pause.tick().await;
        assert!(started.elapsed() < LIMIT, "it still answers");
    }
}

/// Name, type and labels of each metric in the table of METRICS.md.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let file = include_str!("../../../METRICS.md");
    let rows = file
        .lines()
        .filter(|line| line.starts_with("| `converge_worker_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[3]
            .split(',')
            .map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        (
            cells[1].trim_matches('`').to_owned(),
            (cells[2].to_owned(), labels),
        )
    })
    .collect()
}

/// The same of what is exposed.
fn exposed() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let (_, metrics) = crate::worker::metrics::Metrics::new([demo()].iter(), 1);
    let mut found = BTreeMap::new();
    let text = metrics.text();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            let labels: BTreeSet<String> = BTreeSet::new();
            found.insert(name.to_owned(), (kind.to_owned(), labels));
        } else if !line.starts_with('#') {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let suffixes = ["_bucket", "_sum", "_count"];
            let of_histogram = suffixes
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix));
            let mut names = std::iter::once(name).chain(of_histogram);
            let entry = names.find(|name| found.contains_key(*name));
            let (_, known) = found.get_mut(entry.expect("it was declared")).unwrap();
            let labels = labels.trim_end_matches('}').split(',');
            let labels = labels.filter_map(|label| label.split_once('='));
            let labels = labels
                .map(|(label, _)| label)
                .filter(|label| *label != "le");
            known.extend(labels.map(str::to_owned));
        }
    }
    found
}

#[test]
fn what_is_exposed_is_what_metrics_md_lists() {
    let (documented, exposed) = (documented(), exposed());
    assert!(exposed.len() > 15, "{exposed:#?}");
    assert_eq!(exposed, documented);
}
