//! Following the files a run writes, into the task's log.
//!
//! Files and not pipes: when the worker is killed, a run that writes to a pipe dies of it with its lock held and its state unsaved (measured).
//! Must hold: every line passes the redactor before it is shown or cut; a flood reaches the log at a bounded rate and fills no disk.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::messages::{Level, Line, cut};
use crate::redact::Redactor;

/// Longest line that is read as a whole.
const LONGEST_LINE: usize = 1024 * 1024;
/// Longest line shown.
const LONGEST_SHOWN: usize = 8 * 1024;
/// Lines a second that reach the log; more are counted.
const LINES_PER_SECOND: u32 = 200;
/// A file that grows beyond this is emptied once it was read.
const LARGEST_FILE: u64 = 64 * 1024 * 1024;
/// How much of the end of plain text is kept for messages.
const TAIL: usize = 8 * 1024;

/// One followed file.
#[derive(Debug)]
pub(crate) struct Follower {
    file: File,
    offset: u64,
    line: Vec<u8>,
    skipping: bool,
}

impl Follower {
    /// Follows `path` from where it ends now.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.read(true).append(true).create(true).open(path)?;
        let offset = file.metadata()?.len();
        Ok(Self {
            file,
            offset,
            line: Vec::new(),
            skipping: false,
        })
    }

    /// Reads what came since and hands on every whole line; at the `end` also one without a newline.
    pub(crate) fn poll(&mut self, end: bool, mut each: impl FnMut(&str)) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        self.file.seek(SeekFrom::Start(self.offset))?;
        loop {
            let count = self.file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.offset += count as u64;
            let mut rest = &buffer[..count];
            while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                self.append(&rest[..at]);
                self.emit(&mut each);
                rest = &rest[at + 1..];
            }
            self.append(rest);
        }
        if self.offset > LARGEST_FILE {
            // The writer appends, so it goes on at the new end.
            self.file.set_len(0)?;
            self.offset = 0;
        }
        if end && !self.line.is_empty() {
            self.emit(&mut each);
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = LONGEST_LINE - self.line.len();
        self.skipping |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn emit(&mut self, each: &mut impl FnMut(&str)) {
        let text = String::from_utf8_lossy(&self.line);
        each(text.trim_end_matches('\r'));
        self.line.clear();
        self.skipping = false;
    }
}

/// Writes lines to the task's log, redacted, at a bounded rate.
#[derive(Debug)]
pub(crate) struct Logger {
    phase: &'static str,
    redactor: Redactor,
    window: Instant,
    admitted: u32,
    refused: u64,
}

impl Logger {
    /// A logger for the lines of one phase.
    pub(crate) fn new(phase: &'static str, redactor: Redactor) -> Self {
        Self {
            phase,
            redactor,
            window: Instant::now(),
            admitted: 0,
            refused: 0,
        }
    }

    /// Writes one line.
    pub(crate) fn log(&mut self, line: &Line) {
        if self.window.elapsed() >= Duration::from_secs(1) {
            self.window = Instant::now();
            self.admitted = 0;
        }
        if self.admitted >= LINES_PER_SECOND {
            self.refused += 1;
            return;
        }
        self.admitted += 1;
        let text = cut(&self.redactor.redact(&line.text), LONGEST_SHOWN);
        let phase = self.phase;
        match line.level {
            Level::Info => tracing::info!(target: "stdterraform", phase, "{text}"),
            Level::Warn => tracing::warn!(target: "stdterraform", phase, "{text}"),
            Level::Error => tracing::error!(target: "stdterraform", phase, "{text}"),
        }
    }

    /// Says how many lines were not shown.
    pub(crate) fn finish(&self) {
        if self.refused > 0 {
            tracing::warn!(target: "stdterraform", phase = self.phase, refused = self.refused, "lines came faster than they are logged");
        }
    }
}

/// The end of a plain text, line by line.
#[derive(Debug, Default)]
pub(crate) struct Tail(String);

impl Tail {
    /// Adds a line and forgets the oldest.
    pub(crate) fn add(&mut self, line: &str) {
        self.0.push_str(&cut(line, TAIL));
        self.0.push('\n');
        if self.0.len() > 2 * TAIL {
            let from = (self.0.len() - TAIL..self.0.len())
                .find(|at| self.0.is_char_boundary(*at))
                .unwrap_or(0);
            self.0.drain(..from);
        }
    }

    /// What is kept.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_come_whole_however_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "old\n").unwrap();
        let mut follower = Follower::open(&path).unwrap();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        let mut seen = Vec::new();
        for piece in ["a", "b\r\nc\n", "", "\nlast"] {
            file.write_all(piece.as_bytes()).unwrap();
            follower
                .poll(false, |line| seen.push(line.to_owned()))
                .unwrap();
        }
        follower
            .poll(true, |line| seen.push(line.to_owned()))
            .unwrap();
        assert_eq!(seen, ["ab", "c", "", "last"]);
    }

    #[test]
    fn an_endless_line_is_cut_and_bad_utf8_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut follower = Follower::open(&path).unwrap();
        let mut bytes = vec![0xff; 3 * LONGEST_LINE];
        bytes.push(b'\n');
        std::fs::write(&path, &bytes).unwrap();
        let mut seen = Vec::new();
        follower
            .poll(false, |line| seen.push(line.chars().count()))
            .unwrap();
        assert_eq!(seen, [LONGEST_LINE]);
    }

    #[test]
    fn a_large_file_is_emptied_and_followed_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut follower = Follower::open(&path).unwrap();
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        let line = vec![b'x'; 1024 * 1024 - 1];
        for _ in 0..65 {
            file.write_all(&line).unwrap();
            file.write_all(b"\n").unwrap();
        }
        let mut count = 0;
        follower.poll(false, |_| count += 1).unwrap();
        assert_eq!((count, std::fs::metadata(&path).unwrap().len()), (65, 0));
        file.write_all(b"after\n").unwrap();
        let mut seen = Vec::new();
        follower
            .poll(false, |line| seen.push(line.to_owned()))
            .unwrap();
        assert_eq!(seen, ["after"]);
    }

    #[test]
    fn the_tail_is_bounded() {
        let mut tail = Tail::default();
        for index in 0..100_000 {
            tail.add(&format!("line {index} é"));
        }
        assert!(tail.text().len() <= 2 * TAIL + 64 && tail.text().ends_with("line 99999 é\n"));
    }
}
