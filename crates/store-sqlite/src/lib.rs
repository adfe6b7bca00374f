//! The embedded store: one SQLite file behind the engine's [`Store`] trait.
//!
//! One thread writes (`writer`): it drains the commands that wait into one transaction, commits with `synchronous=FULL`, and answers
//! afterwards. Reads go to connections of their own and see one snapshot each (`readers`, `reads`). How a row lies in its columns is
//! in `rows`; what the writer asks and writes inside its transaction, in `tables`, over a cache it alone writes (`cache`).
//!
//! What must hold: no answer before its COMMIT returned; a read never waits for a write; a file of a newer schema is refused, not
//! guessed at; one process at a time has the file open (the server locks its data directory before it opens this).
//! Not here: any rule of the control plane; that is the engine's.

mod cache;
mod clock;
mod connection;
mod fault;
mod readers;
mod reads;
mod rows;
mod signals;
mod sql;
mod tables;
mod wal;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use converge_engine::command::{ClaimTasks, Command};
use converge_engine::model::{
    Bundle, Config, Edge, Event, History, ManifestRow, Millis, Pair, Resource, Tombstone,
};
use converge_engine::offers::Offers;
use converge_engine::store::{
    Page, ResourceFilter, ResourceView, SignalStream, Standing, StoreError, TransactError,
};
use converge_engine::{Reply, Store};
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::phase::Phase;
use tokio::sync::{mpsc, oneshot};

use cache::Cache;
use clock::Monotonic;
use readers::Readers;
use rows::manifest::Compiled;
use rows::{config, event, tally};
use signals::Hub;
use tables::Tables;
use wal::Wal;
use writer::{Health, Message, Writer};

pub use clock::{Clock, SystemClock};
pub use connection::OpenError;

/// How a store is opened. The defaults are right for a server.
#[derive(Clone)]
pub struct Options {
    /// The source of stored times.
    pub clock: Arc<dyn Clock>,
    /// Connections that read.
    pub readers: u32,
    /// Calls of [`Store::transact`] that may wait; more wait outside.
    pub queue: usize,
    /// Commands after which a transaction takes no further call.
    pub batch: usize,
    /// Resource rows the writer remembers.
    pub cache_rows: usize,
    /// Bytes the writer's memory of rows and documents may take, roughly.
    pub cache_bytes: usize,
    /// The WAL is cut when it is larger than this.
    pub wal_limit_bytes: u64,
    /// Largest database; at it the store is full as if the disk were. `None`: as large as the disk.
    pub max_bytes: Option<u64>,
    /// Called inside COMMIT, before it is durable; `true` makes it fail.
    #[cfg(test)]
    on_commit: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            readers: 4,
            queue: 1_024,
            batch: 1_024,
            cache_rows: 100_000,
            cache_bytes: 256 << 20,
            wal_limit_bytes: 64 << 20,
            max_bytes: None,
            #[cfg(test)]
            on_commit: None,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("readers", &self.readers)
            .field("queue", &self.queue)
            .field("batch", &self.batch)
            .field("cache_rows", &self.cache_rows)
            .field("cache_bytes", &self.cache_bytes)
            .field("wal_limit_bytes", &self.wal_limit_bytes)
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}

/// See the module.
pub struct SqliteStore {
    /// Taken at the end, so that the writer sees nobody can send any more.
    queue: Mutex<Option<mpsc::Sender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    readers: Arc<Readers>,
    compiled: Arc<Compiled>,
    clock: Arc<Monotonic>,
    hub: Arc<Hub>,
    offers: Arc<Offers>,
    health: Arc<Health>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the database at `path`, creating it where there is none, and starts the thread that writes. Blocks while it does.
    ///
    /// # Errors
    /// The file cannot be opened, is not ours, is newer than this program, or SQLite does not take a setting we rely on.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let settings = connection::WriterSettings {
            wal_limit_bytes: options.wal_limit_bytes,
            max_bytes: options.max_bytes,
        };
        #[cfg_attr(not(test), expect(unused_mut, reason = "only tests hook into it"))]
        let mut conn = connection::writer(path, &settings)?;
        #[cfg(test)]
        if let Some(hook) = options.on_commit.clone() {
            conn.commit_hook(Some(move || hook()))
                .map_err(|source| OpenError::Open {
                    path: path.to_owned(),
                    source,
                })?;
        }
        let compiled = Arc::new(Compiled::default());
        let cache = Cache::new(options.cache_rows, options.cache_bytes);
        let tables =
            Tables::new(conn, cache, compiled.clone()).map_err(|fault| OpenError::Unusable {
                path: path.to_owned(),
                source: fault.on_read(),
            })?;
        let readers = Arc::new(Readers::open(path.to_owned(), options.readers)?);
        let clock = Arc::new(Monotonic::new(options.clock));
        let unusable = |fault: fault::Fault| OpenError::Unusable {
            path: path.to_owned(),
            source: fault.on_write(),
        };
        if tables.notice_clock(clock.now_ms()).map_err(unusable)? {
            tracing::warn!(
                "the clock shows less than at the last write: every timer is looked at again"
            );
        }
        let hub = Arc::new(Hub::default());
        let offers = Arc::new(Offers::default());
        let health = Arc::new(Health::default());
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let writer = Writer {
            tables,
            clock: clock.clone(),
            hub: hub.clone(),
            offers: offers.clone(),
            taken: Vec::new(),
            health: health.clone(),
            wal: Wal::new(wal.into(), options.wal_limit_bytes),
            batch: options.batch.max(1),
            data_version: 0,
        };
        let (queue, messages) = mpsc::channel(options.queue.max(1));
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run(messages))
            .map_err(OpenError::Thread)?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            readers,
            compiled,
            clock,
            hub,
            offers,
            health,
        })
    }

    fn queue(&self) -> Option<mpsc::Sender<Message>> {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Waits for what was sent to be written: dropping a store loses no command.
impl Drop for SqliteStore {
    fn drop(&mut self) {
        drop(
            self.queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the store had panicked");
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn transact(&self, commands: Vec<Command>) -> Vec<Result<Reply, TransactError>> {
        let count = commands.len();
        if count == 0 {
            return Vec::new();
        }
        let (answer, answered) = oneshot::channel();
        let sent = match self.queue() {
            Some(queue) => queue
                .send(Message::Transact(commands, answer))
                .await
                .is_ok(),
            None => false,
        };
        let closed = || {
            (0..count)
                .map(|_| Err(StoreError::Closed.into()))
                .collect::<Vec<_>>()
        };
        if !sent {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }

    fn stand(&self, claim: ClaimTasks) -> Option<Standing> {
        self.queue().is_some().then(|| self.offers.add(claim))
    }

    fn subscribe(&self) -> Box<dyn SignalStream> {
        self.hub.subscribe()
    }

    fn now_ms(&self) -> Millis {
        self.clock.now_ms()
    }

    async fn revision(&self) -> Result<i64, StoreError> {
        self.readers.read(tally::revision).await
    }

    async fn resource_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<ResourceView>, StoreError> {
        let (kind, name) = (kind.clone(), name.clone());
        self.readers
            .read(move |conn| reads::by_name(conn, &kind, &name))
            .await
    }

    async fn resource_get_by_uid(&self, uid: Uid) -> Result<Option<ResourceView>, StoreError> {
        self.readers
            .read(move |conn| reads::by_uid(conn, uid))
            .await
    }

    async fn resource_list(
        &self,
        filter: &ResourceFilter,
        cursor: Option<&str>,
        limit: u32,
        full: bool,
    ) -> Result<Page<ResourceView>, StoreError> {
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.readers
            .read(move |conn| reads::list(conn, &filter, cursor.as_deref(), limit, full))
            .await
    }

    async fn resource_summary(&self) -> Result<Vec<(KindVersion, Phase, u64)>, StoreError> {
        self.readers.read(tally::phases).await
    }

    async fn edge_list(&self, uid: Uid) -> Result<(Vec<Arc<Edge>>, Vec<Arc<Edge>>), StoreError> {
        self.readers.read(move |conn| reads::edges(conn, uid)).await
    }

    async fn graph_get(
        &self,
        uid: Uid,
        limit: u32,
    ) -> Result<(Vec<ResourceView>, Vec<Arc<Edge>>), StoreError> {
        self.readers
            .read(move |conn| reads::below(conn, uid, limit))
            .await
    }

    async fn history_list(&self, uid: Uid) -> Result<Vec<Arc<History>>, StoreError> {
        self.readers
            .read(move |conn| event::history(conn, uid))
            .await
    }

    async fn event_list(
        &self,
        uid: Uid,
        before_seq: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        self.readers
            .read(move |conn| event::list(conn, uid, before_seq, limit))
            .await
    }

    async fn tombstone_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<Tombstone>, StoreError> {
        let (kind, name) = (kind.clone(), name.clone());
        self.readers
            .read(move |conn| event::tombstone(conn, &kind, &name))
            .await
    }

    async fn manifest_get(&self, kv: &KindVersion) -> Result<Option<Arc<ManifestRow>>, StoreError> {
        let (kv, compiled) = (kv.clone(), self.compiled.clone());
        self.readers.read(move |conn| compiled.one(conn, &kv)).await
    }

    async fn manifest_list(&self) -> Result<Vec<(Arc<ManifestRow>, Pair)>, StoreError> {
        let compiled = self.compiled.clone();
        self.readers
            .read(move |conn| {
                let rows = compiled.all(conn)?.into_iter().map(|row| {
                    let tally = tally::of(conn, &row.kv)?;
                    let pair = tally.map_or_else(|| Pair::new(row.kv.clone()), |tally| tally.pair);
                    Ok((row, pair))
                });
                rows.collect()
            })
            .await
    }

    async fn config_get(
        &self,
        name: &ConfigName,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError> {
        let name = name.clone();
        self.readers
            .read(move |conn| with_bundle(conn, config::by_name(conn, &name)?))
            .await
    }

    async fn config_default(
        &self,
        kv: &KindVersion,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError> {
        let kv = kv.clone();
        self.readers
            .read(move |conn| with_bundle(conn, config::default(conn, &kv)?))
            .await
    }

    async fn config_list(
        &self,
        kind: Option<&Kind>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<Arc<Config>>, StoreError> {
        let (kind, cursor) = (kind.cloned(), cursor.map(str::to_owned));
        self.readers
            .read(move |conn| config::page(conn, kind.as_ref(), cursor.as_deref(), limit))
            .await
    }

    async fn claim_list(&self) -> Result<Vec<Arc<Resource>>, StoreError> {
        self.readers.read(reads::claims).await
    }

    fn writable(&self) -> Result<(), StoreError> {
        if self.queue().is_none_or(|queue| queue.is_closed()) {
            return Err(StoreError::Closed);
        }
        self.health.get().map_or(Ok(()), Err)
    }

    async fn close(&self) {
        // Readers first: the last snapshot would keep the WAL from being cut.
        self.readers.close().await;
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(queue) = queue {
            let (done, finished) = oneshot::channel();
            if queue.send(Message::Close(done)).await.is_ok() {
                let _ = finished.await;
            }
        }
    }
}

type WithBundle = (Arc<Config>, Option<Bundle>);

fn with_bundle(
    conn: &rusqlite::Connection,
    row: Option<Arc<Config>>,
) -> Result<Option<WithBundle>, fault::Fault> {
    let Some(row) = row else { return Ok(None) };
    let bundle = config::bundle(conn, &row.name)?;
    Ok(Some((row, bundle)))
}

#[cfg(test)]
mod tests;
