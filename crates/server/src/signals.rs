//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once. SIGXFSZ: a write over the limit of file sizes fails, as
//! on a disk that is full, and ends nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears the signals that end the process.
pub(crate) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub(crate) fn listen() -> Result<Self> {
        let hear = |kind| signal(kind).context("could not listen for signals");
        let stop = Self {
            terminate: hear(SignalKind::terminate())?,
            interrupt: hear(SignalKind::interrupt())?,
        };
        second_signal_exits()?;
        // Heard, it does not end the process; the write says what went wrong.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())
            .context("could not handle signals")?;
        Ok(stop)
    }

    /// The name of the next signal.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Whatever the runtime is stuck in: the second signal is handled where it arrives.
fn second_signal_exits() -> Result<()> {
    let armed = Arc::new(AtomicBool::new(false));
    for number in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        // In this order: the first signal finds it unarmed and arms it.
        signal_hook::flag::register_conditional_shutdown(number, 128 + number, armed.clone())
            .context("could not handle signals")?;
        signal_hook::flag::register(number, armed.clone()).context("could not handle signals")?;
    }
    debug_assert!(!armed.load(Ordering::Relaxed));
    Ok(())
}
