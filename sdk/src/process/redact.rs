//! Takes secrets out of a stream before anything is cut, kept or logged.
//!
//! A secret that is split over two writes is still found: as many bytes as the longest secret could need are held back.

use aho_corasick::{AhoCorasick, MatchKind};

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";
/// Shorter values are not masked: they would hit ordinary text.
const SHORTEST_SECRET_BYTES: usize = 4;

/// A set of secret values to take out of output and messages.
#[derive(Debug, Clone, Default)]
pub struct Redactions {
    searcher: Option<AhoCorasick>,
    longest: usize,
}

impl Redactions {
    /// Masks each value, each line of a value that has several (programs indent and quote), and the form each has inside a
    /// JSON string. Values and lines under four bytes are not masked.
    pub fn new<I>(values: I) -> Self
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut patterns: Vec<String> = Vec::new();
        for value in values {
            let value = value.as_ref();
            for form in std::iter::once(value).chain(value.lines().map(str::trim)) {
                patterns.push(form.to_owned());
                if let Ok(quoted) = serde_json::to_string(form) {
                    patterns.push(quoted.trim_matches('"').to_owned());
                }
            }
        }
        patterns.retain(|pattern| pattern.len() >= SHORTEST_SECRET_BYTES);
        patterns.sort();
        patterns.dedup();
        if patterns.is_empty() {
            return Redactions::default();
        }
        let longest = patterns.iter().map(String::len).max().unwrap_or(0);
        let searcher = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)
            .ok();
        Redactions { searcher, longest }
    }

    /// Whether nothing is masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.searcher.is_none()
    }

    /// `text` with every secret replaced by [`REDACTED`].
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        match &self.searcher {
            None => text.to_owned(),
            Some(searcher) => {
                let mut out = String::with_capacity(text.len());
                searcher.replace_all_with(text, &mut out, |_, _, out| {
                    out.push_str(REDACTED);
                    true
                });
                out
            }
        }
    }

    /// Redacts `pending` as far as it is decided and hands the result on; the undecided end stays in `pending`.
    pub(super) fn stream(&self, pending: &mut Vec<u8>, ended: bool, mut emit: impl FnMut(&[u8])) {
        let Some(searcher) = &self.searcher else {
            emit(pending);
            pending.clear();
            return;
        };
        // A match that starts at or after this point could still begin, or grow, with bytes that have not come yet.
        let decided = if ended {
            pending.len()
        } else {
            (pending.len() + 1).saturating_sub(self.longest)
        };
        let mut done = 0;
        for found in searcher.find_iter(pending.as_slice()) {
            if found.start() >= decided && !ended {
                break;
            }
            emit(&pending[done..found.start()]);
            emit(REDACTED.as_bytes());
            done = found.end();
        }
        if done < decided {
            emit(&pending[done..decided]);
            done = decided;
        }
        pending.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn streamed(redactions: &Redactions, chunks: &[&[u8]]) -> String {
        let (mut pending, mut out) = (Vec::new(), Vec::new());
        for chunk in chunks {
            pending.extend_from_slice(chunk);
            redactions.stream(&mut pending, false, |bytes| out.extend_from_slice(bytes));
        }
        redactions.stream(&mut pending, true, |bytes| out.extend_from_slice(bytes));
        String::from_utf8(out).unwrap()
    }

    proptest! {
        #[test]
        fn a_secret_is_found_wherever_the_writes_split(split in 0_usize..30, second in 0_usize..30) {
            let redactions = Redactions::new(["s3cr3t", "s3cr3t-longer"]);
            let text = b"a s3cr3t b s3cr3t-longer c s3c";
            let (first, second) = (split.min(second), split.max(second));
            let out = streamed(&redactions, &[&text[..first], &text[first..second], &text[second..]]);
            prop_assert_eq!(out, "a [redacted] b [redacted] c s3c");
        }
    }

    #[test]
    fn each_line_of_a_secret_is_masked_and_so_is_its_json_form() {
        let redactions = Redactions::new(["line1\nline2", "quo\"ted"]);
        let out =
            redactions.apply("x line1\n   line2 {\"a\":\"line1\\nline2\",\"b\":\"quo\\\"ted\"}");
        assert!(
            !out.contains("line1") && !out.contains("line2") && !out.contains("ted\""),
            "{out}"
        );
        assert!(Redactions::new(["abc", ""]).is_empty());
    }
}
