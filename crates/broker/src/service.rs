//! The gRPC service, its listener, and what runs beside the sessions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use converge_engine::command::{Command, LeaseLost};
use converge_engine::fleet::Fleet;
use converge_engine::model::{ClaimRef, LeaseToken};
use converge_engine::store::{Store, StoreError};
use converge_types::ids::KindVersion;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use crate::activity::{Activity, Watched};
use crate::arrivals::{Terms, arrivals};
use crate::generated::worker_service_server::{WorkerService, WorkerServiceServer};
use crate::generated::{
    GetProviderConfigRequest, GetProviderConfigResponse, ProviderConfigEntry, WorkStreamClientMsg,
};
use crate::leases::Leases;
use crate::outbox::{OutStream, Outbox};
use crate::registry::Registry;
use crate::session;
use crate::tls::{Peer, TlsConfigs};

/// One message is at most this after decompression.
const MAX_MESSAGE_BYTES: usize = converge_types::limits::WIRE_MESSAGE_BYTES;
/// Connections beyond those that may have a stream.
const SPARE_CONNECTIONS: usize = 1_024;
/// Pairs one worker serves.
pub(crate) const MAX_PAIRS: usize = 1_024;
/// Well above the stream window, so that one unread stream never stalls the others of its connection.
const CONNECTION_WINDOW: u32 = 64 << 20;
const STREAM_WINDOW: u32 = 4 << 20;
/// Keepalive pings, and how long an answer may take.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Leases that ran out are looked for this often per lease length, and at most every 200 ms.
const EXPIRY_CHECKS_PER_LEASE: u32 = 50;

/// How a broker runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name in claims and in the fleet.
    pub name: String,
    /// How long a claim lives without being named. At least three heartbeats of the workers.
    pub lease: Duration,
    /// Streams at a time; more are refused with RESOURCE_EXHAUSTED.
    pub max_streams: usize,
    /// No stream is given more tasks than this, whatever it asks for.
    pub max_credit: u32,
    /// Workers must speak TLS by the newest of these; without, they speak cleartext.
    pub tls: Option<TlsConfigs>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "broker".to_owned(),
            lease: converge_types::limits::LEASE,
            max_streams: 10_000,
            max_credit: 4_096,
            tls: None,
        }
    }
}

/// Why a broker stopped or did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The live claims could not be read at start.
    #[error("could not read the live claims")]
    Claims(#[source] StoreError),
    /// The gRPC server failed.
    #[error("the gRPC server failed")]
    Serve(#[source] tonic::transport::Error),
}

/// What sessions share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) options: Options,
    pub(crate) leases: Leases,
    pub(crate) registry: Arc<Registry>,
    pub(crate) shutdown: CancellationToken,
    /// No stream claims any more; see [`Broker::hold_claims`].
    pub(crate) holding: CancellationToken,
    pub(crate) tracker: TaskTracker,
    streams: Semaphore,
    sessions: AtomicU64,
}

/// A broker over a store. Cheap to clone.
#[derive(Clone)]
pub struct Broker(Arc<Shared>);

impl Broker {
    /// A broker that serves nothing yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, options: Options) -> Self {
        Self(Arc::new(Shared {
            store,
            leases: Leases::new(options.lease),
            registry: Arc::new(Registry::new(options.name.clone())),
            shutdown: CancellationToken::new(),
            holding: CancellationToken::new(),
            tracker: TaskTracker::new(),
            streams: Semaphore::new(options.max_streams),
            sessions: AtomicU64::new(1),
            options,
        }))
    }

    /// Who is connected.
    #[must_use]
    pub fn fleet(&self) -> Arc<dyn Fleet> {
        self.0.registry.clone()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }

    /// From now on no stream is given new tasks; results and heartbeats go on.
    pub fn hold_claims(&self) {
        self.0.holding.cancel();
    }

    /// Serves until `shutdown`, then ends every stream with UNAVAILABLE; releases no claim.
    ///
    /// # Errors
    /// The live claims could not be read, or the listener failed.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: CancellationToken,
    ) -> Result<(), BrokerError> {
        let shared = self.0.clone();
        let claims = shared
            .store
            .claim_list()
            .await
            .map_err(BrokerError::Claims)?;
        shared.leases.begin(claims.iter().filter_map(|row| {
            let claim = row.claim.as_ref()?;
            Some(ClaimRef {
                token: LeaseToken {
                    uid: row.uid,
                    secret: claim.secret,
                },
                epoch: claim.epoch,
            })
        }));
        let service = WorkerServiceServer::from_arc(Arc::new(Service(shared.clone())))
            .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        // A worker has one connection and one stream on it; those that are too many have a connection to be told so on.
        let connections = shared.options.max_streams.saturating_add(SPARE_CONNECTIONS);
        let incoming = arrivals(
            listener,
            Terms::new(connections, shared.options.tls.clone()),
        );
        let stop = shared.shutdown.clone();
        let server = Server::builder()
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_stream_window_size(STREAM_WINDOW)
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(KEEPALIVE))
            .add_service(Watched(service))
            .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let mut server = std::pin::pin!(server);
        let mut expiry = std::pin::pin!(expire_leases(&shared));
        let served = loop {
            tokio::select! {
                served = &mut server => break served.map_err(BrokerError::Serve),
                () = &mut expiry => {}
                () = shutdown.cancelled(), if !stop.is_cancelled() => stop.cancel(),
            }
        };
        shared.shutdown.cancel();
        shared.tracker.close();
        shared.tracker.wait().await;
        served
    }
}

/// Ends leases nobody named, for as long as the broker serves.
async fn expire_leases(shared: &Shared) {
    let every = (shared.options.lease / EXPIRY_CHECKS_PER_LEASE).min(Duration::from_millis(200));
    let mut tick = tokio::time::interval(every.max(Duration::from_millis(5)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if shared.shutdown.is_cancelled() {
            continue;
        }
        let lost = shared.leases.expire(Instant::now(), 1_000);
        if lost.is_empty() {
            continue;
        }
        tracing::warn!(claims = lost.len(), "leases ran out");
        let command = Command::LeaseLost(LeaseLost {
            claims: lost.clone(),
            seed: session::random() as u64,
        });
        if let Some(Err(error)) = shared.store.transact(vec![command]).await.pop() {
            tracing::error!(error = %error, "lost leases could not be written; trying again in one lease");
            shared.leases.begin(lost);
        }
    }
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl WorkerService for Service {
    type WorkStreamStream = OutStream;

    async fn work_stream(
        &self,
        request: Request<Streaming<WorkStreamClientMsg>>,
    ) -> Result<Response<OutStream>, Status> {
        let shared = self.0.clone();
        if shared.shutdown.is_cancelled() {
            return Err(Status::unavailable("the broker is shutting down"));
        }
        if shared.streams.available_permits() == 0 {
            return Err(Status::resource_exhausted(
                "as many streams are open as this broker takes",
            ));
        }
        let identity = request
            .extensions()
            .get::<Peer>()
            .map_or_else(|| "unknown".to_owned(), Peer::identity);
        let activity = request
            .extensions()
            .get::<Activity>()
            .cloned()
            .unwrap_or_else(Activity::new);
        let number = shared.sessions.fetch_add(1, Ordering::Relaxed);
        let outbox = Outbox::default();
        let stream = outbox.stream();
        let inbound = request.into_inner();
        let tracker = shared.tracker.clone();
        tracker.spawn(async move {
            let Ok(_permit) = shared.streams.acquire().await else {
                return;
            };
            session::run(&shared, number, identity, inbound, outbox, activity).await;
        });
        // Answering now sends the headers at once.
        Ok(Response::new(stream))
    }

    async fn get_provider_config(
        &self,
        request: Request<GetProviderConfigRequest>,
    ) -> Result<Response<GetProviderConfigResponse>, Status> {
        let request = request.into_inner();
        if request.kinds.len() > MAX_PAIRS {
            return Err(too_many_pairs());
        }
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        let mut bytes = 0;
        for (at, kind) in request.kinds.iter().enumerate() {
            let version = request.kind_versions.get(at).copied().unwrap_or(1);
            let Ok(kv) = KindVersion::parse(kind, version) else {
                continue;
            };
            if !seen.insert(kv.clone()) {
                continue;
            }
            let found = self.0.store.config_default(&kv).await;
            let found = found.map_err(|error| Status::unavailable(error.to_string()))?;
            if let Some((config, bundle)) = found {
                bytes += config.spec.size() + bundle.as_ref().map_or(0, |bundle| bundle.0.len());
                if bytes > MAX_MESSAGE_BYTES {
                    return Err(Status::resource_exhausted(
                        "the configs of these pairs do not fit into one message; ask for fewer",
                    ));
                }
                entries.push(ProviderConfigEntry {
                    kind: kind.clone(),
                    kind_version: version,
                    config: config.spec.bytes().clone(),
                    bundle: bundle
                        .map(|bundle| bytes::Bytes::copy_from_slice(&bundle.0))
                        .unwrap_or_default(),
                });
            }
        }
        Ok(Response::new(GetProviderConfigResponse { entries }))
    }
}

/// What asks for or serves more pairs than any worker has.
pub(crate) fn too_many_pairs() -> Status {
    Status::invalid_argument(format!("a worker serves at most {MAX_PAIRS} pairs"))
}
