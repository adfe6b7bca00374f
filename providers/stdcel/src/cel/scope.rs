//! Which outside names an expression reads.
//!
//! A walk over the parsed tree that knows what the macros and `cel.bind` define, so `zone` in `xs.map(zone, zone + '!')`
//! is no reference to a resource called `zone`, and text inside a string never is.

use super::ast::{Expr, Node, Step, StepKind};
use super::functions;
use super::value::Value;

/// One use of an outside name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reference<'e> {
    pub(crate) name: &'e str,
    /// The constant fields that follow it, outermost first, as far as they are needed: at most two.
    pub(crate) fields: Vec<&'e str>,
    /// Where in the source.
    pub(crate) offset: u32,
    /// Whether something that is not a constant field follows right after the fields listed.
    pub(crate) dynamic: bool,
}

/// All uses of outside names, in source order.
pub(crate) fn references(expr: &Expr) -> Vec<Reference<'_>> {
    let mut walk = Walk {
        bound: Vec::new(),
        found: Vec::new(),
    };
    walk.expr(expr);
    walk.found
}

struct Walk<'e> {
    bound: Vec<&'e str>,
    found: Vec<Reference<'e>>,
}

impl<'e> Walk<'e> {
    fn expr(&mut self, expr: &'e Expr) {
        match &expr.node {
            Node::Literal(_) => {}
            Node::Name(name) => self.name(name, expr.offset, &[], None),
            Node::List(elements) => elements
                .iter()
                .for_each(|element| self.expr(&element.value)),
            Node::Map(entries) => entries.iter().for_each(|entry| {
                self.expr(&entry.key);
                self.expr(&entry.value);
            }),
            Node::Not { operand, .. } | Node::Negate { operand, .. } => self.expr(operand),
            Node::Chain { first, rest } => {
                self.expr(first);
                rest.iter().for_each(|link| self.expr(&link.operand));
            }
            Node::And(terms) | Node::Or(terms) => terms.iter().for_each(|term| self.expr(term)),
            Node::Ternary { arms, otherwise } => {
                for (condition, value) in arms {
                    self.expr(condition);
                    self.expr(value);
                }
                self.expr(otherwise);
            }
            Node::Path { base, steps } => self.path(base, steps, None),
            Node::Call { args, .. } => args.iter().for_each(|arg| self.expr(arg)),
            Node::Has { operand, field } => match &operand.node {
                Node::Name(name) => self.name(name, operand.offset, &[], Some(field)),
                Node::Path { base, steps } => self.path(base, steps, Some(field)),
                _ => self.expr(operand),
            },
            Node::Bind { name, value, body } => {
                self.expr(value);
                self.within(&[name], &[body]);
            }
        }
    }

    fn path(&mut self, base: &'e Expr, steps: &'e [Step], last: Option<&'e str>) {
        match &base.node {
            Node::Name(name) => self.name(name, base.offset, steps, last),
            _ => self.expr(base),
        }
        for step in steps {
            match &step.kind {
                StepKind::Field { .. } => {}
                StepKind::Index { index, .. } => self.expr(index),
                StepKind::Method { args, .. } => args.iter().for_each(|arg| self.expr(arg)),
                StepKind::Macro(body) => {
                    let mut names = vec![&*body.first];
                    names.extend(body.second.as_deref());
                    let parts: Vec<&Expr> = body.filter.iter().chain([&body.body]).collect();
                    self.within(&names, &parts);
                }
            }
        }
    }

    fn within(&mut self, names: &[&'e str], parts: &[&'e Expr]) {
        let before = self.bound.len();
        self.bound.extend(names);
        parts.iter().for_each(|part| self.expr(part));
        self.bound.truncate(before);
    }

    fn name(&mut self, name: &'e str, offset: u32, steps: &'e [Step], last: Option<&'e str>) {
        if self.bound.contains(&name) {
            return;
        }
        let mut fields: Vec<&str> = steps.iter().map_while(constant_field).take(2).collect();
        let mut dynamic = fields.len() < 2 && steps.len() > fields.len();
        if fields.len() == steps.len() && fields.len() < 2 {
            fields.extend(last);
        }
        if steps.is_empty() && last.is_none() && functions::type_named(name).is_some() {
            return;
        }
        if fields.len() == 2 {
            dynamic = false;
        }
        self.found.push(Reference {
            name,
            fields,
            offset,
            dynamic,
        });
    }
}

/// A read of `name.status` that happens whatever the inputs are and needs its value, if there is one: the name, the
/// fields that follow it, and the offset.
///
/// `moves` says whether the result of the expression may be a status; `has_status` which outside names have one.
pub(crate) fn status_read<'e>(
    expr: &'e Expr,
    moves: bool,
    has_status: &dyn Fn(&str) -> bool,
) -> Option<(&'e str, Vec<&'e str>, u32)> {
    let needed = |expr: &'e Expr| status_read(expr, false, has_status);
    match &expr.node {
        Node::Literal(_) | Node::Name(_) => None,
        Node::List(elements) => elements.iter().find_map(|element| needed(&element.value)),
        Node::Map(entries) => entries
            .iter()
            .find_map(|entry| needed(&entry.key).or_else(|| needed(&entry.value))),
        Node::Not { operand, .. } | Node::Negate { operand, .. } => needed(operand),
        Node::Chain { first, rest } => {
            needed(first).or_else(|| rest.iter().find_map(|link| needed(&link.operand)))
        }
        // One side may decide without the other.
        Node::And(_) | Node::Or(_) => None,
        // Which branch is taken depends on inputs, in general; the first condition is looked at in any case.
        Node::Ternary { arms, .. } => arms.first().and_then(|(condition, _)| needed(condition)),
        Node::Path { base, steps } => path_read(base, steps, moves, has_status),
        Node::Call { function, args } if !function.moves => args.iter().find_map(needed),
        Node::Call { .. } => None,
        Node::Has { operand, .. } => match &operand.node {
            Node::Path { base, steps } => path_read(base, steps, false, has_status),
            _ => None,
        },
        // The name may shadow a resource.
        Node::Bind { value, .. } => status_read(value, true, has_status),
    }
}

fn path_read<'e>(
    base: &'e Expr,
    steps: &'e [Step],
    moves: bool,
    has_status: &dyn Fn(&str) -> bool,
) -> Option<(&'e str, Vec<&'e str>, u32)> {
    let Node::Name(name) = &base.node else {
        return status_read(base, steps.is_empty() && moves, has_status);
    };
    let status = matches!(steps.first().and_then(constant_field), Some("status"));
    if !status || !has_status(name) {
        return None;
    }
    let plain = |step: &Step| match &step.kind {
        StepKind::Field { optional, .. } | StepKind::Index { optional, .. } => !optional,
        StepKind::Method { .. } | StepKind::Macro(_) => false,
    };
    if moves && steps.iter().all(plain) {
        return None;
    }
    let fields = steps.iter().map_while(constant_field).collect();
    Some((name, fields, base.offset))
}

fn constant_field(step: &Step) -> Option<&str> {
    match &step.kind {
        StepKind::Field { name, .. } => Some(name),
        StepKind::Index {
            index:
                Expr {
                    node: Node::Literal(Value::String(name)),
                    ..
                },
            ..
        } => Some(name),
        _ => None,
    }
}
