//! The in-memory broker: a server on loopback around [`Jobs`](super::jobs::Jobs).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use super::jobs::{Jobs, Look};
use super::service::Service;
use crate::wire::worker_service_server::WorkerServiceServer;
use crate::wire::{StageTask, WorkRequest};
use crate::{Json, KindVersion, ProviderConfig, wire};

/// How the in-memory broker behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BrokerOptions {
    /// How long a claim lives that nothing names, 30 s.
    pub lease: Duration,
    /// After how long a transient failure, or a task given back, is dispatched again, 50 ms.
    pub retry_after: Duration,
    /// Whether configs are pushed at the start of a stream and after each edit. One that does not push is allowed by the
    /// contract too.
    pub push_configs: bool,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            retry_after: Duration::from_millis(50),
            push_configs: true,
        }
    }
}

pub(super) struct Shared {
    pub(super) options: BrokerOptions,
    jobs: Mutex<Jobs>,
    version: watch::Sender<u64>,
    streams: Mutex<JoinSet<()>>,
    sockets: Mutex<Vec<std::net::TcpStream>>,
    hold_pulls: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn jobs(&self) -> MutexGuard<'_, Jobs> {
        lock(&self.jobs)
    }

    /// Something happened: dispatch what can be, and wake who waits.
    pub(super) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Resolves when pulls may be answered.
    pub(super) async fn pulls_go_on(&self) {
        // The sender lives as long as we do.
        let _ = self.hold_pulls.subscribe().wait_for(|held| !held).await;
    }

    pub(super) fn spawn(&self, stream: impl Future<Output = ()> + Send + 'static) {
        let mut streams = lock(&self.streams);
        while streams.try_join_next().is_some() {}
        streams.spawn(stream);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A job's counters beyond its [`Look`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// The epoch of the last claim: how often it was dispatched.
    pub epoch: i64,
    /// True while a claim on it is live.
    pub is_claimed: bool,
    /// How often it was given back without an outcome.
    pub interrupted: u32,
    /// How often its lease ran out.
    pub lost: u32,
}

/// A broker in memory that speaks the real wire on loopback. Dropping it cuts every connection.
pub struct MemoryBroker {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl MemoryBroker {
    /// Starts one with the default options on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(BrokerOptions::default()).await
    }

    /// Starts one on a free loopback port.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start_with(options: BrokerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            options,
            jobs: Mutex::default(),
            version: watch::Sender::new(0),
            streams: Mutex::default(),
            sockets: Mutex::default(),
            hold_pulls: watch::Sender::new(false),
        });
        let mut tasks = JoinSet::new();
        let sockets = Arc::clone(&shared);
        let incoming =
            TcpListenerStream::new(listener).map(move |stream| remember(&sockets, stream?));
        let service = WorkerServiceServer::new(Service(Arc::clone(&shared)))
            .max_decoding_message_size(512 << 20)
            .max_encoding_message_size(512 << 20);
        tasks.spawn(async move {
            let server = Server::builder()
                .initial_stream_window_size(4 << 20)
                .initial_connection_window_size(64 << 20);
            // It ends only when it is dropped; a failed accept is one lost connection.
            let _ = server.serve_with_incoming(service, incoming).await;
        });
        tasks.spawn(dispatch(Arc::clone(&shared)));
        Ok(Self {
            addr,
            shared,
            _tasks: tasks,
        })
    }

    /// The address to dial.
    pub fn addr(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The options it was started with.
    pub fn options(&self) -> &BrokerOptions {
        &self.shared.options
    }

    /// Sets the default config of a pair; an empty one removes it.
    pub fn set_config(&self, pair: &KindVersion, config: ProviderConfig) {
        self.shared.jobs().set_config(pair, config);
        self.shared.changed();
    }

    /// Holds back the answers to pulls of configs, or lets them go.
    pub fn hold_pulls(&self, hold: bool) {
        self.shared.hold_pulls.send_replace(hold);
    }

    /// Applies a resource: its next generation, with this spec, is due for stage work, reaction `work`.
    pub fn apply(&self, pair: &KindVersion, name: &str, spec: Json) {
        let resource = wire::Resource {
            id: id_of(pair, name),
            kind: pair.kind().to_owned(),
            name: name.to_owned(),
            spec: spec.into_bytes(),
            ..wire::Resource::default()
        };
        let task = StageTask {
            stage: wire::Stage::Work.into(),
            kind: pair.kind().to_owned(),
            kind_version: pair.version().into(),
            resource_id: resource.id.clone(),
            reaction: "work".to_owned(),
            work_req: Some(WorkRequest {
                resource: Some(resource),
                ..WorkRequest::default()
            }),
            ..StageTask::default()
        };
        self.put(pair, name, task);
    }

    pub(crate) fn put(&self, pair: &KindVersion, name: &str, task: StageTask) {
        self.shared
            .jobs()
            .put(key(pair, name), pair, task, Instant::now());
        self.shared.changed();
    }

    /// What is known of a resource.
    pub fn look(&self, pair: &KindVersion, name: &str) -> Option<Look> {
        let jobs = self.shared.jobs();
        jobs.entries
            .get(&key(pair, name))
            .map(|entry| entry.look.clone())
    }

    /// The counters of a resource.
    pub fn job(&self, pair: &KindVersion, name: &str) -> Option<Job> {
        let jobs = self.shared.jobs();
        jobs.entries.get(&key(pair, name)).map(|entry| Job {
            epoch: entry.epoch,
            is_claimed: entry.claim.is_some(),
            interrupted: entry.interrupted,
            lost: entry.lost,
        })
    }

    /// How many results changed nothing because their claim was not live.
    pub fn fenced(&self) -> u64 {
        self.shared.jobs().fenced
    }

    /// How many heartbeats came in.
    pub fn heartbeats(&self) -> u64 {
        self.shared.jobs().heartbeats
    }

    /// How many streams are up.
    pub fn sessions(&self) -> usize {
        self.shared.jobs().sessions.len()
    }

    /// Whether some stream takes tasks of this pair.
    pub fn is_served(&self, pair: &KindVersion) -> bool {
        self.shared.jobs().served().contains(pair)
    }

    /// Cuts every connection without a word.
    pub fn cut(&self) {
        for socket in lock(&self.shared.sockets).drain(..) {
            // It may be closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Waits until something holds, looking at every change.
    ///
    /// # Panics
    /// When it does not hold within `limit`: this is for tests.
    pub async fn until(&self, limit: Duration, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut versions = self.shared.version.subscribe();
        let wait = async {
            loop {
                versions.mark_unchanged();
                if holds(self) {
                    return;
                }
                // The sender lives as long as we do.
                let _ = versions.changed().await;
            }
        };
        assert!(
            tokio::time::timeout(limit, wait).await.is_ok(),
            "not within {limit:?}: {what}"
        );
    }
}

#[cfg(test)]
impl MemoryBroker {
    /// Sends a message to every stream.
    pub(crate) fn send(&self, message: wire::WorkStreamServerMsg) {
        for session in self.shared.jobs().sessions.values() {
            session
                .down
                .try_send(Ok(message.clone()))
                .expect("the stream takes messages");
        }
    }

    /// The last result of a resource, whether it landed as a success or not.
    pub(crate) fn last(&self, pair: &KindVersion, name: &str) -> Option<wire::StageComplete> {
        self.shared
            .jobs()
            .entries
            .get(&key(pair, name))?
            .last
            .clone()
    }

    /// Ends the claim of a resource and makes it due again, as if its lease had run out.
    pub(crate) fn steal(&self, pair: &KindVersion, name: &str) {
        if let Some(entry) = self.shared.jobs().entries.get_mut(&key(pair, name)) {
            entry.claim = None;
        }
        self.shared.changed();
    }
}

impl Drop for MemoryBroker {
    fn drop(&mut self) {
        self.cut();
        lock(&self.shared.streams).abort_all();
    }
}

fn key(pair: &KindVersion, name: &str) -> String {
    format!("{pair} {name}")
}

/// Sixteen bytes that are the same for the same resource.
fn id_of(pair: &KindVersion, name: &str) -> bytes::Bytes {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (pair, name).hash(&mut hasher);
    let half = hasher.finish().to_be_bytes();
    [half, half].concat().into()
}

fn remember(shared: &Shared, stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    lock(&shared.sockets).push(stream.try_clone()?);
    TcpStream::from_std(stream)
}

/// Dispatches at every change, and when a lease or a pause runs out.
async fn dispatch(shared: Arc<Shared>) {
    let mut versions = shared.version.subscribe();
    loop {
        versions.mark_unchanged();
        let before = shared.jobs().counts();
        let again = shared.jobs().pump(shared.options.lease, Instant::now());
        if shared.jobs().counts() != before {
            shared.changed();
            versions.mark_unchanged();
        }
        let again = again.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            _ = versions.changed() => {}
            () = tokio::time::sleep_until(again.into()) => {}
        }
    }
}
