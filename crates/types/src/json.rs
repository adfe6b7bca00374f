//! JSON documents as the bytes somebody wrote.
//!
//! A [`Doc`] is checked once, when it comes in, and never re-encoded: what is stored and sent is what was written, so
//! that no number loses a digit. What is checked: it is JSON (RFC 8259, UTF-8), no object has a key twice, nothing is
//! deeper than [`limits::DOCUMENT_DEPTH`], no exponent is beyond [`MAX_EXPONENT`], and nothing follows it.
//!
//! Two documents are equal when they have the same value: spacing and the order of keys do not count, numbers compare
//! by their exact decimal value. The canonical form and its digest follow the same rule: equal documents have the same.
//!
//! Our own scanner and not serde_json's: that one keeps the last of two equal keys in silence, and it hands a number of
//! any length to a visitor as an object with a private key, which a document could forge. Keys of that sort are refused.

mod canonical;
mod equal;
mod number;
mod scan;

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::limits;
use crate::pointer::Pointer;

pub use number::MAX_EXPONENT;
pub(crate) use number::compare as compare_numbers;

/// A JSON document: its bytes, checked, cheap to clone.
///
/// `==` is equality by value, see the [module](self). Comparing takes time in proportion to the size, unless the bytes
/// are the same memory.
#[derive(Clone)]
pub struct Doc(Bytes);

/// What a document, or a value in it, is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JsonType {
    /// `null`
    Null,
    /// `true` or `false`
    Boolean,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl fmt::Display for JsonType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JsonType::Null => "null",
            JsonType::Boolean => "a boolean",
            JsonType::Number => "a number",
            JsonType::String => "a string",
            JsonType::Array => "an array",
            JsonType::Object => "an object",
        })
    }
}

/// Why bytes are no document, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocError {
    /// What is wrong.
    pub problem: DocProblem,
    /// The value it is wrong in; for a duplicate key the member that has it.
    pub pointer: Pointer,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl DocError {
    /// What is wrong and in which line, for who says the pointer beside it.
    pub fn without_pointer(&self) -> String {
        format!(
            "{} (line {}, column {})",
            self.problem, self.line, self.column
        )
    }
}

/// What a reader of JSON says, without the place: for a text that nobody wrote as it is, or one whose place is said beside it.
pub fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let bare = text.rsplit_once(" at line ").map(|(bare, _)| bare);
    bare.unwrap_or(&text).to_owned()
}

/// What is wrong with bytes that are no document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocProblem {
    /// There is nothing but space.
    Empty,
    /// Something else was expected there.
    Syntax(&'static str),
    /// The bytes are not UTF-8.
    Utf8,
    /// Something follows the document.
    Trailing,
    /// An object has this key twice.
    DuplicateKey(String),
    /// A key that our JSON library gives a meaning of its own.
    ReservedKey(String),
    /// Arrays and objects are nested too deep.
    Depth,
    /// A number's exponent is beyond [`MAX_EXPONENT`].
    Exponent,
}

impl fmt::Display for DocProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocProblem::Empty => f.write_str("the document is empty"),
            DocProblem::Syntax(expected) => write!(f, "not JSON: expected {expected}"),
            DocProblem::Utf8 => f.write_str("not JSON: not UTF-8"),
            DocProblem::Trailing => f.write_str("something follows the document"),
            DocProblem::DuplicateKey(key) => write!(f, "duplicate key {key:?}"),
            DocProblem::ReservedKey(key) => write!(f, "the key {key:?} cannot be used"),
            DocProblem::Depth => write!(f, "nested deeper than {}", limits::DOCUMENT_DEPTH),
            DocProblem::Exponent => write!(f, "a number's exponent is beyond {MAX_EXPONENT}"),
        }
    }
}

impl fmt::Display for DocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.problem)?;
        if !self.pointer.is_empty() {
            write!(f, " at {}", self.pointer)?;
        }
        write!(f, " (line {}, column {})", self.line, self.column)
    }
}

impl std::error::Error for DocError {}

impl Doc {
    /// Checks `bytes` and keeps them.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Doc, DocError> {
        let bytes = bytes.into();
        scan::validate(&bytes)?;
        Ok(Doc(bytes))
    }

    /// Takes bytes that were a `Doc` before, read back from a store for example, without checking them again.
    ///
    /// Other bytes do no harm beyond themselves: such a document equals only the same bytes, and
    /// [`to_value`](Doc::to_value) fails.
    pub fn from_stored(bytes: impl Into<Bytes>) -> Doc {
        Doc(bytes.into())
    }

    /// Writes `value` as a document.
    ///
    /// # Errors
    /// It is too deep or has a number or key that no document may have.
    pub fn from_value(value: &Value) -> Result<Doc, DocError> {
        Doc::parse(value.to_string())
    }

    /// `null`
    pub fn null() -> Doc {
        Doc(Bytes::from_static(b"null"))
    }

    /// `{}`
    pub fn empty_object() -> Doc {
        Doc(Bytes::from_static(b"{}"))
    }

    /// The bytes as they were written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as they were written, to keep.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes as they were written.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// How many bytes there are.
    pub fn size(&self) -> usize {
        self.0.len()
    }

    /// What it is.
    pub fn json_type(&self) -> JsonType {
        match self
            .0
            .iter()
            .find(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n'))
        {
            Some(b'{') => JsonType::Object,
            Some(b'[') => JsonType::Array,
            Some(b'"') => JsonType::String,
            Some(b't' | b'f') => JsonType::Boolean,
            Some(b'-' | b'0'..=b'9') => JsonType::Number,
            _ => JsonType::Null,
        }
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        self.json_type() == JsonType::Null
    }

    /// The value at `pointer`: a slice of this document's bytes, which it keeps alive.
    pub fn get(&self, pointer: &Pointer) -> Option<Doc> {
        let range = scan::find(&self.0, pointer)?;
        Some(Doc(self.0.slice(range)))
    }

    /// The document as a tree, numbers with every digit.
    ///
    /// # Errors
    /// Only for bytes of [`from_stored`](Doc::from_stored) that never were a document.
    pub fn to_value(&self) -> Result<Value, DocError> {
        serde_json::from_slice(&self.0).map_err(|_| match scan::validate(&self.0) {
            Err(error) => error,
            Ok(()) => DocError {
                problem: DocProblem::Syntax("JSON"),
                pointer: Pointer::root(),
                line: 1,
                column: 1,
            },
        })
    }

    /// The document without spacing, with sorted keys and one spelling per number and string.
    pub fn canonical(&self) -> Vec<u8> {
        // Bytes that are no JSON stand for themselves, so that they still have a digest of their own.
        canonical::write(&self.0).unwrap_or_else(|| self.0.to_vec())
    }

    /// The digest of the canonical form.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.canonical())
    }
}

impl PartialEq for Doc {
    fn eq(&self, other: &Doc) -> bool {
        self.0 == other.0 || equal::equal(&self.0, &other.0)
    }
}

impl Eq for Doc {}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 200;
        let shown = self.0.get(..SHOWN).unwrap_or(&self.0);
        write!(f, "Doc({}", String::from_utf8_lossy(shown))?;
        if self.0.len() > SHOWN {
            write!(f, "… {} bytes", self.0.len())?;
        }
        f.write_str(")")
    }
}

impl FromStr for Doc {
    type Err = DocError;

    fn from_str(text: &str) -> Result<Doc, DocError> {
        Doc::parse(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// As written, inside of whatever is being written. For JSON only.
impl Serialize for Doc {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Keeps the bytes of the value. For JSON only. Line and column of an error are within the value.
impl<'de> Deserialize<'de> for Doc {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Doc::parse(String::from(Box::<str>::from(raw))).map_err(de::Error::custom)
    }
}

/// A SHA-256 digest. Prints as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// The digest of several parts; other parts give another digest, also when their bytes run together to the same.
    pub fn of_parts(parts: &[&[u8]]) -> Digest {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
