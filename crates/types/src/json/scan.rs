//! Reading JSON token by token, and the checks of a document that comes in.
//!
//! The scanner never trusts its input: on bytes that are no JSON every function ends with an error, also after a
//! document was said to be checked.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use super::{DocError, DocProblem, number};
use crate::limits;
use crate::pointer::Pointer;

/// A problem and the byte it was found at.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) problem: DocProblem,
    pub(super) at: usize,
}

type Scanned<T> = Result<T, Fault>;

/// A place in a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scan<'a> {
    text: &'a [u8],
    pub(super) at: usize,
}

/// What a value begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Object,
    Array,
    String,
    Number,
    /// One of `null`, `true`, `false`.
    Word(&'static str),
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a [u8]) -> Scan<'a> {
        Scan { text, at: 0 }
    }

    fn fault<T>(&self, expected: &'static str) -> Scanned<T> {
        Err(Fault {
            problem: DocProblem::Syntax(expected),
            at: self.at,
        })
    }

    fn byte(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn slice(&self, from: usize) -> &'a [u8] {
        self.text.get(from..self.at).unwrap_or_default()
    }

    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    /// Whether only space is left.
    pub(super) fn ended(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.byte() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// What the next value is; nothing of it is read.
    pub(super) fn start(&mut self) -> Scanned<Start> {
        self.space();
        Ok(match self.byte() {
            Some(b'{') => Start::Object,
            Some(b'[') => Start::Array,
            Some(b'"') => Start::String,
            Some(b'-' | b'0'..=b'9') => Start::Number,
            Some(b'n') => Start::Word("null"),
            Some(b't') => Start::Word("true"),
            Some(b'f') => Start::Word("false"),
            _ => return self.fault("a value"),
        })
    }

    pub(super) fn word(&mut self, word: &'static str) -> Scanned<()> {
        if self
            .text
            .get(self.at..)
            .is_some_and(|rest| rest.starts_with(word.as_bytes()))
        {
            self.at += word.len();
            Ok(())
        } else {
            self.fault(word)
        }
    }

    fn digits(&mut self) -> Scanned<()> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
        if self.at == from {
            self.fault("a digit")
        } else {
            Ok(())
        }
    }

    /// A number, as it is written.
    pub(super) fn number(&mut self) -> Scanned<&'a [u8]> {
        let from = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        Ok(self.slice(from))
    }

    fn hex(&mut self) -> Scanned<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.byte().and_then(|b| char::from(b).to_digit(16)) else {
                return self.fault("four hexadecimal digits");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn second_half(&mut self) -> Scanned<()> {
        let low = self.take(b'\\') && self.take(b'u') && (0xDC00..=0xDFFF).contains(&self.hex()?);
        if low {
            Ok(())
        } else {
            self.fault("the second half of a surrogate pair")
        }
    }

    /// A string, as it is written between its quotes, and whether it has escapes.
    pub(super) fn string(&mut self) -> Scanned<(&'a [u8], bool)> {
        if !self.take(b'"') {
            return self.fault("'\"'");
        }
        let from = self.at;
        let mut escapes = false;
        loop {
            match self.byte() {
                Some(b'"') => {
                    let text = self.slice(from);
                    self.at += 1;
                    return Ok((text, escapes));
                }
                Some(b'\\') => {
                    escapes = true;
                    self.at += 1;
                    match self.byte() {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                            self.at += 1
                        }
                        Some(b'u') => {
                            self.at += 1;
                            match self.hex()? {
                                0xDC00..=0xDFFF => {
                                    return self.fault("the first half of a surrogate pair");
                                }
                                0xD800..=0xDBFF => self.second_half()?,
                                _ => {}
                            }
                        }
                        _ => return self.fault("an escape: one of \"\\/bfnrtu"),
                    }
                }
                Some(0..0x20) => {
                    return self.fault("no control character in a string (write it as an escape)");
                }
                Some(_) => self.at += 1,
                None => return self.fault("the end of the string"),
            }
        }
    }

    /// Enters an array or object. False: it is empty and has been left again.
    pub(super) fn enter(&mut self, close: u8) -> Scanned<bool> {
        self.at += 1;
        self.space();
        Ok(!self.take(close))
    }

    /// Behind an element or member: whether another follows. False: the array or object has been left.
    pub(super) fn more(&mut self, close: u8) -> Scanned<bool> {
        self.space();
        if self.take(b',') {
            Ok(true)
        } else if self.take(close) {
            Ok(false)
        } else if close == b'}' {
            self.fault("',' or '}'")
        } else {
            self.fault("',' or ']'")
        }
    }

    /// A member's key and the colon behind it; the value is next.
    pub(super) fn key(&mut self) -> Scanned<Cow<'a, str>> {
        self.space();
        if self.byte() != Some(b'"') {
            return self.fault("a key in quotes");
        }
        let at = self.at;
        let (text, escapes) = self.string()?;
        let key = unescape(text, escapes).ok_or(Fault {
            problem: DocProblem::Utf8,
            at,
        })?;
        self.space();
        if self.take(b':') {
            Ok(key)
        } else {
            self.fault("':'")
        }
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Scanned<()> {
        // The kinds of brackets that are open; no recursion, so depth costs no stack.
        let mut open: Vec<u8> = Vec::new();
        loop {
            let entered = match self.start()? {
                Start::Object => self.enter(b'}')?.then_some(b'}'),
                Start::Array => self.enter(b']')?.then_some(b']'),
                Start::String => self.string().map(|_| None)?,
                Start::Number => self.number().map(|_| None)?,
                Start::Word(word) => self.word(word).map(|()| None)?,
            };
            match entered {
                Some(close) => open.push(close),
                None => loop {
                    let Some(close) = open.last() else {
                        return Ok(());
                    };
                    if self.more(*close)? {
                        break;
                    }
                    open.pop();
                },
            }
            if open.last() == Some(&b'}') {
                self.space();
                self.string()?;
                self.space();
                if !self.take(b':') {
                    return self.fault("':'");
                }
            }
        }
    }
}

/// The text that a string's inside stands for.
pub(super) fn unescape(text: &[u8], escapes: bool) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(text).ok()?;
    if !escapes {
        return Some(text.into());
    }
    let unit = |at: usize| u16::from_str_radix(text.get(at..at + 4)?, 16).ok();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..) {
        let Some(slash) = rest.find('\\') else {
            out.push_str(rest);
            return Some(out.into());
        };
        out.push_str(rest.get(..slash)?);
        at += slash + 2;
        out.push(match text.as_bytes().get(at - 1)? {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = unit(at)?;
                at += 4;
                if (0xD800..0xDC00).contains(&first) {
                    let second = unit(at + 2)?;
                    at += 6;
                    char::decode_utf16([first, second]).next()?.ok()?
                } else {
                    char::from_u32(first.into())?
                }
            }
            other => char::from(*other),
        });
    }
    None
}

/// Where the value at `pointer` is.
pub(super) fn find(text: &[u8], pointer: &Pointer) -> Option<Range<usize>> {
    let mut scan = Scan::new(text);
    for token in pointer.tokens() {
        match scan.start().ok()? {
            Start::Object => {
                let mut more = scan.enter(b'}').ok()?;
                loop {
                    if !more {
                        return None;
                    }
                    if scan.key().ok()? == token {
                        break;
                    }
                    scan.skip().ok()?;
                    more = scan.more(b'}').ok()?;
                }
            }
            Start::Array => {
                let mut left = crate::pointer::index(token)?;
                let mut more = scan.enter(b']').ok()?;
                loop {
                    if !more {
                        return None;
                    }
                    if left == 0 {
                        break;
                    }
                    left -= 1;
                    scan.skip().ok()?;
                    more = scan.more(b']').ok()?;
                }
            }
            _ => return None,
        }
    }
    scan.space();
    let from = scan.at;
    scan.skip().ok()?;
    Some(from..scan.at)
}

/// Checks a whole document.
pub(super) fn validate(text: &[u8]) -> Result<(), DocError> {
    let mut path = Vec::new();
    let outcome = match std::str::from_utf8(text) {
        Err(error) => Err(Fault {
            problem: DocProblem::Utf8,
            at: error.valid_up_to(),
        }),
        Ok(_) => document(text, &mut path),
    };
    outcome.map_err(|fault| {
        let before = text.get(..fault.at).unwrap_or(text);
        let line_start = before
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let line = before.get(line_start..).unwrap_or_default();
        DocError {
            problem: fault.problem,
            pointer: Pointer::from_tokens(path.into_iter().rev().collect::<Vec<String>>()),
            line: before.iter().filter(|b| **b == b'\n').count() + 1,
            column: String::from_utf8_lossy(line).chars().count() + 1,
        }
    })
}

fn document(text: &[u8], path: &mut Vec<String>) -> Scanned<()> {
    let mut scan = Scan::new(text);
    scan.space();
    if scan.byte().is_none() {
        return Err(Fault {
            problem: DocProblem::Empty,
            at: scan.at,
        });
    }
    value(&mut scan, 0, path)?;
    scan.space();
    match scan.byte() {
        None => Ok(()),
        Some(_) => Err(Fault {
            problem: DocProblem::Trailing,
            at: scan.at,
        }),
    }
}

/// Keys from which on an object's are looked up by hash; below, comparing them one by one is faster.
const HASHED_KEYS: usize = 12;

/// Checks one value. On a fault `path` is the way to it, innermost first.
fn value(scan: &mut Scan<'_>, depth: usize, path: &mut Vec<String>) -> Scanned<()> {
    let start = scan.start()?;
    if depth >= limits::DOCUMENT_DEPTH && matches!(start, Start::Object | Start::Array) {
        return Err(Fault {
            problem: DocProblem::Depth,
            at: scan.at,
        });
    }
    match start {
        Start::String => scan.string().map(|_| ()),
        Start::Word(word) => scan.word(word),
        Start::Number => {
            let at = scan.at;
            let number = scan.number()?;
            if number::exponent_is_bounded(number) {
                Ok(())
            } else {
                Err(Fault {
                    problem: DocProblem::Exponent,
                    at,
                })
            }
        }
        Start::Array => {
            let mut more = scan.enter(b']')?;
            let mut index = 0usize;
            while more {
                value(scan, depth + 1, path).inspect_err(|_| path.push(index.to_string()))?;
                index += 1;
                more = scan.more(b']')?;
            }
            Ok(())
        }
        Start::Object => object(scan, depth, path),
    }
}

fn object(scan: &mut Scan<'_>, depth: usize, path: &mut Vec<String>) -> Scanned<()> {
    let mut few: Vec<Cow<'_, str>> = Vec::new();
    let mut many: HashSet<Cow<'_, str>> = HashSet::new();
    let mut more = scan.enter(b'}')?;
    while more {
        scan.space();
        let at = scan.at;
        let key = scan.key()?;
        if few.contains(&key) || many.contains(&key) {
            path.push(key.to_string());
            return Err(Fault {
                problem: DocProblem::DuplicateKey(shown(&key)),
                at,
            });
        }
        if key.starts_with("$serde_json::private::") {
            path.push(key.to_string());
            return Err(Fault {
                problem: DocProblem::ReservedKey(shown(&key)),
                at,
            });
        }
        value(scan, depth + 1, path).inspect_err(|_| path.push(key.to_string()))?;
        if many.is_empty() && few.len() < HASHED_KEYS {
            few.push(key);
        } else {
            many.extend(few.drain(..));
            many.insert(key);
        }
        more = scan.more(b'}')?;
    }
    Ok(())
}

/// A key as an error shows it.
fn shown(key: &str) -> String {
    key.chars().take(80).collect()
}
