//! The expression language: CEL as specified, on a lexer, parser and evaluator of our own.
//!
//! Why not a library: a composer runs other people's programs inside the worker, so every construct has to be bounded
//! (source, nesting, steps, memory), a value that is not known yet has to travel through the evaluator, every fault needs
//! a column, and map iteration must not differ from run to run. The Rust crates offer none of the four.
//!
//! What must hold: no input makes this module panic, overflow the stack or run past its [`Budget`]. Left-recursive forms
//! (`a+a+…`, `a.b.c…`) are kept flat, so only nesting costs stack, and nesting is capped by [`MAX_NESTING`]. The same
//! expression over the same values gives the same answer everywhere: no clock, no randomness, maps iterate in key order.

pub(crate) mod ast;
mod eval;
pub(crate) mod fault;
mod functions;
pub(crate) mod lexer;
mod macros;
mod ops;
mod parser;
pub(crate) mod scope;
mod text;
mod time;
pub(crate) mod value;

pub(crate) use eval::{Budget, Env, evaluate, status_read, unknown_status};
pub(crate) use fault::{Fault, FaultKind};
pub(crate) use functions::type_named;
pub(crate) use parser::{is_variable_name, parse, parse_tokens};
pub(crate) use text::display_scalar;
pub(crate) use value::Value;

/// Longest source of one expression, in bytes.
pub(crate) const MAX_SOURCE: usize = 128 * 1024;
/// Deepest nesting of one expression: parentheses, brackets, braces, arguments, branches.
pub(crate) const MAX_NESTING: u32 = 64;
/// Deepest nesting of a value an expression may build.
pub(crate) const MAX_VALUE_DEPTH: u32 = 96;
