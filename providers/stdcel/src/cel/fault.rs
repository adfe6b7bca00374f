//! Why an expression has no value.
//!
//! The kind decides what the caller does with it: [`FaultKind::Missing`] is "not there yet" to a rollup,
//! [`FaultKind::StatusRead`] asks for a restructured template, [`FaultKind::LeftOut`] is no fault at all but travels the
//! same way, [`FaultKind::Limit`] can never be absorbed by `||`, `&&`, `all` or `exists`.

use std::fmt;

/// What sort of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A key, index or optional that is not there.
    Missing,
    /// No such overload: the operands have types the operation does not take.
    Type,
    /// An argument outside the domain of a function, an overflow, a division by zero.
    Domain,
    /// A bound on steps, memory or depth was met.
    Limit,
    /// A status was read where its value would be needed now.
    StatusRead,
    /// The expression reads a resource that this instance leaves out.
    LeftOut,
}

/// An evaluation that ended without a value. Boxed: the happy path carries one pointer.
#[derive(Debug, Clone)]
pub(crate) struct Fault(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    kind: FaultKind,
    message: String,
    hint: Option<String>,
    offset: Option<u32>,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            offset: None,
        }))
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Missing, message)
    }

    pub(crate) fn of_type(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Type, message)
    }

    pub(crate) fn domain(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Domain, message)
    }

    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Limit, message)
    }

    /// Adds what the author can do about it, unless a hint is there already.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if self.0.hint.is_none() {
            self.0.hint = Some(hint.into());
        }
        self
    }

    /// Says where, unless something deeper has said so already.
    pub(crate) fn at(mut self, offset: u32) -> Self {
        if self.0.offset.is_none() {
            self.0.offset = Some(offset);
        }
        self
    }

    pub(crate) fn kind(&self) -> FaultKind {
        self.0.kind
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Byte offset into the expression's source.
    pub(crate) fn offset(&self) -> Option<u32> {
        self.0.offset
    }

    /// Whether a logical operator may decide without this operand.
    pub(crate) fn absorbable(&self) -> bool {
        !matches!(self.0.kind, FaultKind::Limit | FaultKind::LeftOut)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}
