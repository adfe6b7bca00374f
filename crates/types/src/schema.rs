//! JSON Schema (2020-12): compiling a schema once and saying everything that is wrong with a document.
//!
//! A schema reaches nothing outside of itself: no reference leaves its document, nothing is ever fetched. `format` is an
//! annotation and refuses nothing. Numbers beyond 64 bits are compared as floating point, which is what the validator
//! does; what is stored keeps every digit all the same. Messages name the place and never quote the document, which can be large or secret.

mod check;
pub(crate) mod compat;
mod pending;

use std::fmt;
use std::sync::Arc;

use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::json::Doc;
use crate::pointer::Pointer;

/// Most violations that are listed; one more says that there are more.
pub const VIOLATIONS: usize = 1_000;
/// Longest message of one violation, in bytes.
const MESSAGE_BYTES: usize = 1_000;

/// One thing that is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Violation {
    /// The value it is wrong with.
    pub pointer: Pointer,
    /// What is wrong, for people.
    pub message: String,
}

impl Violation {
    /// The violation `message` at `pointer`; a long message is cut.
    pub fn new(pointer: Pointer, mut message: String) -> Violation {
        if message.len() > MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MESSAGE_BYTES));
            message.push('…');
        }
        Violation { pointer, message }
    }

    /// The same in a document that has this one at `base`.
    #[must_use]
    pub fn below(self, base: &Pointer) -> Violation {
        let pointer = Pointer::from_tokens(base.tokens().chain(self.pointer.tokens()));
        Violation {
            pointer,
            message: self.message,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.pointer, self.message)
        }
    }
}

/// Violations in one line.
pub(crate) fn list(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// A schema ready for use. Cheap to clone; the compiled form is shared.
#[derive(Debug, Clone)]
pub struct CompiledSchema(Option<Arc<Validator>>);

impl CompiledSchema {
    /// The schema that accepts every document.
    pub const fn anything() -> CompiledSchema {
        CompiledSchema(None)
    }

    /// Compiles a schema.
    ///
    /// # Errors
    /// Everything that is wrong with it: against the rules of JSON Schema, another draft asked for, references that
    /// leave the document.
    pub fn compile(schema: &Doc) -> Result<CompiledSchema, Vec<Violation>> {
        let value = schema
            .to_value()
            .map_err(|error| vec![Violation::new(error.pointer.clone(), error.to_string())])?;
        let violations = check::schema(&value);
        if !violations.is_empty() {
            return Err(violations);
        }
        let built = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .offline()
            .build(&value);
        match built {
            Ok(validator) => Ok(CompiledSchema(Some(Arc::new(validator)))),
            Err(error) => {
                // Where it is in the schema: the error's instance is the schema itself.
                let pointer = Pointer::parse(error.instance_path().as_str()).unwrap_or_default();
                Err(vec![Violation::new(
                    pointer,
                    error.masked_with("this").to_string(),
                )])
            }
        }
    }

    /// Whether the document is valid; cheaper than asking what is wrong.
    pub fn accepts(&self, document: &Value) -> bool {
        self.0
            .as_ref()
            .is_none_or(|validator| validator.is_valid(document))
    }

    /// Everything that is wrong with the document; nothing if it is valid. At most [`VIOLATIONS`], and one that says so.
    pub fn violations(&self, document: &Value) -> Vec<Violation> {
        self.collect(document, &[])
    }

    /// What is wrong with a document in which the values at `pending` are yet to come.
    ///
    /// Left out is what those values can still cure: a violation at or below a pending pointer, and above one those of
    /// `anyOf`, `oneOf`, `not`, `if`/`then`/`else`, `contains`, `uniqueItems`, `dependent*` and `unevaluated*`. Once the
    /// values are there, [`violations`](CompiledSchema::violations) has the last word.
    pub fn violations_while_pending(
        &self,
        document: &Value,
        pending: &[Pointer],
    ) -> Vec<Violation> {
        self.collect(document, pending)
    }

    fn collect(&self, document: &Value, pending: &[Pointer]) -> Vec<Violation> {
        let Some(validator) = &self.0 else {
            return Vec::new();
        };
        if validator.is_valid(document) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for error in validator.iter_errors(document) {
            let at = Pointer::parse(error.instance_path().as_str()).unwrap_or_default();
            if !pending.is_empty() && pending::is_exempt(&error, &at, pending) {
                continue;
            }
            match error.kind() {
                // One per field, at the field, so that its line can be found.
                ValidationErrorKind::AdditionalProperties { unexpected }
                | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                    found.extend(
                        unexpected.iter().map(|field| {
                            Violation::new(at.child(field), "unknown field".to_owned())
                        }),
                    );
                }
                ValidationErrorKind::FalseSchema => {
                    found.push(Violation::new(at, "nothing is allowed here".to_owned()));
                }
                _ => {
                    let message = error.masked_with("the value").to_string();
                    found.push(Violation::new(at, message));
                }
            }
            if found.len() > VIOLATIONS {
                found.truncate(VIOLATIONS);
                let message = format!("more than {VIOLATIONS} violations; the rest is not listed");
                found.push(Violation::new(Pointer::root(), message));
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
