//! Calls: functions, methods, macros, and the two forms that look like functions and are not.

use std::sync::Arc;

use super::{Parsed, Parser, is_variable_name, path};
use crate::cel::ast::{Expr, Macro, MacroKind, Node, Step, StepKind};
use crate::cel::functions::{self, Arity, Function};

impl Parser<'_> {
    /// `receiver.name(args)`: a macro, a namespaced function, or a method.
    pub(super) fn method(
        &mut self,
        base: &mut Expr,
        steps: &mut Vec<Step>,
        name: &Arc<str>,
        offset: u32,
        args: Vec<Expr>,
    ) -> Parsed<()> {
        if let Some(prefix) = dotted(base, steps) {
            let full = format!("{prefix}.{name}");
            if full == "cel.bind" {
                let call = self.bind(base.offset, args)?;
                steps.clear();
                *base = call;
                return Ok(());
            }
            if functions::is_namespaced(&full) {
                let function = self.resolve(&full, false, args.len(), offset)?;
                steps.clear();
                *base = Expr {
                    offset: base.offset,
                    node: Node::Call { function, args },
                };
                return Ok(());
            }
        }
        let kind = match macro_kind(name, args.len()) {
            Some(kind) => StepKind::Macro(Box::new(self.comprehension(kind, name, args)?)),
            None => StepKind::Method {
                function: self.resolve(name, true, args.len(), offset)?,
                args,
            },
        };
        steps.push(Step { offset, kind });
        Ok(())
    }

    pub(super) fn resolve(
        &self,
        name: &str,
        method: bool,
        count: usize,
        offset: u32,
    ) -> Parsed<&'static Function> {
        let at = offset as usize + self.base;
        match functions::find(name, method) {
            Some(function) => match function.arity {
                Arity { least, most } if (least..=most).contains(&count) => Ok(function),
                Arity { least, most } => {
                    let wanted = if least == most {
                        least.to_string()
                    } else {
                        format!("{least} to {most}")
                    };
                    Err(self.error(
                        at,
                        format!("`{name}` takes {wanted} arguments, not {count}"),
                    ))
                }
            },
            None => {
                let what = if method { "method" } else { "function" };
                let mut error = self.error(at, format!("unknown {what} `{name}`"));
                error.unknown_function = true;
                error.hint = if functions::find(name, !method).is_some() {
                    Some(match method {
                        true => format!("`{name}` is a function: {name}(x)"),
                        false => format!("`{name}` is a method: x.{name}(…)"),
                    })
                } else {
                    functions::nearest(name).map(|near| format!("did you mean `{near}`?"))
                };
                Err(error)
            }
        }
    }

    fn comprehension(&self, kind: MacroKind, name: &str, args: Vec<Expr>) -> Parsed<Macro> {
        let variables = match kind {
            MacroKind::TransformList | MacroKind::TransformMap | MacroKind::TransformMapEntry => 2,
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne => args.len() - 1,
            _ => 1,
        };
        let mut args = args.into_iter();
        let mut names = Vec::new();
        for arg in args.by_ref().take(variables) {
            match arg.node {
                Node::Name(variable) if is_variable_name(&variable) => names.push(variable),
                _ => {
                    let at = arg.offset as usize + self.base;
                    return Err(
                        self.error(at, format!("`{name}` needs a plain variable name here"))
                    );
                }
            }
        }
        if names.len() == 2 && names[0] == names[1] {
            return Err(self.error(self.base, format!("`{name}` binds `{}` twice", names[0])));
        }
        let mut rest: Vec<Expr> = args.collect();
        let (Some(body), filter, Some(first)) = (rest.pop(), rest.pop(), names.first().cloned())
        else {
            return Err(self.error(self.base, format!("`{name}` has too few arguments")));
        };
        Ok(Macro {
            kind,
            first,
            second: names.get(1).cloned(),
            filter,
            body,
        })
    }

    fn bind(&self, offset: u32, args: Vec<Expr>) -> Parsed<Expr> {
        let at = offset as usize + self.base;
        let Ok([name, value, body]) = <[Expr; 3]>::try_from(args) else {
            return Err(self.error(
                at,
                "`cel.bind` takes a name, a value and an expression that uses it",
            ));
        };
        let Node::Name(name) = name.node else {
            return Err(self.error(at, "`cel.bind` needs a plain variable name first"));
        };
        Ok(Expr {
            offset,
            node: Node::Bind {
                name,
                value: Box::new(value),
                body: Box::new(body),
            },
        })
    }

    pub(super) fn has(&self, offset: u32, mut args: Vec<Expr>) -> Parsed<Expr> {
        let at = offset as usize + self.base;
        let refuse = || self.error(at, "`has` takes one field selection, as in has(a.b)");
        let (
            Some(Expr {
                node: Node::Path { base, mut steps },
                ..
            }),
            true,
        ) = (args.pop(), args.is_empty())
        else {
            return Err(refuse());
        };
        let Some(Step {
            kind: StepKind::Field { name: field, .. },
            ..
        }) = steps.pop()
        else {
            return Err(refuse());
        };
        let operand = Box::new(path(*base, steps));
        Ok(Expr {
            offset,
            node: Node::Has { operand, field },
        })
    }
}

/// `a.b` as text when it is nothing but names.
pub(super) fn dotted(base: &Expr, steps: &[Step]) -> Option<String> {
    let Node::Name(name) = &base.node else {
        return None;
    };
    let mut full = name.to_string();
    if steps.len() > 3 {
        return None;
    }
    for step in steps {
        let StepKind::Field {
            name,
            optional: false,
        } = &step.kind
        else {
            return None;
        };
        full.push('.');
        full.push_str(name);
    }
    Some(full)
}

fn macro_kind(name: &str, count: usize) -> Option<MacroKind> {
    Some(match (name, count) {
        ("all", 2 | 3) => MacroKind::All,
        ("exists", 2 | 3) => MacroKind::Exists,
        ("exists_one" | "existsOne", 2 | 3) => MacroKind::ExistsOne,
        ("map", 2 | 3) => MacroKind::Map,
        ("filter", 2) => MacroKind::Filter,
        ("transformList", 3 | 4) => MacroKind::TransformList,
        ("transformMap", 3 | 4) => MacroKind::TransformMap,
        ("transformMapEntry", 3 | 4) => MacroKind::TransformMapEntry,
        ("sortBy", 2) => MacroKind::SortBy,
        ("optMap", 2) => MacroKind::OptMap,
        ("optFlatMap", 2) => MacroKind::OptFlatMap,
        _ => return None,
    })
}
