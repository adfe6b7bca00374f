//! Any text as a leaf: an answer or problems, never a panic, and the same ones twice.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    assert_eq!(stdcel::probe::compose_leaf(text), stdcel::probe::compose_leaf(text));
});
