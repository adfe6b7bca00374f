//! Everything the tests of this process log, kept for searching.

use std::io::Write;
use std::sync::{Mutex, Once};

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Keep;

impl Write for Keep {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps all lines of all levels from now on.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(|| Keep)
            .init();
    });
}

/// The lines so far.
pub(crate) fn text() -> String {
    String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned()
}

/// Whether a line holds all of `parts`.
pub(crate) fn has_line(parts: &[&str]) -> bool {
    text()
        .lines()
        .any(|line| parts.iter().all(|part| line.contains(part)))
}
