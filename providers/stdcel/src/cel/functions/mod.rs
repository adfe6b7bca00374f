//! The function library: one table, each entry with its arity, so that names and argument counts are checked on parsing.
//!
//! A function takes its receiver as its first argument. It pays for what it builds before building it; a function that
//! could square its input (replace, join, format) works out the size first.

mod codec;
mod conversion;
mod format;
pub(super) mod lists;
mod math;
mod net;
pub(crate) mod opaque;
mod optional;
mod quantity;
mod regexes;
mod strings;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::eval::Budget;
use super::fault::Fault;
use super::value::Value;

/// One function or method.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) method: bool,
    /// Without the receiver.
    pub(crate) arity: Arity,
    /// It only hands values on, so a status that is not known yet may pass through it.
    pub(crate) moves: bool,
    pub(crate) run: Run,
}

pub(crate) type Run = fn(&mut Budget, &[Value]) -> Result<Value, Fault>;

/// How many arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arity {
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn global(name: &'static str, least: usize, most: usize, run: Run) -> Function {
    Function {
        name,
        method: false,
        arity: Arity { least, most },
        moves: false,
        run,
    }
}

const fn method(name: &'static str, least: usize, most: usize, run: Run) -> Function {
    Function {
        name,
        method: true,
        arity: Arity { least, most },
        moves: false,
        run,
    }
}

const fn moving(mut function: Function) -> Function {
    function.moves = true;
    function
}

static TABLES: [&[Function]; 11] = [
    conversion::FUNCTIONS,
    super::time::FUNCTIONS,
    strings::FUNCTIONS,
    format::FUNCTIONS,
    lists::FUNCTIONS,
    math::FUNCTIONS,
    optional::FUNCTIONS,
    codec::FUNCTIONS,
    regexes::FUNCTIONS,
    net::FUNCTIONS,
    quantity::FUNCTIONS,
];

static INDEX: LazyLock<HashMap<(&str, bool), &Function>> = LazyLock::new(|| {
    TABLES
        .iter()
        .flat_map(|table| table.iter())
        .map(|function| ((function.name, function.method), function))
        .collect()
});

/// The function or method of that name.
pub(crate) fn find(name: &str, method: bool) -> Option<&'static Function> {
    INDEX.get(&(name, method)).copied()
}

/// Whether a dotted name is that of a function, as in `math.greatest`.
pub(crate) fn is_namespaced(full: &str) -> bool {
    full.contains('.') && find(full, false).is_some()
}

/// The known name closest to a wrong one.
pub(crate) fn nearest(wrong: &str) -> Option<&'static str> {
    const MACROS: [&str; 14] = [
        "has",
        "all",
        "exists",
        "exists_one",
        "existsOne",
        "map",
        "filter",
        "transformList",
        "transformMap",
        "transformMapEntry",
        "sortBy",
        "optMap",
        "optFlatMap",
        "cel.bind",
    ];
    let mut names: Vec<&str> = INDEX.keys().map(|(name, _)| *name).chain(MACROS).collect();
    names.sort_unstable();
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    if let Some(exact) = names.iter().copied().find(|name| last(name) == wrong) {
        return Some(exact);
    }
    crate::nearest::nearest(wrong, names.iter().copied())
        .and_then(|near| names.iter().copied().find(|name| *name == near))
        .or_else(|| {
            let near = crate::nearest::nearest(wrong, names.iter().map(|name| last(name)))?;
            names.iter().copied().find(|name| last(name) == near)
        })
}

/// The type that a name denotes.
pub(crate) fn type_named(name: &str) -> Option<&'static str> {
    const TYPES: [&str; 13] = [
        "bool",
        "bytes",
        "double",
        "int",
        "list",
        "map",
        "null_type",
        "optional_type",
        "string",
        "type",
        "uint",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
    ];
    TYPES.into_iter().find(|known| *known == name)
}

fn no_overload(name: &str, args: &[Value]) -> Fault {
    let types: Vec<&str> = args.iter().map(Value::type_name).collect();
    let fault = Fault::of_type(format!("`{name}` does not take ({})", types.join(", ")));
    if args.iter().any(|arg| matches!(arg, Value::Null)) {
        fault.with_hint("an argument is null")
    } else {
        fault
    }
}

/// The argument as text.
fn text<'v>(name: &str, args: &'v [Value], at: usize) -> Result<&'v str, Fault> {
    args.get(at)
        .and_then(Value::as_str)
        .ok_or_else(|| no_overload(name, args))
}

/// The argument as a list.
fn items<'v>(name: &str, args: &'v [Value], at: usize) -> Result<&'v [Value], Fault> {
    match args.get(at) {
        Some(Value::List(list)) => Ok(list.items()),
        _ => Err(no_overload(name, args)),
    }
}

/// The argument as an int.
fn int(name: &str, args: &[Value], at: usize) -> Result<i64, Fault> {
    match args.get(at) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(no_overload(name, args)),
    }
}

/// A list of values, paid for.
fn list(budget: &mut Budget, items: Vec<Value>) -> Result<Value, Fault> {
    budget.bytes(32 * (items.len() as u64 + 1))?;
    Value::list(items)
}

/// A text, paid for.
fn string(budget: &mut Budget, text: impl AsRef<str>) -> Result<Value, Fault> {
    budget.bytes(text.as_ref().len() as u64 + 16)?;
    Ok(Value::string(text))
}

#[cfg(test)]
mod tests {
    use super::{TABLES, nearest};

    #[test]
    fn no_function_is_defined_twice() {
        let mut seen = std::collections::HashSet::new();
        for function in TABLES.iter().flat_map(|table| table.iter()) {
            assert!(
                seen.insert((function.name, function.method)),
                "{} is there twice",
                function.name
            );
        }
    }

    #[test]
    fn a_misspelt_function_finds_its_name() {
        assert_eq!(nearest("lowerAsci"), Some("lowerAscii"));
        assert_eq!(nearest("greatest"), Some("math.greatest"));
        assert_eq!(nearest("math.gretest"), Some("math.greatest"));
        assert_eq!(nearest("frobnicate"), None);
    }
}
