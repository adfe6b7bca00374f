//! The fuzz corpus on the stable toolchain, and mutations of it: an answer each time, and the same one twice.

use std::path::Path;

use stdcel::probe::compose_leaf;

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/template");
    let mut files: Vec<_> = folder
        .read_dir()
        .expect("is checked in")
        .map(|entry| entry.expect("can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() > 80, "only {} files", files.len());
    files
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("is text"))
        .collect()
}

#[test]
fn every_text_of_the_corpus_gives_the_same_answer_twice() {
    for text in corpus() {
        assert_eq!(compose_leaf(&text), compose_leaf(&text), "{text}");
    }
}

/// A generator that gives the same numbers everywhere (xorshift64*).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

#[test]
fn mutations_of_the_corpus_never_panic() {
    let corpus = corpus();
    let mut numbers = Numbers(0x5eed);
    for _ in 0..6_000 {
        let mut text: Vec<char> = corpus[numbers.below(corpus.len())]
            .chars()
            .take(400)
            .collect();
        let other: Vec<char> = corpus[numbers.below(corpus.len())]
            .chars()
            .take(400)
            .collect();
        for _ in 0..=numbers.below(4) {
            if text.is_empty() || other.is_empty() {
                break;
            }
            let (at, from) = (numbers.below(text.len()), numbers.below(other.len()));
            let piece = &other[from..(from + numbers.below(12) + 1).min(other.len())];
            match numbers.below(4) {
                0 => drop(text.remove(at)),
                1 => text[at] = other[from],
                2 => drop(text.splice(at..at, piece.iter().copied())),
                _ => text.truncate(at),
            }
        }
        let text: String = text.into_iter().collect();
        // Most of the time whatever came out is no expression any more; wrapped, more of it is.
        let _ = compose_leaf(&text);
        let _ = compose_leaf(&format!("${{{text}}}"));
    }
}
