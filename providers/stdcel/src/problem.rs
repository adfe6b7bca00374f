//! What is wrong with a graph, one problem at a time and all of them together.

use std::fmt;

/// The sort of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// The config is not a graph: wrong JSON, wrong types, missing or unknown fields.
    Malformed,
    /// An id that cannot be a variable of an expression.
    InvalidId,
    /// An id used twice.
    DuplicateId,
    /// `${` without its `}`.
    UnterminatedExpression,
    /// `${}`.
    EmptyExpression,
    /// A key of an object that holds `${…}`.
    ExpressionInKey,
    /// Text that is no expression.
    ParseError,
    /// A function or method that does not exist.
    UnknownFunction,
    /// A name that nothing has.
    UnknownId,
    /// A part of a resource or of the instance that expressions cannot read.
    BadReference,
    /// A resource that reads itself.
    SelfReference,
    /// Resources that read each other in a circle.
    Cycle,
    /// A status read where its value would be needed while composing.
    StatusInExpression,
    /// An expression without a value.
    EvalError,
    /// A result that JSON cannot hold.
    NonJsonValue,
    /// A name that is no name.
    BadName,
    /// A label that is no label, or one that belongs to the composer.
    BadLabel,
    /// Two children with one kind and name.
    DuplicateObject,
    /// A bound was met.
    Limit,
}

impl Class {
    /// The class as a word, as in `unknown_id`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::InvalidId => "invalid_id",
            Self::DuplicateId => "duplicate_id",
            Self::UnterminatedExpression => "unterminated_expression",
            Self::EmptyExpression => "empty_expression",
            Self::ExpressionInKey => "expression_in_key",
            Self::ParseError => "parse_error",
            Self::UnknownFunction => "unknown_function",
            Self::UnknownId => "unknown_id",
            Self::BadReference => "bad_reference",
            Self::SelfReference => "self_reference",
            Self::Cycle => "cycle",
            Self::StatusInExpression => "status_in_expression",
            Self::EvalError => "eval_error",
            Self::NonJsonValue => "non_json_value",
            Self::BadName => "bad_name",
            Self::BadLabel => "bad_label",
            Self::DuplicateObject => "duplicate_object",
            Self::Limit => "limit",
        }
    }
}

/// One thing that is wrong: what, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Its sort.
    pub class: Class,
    /// The resource it is in; `None` for the graph as a whole and its `status`.
    pub id: Option<String>,
    /// JSON pointer: within the template for `/name`, `/spec/…`, `/labels/…`; within the resource for `/includeWhen/0` and the like.
    pub pointer: Option<String>,
    /// What is wrong.
    pub message: String,
    /// The expression, without its `${` and `}`.
    pub expression: Option<String>,
    /// Line and column within the expression, both from 1; columns count characters.
    pub position: Option<(usize, usize)>,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self {
            class,
            id: None,
            pointer: None,
            message: message.into(),
            expression: None,
            position: None,
            hint: None,
        }
    }

    pub(crate) fn in_resource(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    pub(crate) fn at(mut self, pointer: &str) -> Self {
        self.pointer = Some(pointer.to_owned());
        self
    }

    /// Names the expression and the place in it.
    pub(crate) fn in_expression(mut self, source: &str, offset: usize) -> Self {
        self.expression = Some(source.to_owned());
        let before = source.get(..offset.min(source.len())).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        self.position = Some((line, column));
        self
    }

    pub(crate) fn hint(mut self, hint: Option<impl Into<String>>) -> Self {
        self.hint = hint.map(Into::into).or(self.hint);
        self
    }
}

/// Longest part of an expression that a message quotes.
const SHOWN: usize = 120;

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.id, &self.pointer) {
            (Some(id), Some(pointer)) => write!(f, "resource `{id}` at {pointer}: ")?,
            (Some(id), None) => write!(f, "resource `{id}`: ")?,
            (None, Some(pointer)) => write!(f, "at {pointer}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.message)?;
        if let Some(expression) = &self.expression {
            let shown: String = expression.chars().take(SHOWN).collect();
            let more = if shown.len() < expression.len() {
                "…"
            } else {
                ""
            };
            write!(f, ", in `{shown}{more}`")?;
        }
        match self.position {
            Some((1, column)) => write!(f, " column {column}")?,
            Some((line, column)) => write!(f, " line {line} column {column}")?,
            None => {}
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Most problems that one message lists.
const LISTED: usize = 50;

/// All problems as one message, one per line when there are several.
#[must_use]
pub fn summary(problems: &[Problem]) -> String {
    match problems {
        [] => String::new(),
        [one] => one.to_string(),
        several => {
            let mut out = format!("{} problems:", several.len());
            for problem in several.iter().take(LISTED) {
                out.push_str("\n- ");
                out.push_str(&problem.to_string());
            }
            if several.len() > LISTED {
                out.push_str(&format!("\n- and {} more", several.len() - LISTED));
            }
            out
        }
    }
}
