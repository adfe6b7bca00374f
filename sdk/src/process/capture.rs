//! Bounded capture of a stream: the tail is kept, everything is counted.
//!
//! Bytes inside, text at the edge: what leaves is valid UTF-8 without NUL, cut on a character.

use bytes::Bytes;

/// What a stream delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    bytes: Vec<u8>,
    total_bytes: u64,
}

impl Captured {
    /// The bytes that were kept: all of them, or the last ones up to the limit.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes.into()
    }

    /// How many bytes the program wrote.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// How many of them are not in [`bytes`](Self::bytes).
    #[must_use]
    pub fn dropped_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.bytes.len() as u64)
    }

    /// The kept bytes as text of at most `limit_bytes`: invalid UTF-8 and NUL become U+FFFD, a cut falls on a character.
    #[must_use]
    pub fn text(&self, limit_bytes: usize) -> String {
        let mut bytes = self.bytes.as_slice();
        if self.dropped_bytes() > 0 {
            bytes = skip_partial_character(bytes);
        }
        tail_text(bytes, limit_bytes)
    }
}

/// The last `limit_bytes` of `bytes` as text: invalid UTF-8 and NUL become U+FFFD, a cut falls on a character.
#[must_use]
pub fn tail_text(bytes: &[u8], limit_bytes: usize) -> String {
    let cut = bytes.len().saturating_sub(limit_bytes);
    let bytes = if cut > 0 {
        skip_partial_character(&bytes[cut..])
    } else {
        bytes
    };
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if text.contains('\0') {
        text = text.replace('\0', "\u{FFFD}");
    }
    // Replacement characters are longer than what they replace.
    if text.len() > limit_bytes {
        let mut from = text.len() - limit_bytes;
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text.drain(..from);
    }
    text
}

/// Continuation bytes at the start belong to a character that was cut off.
fn skip_partial_character(bytes: &[u8]) -> &[u8] {
    let skip = bytes
        .iter()
        .take(3)
        .take_while(|byte| (**byte & 0xC0) == 0x80)
        .count();
    &bytes[skip..]
}

/// Keeps the last `limit` bytes of what is pushed.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    limit: usize,
    total_bytes: u64,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Tail {
            bytes: Vec::new(),
            limit,
            total_bytes: 0,
        }
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Counts bytes that will be pushed in another shape (redaction changes lengths).
    pub(super) fn count(&mut self, bytes: usize) {
        self.total_bytes += bytes as u64;
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        if chunk.len() >= self.limit {
            self.bytes.clear();
            self.bytes
                .extend_from_slice(&chunk[chunk.len() - self.limit..]);
            return;
        }
        // Up to twice the limit is held, so that each byte is moved at most once more.
        if self.bytes.len() + chunk.len() > self.limit * 2 {
            let keep = self.limit - chunk.len();
            let cut = self.bytes.len().saturating_sub(keep);
            self.bytes.drain(..cut);
        }
        self.bytes.extend_from_slice(chunk);
    }

    pub(super) fn finish(mut self) -> Captured {
        let cut = self.bytes.len().saturating_sub(self.limit);
        if cut > 0 {
            self.bytes.drain(..cut);
        }
        Captured {
            bytes: self.bytes,
            total_bytes: self.total_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(chunks: &[Vec<u8>], limit: usize) -> Captured {
        let mut tail = Tail::new(limit);
        for chunk in chunks {
            tail.count(chunk.len());
            tail.push(chunk);
        }
        tail.finish()
    }

    proptest! {
        #[test]
        fn the_tail_is_the_tail_however_it_was_chunked(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
            limit in 0_usize..60,
        ) {
            let all = chunks.concat();
            let captured = captured(&chunks, limit);
            prop_assert_eq!(captured.bytes(), &all[all.len().saturating_sub(limit)..]);
            prop_assert_eq!(captured.total_bytes(), all.len() as u64);
        }

        #[test]
        fn text_is_bounded_and_without_nul(bytes in proptest::collection::vec(any::<u8>(), 0..200), limit in 0_usize..100) {
            let text = tail_text(&bytes, limit);
            prop_assert!(text.len() <= limit);
            prop_assert!(!text.contains('\0'));
        }

        #[test]
        fn a_cut_in_valid_text_leaves_no_broken_character(text in "[a-zé€😀]{0,50}", limit in 0_usize..60) {
            let cut = captured(&[text.clone().into_bytes()], limit).text(limit);
            prop_assert!(!cut.contains(char::REPLACEMENT_CHARACTER));
            prop_assert!(text.ends_with(&cut));
        }
    }
}
