//! `converge dev`: the wiring of everything in one process, and the order in which it ends.
//!
//! Start: lock the directory, open the store, bind both ports, serve, say where. End, within [`BUDGET`] whatever clients do: readiness
//! off, listeners closed and no new claims, requests under way get their grace, streams end, the store checkpoints. A worker of our
//! own is ended while the broker still takes its results; the broker stays for nobody else. No claim is released: a worker that still runs a task may report it to the next process.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use converge_api::Api;
use converge_broker::Broker;
use converge_engine::Store;
use converge_store_sqlite::SqliteStore;
use converge_types::limits;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::data_dir::{Addresses, DataDir};
use crate::entry::Entry;
use crate::options::{Dev, HEARTBEATS_PER_LEASE};
use crate::tls::TlsFiles;
use crate::{http, signals, sweeps, worker};

/// From the first signal to the exit.
const BUDGET: Duration = Duration::from_secs(10);
/// How long the API waits for its clients. The grace is part of the budget.
const PATIENCE: http::Patience = http::Patience {
    handshake: Duration::from_secs(10),
    head: Duration::from_secs(30),
    answer: Duration::from_secs(60),
    grace: Duration::from_secs(5),
};
/// How long a worker of ours may take to end.
const WORKER_GRACE: Duration = Duration::from_secs(5);
/// Kept of the budget for the checkpoint and the exit.
const CLOSE_RESERVE: Duration = Duration::from_secs(2);

/// Runs until a signal, or until a part fails.
pub(crate) async fn run(options: Dev, entry: Entry) -> Result<()> {
    let mut signals = signals::Stop::listen()?;
    let data_dir = DataDir::lock(&options.data_dir)?;
    data_dir.addresses_remove()?;
    let database = data_dir.database();
    let store = tokio::task::spawn_blocking(move || {
        SqliteStore::open(database, converge_store_sqlite::Options::default())
    });
    let store = store.await.context("opening the store panicked")?;
    // SQLite says "disk I/O error" of a full disk, which sends people to the wrong place.
    let store = match data_dir.full() {
        Some(why) => store.context(why),
        None => store.map_err(anyhow::Error::new),
    };
    let store: Arc<dyn Store> = Arc::new(store?);

    let api_listener = bind("the REST API", "--listen", options.listen).await?;
    let broker_listener = bind("the broker", "--broker-listen", options.broker_listen).await?;
    let broker_address = broker_listener.local_addr()?;
    let addresses = Addresses {
        api: url(api_listener.local_addr()?, options.entry.api.as_ref()),
        broker: url(broker_address, options.entry.broker.as_ref()),
    };
    if options.entry.token_file.is_some()
        && options.entry.api.is_none()
        && !options.listen.ip().is_loopback()
    {
        tracing::warn!(
            "the token travels in cleartext beyond this machine: give --tls-cert and --tls-key too"
        );
    }

    if options.lease < limits::HEARTBEAT * HEARTBEATS_PER_LEASE {
        tracing::warn!(
            lease = ?options.lease,
            "workers that this process does not start need WORKER_HEARTBEAT_INTERVAL={:?}: by default they say that they live every {:?}, too rarely for this lease, and lose their tasks",
            options.heartbeat,
            limits::HEARTBEAT
        );
    }

    let broker = Broker::new(
        store.clone(),
        converge_broker::Options {
            name: format!("broker-{}", std::process::id()),
            lease: options.lease,
            max_streams: options.max_streams,
            tls: entry.broker(),
            ..converge_broker::Options::default()
        },
    );
    let api = Api::new(
        store.clone(),
        broker.fleet(),
        converge_api::Options {
            allowed_hosts: options.allowed_hosts.clone(),
            token: entry.token(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("CONVERGE_COMMIT").map(str::to_owned),
            store: "sqlite".to_owned(),
            role: "all".to_owned(),
            broker_address: addresses.broker.clone(),
            started_ms: store.now_ms(),
        },
    );

    let stop = CancellationToken::new();
    let mut parts: JoinSet<Result<()>> = JoinSet::new();
    let router = converge_api::router(api.clone());
    parts.spawn(done(http::serve(
        api_listener,
        entry.api(),
        router,
        stop.clone(),
        PATIENCE,
    )));
    parts.spawn(done(sweeps::timers(
        store.clone(),
        options.sweep_interval,
        stop.clone(),
    )));
    parts.spawn(done(sweeps::forget(
        store.clone(),
        options.forget_interval,
        stop.clone(),
    )));
    parts.spawn(done(entry.keep_fresh(stop.clone())));
    let streams = CancellationToken::new();
    let serving = streams.clone();
    let held = broker.clone();
    parts.spawn(async move {
        broker
            .serve(broker_listener, serving)
            .await
            .context("the broker ended")
    });
    if let Some(program) = options.worker {
        let supervised = worker::Supervised {
            program,
            broker: url(reachable(broker_address), options.entry.broker.as_ref()),
            heartbeat: options.heartbeat,
            grace: WORKER_GRACE,
        };
        let (stop, streams) = (stop.clone(), streams.clone());
        parts.spawn(async move {
            supervised.run(stop).await;
            streams.cancel();
            Ok(())
        });
    } else {
        // Nobody's results are waited for.
        let (stop, streams) = (stop.clone(), streams.clone());
        parts.spawn(async move {
            stop.cancelled().await;
            streams.cancel();
            Ok(())
        });
    }

    announce(&data_dir, &addresses)?;
    // Until a signal. A part that ends before one has failed, and takes the rest down in order.
    let mut failure = None;
    tokio::select! {
        name = signals.next() => tracing::info!(signal = name, "shutting down"),
        Some(ended) = parts.join_next() => {
            failure = Some(match ended {
                Ok(Err(error)) => error,
                Ok(Ok(())) => anyhow::anyhow!("a part of the server ended by itself"),
                Err(error) => anyhow::Error::new(error).context("a part of the server panicked"),
            });
        }
    }
    let end = Instant::now() + BUDGET;
    api.drain();
    held.hold_claims();
    stop.cancel();
    let orderly = async {
        while let Some(ended) = parts.join_next().await {
            if let Err(error) = ended.map_err(anyhow::Error::new).flatten() {
                failure.get_or_insert(error);
            }
        }
    };
    tokio::select! {
        () = orderly => {}
        () = sleep_until(end - CLOSE_RESERVE) => tracing::warn!("parts of the server did not end in time and are cut"),
    }
    parts.abort_all();
    if timeout_at(end - CLOSE_RESERVE / 4, store.close())
        .await
        .is_err()
    {
        tracing::warn!("the store did not close in time; the next start recovers it");
    }
    if let Err(error) = data_dir.addresses_remove() {
        tracing::warn!(
            error = format!("{error:#}"),
            "the addresses of this process stay behind"
        );
    }
    failure.map_or(Ok(()), Err)
}

async fn done(part: impl Future<Output = ()>) -> Result<()> {
    part.await;
    Ok(())
}

async fn bind(what: &str, flag: &str, address: SocketAddr) -> Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| {
        format!("could not listen on {address} for {what} ({flag}); port 0 takes a free one")
    })
}

fn url(address: SocketAddr, tls: Option<&TlsFiles>) -> String {
    let scheme = if tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Where a neighbour on this machine dials what listens there: no certificate is for the address that stands for all.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Says where both answer. Connections to a bound port are taken from here on, so they do.
fn announce(data_dir: &DataDir, addresses: &Addresses) -> Result<()> {
    data_dir.addresses_write(addresses)?;
    let mut out = std::io::stdout().lock();
    let text = format!("API     {}\nbroker  {}\n", addresses.api, addresses.broker);
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Nobody reads it; the file says the same.
        tracing::debug!(%error, "could not print the addresses");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_dials_loopback_where_all_addresses_are_listened_on() {
        for (bound, dialled) in [
            ("0.0.0.0:9090", "127.0.0.1:9090"),
            ("[::]:9090", "[::1]:9090"),
            ("127.0.0.2:1", "127.0.0.2:1"),
        ] {
            let address: SocketAddr = bound.parse().unwrap();
            assert_eq!(reachable(address).to_string(), dialled);
        }
    }
}
