//! Values: what an expression works on.
//!
//! Containers know their depth and weight, so that bounding what a program builds costs nothing per use, and they share
//! their contents, so that inlining a big spec a thousand times is a thousand pointers. Maps are ordered by key: iteration
//! and output never depend on a hash seed or on the order somebody listed the keys in.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::MAX_VALUE_DEPTH;
use super::fault::Fault;
use super::functions::opaque::Opaque;

/// The value of an expression, or of a part of a document.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// A JSON number that no 64-bit integer holds: a double to every operation, the text as it was to the output.
    Decimal(Arc<Decimal>),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<List>),
    Map(Arc<Map>),
    Optional(Option<Arc<Value>>),
    /// Nanoseconds.
    Duration(i128),
    /// Nanoseconds since 1970-01-01T00:00:00Z.
    Timestamp(i128),
    Type(&'static str),
    Opaque(Arc<Opaque>),
    /// A place in a sibling's status: it can be moved to where it will flow, and not read.
    Pending(Arc<Pending>),
}

/// A number with the text it was written as.
#[derive(Debug)]
pub(crate) struct Decimal {
    pub(crate) text: Box<str>,
    pub(crate) value: f64,
}

/// A place in the status of a child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Index of the child in the composition.
    pub(crate) child: usize,
    /// The graph id it belongs to, for messages.
    pub(crate) id: Arc<str>,
    /// JSON pointer into its status.
    pub(crate) pointer: String,
}

#[derive(Debug, Clone, Copy)]
struct Meta {
    depth: u32,
    weight: u64,
    /// Every part has a JSON form and is known: nothing in here needs a second look.
    plain: bool,
}

/// A list and what it weighs.
#[derive(Debug)]
pub(crate) struct List {
    items: Vec<Value>,
    meta: Meta,
}

/// A map in key order and what it weighs.
#[derive(Debug)]
pub(crate) struct Map {
    entries: BTreeMap<Key, Value>,
    meta: Meta,
}

/// A map key. Integers of both kinds are one key when they are the same number.
#[derive(Debug, Clone)]
pub(crate) enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Key {
    fn rank(&self) -> (u8, i128) {
        match self {
            Self::Bool(value) => (0, i128::from(*value)),
            Self::Int(value) => (1, i128::from(*value)),
            Self::Uint(value) => (1, i128::from(*value)),
            Self::String(_) => (2, 0),
        }
    }

    /// The key a value stands for in a lookup; `None` when no map can hold it.
    pub(crate) fn lookup(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Uint(value) => Some(Self::Uint(*value)),
            Value::String(value) => Some(Self::String(Arc::clone(value))),
            Value::Double(_) | Value::Decimal(_) => {
                let double = value.as_double()?;
                if double.fract() != 0.0 || !(-9.2e18..1.8e19).contains(&double) {
                    return None;
                }
                // The range check above makes both casts exact.
                Some(if double < 0.0 {
                    Self::Int(double as i64)
                } else {
                    Self::Uint(double as u64)
                })
            }
            _ => None,
        }
    }

    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(value) => Value::String(Arc::clone(value)),
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::String(a), Self::String(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

/// Lets maps be searched by `&str` without building a key.
trait AsKey {
    fn rank(&self) -> (u8, i128);
    fn text(&self) -> &str;
}

impl AsKey for Key {
    fn rank(&self) -> (u8, i128) {
        Self::rank(self)
    }
    fn text(&self) -> &str {
        match self {
            Self::String(text) => text,
            _ => "",
        }
    }
}

impl PartialEq for dyn AsKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank() && self.text() == other.text()
    }
}

impl Eq for dyn AsKey + '_ {}

impl PartialOrd for dyn AsKey + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for dyn AsKey + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank()
            .cmp(&other.rank())
            .then_with(|| self.text().cmp(other.text()))
    }
}

impl<'a> std::borrow::Borrow<dyn AsKey + 'a> for Key {
    fn borrow(&self) -> &(dyn AsKey + 'a) {
        self
    }
}

impl List {
    pub(crate) fn items(&self) -> &[Value] {
        &self.items
    }
}

impl Map {
    pub(crate) fn entries(&self) -> &BTreeMap<Key, Value> {
        &self.entries
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        // A borrowed lookup through the trait object saves an allocation per field access.
        self.entries.get(&StrKey(name) as &dyn AsKey)
    }

    pub(crate) fn get_value(&self, key: &Value) -> Option<&Value> {
        match key {
            Value::String(name) => self.get(name),
            other => self.entries.get(&Key::lookup(other)?),
        }
    }
}

struct StrKey<'a>(&'a str);

impl AsKey for StrKey<'_> {
    fn rank(&self) -> (u8, i128) {
        (2, 0)
    }
    fn text(&self) -> &str {
        self.0
    }
}

impl Value {
    pub(crate) fn string(text: impl AsRef<str>) -> Self {
        Self::String(Arc::from(text.as_ref()))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub(crate) fn empty_map() -> Self {
        Self::Map(Arc::new(Map {
            entries: BTreeMap::new(),
            meta: Meta {
                depth: 1,
                weight: 2,
                plain: true,
            },
        }))
    }

    /// A list, refused when it would nest too deep.
    pub(crate) fn list(items: Vec<Self>) -> Result<Self, Fault> {
        let meta = Meta::of(items.iter())?;
        Ok(Self::List(Arc::new(List { items, meta })))
    }

    /// A map, refused when it would nest too deep.
    pub(crate) fn map(entries: BTreeMap<Key, Self>) -> Result<Self, Fault> {
        let mut meta = Meta::of(entries.values())?;
        for key in entries.keys() {
            match key {
                Key::String(text) => {
                    meta.weight = meta.weight.saturating_add(text.len() as u64 + 4)
                }
                _ => meta.plain = false,
            }
        }
        Ok(Self::Map(Arc::new(Map { entries, meta })))
    }

    /// A map with text keys.
    pub(crate) fn object<'k>(
        fields: impl IntoIterator<Item = (&'k str, Self)>,
    ) -> Result<Self, Fault> {
        Self::map(
            fields
                .into_iter()
                .map(|(name, value)| (Key::String(Arc::from(name)), value))
                .collect(),
        )
    }

    fn meta(&self) -> Meta {
        match self {
            Self::List(list) => list.meta,
            Self::Map(map) => map.meta,
            Self::String(text) => Meta {
                depth: 0,
                weight: text.len() as u64 + 2,
                plain: true,
            },
            Self::Bytes(bytes) => Meta {
                depth: 0,
                weight: bytes.len() as u64,
                plain: false,
            },
            Self::Decimal(decimal) => Meta {
                depth: 0,
                weight: decimal.text.len() as u64,
                plain: true,
            },
            Self::Optional(Some(inner)) => {
                let inner = inner.meta();
                Meta {
                    depth: inner.depth + 1,
                    weight: inner.weight,
                    plain: false,
                }
            }
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Uint(_) => Meta {
                depth: 0,
                weight: 8,
                plain: true,
            },
            Self::Double(value) => Meta {
                depth: 0,
                weight: 8,
                plain: value.is_finite(),
            },
            _ => Meta {
                depth: 0,
                weight: 8,
                plain: false,
            },
        }
    }

    /// About the number of bytes the value takes when written out.
    pub(crate) fn weight(&self) -> u64 {
        self.meta().weight
    }

    /// Whether all of it has a JSON form and is known.
    pub(crate) fn is_plain(&self) -> bool {
        self.meta().plain
    }

    /// The value as a double, for the two variants that are one.
    pub(crate) fn as_double(&self) -> Option<f64> {
        match self {
            Self::Double(value) => Some(*value),
            Self::Decimal(decimal) => Some(decimal.value),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The name of its type, as `type()` gives it.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) | Self::Decimal(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Opaque(opaque) => opaque.type_name(),
            Self::Pending(_) => "status",
        }
    }

    /// A JSON number with the narrowest type that loses nothing.
    pub(crate) fn number(text: &str) -> Self {
        let integral = !text.contains(['.', 'e', 'E']);
        if integral && text != "-0" {
            if let Ok(value) = text.parse() {
                return Self::Int(value);
            }
            if let Ok(value) = text.parse() {
                return Self::Uint(value);
            }
        }
        Self::Decimal(Arc::new(Decimal {
            text: text.into(),
            value: text.parse().unwrap_or(f64::NAN),
        }))
    }
}

impl Meta {
    fn of<'v>(parts: impl Iterator<Item = &'v Value>) -> Result<Self, Fault> {
        let mut meta = Self {
            depth: 0,
            weight: 2,
            plain: true,
        };
        for part in parts {
            let part = part.meta();
            meta.depth = meta.depth.max(part.depth);
            meta.weight = meta.weight.saturating_add(part.weight.saturating_add(1));
            meta.plain &= part.plain;
        }
        meta.depth += 1;
        if meta.depth > MAX_VALUE_DEPTH {
            return Err(Fault::limit(format!(
                "the value nests deeper than {MAX_VALUE_DEPTH} levels"
            )));
        }
        Ok(meta)
    }
}
