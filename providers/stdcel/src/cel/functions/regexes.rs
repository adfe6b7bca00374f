//! Regular expressions: RE2 syntax, linear time.

use regex::{Regex, RegexBuilder};

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::value::Value;
use super::{Function, global, int, list, method, string, text};

pub(super) static FUNCTIONS: &[Function] = &[
    method("matches", 1, 1, matches),
    global("matches", 2, 2, matches),
    method("find", 1, 1, find),
    method("findAll", 1, 2, find_all),
];

/// Compiled programs above this are refused; also what compiling one is charged against.
const MAX_COMPILED: usize = 256 * 1024;

fn compile(budget: &mut Budget, pattern: &str) -> Result<Regex, Fault> {
    if pattern.len() > 4096 {
        return Err(Fault::limit("the pattern is longer than 4096 bytes"));
    }
    // Compiling costs far more than a step.
    budget.steps(500 + 20 * pattern.len() as u64)?;
    let built = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(50)
        .build();
    built.map_err(|err| {
        let detail = err.to_string();
        let last = detail.lines().last().unwrap_or_default().trim().to_owned();
        Fault::domain(format!("the pattern is no regular expression: {last}"))
    })
}

fn matches(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (within, pattern) = (text("matches", args, 0)?, text("matches", args, 1)?);
    let pattern = compile(budget, pattern)?;
    budget.steps(within.len() as u64)?;
    Ok(Value::Bool(pattern.is_match(within)))
}

fn find(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (within, pattern) = (text("find", args, 0)?, text("find", args, 1)?);
    let pattern = compile(budget, pattern)?;
    budget.steps(within.len() as u64)?;
    string(
        budget,
        pattern.find(within).map_or("", |found| found.as_str()),
    )
}

fn find_all(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (within, pattern) = (text("findAll", args, 0)?, text("findAll", args, 1)?);
    let limit = if args.len() > 2 {
        int("findAll", args, 2)?
    } else {
        -1
    };
    let pattern = compile(budget, pattern)?;
    budget.steps(within.len() as u64 * 2)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut found = Vec::new();
    for hit in pattern.find_iter(within).take(limit) {
        found.push(string(budget, hit.as_str())?);
    }
    list(budget, found)
}
