//! Kinds, names and identities: how things are called and what may not be a name.
//!
//! Every type here is checked when it is made (also by serde), cheap to clone, ordered and hashable, and prints as the
//! text it was made from. Labels live in [`labels`](crate::labels).

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text is not a name of the wanted sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: expected {expected}")]
pub struct NameError {
    what: &'static str,
    text: String,
    expected: &'static str,
}

impl NameError {
    pub(crate) fn new(what: &'static str, text: &str, expected: &'static str) -> NameError {
        // A message quotes the text, so a text of any length must not make one of any length.
        let end = text.floor_char_boundary(80);
        let mut quoted = text.get(..end).unwrap_or_default().to_owned();
        if end < text.len() {
            quoted.push('…');
        }
        NameError {
            what,
            text: quoted,
            expected,
        }
    }
}

/// Starts alphanumeric, goes on in `[A-Za-z0-9._-]`, at most `max` bytes.
fn is_plain_name(text: &str, max: usize) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= max
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

fn is_kind(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_resource_name(text: &str) -> bool {
    is_plain_name(text, 253)
}

fn is_reaction_word(text: &str) -> bool {
    is_plain_name(text, 63)
}

/// `[prefix/]name`: the name at most 63 bytes, the prefix at most 253.
pub(crate) fn is_prefixed_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_plain_name(prefix, 253) && is_plain_name(name, 63),
        None => is_plain_name(text, 63),
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:path, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks `text` and makes the name.
            ///
            /// # Errors
            /// The text breaks the rule; the error quotes both.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                let text = text.as_ref();
                if $check(text) { Ok(Self(text.into())) } else { Err(NameError::new($what, text, $expected)) }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        // Sound because Eq, Ord and Hash are those of the text.
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl FromStr for $name {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.as_ref().to_owned()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text).map_err(de::Error::custom)
            }
        }
    };
}

name_type!(
    /// The name of a kind: `[a-z][a-z0-9-]{0,62}`.
    Kind,
    "kind",
    is_kind,
    "1 to 63 of a-z, 0-9 and -, starting with a letter"
);
name_type!(
    /// The name of a resource, unique in its kind: 1 to 253 of `[A-Za-z0-9._-]`, starting alphanumeric.
    ResourceName,
    "resource name",
    is_resource_name,
    "1 to 253 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
);
name_type!(
    /// The name of a provider config, unique over all kinds; the rule of a resource name.
    ConfigName,
    "provider config name",
    is_resource_name,
    "1 to 253 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
);
name_type!(
    /// The name of a reactor binding; the rule of a resource name.
    BindingName,
    "reactor binding name",
    is_resource_name,
    "1 to 253 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
);
name_type!(
    /// The name of a reaction in a manifest: 1 to 63 of `[A-Za-z0-9._-]`, starting alphanumeric.
    ReactionName,
    "reaction name",
    is_reaction_word,
    "1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
);
name_type!(
    /// The verb of an operation: 1 to 63 of `[A-Za-z0-9._-]`, starting alphanumeric.
    Verb,
    "verb",
    is_reaction_word,
    "1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit"
);
name_type!(
    /// What a kind with a teardown leaves on a resource until that has run: `[prefix/]name`.
    FinalizerName,
    "finalizer name",
    is_prefixed_name,
    "[prefix/]name: each of A-Z, a-z, 0-9, '.', '_' and '-', starting with a letter or digit, the name at most 63 bytes"
);

/// A kind and the whole-number version of its API: what work is routed by.
///
/// Prints and parses as `kind/vN`. `version` is within [`KindVersion::VERSIONS`] in every value made by
/// [`KindVersion::new`], by parsing or by serde.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindVersion {
    /// The kind.
    pub kind: Kind,
    /// Its version, 1…32767.
    pub version: i32,
}

/// Why a text or pair is not a kind version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindVersionError {
    /// The kind's name is none.
    #[error(transparent)]
    Kind(#[from] NameError),
    /// The version is out of range.
    #[error("kind version {0} is not valid: expected a whole number from 1 to 32767")]
    Version(i64),
    /// The text is not `kind/vN`.
    #[error("{0:?} is not valid: expected KIND/vN, for example bucket/v1")]
    Shape(String),
}

impl KindVersion {
    /// The versions there can be.
    pub const VERSIONS: std::ops::RangeInclusive<i32> = 1..=32_767;

    /// Checks the version and makes the pair.
    ///
    /// # Errors
    /// The version is out of range.
    pub fn new(kind: Kind, version: i32) -> Result<KindVersion, KindVersionError> {
        if Self::VERSIONS.contains(&version) {
            Ok(KindVersion { kind, version })
        } else {
            Err(KindVersionError::Version(version.into()))
        }
    }

    /// Checks name and version and makes the pair.
    ///
    /// # Errors
    /// The name is no kind or the version is out of range.
    pub fn parse(kind: &str, version: i32) -> Result<KindVersion, KindVersionError> {
        KindVersion::new(Kind::new(kind)?, version)
    }
}

impl fmt::Display for KindVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/v{}", self.kind, self.version)
    }
}

impl fmt::Debug for KindVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KindVersion {
    type Err = KindVersionError;

    fn from_str(text: &str) -> Result<KindVersion, KindVersionError> {
        let shape = || {
            let end = text.floor_char_boundary(80);
            KindVersionError::Shape(text.get(..end).unwrap_or_default().to_owned())
        };
        let (kind, digits) = text.split_once("/v").ok_or_else(shape)?;
        // One spelling per version: no sign, no leading zero.
        if digits.is_empty()
            || digits.len() > 18
            || digits.starts_with('0')
            || !digits.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(shape());
        }
        let version: i64 = digits.parse().map_err(|_| shape())?;
        let kind = Kind::new(kind)?;
        let narrow = i32::try_from(version).map_err(|_| KindVersionError::Version(version))?;
        KindVersion::new(kind, narrow)
    }
}

impl Serialize for KindVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KindVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A resource by its kind and name, as people and edges refer to it. Prints and parses as `kind/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceRef {
    /// The kind.
    pub kind: Kind,
    /// The name in that kind.
    pub name: ResourceName,
}

impl ResourceRef {
    /// The resource `kind/name`.
    pub fn new(kind: Kind, name: ResourceName) -> ResourceRef {
        ResourceRef { kind, name }
    }

    /// Checks both names and makes the reference.
    ///
    /// # Errors
    /// One of the two breaks its rule.
    pub fn parse(kind: &str, name: &str) -> Result<ResourceRef, NameError> {
        Ok(ResourceRef {
            kind: Kind::new(kind)?,
            name: ResourceName::new(name)?,
        })
    }
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl fmt::Debug for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ResourceRef {
    type Err = NameError;

    fn from_str(text: &str) -> Result<ResourceRef, NameError> {
        let (kind, name) = text.split_once('/').ok_or_else(|| {
            NameError::new("resource", text, "KIND/NAME, for example bucket/logs")
        })?;
        ResourceRef::parse(kind, name)
    }
}

/// A resource's identity for life: a UUID of version 7, so that later ones sort later.
///
/// Sixteen bytes in stores and on the wire, the usual text with dashes in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(uuid::Uuid);

/// Why bytes or a text are no identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a uid: expected {0}")]
pub struct UidError(&'static str);

impl Uid {
    /// A new identity from the machine's clock and random numbers.
    pub fn now() -> Uid {
        Uid(uuid::Uuid::now_v7())
    }

    /// The identity made of a time (milliseconds since the epoch) and random bytes; the same arguments give the same.
    pub fn from_parts(unix_ms: u64, random: [u8; 10]) -> Uid {
        Uid(uuid::Builder::from_unix_timestamp_millis(unix_ms, &random).into_uuid())
    }

    /// The identity with these bytes. Takes any: what a peer calls an identity is not ours to refuse.
    pub const fn from_bytes(bytes: [u8; 16]) -> Uid {
        Uid(uuid::Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The sixteen bytes as one number, for spreading things by identity. The low bits are random, the high ones are time.
    pub const fn as_u128(&self) -> u128 {
        self.0.as_u128()
    }
}

impl TryFrom<&[u8]> for Uid {
    type Error = UidError;

    fn try_from(bytes: &[u8]) -> Result<Uid, UidError> {
        bytes
            .try_into()
            .map(Uid::from_bytes)
            .map_err(|_| UidError("16 bytes"))
    }
}

impl FromStr for Uid {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Uid, UidError> {
        // Only the spelling we print, so that an identity has one text.
        if text.len() != 36 {
            return Err(UidError(
                "a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057",
            ));
        }
        uuid::Uuid::try_parse(text)
            .map(Uid)
            .map_err(|_| UidError("a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.hyphenated(), f)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
