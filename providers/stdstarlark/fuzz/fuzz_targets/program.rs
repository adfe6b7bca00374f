//! Any text as a program, evaluated in this process: an answer, never a panic, and the same one twice.
//!
//! What only a process of its own can bound (one native operation over a huge range) is kept out by refusing long numbers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

const BYTES: usize = 4_096;
const DIGITS: usize = 3;

fuzz_target!(|source: &str| {
    let digits = source
        .split(|c: char| !c.is_ascii_alphanumeric())
        .map(|word| word.chars().filter(char::is_ascii_digit).count());
    if source.len() > BYTES || digits.max().unwrap_or(0) > DIGITS {
        return;
    }
    let run = || {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("is JSON");
        let spec = raw(
            r#"{"name":"a","n":3,"big":123456789012345678901234567890,"list":[1,2.5,null,true],"o":{"k":"v"}}"#,
        );
        stdstarlark::fuzzing::evaluate(
            [("compose.star".to_owned(), source.to_owned())].into(),
            spec,
            raw(r#"{"zone":"eu"}"#),
        )
    };
    assert_eq!(run(), run());
});
