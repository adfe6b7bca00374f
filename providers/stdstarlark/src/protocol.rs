//! What parent and child say to each other: frames of a tag, a length and a body, over the child's stdin and stdout.
//!
//! Both ends are the same binary (the parent starts `/proc/self/exe`), so there is nothing to negotiate. The child
//! says [`Tag::Ready`] once, then answers each [`Request`] with any number of [`Tag::Print`] and exactly one of
//! [`Tag::Composed`], [`Tag::Refused`] or [`Tag::OverLimit`]. Documents ride as raw JSON and are never re-encoded.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits;

/// What the body of a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Tag {
    /// Parent to child: a [`Request`] as JSON.
    Request = b'q',
    /// The child is up and has set its limits. No body.
    Ready = b'r',
    /// One line of the program's output, UTF-8.
    Print = b'p',
    /// A [`Composed`] as JSON.
    Composed = b'c',
    /// Why the program or its result was refused, for people.
    Refused = b'e',
    /// The program ran over a bound that the child could see itself; for people.
    OverLimit = b'l',
}

impl Tag {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Request,
            Self::Ready,
            Self::Print,
            Self::Composed,
            Self::Refused,
            Self::OverLimit,
        ]
        .into_iter()
        .find(|tag| *tag as u8 == byte)
    }
}

/// Bytes before the body: the tag and the big-endian length.
pub(crate) const HEADER_BYTES: usize = 5;

/// A frame's header.
pub(crate) fn header(tag: Tag, length: usize) -> io::Result<[u8; HEADER_BYTES]> {
    let length = u32::try_from(length)
        .ok()
        .filter(|length| *length as usize <= limits::MESSAGE_BYTES)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "message too large"))?;
    let [a, b, c, d] = length.to_be_bytes();
    Ok([tag as u8, a, b, c, d])
}

/// Reads a header: what follows and how long it is.
pub(crate) fn parse_header(header: [u8; HEADER_BYTES]) -> io::Result<(Tag, usize)> {
    let [tag, a, b, c, d] = header;
    let tag = Tag::from_byte(tag)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unknown frame"))?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > limits::MESSAGE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"));
    }
    Ok((tag, length))
}

/// The child's side of writing. (The parent's is asynchronous and lives in `pool.rs`.)
pub(crate) fn write_frame(out: &mut impl Write, tag: Tag, body: &[u8]) -> io::Result<()> {
    out.write_all(&header(tag, body.len())?)?;
    out.write_all(body)?;
    out.flush()
}

/// The child's side of reading; `None` when the parent has closed the pipe.
pub(crate) fn read_frame(input: &mut impl Read) -> io::Result<Option<(Tag, Vec<u8>)>> {
    let mut head = [0; HEADER_BYTES];
    if let Err(err) = input.read_exact(&mut head) {
        return if err.kind() == io::ErrorKind::UnexpectedEof {
            Ok(None)
        } else {
            Err(err)
        };
    }
    let (tag, length) = parse_header(head)?;
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    Ok(Some((tag, body)))
}

/// What a child is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Task {
    /// Load the program and call `compose`.
    Compose,
    /// Load every file of the bundle and look at `compose`, without calling it.
    Check,
}

/// What the program is told about the instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The instance's name.
    pub name: String,
    /// The instance's kind.
    pub kind: String,
    /// The instance's uid, as text.
    pub uid: String,
    /// The instance's labels.
    pub labels: BTreeMap<String, String>,
}

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) task: Task,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) spec: Box<RawValue>,
    pub(crate) config: Box<RawValue>,
    pub(crate) meta: Meta,
}

/// The same as [`Request`], borrowed: what the parent writes.
#[derive(Debug, Serialize)]
pub(crate) struct RequestRef<'a> {
    pub(crate) task: Task,
    pub(crate) files: &'a BTreeMap<String, String>,
    pub(crate) spec: &'a RawValue,
    pub(crate) config: &'a RawValue,
    pub(crate) meta: &'a Meta,
}

/// A result whose shape has been checked.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Composed {
    pub(crate) children: Vec<Child>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) configs: Vec<Config>,
    pub(crate) status: Option<Box<RawValue>>,
    pub(crate) conditions: Vec<Condition>,
    /// The child should take no further run.
    pub(crate) retire: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Child {
    pub(crate) kind: String,
    pub(crate) kind_version: i32,
    pub(crate) name: String,
    pub(crate) spec: Box<RawValue>,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Edge {
    pub(crate) dependent: Reference,
    pub(crate) dependency: Reference,
    /// Pairs of pointers: into the dependent's spec, into the dependency's status.
    pub(crate) values: Vec<(String, String)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) kind: String,
    pub(crate) kind_version: i32,
    pub(crate) name: String,
    pub(crate) spec: Box<RawValue>,
    pub(crate) is_default: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Condition {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}
