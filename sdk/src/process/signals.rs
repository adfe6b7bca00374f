//! Signals that whoever started the worker had set to be ignored.
//!
//! A shell without job control starts its background commands with SIGINT ignored, and what is ignored stays so in every program started
//! from there: it could neither be interrupted nor trap it. A signal with a handler is passed on as its default instead, so each stop signal
//! that came ignored gets a handler that does nothing: no change for the worker, the right thing for its programs.

use std::sync::Once;

use tokio::signal::unix::{SignalKind, signal};

/// Does it once per process; needs the runtime programs are started in.
pub(super) fn hear_ignored() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
        let mask = ignored(&status);
        for kind in [SignalKind::interrupt(), SignalKind::quit(), SignalKind::terminate()] {
            let bit = 1_u64 << (kind.as_raw_value() - 1);
            // The handler stays when the listener is dropped.
            if mask & bit != 0
                && let Err(error) = signal(kind)
            {
                tracing::warn!(%error, signal = kind.as_raw_value(), "programs cannot be sent a signal the worker was started ignoring");
            }
        }
    });
}

/// The `SigIgn` mask of a `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_is_read_where_it_stands() {
        assert_eq!(
            ignored("Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001006\nSigCgt:\t0\n"),
            0x1006
        );
        assert_eq!(ignored("nothing of the kind"), 0);
    }
}
