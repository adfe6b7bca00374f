//! The worker: one run loop that keeps a session to the broker and runs handlers.
//!
//! [`run_worker`] owns a thread of its own for the stream, heartbeats and timers, so that a busy handler can never hold up a
//! heartbeat; handlers run on the runtime that called it. It touches no global.
//!
//! `core` is the loop; `uplink` begins and ends sessions (`session`, `outbox`) and keeps configs (`pairs`); `dispatch` takes,
//! starts and answers tasks (`tasks`, `handler`); `results` is what may not have arrived; `drain` how it ends. What those who
//! ask from outside are told is in `health` and `metrics`, and `endpoint` tells it.

mod backoff;
mod convert;
mod core;
mod dispatch;
mod drain;
mod endpoint;
mod gather;
mod handler;
mod health;
mod metrics;
mod outbox;
mod pairs;
mod results;
mod session;
mod tasks;
#[cfg(all(test, feature = "testing"))]
mod tests;
mod timers;
mod uplink;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "testing")]
pub(crate) use self::outbox::Outbox;
#[cfg(feature = "testing")]
pub(crate) use crate::transport::Link;

pub(crate) use self::endpoint::Endpoint;

use self::core::Core;
use self::pairs::Pairs;
use crate::tls::Tls;
use crate::{Provider, RunOptions, TlsFiles};

/// Why a worker did not start, or did not end in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The providers cannot be served as registered.
    #[error("cannot serve: {}", problems.join("; "))]
    Registration {
        /// Everything that is wrong.
        problems: Vec<String>,
    },
    /// The health endpoint cannot listen on its address.
    #[error("HEALTH_ADDR={addr}: could not listen there; port 0 takes a free one")]
    Health {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The files that TLS with the broker needs cannot be used.
    #[error("cannot set up TLS with the broker: {}", problems.join("; "))]
    Tls {
        /// Everything that is wrong, each with its variable and file.
        problems: Vec<String>,
    },
    /// The worker's own thread could not be started.
    #[error("could not start the worker's thread")]
    Thread(#[source] std::io::Error),
    /// The drain budget was spent while the broker was away, so that it may not have every result; what it has not runs again.
    #[error("the broker went away and may not have {} results: {}", unsent.len(), unsent.join(", "))]
    Unsent {
        /// Kind, name and claim epoch of each.
        unsent: Vec<String>,
    },
    /// The worker's own thread ended without a word: a defect of this crate.
    #[error("the worker's thread ended unexpectedly")]
    Lost,
}

/// Serves the providers until `shutdown` resolves, then drains.
///
/// Must be called on a Tokio runtime: handlers run on it. Dropping the returned future drops the handlers and closes the
/// connection at once, without a drain. With [`RunOptions::health_addr`] the health endpoint answers from before anything is
/// dialled until the drain is over.
///
/// # Errors
/// [`WorkerError::Registration`], [`WorkerError::Tls`] and [`WorkerError::Health`] before anything is dialled;
/// [`WorkerError::Unsent`] if a drain could not deliver everything. An unreachable broker is no error: the worker keeps trying.
pub async fn run_worker(
    providers: Vec<Arc<dyn Provider>>,
    options: RunOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), WorkerError> {
    let endpoint = options.health_addr.map(Endpoint::bind).transpose()?;
    run_worker_at(providers, options, endpoint, shutdown).await
}

/// [`run_worker`] with an endpoint that listens already, whatever the options say of it.
pub(crate) async fn run_worker_at(
    providers: Vec<Arc<dyn Provider>>,
    mut options: RunOptions,
    endpoint: Option<Endpoint>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), WorkerError> {
    let pairs = Pairs::register(providers, &options)?;
    let tls = if options.broker.is_tls() {
        let tls = Tls::read(&options).await;
        Some(Arc::new(
            tls.map_err(|problems| WorkerError::Tls { problems })?,
        ))
    } else {
        if options.tls != TlsFiles::default() {
            tracing::warn!(broker = %options.broker, "TLS files are given, but the broker's address does not say https://: nothing is encrypted, and the files are not used");
        }
        None
    };
    options.tls_loaded.clone_from(&tls);
    let reload_interval = options.tls_reload_interval;
    let stop = CancellationToken::new();
    let abandon = CancellationToken::new();
    let _abandon_on_drop = abandon.clone().drop_guard();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(WorkerError::Thread)?;
    let (core, exposed) = Core::new(pairs, options, Handle::current(), stop.clone(), abandon);
    let endpoint = endpoint
        .map(|endpoint| endpoint.serve(exposed))
        .transpose()?;
    let (report, ended) = tokio::sync::oneshot::channel();
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    std::thread::Builder::new()
        .name("converge-worker".to_owned())
        .spawn(move || {
            let _subscriber = tracing::dispatcher::set_default(&subscriber);
            let result = runtime.block_on(async {
                match tls {
                    Some(tls) => tokio::select! {
                        ended = core.run() => ended,
                        () = tls.keep_fresh(reload_interval) => Err(WorkerError::Lost),
                    },
                    None => core.run().await,
                }
            });
            // A name that is still being looked up must not hold up the end.
            runtime.shutdown_background();
            // Nobody listens if the caller has dropped us.
            let _ = report.send(result);
        })
        .map_err(WorkerError::Thread)?;
    let mut ended = pin!(ended);
    let mut shutdown = pin!(shutdown);
    let result = tokio::select! {
        result = &mut ended => result,
        () = &mut shutdown => {
            stop.cancel();
            ended.await
        }
    };
    if let Some(endpoint) = endpoint {
        endpoint.stop().await;
    }
    result.unwrap_or(Err(WorkerError::Lost))
}
