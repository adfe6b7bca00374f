//! Refuses assigning a global twice, which this interpreter allows and Starlark does not.
//!
//! The interpreter has a lint for it, but a comment in the program can switch a lint off.

use std::collections::HashMap;

use starlark::codemap::Span;
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AssignTarget, AstAssignTarget, AstStmt, Stmt};

use super::diagnostic;

/// One problem for each global that is bound again, at the place where it is.
pub(crate) fn reassigned(ast: &AstModule) -> Vec<String> {
    let mut bound = Vec::new();
    collect(ast.statement(), &mut bound);
    let mut first: HashMap<&str, Span> = HashMap::new();
    let mut problems = Vec::new();
    for (name, span) in bound {
        match first.get(name) {
            Some(first) => {
                let place = diagnostic::place(&ast.file_span(*first));
                let message = format!("cannot reassign global {name}, first bound at {place}");
                problems.push(diagnostic::at(&ast.file_span(span), &message));
            }
            None => {
                first.insert(name, span);
            }
        }
    }
    problems
}

/// The names that top-level statements bind, in order. (There are no `if` and `for` at the top level.)
fn collect<'a>(statement: &'a AstStmt, out: &mut Vec<(&'a str, Span)>) {
    match &statement.node {
        Stmt::Statements(statements) => statements
            .iter()
            .for_each(|statement| collect(statement, out)),
        Stmt::Assign(assign) => targets(&assign.lhs, out),
        Stmt::AssignModify(target, _, _) => targets(target, out),
        Stmt::Def(def) => out.push((&def.name.ident, def.name.span)),
        Stmt::Load(load) => out.extend(
            load.args
                .iter()
                .map(|arg| (arg.local.ident.as_str(), arg.local.span)),
        ),
        _ => {}
    }
}

fn targets<'a>(target: &'a AstAssignTarget, out: &mut Vec<(&'a str, Span)>) {
    match &target.node {
        AssignTarget::Tuple(parts) => parts.iter().for_each(|part| targets(part, out)),
        AssignTarget::Identifier(name) => out.push((&name.ident, name.span)),
        AssignTarget::Index(_) | AssignTarget::Dot(..) => {}
    }
}
