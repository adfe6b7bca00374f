//! Equality by value, without building a tree.
//!
//! Both texts are walked in step. As long as two objects have their keys in the same order nothing is kept; from the
//! first that differs on, the rest of both is collected as (key, place) and sorted. Memory is that of one path of
//! objects, not of the document.

use std::borrow::Cow;

use super::number;
use super::scan::{Scan, Start, unescape};
use crate::limits;

/// Whether both are documents of the same value.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    let (mut a, mut b) = (Scan::new(a), Scan::new(b));
    values(&mut a, &mut b, 0) == Some(true) && a.ended() && b.ended()
}

/// Compares the next value of both. After `Some(true)` both have passed it; after anything else their places mean nothing.
fn values(a: &mut Scan<'_>, b: &mut Scan<'_>, depth: usize) -> Option<bool> {
    // Checked documents are not this deep; others must not exhaust the stack.
    if depth > limits::DOCUMENT_DEPTH {
        return None;
    }
    match (a.start().ok()?, b.start().ok()?) {
        (Start::Word(x), Start::Word(y)) if x == y => {
            a.word(x).ok()?;
            b.word(y).ok()?;
            Some(true)
        }
        (Start::Number, Start::Number) => Some(number::equal(a.number().ok()?, b.number().ok()?)),
        (Start::String, Start::String) => {
            let ((x, x_escapes), (y, y_escapes)) = (a.string().ok()?, b.string().ok()?);
            Some(
                x == y
                    || (x_escapes || y_escapes)
                        && unescape(x, x_escapes)? == unescape(y, y_escapes)?,
            )
        }
        (Start::Array, Start::Array) => {
            let (mut more_a, mut more_b) = (a.enter(b']').ok()?, b.enter(b']').ok()?);
            while more_a && more_b {
                if !values(a, b, depth + 1)? {
                    return Some(false);
                }
                (more_a, more_b) = (a.more(b']').ok()?, b.more(b']').ok()?);
            }
            Some(!more_a && !more_b)
        }
        (Start::Object, Start::Object) => objects(a, b, depth),
        _ => Some(false),
    }
}

fn objects(a: &mut Scan<'_>, b: &mut Scan<'_>, depth: usize) -> Option<bool> {
    let (mut more_a, mut more_b) = (a.enter(b'}').ok()?, b.enter(b'}').ok()?);
    while more_a && more_b {
        let (key_a, key_b) = (a.key().ok()?, b.key().ok()?);
        if key_a != key_b {
            let (rest_a, rest_b) = (rest(a, key_a)?, rest(b, key_b)?);
            if rest_a.len() != rest_b.len() {
                return Some(false);
            }
            for ((key_a, mut a), (key_b, mut b)) in rest_a.into_iter().zip(rest_b) {
                if key_a != key_b || !values(&mut a, &mut b, depth + 1)? {
                    return Some(false);
                }
            }
            return Some(true);
        }
        if !values(a, b, depth + 1)? {
            return Some(false);
        }
        (more_a, more_b) = (a.more(b'}').ok()?, b.more(b'}').ok()?);
    }
    Some(!more_a && !more_b)
}

/// The members from the one whose key has just been read on, sorted by key, each with the place of its value.
fn rest<'a>(scan: &mut Scan<'a>, first: Cow<'a, str>) -> Option<Vec<(Cow<'a, str>, Scan<'a>)>> {
    let mut members = vec![(first, *scan)];
    scan.skip().ok()?;
    while scan.more(b'}').ok()? {
        let key = scan.key().ok()?;
        members.push((key, *scan));
        scan.skip().ok()?;
    }
    members.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(members)
}
