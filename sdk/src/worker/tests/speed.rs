//! What the loop costs. Not a timed test: run it by hand,
//! `cargo test --release -p converge-sdk --features testing --lib speed -- --ignored --nocapture`.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::Outcome;
use crate::wire::worker_service_server::{WorkerService, WorkerServiceServer};
use crate::wire::{self, work_stream_client_msg as up, work_stream_server_msg as down};

/// Sends a new task for each result, without any bookkeeping.
struct Firehose(Arc<AtomicU64>);

fn message(n: u64) -> Result<wire::WorkStreamServerMsg, Status> {
    let id = [n.to_be_bytes(); 2].concat();
    let task = wire::StageTask {
        stage: 2,
        kind: "demo".to_owned(),
        kind_version: 1,
        resource_id: id.clone().into(),
        generation: 1,
        reaction: "work".to_owned(),
        lease_token: format!("0198f0c2-7a1b-7c3d-8e4f-{n:012}"),
        claim_epoch: 1,
        manifest_version: 1,
        work_req: Some(wire::WorkRequest {
            resource: Some(wire::Resource {
                id: id.into(),
                kind: "demo".to_owned(),
                name: format!("resource-{n}"),
                spec: bytes::Bytes::from_static(
                    br#"{"replicas":3,"image":"registry.example/app:1.2.3"}"#,
                ),
                generation: 1,
                ..wire::Resource::default()
            }),
            ..wire::WorkRequest::default()
        }),
        ..wire::StageTask::default()
    };
    Ok(wire::WorkStreamServerMsg {
        body: Some(down::Body::Task(task)),
    })
}

#[tonic::async_trait]
impl WorkerService for Firehose {
    type WorkStreamStream = ReceiverStream<Result<wire::WorkStreamServerMsg, Status>>;

    async fn work_stream(
        &self,
        request: Request<Streaming<wire::WorkStreamClientMsg>>,
    ) -> Result<Response<Self::WorkStreamStream>, Status> {
        let (send, receive) = mpsc::channel(8192);
        let mut stream = request.into_inner();
        let done = Arc::clone(&self.0);
        #[expect(
            clippy::disallowed_methods,
            reason = "it lives as long as this measurement"
        )]
        tokio::spawn(async move {
            let mut n = 0;
            while let Some(Ok(received)) = stream.next().await {
                let new = match received.body {
                    Some(up::Body::Subscribe(subscribe)) => {
                        let config = wire::ProviderConfigUpdate {
                            kind: "demo".to_owned(),
                            kind_version: 1,
                            ..wire::ProviderConfigUpdate::default()
                        };
                        let body = Some(down::Body::Config(config));
                        let _ = send.send(Ok(wire::WorkStreamServerMsg { body })).await;
                        u64::from(subscribe.max_inflight)
                    }
                    Some(up::Body::Complete(_)) => {
                        done.fetch_add(1, Ordering::Relaxed);
                        1
                    }
                    _ => 0,
                };
                for _ in 0..new {
                    n += 1;
                    if send.send(message(n)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receive)))
    }

    async fn get_provider_config(
        &self,
        _request: Request<wire::GetProviderConfigRequest>,
    ) -> Result<Response<wire::GetProviderConfigResponse>, Status> {
        Ok(Response::new(wire::GetProviderConfigResponse::default()))
    }
}

/// CPU seconds of the threads of this process by the first word of their name.
fn cpu() -> std::collections::BTreeMap<String, f64> {
    let mut used = std::collections::BTreeMap::new();
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
        let Some((name, rest)) = stat
            .split_once('(')
            .and_then(|(_, rest)| rest.rsplit_once(") "))
        else {
            continue;
        };
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        *used.entry(name.to_owned()).or_default() += ticks / 100.0;
    }
    used
}

#[test]
#[ignore = "a measurement, not a test"]
fn how_fast_no_op_tasks_go() {
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("firehose".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let incoming = TcpListenerStream::new(listener).map(|stream| {
                    let stream = stream?;
                    stream.set_nodelay(true)?;
                    Ok::<_, std::io::Error>(stream)
                });
                let service = WorkerServiceServer::new(Firehose(counted));
                tonic::transport::Server::builder()
                    .serve_with_incoming(service, incoming)
                    .await
                    .unwrap();
            });
        })
        .unwrap();
    let addr = told.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("handlers")
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for parallel in [1, 16, 256] {
            let mut options = RunOptions::new(format!("http://{addr}").parse().unwrap());
            options.max_parallel = parallel;
            let status = crate::Json::parse(r#"{"ok":true}"#).unwrap();
            let provider = FnProvider::new(demo(), move |_, _| {
                let status = status.clone();
                async move { Ok(Outcome::new().with_status(status)) }
            });
            let worker = start(options, vec![Arc::new(provider)]);
            let before = done.load(Ordering::Relaxed);
            until("it runs", || done.load(Ordering::Relaxed) > before + 1000).await;
            let (from, used, started) = (done.load(Ordering::Relaxed), cpu(), Instant::now());
            tokio::time::sleep(Duration::from_secs(3)).await;
            let tasks = (done.load(Ordering::Relaxed) - from) as f64;
            print!(
                "{parallel:>4} in flight: {:>8.0} tasks/s;",
                tasks / started.elapsed().as_secs_f64()
            );
            for (name, seconds) in cpu() {
                let cost = (seconds - used.get(&name).copied().unwrap_or(0.0)) * 1e6 / tasks;
                print!(" {name} {cost:.2} us");
            }
            println!();
            drop(worker);
        }
    });
}
