//! The canonical form: no spacing, keys in the order of their UTF-8 bytes, one spelling per number and string.
//!
//! Members are written as they come and put in order afterwards, only in objects that are not in order already.

use std::ops::Range;

use super::number::Normal;
use super::scan::{Scan, Start, unescape};
use crate::limits;

/// The canonical form of a document; nothing if it is none.
pub(super) fn write(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut scan = Scan::new(text);
    value(&mut scan, &mut out, 0)?;
    scan.ended().then_some(out)
}

fn value(scan: &mut Scan<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    // Checked documents are not this deep; others must not exhaust the stack.
    if depth > limits::DOCUMENT_DEPTH {
        return None;
    }
    match scan.start().ok()? {
        Start::Word(word) => {
            scan.word(word).ok()?;
            out.extend(word.bytes());
        }
        Start::Number => Normal::of(scan.number().ok()?).write(out),
        Start::String => {
            let (text, escapes) = scan.string().ok()?;
            string(&unescape(text, escapes)?, out);
        }
        Start::Array => {
            out.push(b'[');
            let mut more = scan.enter(b']').ok()?;
            while more {
                value(scan, out, depth + 1)?;
                more = scan.more(b']').ok()?;
                if more {
                    out.push(b',');
                }
            }
            out.push(b']');
        }
        Start::Object => object(scan, out, depth)?,
    }
    Some(())
}

fn object(scan: &mut Scan<'_>, out: &mut Vec<u8>, depth: usize) -> Option<()> {
    out.push(b'{');
    let from = out.len();
    let mut members: Vec<(std::borrow::Cow<'_, str>, Range<usize>)> = Vec::new();
    let mut more = scan.enter(b'}').ok()?;
    while more {
        if !members.is_empty() {
            out.push(b',');
        }
        let start = out.len();
        let key = scan.key().ok()?;
        string(&key, out);
        out.push(b':');
        value(scan, out, depth + 1)?;
        members.push((key, start..out.len()));
        more = scan.more(b'}').ok()?;
    }
    if !members.is_sorted_by(|(a, _), (b, _)| a <= b) {
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut sorted = Vec::with_capacity(out.len() - from);
        for (_, range) in members {
            if !sorted.is_empty() {
                sorted.push(b',');
            }
            sorted.extend(out.get(range)?);
        }
        out.truncate(from);
        out.extend(sorted);
    }
    out.push(b'}');
    Some(())
}

fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend(b"\\\""),
            b'\\' => out.extend(b"\\\\"),
            0..0x20 => out.extend(format!("\\u{byte:04x}").bytes()),
            other => out.push(other),
        }
    }
    out.push(b'"');
}
