//! The gRPC side of the in-memory broker: adapts messages to [`Jobs`](super::jobs::Jobs), which has the rules.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::broker::Shared;
use crate::wire::work_stream_client_msg::Body;
use crate::wire::worker_service_server::WorkerService;
use crate::wire::{
    GetProviderConfigRequest, GetProviderConfigResponse, ProviderConfigEntry, WorkStreamClientMsg,
    WorkStreamServerMsg,
};
use crate::{Json, KindVersion};

/// What may wait for one stream's transport. A stream that falls further behind gets no new tasks.
const DOWN: usize = 4096;

pub(super) struct Service(pub(super) Arc<Shared>);

#[tonic::async_trait]
impl WorkerService for Service {
    type WorkStreamStream = ReceiverStream<Result<WorkStreamServerMsg, Status>>;

    async fn work_stream(
        &self,
        request: Request<Streaming<WorkStreamClientMsg>>,
    ) -> Result<Response<Self::WorkStreamStream>, Status> {
        let (down, messages) = mpsc::channel(DOWN);
        let shared = Arc::clone(&self.0);
        self.0
            .spawn(async move { serve(shared, request.into_inner(), down).await });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn get_provider_config(
        &self,
        request: Request<GetProviderConfigRequest>,
    ) -> Result<Response<GetProviderConfigResponse>, Status> {
        let request = request.into_inner();
        self.0.pulls_go_on().await;
        let jobs = self.0.jobs();
        let mut entries = Vec::new();
        for (at, kind) in request.kinds.iter().enumerate() {
            let version = request.kind_versions.get(at).copied().unwrap_or(1);
            let pair = KindVersion::new(kind, u16::try_from(version).unwrap_or(0));
            if let Some(config) = jobs.configs.get(&pair).filter(|config| !config.is_empty()) {
                entries.push(ProviderConfigEntry {
                    kind: kind.clone(),
                    kind_version: version,
                    config: config
                        .spec
                        .clone()
                        .map(Json::into_bytes)
                        .unwrap_or_default(),
                    bundle: config.bundle.clone().unwrap_or_default(),
                });
            }
        }
        Ok(Response::new(GetProviderConfigResponse { entries }))
    }
}

async fn serve(
    shared: Arc<Shared>,
    mut up: Streaming<WorkStreamClientMsg>,
    down: mpsc::Sender<Result<WorkStreamServerMsg, Status>>,
) {
    let mut session = None;
    let half_closed = loop {
        let body = match up.next().await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(message)) => message.body,
        };
        let problem = handle(&shared, &mut session, body, &down);
        shared.changed();
        if let Some(problem) = problem {
            // The stream ends with it; if it is gone already there is nobody to tell.
            let _ = down.send(Err(Status::invalid_argument(problem))).await;
            break false;
        }
    };
    if let Some(id) = session {
        shared.jobs().end(id, half_closed, Instant::now());
    }
    shared.changed();
}

/// Handles one message; returns why the stream has to end.
fn handle(
    shared: &Shared,
    session: &mut Option<u64>,
    body: Option<Body>,
    down: &mpsc::Sender<Result<WorkStreamServerMsg, Status>>,
) -> Option<&'static str> {
    let now = Instant::now();
    let mut jobs = shared.jobs();
    match (*session, body) {
        (None, Some(Body::Subscribe(subscribe))) => {
            *session = jobs.subscribe(subscribe, down.clone(), shared.options.push_configs, now);
            session
                .is_none()
                .then_some("the subscription cannot be served")
        }
        (None, _) => Some("the first message must be Subscribe"),
        (Some(_), Some(Body::Subscribe(_))) => Some("Subscribe came twice"),
        (Some(_), Some(Body::Complete(complete))) => {
            jobs.complete(complete, shared.options.retry_after, now);
            None
        }
        (Some(id), Some(Body::Heartbeat(beat))) => {
            jobs.heartbeats += 1;
            for (token, epoch) in beat.lease_token.iter().zip(&beat.claim_epoch) {
                jobs.name(id, token, *epoch, now);
            }
            None
        }
        (Some(id), Some(Body::Interest(interest))) => {
            let version = if interest.kind_version == 0 {
                1
            } else {
                interest.kind_version
            };
            let pair = KindVersion::new(&interest.kind, u16::try_from(version).unwrap_or(0));
            if let Some(takes) = jobs
                .sessions
                .get_mut(&id)
                .and_then(|session| session.pairs.get_mut(&pair))
            {
                *takes = interest.has_worker;
            }
            None
        }
        // A message of a later version of the contract.
        (Some(_), None) => None,
    }
}
