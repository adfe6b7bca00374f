//! Ctrl-C and its kin. The first one asks to clean up; after the second nothing is waited for.

use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static SEEN: AtomicU8 = AtomicU8::new(0);

/// Starts listening; from now on a signal no longer ends this process by itself.
pub(crate) fn listen() -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("could not listen for signals")?;
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                SEEN.store(
                    SEEN.load(Ordering::Relaxed).saturating_add(1),
                    Ordering::Relaxed,
                );
            }
        })
        .context("could not start the signal thread")?;
    Ok(())
}

/// Whether a signal has come.
pub(crate) fn asked() -> bool {
    SEEN.load(Ordering::Relaxed) > 0
}

/// Whether a second one has: stop waiting, kill.
pub(crate) fn urgent() -> bool {
    SEEN.load(Ordering::Relaxed) > 1
}

/// An error once a signal has come; to be called in every loop that waits.
pub(crate) fn check() -> Result<()> {
    if asked() {
        bail!("interrupted");
    }
    Ok(())
}
