//! Refuses recursion, direct or through others, and checks the heap at every statement.
//!
//! The interpreter allows recursion; Starlark does not. Before each statement the interpreter tells us where it is and
//! how deep the call stack is; a function whose statement runs while the same function is already on the stack is
//! recursion. Functions are told apart by where they are written, so values, lambdas and mutual calls are seen too.
//! The hook is not part of the interpreter's stable surface (its debugger uses it), hence the exact version in
//! `Cargo.toml`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use starlark::codemap::{CodeMap, FileSpan, FileSpanRef, Pos, Span};
use starlark::eval::{BeforeStmtFunc, BeforeStmtFuncDyn, Evaluator};
use starlark::syntax::AstModule;
use starlark::syntax::ast::{AstExpr, AstStmt, Expr, Stmt};

use crate::limits;

/// Where functions are written, over all files of one program, and where the program is.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    files: HashMap<String, (usize, Functions)>,
    /// By depth of the call stack: the function seen there last.
    stack: Vec<Option<Id>>,
    last: Option<FileSpan>,
}

/// A file's number and a function's index in it.
type Id = (usize, usize);

/// The functions of one file, sorted by where they begin; inner ones come after the ones they are in.
type Functions = Vec<Function>;

#[derive(Debug)]
struct Function {
    begin: Pos,
    end: Pos,
    name: String,
    /// The function this one is written in.
    outer: Option<usize>,
}

/// A function calls itself, directly or through others.
#[derive(Debug, thiserror::Error)]
#[error("function {name} is called recursively, which Starlark does not allow")]
struct Recursion {
    name: String,
}

impl Watch {
    /// Notes the functions of a file that is about to run.
    pub(crate) fn learn(&mut self, file: &str, ast: &AstModule) {
        let mut functions = Vec::new();
        collect_statement(ast.statement(), &mut functions);
        ast.statement()
            .visit_expr(|expression| collect_expression(expression, &mut functions));
        functions.sort_by_key(|function| (function.begin, std::cmp::Reverse(function.end)));
        let mut open: Vec<usize> = Vec::new();
        for index in 0..functions.len() {
            let begin = functions[index].begin;
            while open
                .last()
                .is_some_and(|outer| functions[*outer].end <= begin)
            {
                open.pop();
            }
            functions[index].outer = open.last().copied();
            open.push(index);
        }
        let number = self.files.len();
        self.files.insert(file.to_owned(), (number, functions));
    }

    /// The last place the program was seen at: for errors that carry none.
    pub(crate) fn last(&self) -> Option<&FileSpan> {
        self.last.as_ref()
    }

    /// The innermost function around a place.
    fn function_at(&self, file: &CodeMap, span: Span) -> Option<(Id, &Function)> {
        let (number, functions) = self.files.get(file.filename())?;
        let mut index = functions
            .partition_point(|function| function.begin <= span.begin())
            .checked_sub(1)?;
        while functions[index].end < span.end() {
            index = functions[index].outer?;
        }
        Some(((*number, index), &functions[index]))
    }

    /// Notes where the program is; the name of the function if it looks like recursion.
    fn step(&mut self, span: FileSpanRef<'_>, depth: usize) -> Option<String> {
        let id = self.function_at(span.file, span.span).map(|(id, _)| id);
        self.last = Some(span.to_file_span());
        self.stack.resize(depth + 1, None);
        if self.stack[depth] == id {
            return None;
        }
        self.stack[depth] = id;
        if id.is_none() || !self.stack[..depth].contains(&id) {
            return None;
        }
        self.function_at(span.file, span.span)
            .map(|(_, function)| function.name.clone())
    }
}

/// Makes an evaluator report each statement to the watch.
pub(crate) fn install<'e>(eval: &mut Evaluator<'_, '_, 'e>, watch: &Rc<RefCell<Watch>>) {
    watch.borrow_mut().stack.clear();
    eval.before_stmt_for_dap(BeforeStmtFunc::from_dyn(Box::new(Hook {
        watch: Rc::clone(watch),
    })));
}

/// What the values of an evaluation take now.
pub(crate) fn heap_bytes(eval: &Evaluator<'_, '_, '_>) -> usize {
    eval.heap().peak_allocated_bytes() + eval.module().frozen_heap().allocated_bytes()
}

/// The interpreter's own check comes only every thousand calls and loop turns, too late for doubling strings.
#[derive(Debug, thiserror::Error)]
#[error("the heap is full")]
struct HeapFull;

struct Hook {
    watch: Rc<RefCell<Watch>>,
}

impl<'e> BeforeStmtFuncDyn<'e> for Hook {
    fn call<'v>(
        &mut self,
        span: FileSpanRef<'_>,
        _continued: bool,
        eval: &mut Evaluator<'v, '_, 'e>,
    ) -> starlark::Result<()> {
        if heap_bytes(eval) > limits::HEAP_BYTES {
            return Err(starlark::Error::new_other(HeapFull));
        }
        let suspect = self.watch.borrow_mut().step(span, eval.call_stack_count());
        if let Some(name) = suspect {
            // An entry below may be left from a call that has returned since; the real stack decides.
            let frames = eval.call_stack().into_frames();
            if frames.iter().filter(|frame| frame.name == name).count() > 1 {
                return Err(starlark::Error::new_spanned(
                    starlark::ErrorKind::Other(Recursion { name }.into()),
                    span.span,
                    span.file,
                ));
            }
        }
        Ok(())
    }
}

fn collect_statement(statement: &AstStmt, out: &mut Functions) {
    if let Stmt::Def(def) = &statement.node {
        out.push(Function::new(def.body.span, def.name.ident.clone()));
    }
    statement.visit_stmt(|child| collect_statement(child, out));
}

fn collect_expression(expression: &AstExpr, out: &mut Functions) {
    if let Expr::Lambda(_) = &expression.node {
        // The interpreter places a lambda's one statement at the whole expression.
        out.push(Function::new(expression.span, "lambda".into()));
    }
    expression.visit_expr(|child| collect_expression(child, out));
}

impl Function {
    fn new(span: Span, name: String) -> Self {
        Self {
            begin: span.begin(),
            end: span.end(),
            name,
            outer: None,
        }
    }
}
