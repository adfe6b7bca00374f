//! JSON pointers (RFC 6901): where in a document something is.
//!
//! A pointer is kept as its unescaped tokens and prints escaped. Reading never fails, it finds something or nothing.
//! Writing is that of value flows: missing members and nulls on the way become objects, an array's element is replaced
//! and never appended, and a write that fails changes nothing.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::limits;

/// A place in a JSON document. The default is the whole document, printed as the empty text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(Arc<[Box<str>]>);

/// Why a text is no pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It is neither empty nor does it begin with a slash.
    #[error("JSON pointer {0:?} does not begin with '/'")]
    NoSlash(String),
    /// A tilde without 0 or 1 behind it.
    #[error("JSON pointer {0:?} has a '~' that is not followed by 0 or 1")]
    Tilde(String),
    /// More tokens than a document may be deep.
    #[error(
        "a JSON pointer of {0} tokens is deeper than a document may be ({max})",
        max = limits::DOCUMENT_DEPTH
    )]
    Depth(usize),
}

/// Why a value cannot be put where a pointer says. `at` is how far the way was open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The pointer is empty: it names the whole document.
    #[error("the pointer is empty: it must name a field")]
    Empty,
    /// The pointer ends in `-`, which would append.
    #[error("{0} ends in '-': it must name an existing element")]
    Dash(Pointer),
    /// The way leads through a string, number or boolean.
    #[error("{pointer} passes through {at}, which is {found}")]
    ThroughScalar {
        /// The whole pointer.
        pointer: Pointer,
        /// Where the scalar is.
        at: Pointer,
        /// What it is.
        found: &'static str,
    },
    /// The way leads past the end of an array.
    #[error("{pointer} is past the end of {at}, an array of {len}")]
    PastEnd {
        /// The whole pointer.
        pointer: Pointer,
        /// Where the array is.
        at: Pointer,
        /// How long it is.
        len: usize,
    },
    /// The way leads into an array by something that is no index.
    #[error("{pointer} enters {at}, an array, by {token:?}, which is no index")]
    NotIndex {
        /// The whole pointer.
        pointer: Pointer,
        /// Where the array is.
        at: Pointer,
        /// The token.
        token: String,
    },
}

impl Pointer {
    /// The pointer to the whole document.
    pub fn root() -> Pointer {
        Pointer::default()
    }

    /// The pointer with these unescaped tokens.
    pub fn from_tokens<T: Into<Box<str>>>(tokens: impl IntoIterator<Item = T>) -> Pointer {
        Pointer(tokens.into_iter().map(Into::into).collect())
    }

    /// Reads a pointer.
    ///
    /// # Errors
    /// The text is no pointer, or has more tokens than [`limits::DOCUMENT_DEPTH`].
    pub fn parse(text: &str) -> Result<Pointer, PointerError> {
        if text.is_empty() {
            return Ok(Pointer::default());
        }
        let quoted = || text.chars().take(80).collect::<String>();
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PointerError::NoSlash(quoted()));
        };
        let depth = rest.split('/').count();
        if depth > limits::DOCUMENT_DEPTH {
            return Err(PointerError::Depth(depth));
        }
        rest.split('/')
            .map(unescape)
            .collect::<Option<_>>()
            .map(Pointer)
            .ok_or_else(|| PointerError::Tilde(quoted()))
    }

    /// Reads a pointer, or the bare name of a field of the document, which is a pointer of one token.
    ///
    /// # Errors
    /// The text begins with a slash and is no pointer.
    pub fn parse_or_field(text: &str) -> Result<Pointer, PointerError> {
        if text.is_empty() || text.starts_with('/') {
            Pointer::parse(text)
        } else {
            Ok(Pointer::from_tokens([text]))
        }
    }

    /// The unescaped tokens.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator {
        self.0.iter().map(|token| &**token)
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it names the whole document.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This place's member or element `token`.
    #[must_use]
    pub fn child(&self, token: &str) -> Pointer {
        Pointer::from_tokens(self.tokens().chain([token]))
    }

    fn up_to(&self, len: usize) -> Pointer {
        Pointer::from_tokens(self.tokens().take(len))
    }

    /// Whether `other` is at this place or below it.
    pub fn is_prefix_of(&self, other: &Pointer) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Whether one of the two is at or below the other, so that writing both is ambiguous.
    pub fn overlaps(&self, other: &Pointer) -> bool {
        self.is_prefix_of(other) || other.is_prefix_of(self)
    }

    /// What is there.
    pub fn get<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.tokens()
            .try_fold(document, |value, token| match value {
                Value::Object(members) => members.get(token),
                Value::Array(elements) => elements.get(index(token)?),
                _ => None,
            })
    }

    /// Whether [`set`](Pointer::set) could write there, without writing.
    ///
    /// # Errors
    /// It could not.
    pub fn check_set(&self, document: &Value) -> Result<(), SetError> {
        match self.tokens().next_back() {
            None => return Err(SetError::Empty),
            Some("-") => return Err(SetError::Dash(self.clone())),
            Some(_) => {}
        }
        let mut value = document;
        for (depth, token) in self.tokens().enumerate() {
            value = match value {
                // From here on everything is made.
                Value::Null => return Ok(()),
                Value::Object(members) => match members.get(token) {
                    Some(member) => member,
                    None => return Ok(()),
                },
                Value::Array(elements) => match index(token) {
                    Some(index) if index < elements.len() => &elements[index],
                    None if token != "-" => {
                        let token = token.to_owned();
                        return Err(SetError::NotIndex {
                            pointer: self.clone(),
                            at: self.up_to(depth),
                            token,
                        });
                    }
                    _ => {
                        let len = elements.len();
                        return Err(SetError::PastEnd {
                            pointer: self.clone(),
                            at: self.up_to(depth),
                            len,
                        });
                    }
                },
                Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                    let found = match value {
                        Value::Bool(_) => "a boolean",
                        Value::Number(_) => "a number",
                        _ => "a string",
                    };
                    return Err(SetError::ThroughScalar {
                        pointer: self.clone(),
                        at: self.up_to(depth),
                        found,
                    });
                }
            };
        }
        Ok(())
    }

    /// Puts `new` there. Missing members and nulls on the way become objects.
    ///
    /// # Errors
    /// The way is not open; the document is as it was.
    pub fn set(&self, document: &mut Value, new: Value) -> Result<(), SetError> {
        self.check_set(document)?;
        let mut place = document;
        for token in self.tokens() {
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
            place = match place {
                Value::Object(members) => members.entry(token).or_insert(Value::Null),
                Value::Array(elements) => {
                    match index(token).and_then(|index| elements.get_mut(index)) {
                        Some(element) => element,
                        // `check_set` has walked this way.
                        None => return Err(SetError::Dash(self.clone())),
                    }
                }
                _ => return Err(SetError::Empty),
            };
        }
        *place = new;
        Ok(())
    }
}

/// The tokens of an array's elements: digits without a leading zero.
pub(crate) fn index(token: &str) -> Option<usize> {
    let plain =
        token.bytes().all(|b| b.is_ascii_digit()) && (token == "0" || !token.starts_with('0'));
    if plain { token.parse().ok() } else { None }
}

fn unescape(token: &str) -> Option<Box<str>> {
    if !token.contains('~') {
        return Some(token.into());
    }
    let mut out = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '~' => match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out.into())
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for token in self.tokens() {
            f.write_char('/')?;
            for c in token.chars() {
                match c {
                    '~' => f.write_str("~0")?,
                    '/' => f.write_str("~1")?,
                    c => f.write_char(c)?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Pointer, PointerError> {
        Pointer::parse(text)
    }
}

impl Serialize for Pointer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
