//! Splits a stream into lines, bounded in length and, for the log, in rate.

use std::time::{Duration, Instant};

use super::capture::tail_text;

/// The log target of what programs write and of what goes wrong with them.
pub(super) const TARGET: &str = "converge::program";
/// Longest line that reaches the log; the rest of it is skipped.
pub(super) const LOG_LINE_LIMIT_BYTES: usize = 8 * 1024;
/// Longest line handed to a line callback.
pub(super) const CALLBACK_LINE_LIMIT_BYTES: usize = 1024 * 1024;
/// Lines per second and task that reach the log; more are counted.
const LOG_LINES_PER_SECOND: u32 = 200;

/// Cuts chunks into lines of at most `limit` bytes; what a line has beyond that is dropped.
#[derive(Debug)]
pub(super) struct LineSplitter {
    line: Vec<u8>,
    limit: usize,
    cut: bool,
}

impl LineSplitter {
    pub(super) fn new(limit: usize) -> Self {
        LineSplitter {
            line: Vec::new(),
            limit,
            cut: false,
        }
    }

    /// Calls `each` with every complete line and whether it was cut.
    pub(super) fn push(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8], bool)) {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.append(&rest[..end]);
            each(&self.line, self.cut);
            self.line.clear();
            self.cut = false;
            rest = &rest[end + 1..];
        }
        self.append(rest);
    }

    /// The last line, when it had no newline.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8], bool)) {
        if !self.line.is_empty() {
            each(&self.line, self.cut);
            self.line.clear();
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = self.limit - self.line.len().min(self.limit);
        self.cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

/// Writes a program's stderr to the task's log as it comes.
#[derive(Debug)]
pub(super) struct LineLogger {
    splitter: LineSplitter,
    rate: Rate,
}

impl LineLogger {
    pub(super) fn new() -> Self {
        LineLogger {
            splitter: LineSplitter::new(LOG_LINE_LIMIT_BYTES),
            rate: Rate::new(LOG_LINES_PER_SECOND),
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        let now = Instant::now();
        let rate = &mut self.rate;
        self.splitter
            .push(chunk, |line, cut| rate.admit(now, || log_line(line, cut)));
    }

    pub(super) fn finish(&mut self) {
        let now = Instant::now();
        let rate = &mut self.rate;
        self.splitter
            .finish(|line, cut| rate.admit(now, || log_line(line, cut)));
        let refused = self.rate.refused;
        if refused > 0 {
            tracing::warn!(
                target: TARGET, refused,
                "the program wrote more than {LOG_LINES_PER_SECOND} lines a second to stderr; {refused} were not logged"
            );
        }
    }
}

fn log_line(line: &[u8], cut: bool) {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = tail_text(line, LOG_LINE_LIMIT_BYTES);
    if cut {
        tracing::info!(target: TARGET, stream = "stderr", "{text}… (line cut)");
    } else {
        tracing::info!(target: TARGET, stream = "stderr", "{text}");
    }
}

/// So many a second, the rest counted.
#[derive(Debug)]
struct Rate {
    per_second: u32,
    window: Option<Instant>,
    admitted: u32,
    refused: u64,
}

impl Rate {
    fn new(per_second: u32) -> Self {
        Rate {
            per_second,
            window: None,
            admitted: 0,
            refused: 0,
        }
    }

    fn admit(&mut self, now: Instant, then: impl FnOnce()) {
        if self
            .window
            .is_none_or(|start| now.duration_since(start) >= Duration::from_secs(1))
        {
            self.window = Some(now);
            self.admitted = 0;
        }
        if self.admitted < self.per_second {
            self.admitted += 1;
            then();
        } else {
            self.refused += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_were_chunked() {
        let mut splitter = LineSplitter::new(5);
        let mut seen = Vec::new();
        for chunk in ["a", "b\ncd\n\nlonger th", "an five\nend"] {
            splitter.push(chunk.as_bytes(), |line, cut| {
                seen.push((String::from_utf8_lossy(line).into_owned(), cut))
            });
        }
        splitter.finish(|line, cut| seen.push((String::from_utf8_lossy(line).into_owned(), cut)));
        let expected = [
            ("ab", false),
            ("cd", false),
            ("", false),
            ("longe", true),
            ("end", false),
        ];
        assert_eq!(seen, expected.map(|(line, cut)| (line.to_owned(), cut)));
    }

    #[test]
    fn a_flood_is_counted_and_the_next_second_is_open_again() {
        let mut rate = Rate::new(3);
        let start = Instant::now();
        let mut admitted = 0;
        for _ in 0..10 {
            rate.admit(start, || admitted += 1);
        }
        rate.admit(start + Duration::from_secs(1), || admitted += 1);
        assert_eq!((admitted, rate.refused), (4, 7));
    }
}
