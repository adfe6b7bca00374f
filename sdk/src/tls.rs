//! TLS towards the broker: whom we trust, who we are, and how both stay fresh.
//!
//! The files are read before anything is dialled and again at an interval; a dial takes what was last read whole, so that a
//! file caught half-written costs a warning and no connection. What a file holds never reaches a log or an error: those name
//! the variable, the path and what is wrong. Not here: the bytes above TLS (`transport.rs`).

mod failure;
mod files;
mod wire;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_rustls::TlsConnector;

use self::files::Contents;
use crate::options::{RunOptions, TlsFiles};

pub(crate) use self::failure::TlsFailure;
pub(crate) use self::wire::Wire;

/// What a dial to an `https://` broker needs.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    host: String,
    name: ServerName<'static>,
    /// The roots of the system, if they are what is trusted; read once.
    system: Option<Arc<RootCertStore>>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ClientConfig>,
    /// Of what was last read, good or not: the same contents are looked at once.
    print: u64,
    /// What was last read cannot be used.
    is_stale: bool,
}

impl Tls {
    /// Reads the files that the options name; everything that is wrong with them, each with its variable.
    pub(crate) async fn read(options: &RunOptions) -> Result<Self, Vec<String>> {
        let files = options.tls.clone();
        let host = options.broker.host().to_owned();
        let name = ServerName::try_from(host.clone()).map_err(|_| {
            vec![format!(
                "BROKER_ADDR={}: no certificate can be for the name {host:?}; use a DNS name or an address",
                options.broker
            )]
        })?;
        blocking(move || {
            let system = match files.ca {
                Some(_) => None,
                None => Some(Arc::new(files::system_roots().map_err(|why| vec![why])?)),
            };
            let contents = Contents::read(&files);
            let config = contents.build(&files, system.as_deref())?;
            Ok(Self {
                files,
                host,
                name,
                system,
                current: Mutex::new(Current {
                    config: Arc::new(config),
                    print: contents.print(),
                    is_stale: false,
                }),
            })
        })
        .await
        .unwrap_or_else(|why| Err(vec![why]))
    }

    /// Reads the files again at this interval, for ever.
    pub(crate) async fn keep_fresh(self: Arc<Self>, every: Duration) {
        if self.files == TlsFiles::default() {
            return std::future::pending().await;
        }
        let mut tick = interval_at(Instant::now() + every, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let tls = Arc::clone(&self);
            // Said here: a thread for blocking work has no subscriber of its own.
            match blocking(move || tls.refresh()).await {
                Ok(None) => {}
                Ok(Some(Ok(()))) => tracing::info!(
                    "the TLS files have changed; the next connection to the broker uses them"
                ),
                Ok(Some(Err(wrong))) => tracing::warn!(
                    error = wrong.join("; "),
                    "the TLS files have changed and cannot be used; what was read before stays in use"
                ),
                Err(why) => tracing::warn!(error = why, "the TLS files could not be read again"),
            }
        }
    }

    /// `None` if nothing has changed. Blocks.
    fn refresh(&self) -> Option<Result<(), Vec<String>>> {
        let contents = Contents::read(&self.files);
        let print = contents.print();
        if print == self.current().print {
            return None;
        }
        let built = contents.build(&self.files, self.system.as_deref());
        let mut current = self.current();
        current.print = print;
        current.is_stale = built.is_err();
        Some(built.map(|config| current.config = Arc::new(config)))
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shakes hands with the broker on this connection.
    pub(crate) async fn connect(&self, stream: TcpStream) -> Result<Wire, TlsFailure> {
        let config = Arc::clone(&self.current().config);
        let connected = TlsConnector::from(config)
            .connect(self.name.clone(), stream)
            .await;
        match connected {
            Ok(stream) => Ok(Wire::Tls(Box::new(stream))),
            Err(error) => Err(self
                .explain(&error)
                .unwrap_or_else(|| TlsFailure::io(&error))),
        }
    }

    /// What a failed read or write says of TLS; `None` if it is not TLS that failed.
    pub(crate) fn explain(&self, error: &io::Error) -> Option<TlsFailure> {
        let mut failure = TlsFailure::of(error, &self.host, &self.files)?;
        if self.current().is_stale {
            failure.mention_stale();
        }
        Some(failure)
    }
}

/// Files may be on a disk that hangs, and system roots take a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| "reading the TLS files panicked: a defect of this crate".to_owned())
}
