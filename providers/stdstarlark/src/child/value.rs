//! A JSON object as programs see it: readable by attribute and by index, iterable over its keys, immutable.
//!
//! It has no methods on purpose: a field called `items` or `get` must be a field. Members live in the frozen heap of
//! the module they were made for, so an object never changes and never takes part in garbage collection.

use std::fmt;

use allocative::Allocative;
use starlark::collections::{Hashed, SmallMap};
use starlark::starlark_simple_value;
use starlark::values::{
    FrozenStringValue, FrozenValue, Heap, NoSerialize, ProvidesStaticType, StarlarkPagable,
    StarlarkValue, Value, ValueError, starlark_value,
};

/// See the module's text.
#[derive(Debug, Default, ProvidesStaticType, NoSerialize, StarlarkPagable, Allocative)]
pub(crate) struct Object {
    fields: SmallMap<FrozenStringValue, FrozenValue>,
}

starlark_simple_value!(Object);

impl Object {
    /// A later entry with the same key replaces an earlier one and keeps its place.
    pub(crate) fn new(entries: impl IntoIterator<Item = (FrozenStringValue, FrozenValue)>) -> Self {
        Self {
            fields: entries.into_iter().collect(),
        }
    }

    /// The entries in the order of the document.
    pub(crate) fn iter<'v>(&self) -> impl Iterator<Item = (&str, Value<'v>)> {
        self.fields
            .iter()
            .map(|(key, value)| (key.as_str(), value.to_value()))
    }

    fn get(&self, key: &str) -> Option<FrozenValue> {
        self.fields.get_hashed(Hashed::new(key)).copied()
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (key, value)) in self.fields.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {value}", key.to_frozen_value())?;
        }
        f.write_str("}")
    }
}

#[starlark_value(type = "object")]
impl<'v> StarlarkValue<'v> for Object {
    fn to_bool(&self) -> bool {
        !self.fields.is_empty()
    }

    fn length(&self) -> starlark::Result<i32> {
        i32::try_from(self.fields.len()).map_err(starlark::Error::new_other)
    }

    fn get_attr(&self, attribute: &str, _heap: Heap<'v>) -> Option<Value<'v>> {
        self.get(attribute).map(FrozenValue::to_value)
    }

    fn dir_attr(&self) -> Vec<String> {
        self.fields
            .keys()
            .map(|key| key.as_str().to_owned())
            .collect()
    }

    fn at(&self, index: Value<'v>, _heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        index
            .unpack_str()
            .and_then(|key| self.get(key))
            .map(FrozenValue::to_value)
            .ok_or_else(|| ValueError::KeyNotFound(index.to_repr()).into())
    }

    fn is_in(&self, other: Value<'v>) -> starlark::Result<bool> {
        Ok(other
            .unpack_str()
            .is_some_and(|key| self.get(key).is_some()))
    }

    fn iterate_collect(&self, _heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        Ok(self
            .fields
            .keys()
            .map(|key| key.to_frozen_value().to_value())
            .collect())
    }

    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let Some(other) = Self::from_value(other) else {
            return Ok(false);
        };
        if self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for (key, value) in &self.fields {
            match other.get(key.as_str()) {
                Some(theirs) if value.to_value().equals(theirs.to_value())? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
