//! The parsed expression.
//!
//! Chains are flat: `a + b + c` is one node with two more terms, `a.b.c` one node with two steps. Depth of the tree is
//! therefore depth of nesting in the source, which the parser caps, so walking and dropping a tree never overflow a stack.

use std::sync::Arc;

use super::functions::Function;
use super::value::Value;

/// A node and the byte offset in the source that a message about it points at.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) offset: u32,
    pub(crate) node: Node,
}

#[derive(Debug)]
pub(crate) enum Node {
    Literal(Value),
    Name(Arc<str>),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// `!` repeated an odd number of times (an even number still checks that the operand is a bool).
    Not {
        odd: bool,
        operand: Box<Expr>,
    },
    Negate {
        odd: bool,
        operand: Box<Expr>,
    },
    /// Operators of one precedence, left to right.
    Chain {
        first: Box<Expr>,
        rest: Vec<Link>,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    /// `c1 ? a1 : c2 ? a2 : … : otherwise`
    Ternary {
        arms: Vec<(Expr, Expr)>,
        otherwise: Box<Expr>,
    },
    Path {
        base: Box<Expr>,
        steps: Vec<Step>,
    },
    Call {
        function: &'static Function,
        args: Vec<Expr>,
    },
    Has {
        operand: Box<Expr>,
        field: Arc<str>,
    },
    Bind {
        name: Arc<str>,
        value: Box<Expr>,
        body: Box<Expr>,
    },
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) optional: bool,
    pub(crate) value: Expr,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) optional: bool,
    pub(crate) key: Expr,
    pub(crate) value: Expr,
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) operator: Operator,
    pub(crate) offset: u32,
    pub(crate) operand: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::In => "in",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// One link of `base.field[index].method(args)`.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) offset: u32,
    pub(crate) kind: StepKind,
}

#[derive(Debug)]
pub(crate) enum StepKind {
    Field {
        name: Arc<str>,
        optional: bool,
    },
    Index {
        index: Expr,
        optional: bool,
    },
    Method {
        function: &'static Function,
        args: Vec<Expr>,
    },
    Macro(Box<Macro>),
}

/// A comprehension over the value it is called on.
#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) kind: MacroKind,
    pub(crate) first: Arc<str>,
    /// The two-variable forms bind index and element, or key and value.
    pub(crate) second: Option<Arc<str>>,
    pub(crate) filter: Option<Expr>,
    pub(crate) body: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MacroKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
}
