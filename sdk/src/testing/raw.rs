//! A worker driven message by message, for scenarios that a well-behaved worker never gets into.

use std::time::Duration;

use tokio_stream::StreamExt;
use tonic::Streaming;

use crate::transport::dial;
use crate::wire::work_stream_client_msg::Body;
use crate::wire::worker_service_client::WorkerServiceClient;
use crate::wire::{
    Interest, ResumedTask, StageComplete, StageTask, Subscribe, WorkHeartbeat, WorkStreamServerMsg,
    work_stream_server_msg,
};
use crate::worker::{Link, Outbox};
use crate::{KindVersion, RunOptions};

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct RawWorker {
    outbox: Outbox,
    down: Streaming<WorkStreamServerMsg>,
    link: std::sync::Arc<Link>,
}

impl RawWorker {
    /// Connects and subscribes.
    pub(crate) async fn subscribe(
        addr: &str,
        pairs: &[&KindVersion],
        credit: u32,
        resumed: &[&StageTask],
    ) -> Self {
        Self::begin(
            addr,
            Body::Subscribe(Subscribe {
                kinds: pairs.iter().map(|pair| pair.kind().to_owned()).collect(),
                kind_versions: pairs.iter().map(|pair| pair.version().into()).collect(),
                max_inflight: credit,
                resumed: resumed
                    .iter()
                    .map(|task| ResumedTask {
                        lease_token: task.lease_token.clone(),
                        claim_epoch: task.claim_epoch,
                    })
                    .collect(),
            }),
        )
        .await
    }

    /// Connects and sends this first.
    pub(crate) async fn begin(addr: &str, first: Body) -> Self {
        let options = RunOptions::new(addr.parse().expect("a broker address"));
        let connection = dial(&options, options.keepalive_interval)
            .await
            .expect("the broker is reachable");
        let outbox = Outbox::default();
        outbox.push(first);
        let mut client = WorkerServiceClient::new(connection.channel)
            .max_decoding_message_size(512 << 20)
            .max_encoding_message_size(512 << 20);
        let down = tokio::time::timeout(LIMIT, client.work_stream(outbox.upstream()))
            .await
            .expect("headers come at once")
            .expect("the stream opens")
            .into_inner();
        Self {
            outbox,
            down,
            link: connection.link,
        }
    }

    /// The next message; `None` when the stream is over, in whatever way.
    pub(crate) async fn next(&mut self) -> Option<work_stream_server_msg::Body> {
        let message = tokio::time::timeout(LIMIT, self.down.next())
            .await
            .expect("a message comes");
        message?.ok()?.body
    }

    /// The next task; configs before it are passed over.
    pub(crate) async fn task(&mut self) -> StageTask {
        loop {
            match self.next().await.expect("the stream goes on") {
                work_stream_server_msg::Body::Task(task) => return task,
                work_stream_server_msg::Body::Config(_) => {}
            }
        }
    }

    /// True if no task comes within this time.
    pub(crate) async fn is_quiet_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.task()).await.is_err()
    }

    pub(crate) fn send(&self, body: Body) {
        self.outbox.push(body);
    }

    pub(crate) fn complete(&self, task: &StageTask, status: &'static str) {
        self.send(Body::Complete(StageComplete {
            lease_token: task.lease_token.clone(),
            claim_epoch: task.claim_epoch,
            stage: task.stage,
            status: status.as_bytes().into(),
            ..StageComplete::default()
        }));
    }

    pub(crate) fn heartbeat(&self, tasks: &[&StageTask]) {
        self.send(Body::Heartbeat(WorkHeartbeat {
            lease_token: tasks.iter().map(|task| task.lease_token.clone()).collect(),
            claim_epoch: tasks.iter().map(|task| task.claim_epoch).collect(),
        }));
    }

    pub(crate) fn interest(&self, pair: &KindVersion, has_worker: bool) {
        self.send(Body::Interest(Interest {
            kind: pair.kind().to_owned(),
            kind_version: pair.version().into(),
            has_worker,
            credit: 0,
        }));
    }

    /// Ends the request stream in order, and waits for the broker to close its side.
    pub(crate) async fn half_close(mut self) {
        self.outbox.close();
        while self.next().await.is_some() {}
    }

    /// Cuts the connection.
    pub(crate) fn cut(self) {
        drop(self);
    }
}

impl Drop for RawWorker {
    fn drop(&mut self) {
        // The library would go on sending on a stream whose answer nobody reads.
        self.link.cut();
    }
}
