//! JSON documents as raw bytes, and the decoders that say where a document is wrong.
//!
//! What a provider or a person wrote is never re-encoded: numbers keep every digit, keys their order. A document is parsed
//! only where somebody asks for its content. Not here: merging two documents (`merge.rs`).

use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::TaskError;

/// One JSON document as the bytes it was written in. Cheap to clone.
///
/// A `Json` that comes from the wire is not checked until it is decoded, one made by [`Json::parse`], [`Json::of`] or a
/// conversion is well-formed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

/// Why a document could not be decoded, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    pointer: String,
    line: usize,
    column: usize,
    message: String,
}

impl Json {
    /// Takes bytes that hold one JSON document.
    ///
    /// # Errors
    /// When they do not, with line and column.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, DecodeError> {
        let bytes = bytes.into();
        match serde_json::from_slice::<&RawValue>(&bytes) {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(explain::<serde_json::Value>(&bytes)),
        }
    }

    /// Takes bytes without looking at them. Decoding fails later if they are no JSON.
    pub fn from_bytes_unchecked(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// Encodes a value.
    ///
    /// # Errors
    /// A terminal [`TaskError`] when the value has no JSON form (a map whose keys are no strings, for example).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, TaskError> {
        serde_json::to_vec(value)
            .map(|bytes| Self(bytes.into()))
            .map_err(|error| {
                TaskError::terminal(format!("could not encode a value as JSON: {error}"))
            })
    }

    /// The empty object, `{}`.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// The bytes as written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes as written, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// The bytes as written.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The text as written. `None` if the bytes are not UTF-8, and so no JSON.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no bytes at all, which no JSON document is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Decodes the document.
    ///
    /// # Errors
    /// With the pointer to the value that does not fit, line and column.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, DecodeError> {
        // The common case pays for no path tracking; only a failure is parsed again to find the place.
        serde_json::from_slice(&self.0).or_else(|_| explained(&self.0))
    }

    /// Decodes the document as the thing called `what` (`"spec"`, for example).
    ///
    /// # Errors
    /// A terminal [`TaskError`] that begins with `what` and names the place.
    pub fn decode_as<T: DeserializeOwned>(&self, what: &str) -> Result<T, TaskError> {
        self.decode()
            .map_err(|error| TaskError::terminal(format!("{what} is not valid: {error}")))
    }
}

fn explained<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut input = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut input).map_err(|error| {
        let pointer = pointer_of(error.path());
        DecodeError::new(pointer, error.inner())
    })?;
    input
        .end()
        .map_err(|error| DecodeError::new(String::new(), &error))?;
    Ok(value)
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> DecodeError {
    match explained::<T>(bytes) {
        Err(error) => error,
        // The two parsers disagree only about what one of them does not look at, such as nesting depth.
        Ok(_) => DecodeError {
            pointer: String::new(),
            line: 0,
            column: 0,
            message: "not one JSON document".to_owned(),
        },
    }
}

/// Renders the path of a decoding error as an RFC 6901 pointer.
fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => {
                pointer.push('/');
                pointer.push_str(&index.to_string());
            }
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            // A variant is not a step in the document, and an unknown step cannot be named.
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

impl DecodeError {
    pub(crate) fn new(pointer: String, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let mut message = error.to_string();
        if let Some(at) = message.rfind(&format!(" at line {line} column {column}")) {
            message.truncate(at);
        }
        Self {
            pointer,
            line,
            // The library counts what it has read of the line, which at its start is nothing.
            column: if line > 0 { column.max(1) } else { 0 },
            message,
        }
    }

    /// RFC 6901 pointer to the value that does not fit; empty for the document itself.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Line of the place, from 1; 0 if it is not known.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Column of the place, from 1; 0 if it is not known.
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong there, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(f, "at {}: ", self.pointer)?;
        }
        f.write_str(&self.message)?;
        if self.line > 0 {
            write!(f, " (line {}, column {})", self.line, self.column)?;
        }
        Ok(())
    }
}

impl std::error::Error for DecodeError {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 512;
        let shown = &self.0[..self.0.len().min(SHOWN)];
        write!(f, "Json({}", String::from_utf8_lossy(shown))?;
        if self.0.len() > SHOWN {
            write!(f, "… {} bytes", self.0.len())?;
        }
        f.write_str(")")
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into_bytes().into())
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Self(Box::<str>::from(value).into_string().into_bytes().into())
    }
}

impl From<&RawValue> for Json {
    fn from(value: &RawValue) -> Self {
        Self(Bytes::copy_from_slice(value.get().as_bytes()))
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Spec {
        replicas: u8,
        #[serde(default)]
        ports: Vec<Port>,
        #[serde(default)]
        extra: Option<Json>,
    }

    #[derive(Debug, Deserialize, Serialize)]
    struct Port {
        number: u16,
    }

    fn fails(text: &'static str) -> DecodeError {
        Json::from_bytes_unchecked(text)
            .decode::<Spec>()
            .unwrap_err()
    }

    #[test]
    fn a_number_keeps_every_digit() {
        let text = r#"{"replicas":1,"extra":{"b":123456789012345678901234567890,"a":1.10}}"#;
        let spec: Spec = Json::parse(text).unwrap().decode().unwrap();
        assert_eq!(
            spec.extra.as_ref().unwrap().as_str(),
            Some(r#"{"b":123456789012345678901234567890,"a":1.10}"#)
        );
        let again = Json::of(&spec).unwrap();
        assert!(
            again
                .as_str()
                .unwrap()
                .contains("123456789012345678901234567890")
        );
        let value: serde_json::Value = Json::parse("123456789012345678901234567890")
            .unwrap()
            .decode()
            .unwrap();
        assert_eq!(
            Json::from(value).as_str(),
            Some("123456789012345678901234567890")
        );
    }

    #[test]
    fn columns_count_from_one() {
        for text in ["", "\n", "{\"a\": 1,\n", "{\n\"a\":\n\n"] {
            let error = Json::parse(text).unwrap_err();
            assert!(error.line() > 0 && error.column() > 0, "{text:?}: {error}");
            assert!(!error.to_string().contains("column 0"), "{error}");
        }
    }

    #[test]
    fn a_decoding_error_names_pointer_line_and_column() {
        let error = fails(r#"{"replicas":1,"ports":[{"number":1},{"number":70000}]}"#);
        assert_eq!(error.pointer(), "/ports/1/number");
        assert_eq!((error.line(), error.column()), (1, 51));
        assert_eq!(
            error.to_string(),
            "at /ports/1/number: invalid value: integer `70000`, expected u16 (line 1, column 51)"
        );
        let error = fails("{\"replicas\":1,\n \"colour\": 2}");
        assert_eq!(error.pointer(), "/colour");
        assert!(
            error.to_string().contains("unknown field `colour`"),
            "{error}"
        );
        let error = fails(r#"{"replicas":1} x"#);
        assert!(error.to_string().contains("trailing characters"), "{error}");
        let error = fails("");
        assert!(error.to_string().contains("EOF"), "{error}");
    }

    #[test]
    fn text_that_is_no_json_is_refused_with_its_place() {
        let error = Json::parse(r#"{"region": tru}"#).unwrap_err();
        assert_eq!(error.pointer(), "/region");
        assert_eq!(error.line(), 1);
        let error = Json::parse("[1,]").unwrap_err();
        assert!(error.column() > 0, "{error}");
        assert!(Json::parse("{} {}").is_err());
        assert!(Json::parse(vec![b'"', 0xff, b'"']).is_err());
    }

    #[test]
    fn a_task_error_from_a_decoder_is_terminal_and_begins_with_its_subject() {
        let error = Json::from_bytes_unchecked(r#"{"replicas":"x"}"#)
            .decode_as::<Spec>("spec")
            .unwrap_err();
        assert!(error.is_terminal());
        assert!(
            error
                .message()
                .starts_with("spec is not valid: at /replicas: "),
            "{error}"
        );
    }
}
