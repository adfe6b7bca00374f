//! The health endpoint: `HEALTH_ADDR`, for probes and for Prometheus.
//!
//! It has a thread of its own, so that it answers while handlers block theirs and while the loop is stuck, which it is there to
//! tell, and so that whoever asks too much holds up no heartbeat. It listens before anything is dialled and stops last.

mod answer;
mod connections;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::connections::Limits;
use super::WorkerError;
use super::health::Health;
use super::metrics::Exposition;

/// An address that is listened on and not yet served.
pub(crate) struct Endpoint {
    listener: TcpListener,
    /// Where it listens.
    pub(crate) addr: SocketAddr,
}

/// What is told to those who ask.
pub(crate) struct Exposed {
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Exposition,
}

/// An endpoint that answers until it is stopped or dropped.
pub(crate) struct Serving {
    stop: DropGuard,
    ended: oneshot::Receiver<()>,
}

impl Endpoint {
    /// Listens on the address; port 0 takes a free one.
    pub(crate) fn bind(addr: SocketAddr) -> Result<Self, WorkerError> {
        let listen = || {
            let listener = TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            Ok(Self {
                addr: listener.local_addr()?,
                listener,
            })
        };
        listen().map_err(|source| WorkerError::Health { addr, source })
    }

    /// Answers from a thread of its own.
    pub(crate) fn serve(self, exposed: Exposed) -> Result<Serving, WorkerError> {
        let addr = self.addr;
        let broken = |source: io::Error| WorkerError::Health { addr, source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(WorkerError::Thread)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).map_err(broken)?
        };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (tell, ended) = oneshot::channel();
        let subscriber = tracing::dispatcher::get_default(Clone::clone);
        std::thread::Builder::new()
            .name("converge-health".to_owned())
            .spawn(move || {
                let _subscriber = tracing::dispatcher::set_default(&subscriber);
                let exposed = Arc::new(exposed);
                runtime.block_on(connections::serve(
                    listener,
                    exposed,
                    stopped,
                    Limits::default(),
                ));
                // Nobody listens if the worker was dropped.
                let _ = tell.send(());
            })
            .map_err(WorkerError::Thread)?;
        tracing::info!(%addr, "answering /livez, /healthz, /readyz and /metrics");
        Ok(Serving {
            stop: stop.drop_guard(),
            ended,
        })
    }
}

impl Serving {
    /// Stops answering; what is being answered may end.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        // An error means that the thread is gone.
        let _ = self.ended.await;
    }
}
