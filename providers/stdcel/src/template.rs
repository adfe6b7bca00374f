//! Templates: JSON whose strings may hold `${…}`.
//!
//! Where an expression ends is found by the lexer of the expression language, so braces, quotes, raw and triple-quoted
//! strings and comments inside it mean what they mean there. Subtrees without an expression are folded into one value
//! when the graph is read, so composing touches only what can differ between instances.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::cel::ast::Expr;
use crate::cel::lexer::{self, BLANK, Token, TokenKind};
use crate::cel::value::Key;
use crate::cel::{self, Fault, FaultKind, Value};
use crate::json::{Doc, push_segment};
use crate::problem::{Class, Problem};

/// A part of a document, ready to be evaluated.
#[derive(Debug)]
pub(crate) enum Template {
    /// No expression in it.
    Literal(Value),
    /// It has a problem that is reported already.
    Broken,
    /// A string that is one expression and nothing else: the result keeps its type.
    Whole(Expression),
    /// A string with expressions in it.
    Text(Text),
    List(Vec<Template>),
    Map(Vec<(Key, Template)>),
}

/// Text and expressions in turn.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug)]
pub(crate) enum Part {
    Text(String),
    Expression(Expression),
    /// It has a problem that is reported already.
    Broken,
}

/// A parsed expression and where it was written.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) source: Arc<str>,
    pub(crate) expr: Expr,
    pub(crate) pointer: Arc<str>,
    /// It has a problem that is reported already.
    pub(crate) broken: AtomicBool,
    /// It is all of its string.
    pub(crate) whole: bool,
}

impl Expression {
    /// The problem that a fault is.
    pub(crate) fn problem(&self, fault: &Fault) -> Problem {
        let class = match fault.kind() {
            FaultKind::StatusRead => Class::StatusInExpression,
            FaultKind::Limit => Class::Limit,
            _ => Class::EvalError,
        };
        self.wrong(
            class,
            fault.to_string(),
            fault.offset().unwrap_or(self.expr.offset),
        )
        .hint(fault.hint())
    }

    /// A problem at an offset of this expression.
    pub(crate) fn wrong(&self, class: Class, message: impl Into<String>, offset: u32) -> Problem {
        Problem::new(class, message)
            .at(&self.pointer)
            .in_expression(&self.source, offset as usize)
    }
}

/// Reads a template; what is wrong goes to `problems` and leaves [`Template::Broken`] behind.
pub(crate) fn compile(doc: &Doc, pointer: &mut String, problems: &mut Vec<Problem>) -> Template {
    match doc {
        Doc::String(text) => string(text, pointer, problems),
        Doc::Array(items) => {
            let mut templates = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                templates.push(within(&at.to_string(), item, pointer, problems));
            }
            fold_list(templates, pointer, problems)
        }
        Doc::Object(fields) => {
            let mut templates = Vec::with_capacity(fields.len());
            for (name, item) in fields {
                match split(name) {
                    Ok(pieces)
                        if pieces
                            .iter()
                            .any(|piece| matches!(piece, Piece::Expression { .. })) =>
                    {
                        problems.push(key_problem(name, pointer));
                    }
                    Err(_) => problems.push(key_problem(name, pointer)),
                    Ok(pieces) => {
                        let plain: String = pieces.into_iter().map(Piece::into_text).collect();
                        templates.push((
                            Key::String(Arc::from(plain)),
                            within(name, item, pointer, problems),
                        ));
                    }
                }
            }
            // The last of two equal keys wins, as in every JSON reader.
            templates.reverse();
            templates.sort_by(|(a, _), (b, _)| a.cmp(b));
            templates.dedup_by(|(a, _), (b, _)| a == b);
            fold_map(templates, pointer, problems)
        }
        other => Template::Literal(other.value().unwrap_or(Value::Null)),
    }
}

fn key_problem(name: &str, pointer: &str) -> Problem {
    let mut at = pointer.to_owned();
    push_segment(&mut at, name);
    Problem::new(Class::ExpressionInKey, format!("the key `{name}` holds an expression; keys are literal"))
        .at(&at)
        .hint(Some("build the object in one expression, \"${{key: value}}\", or write `$${` for a literal `${`"))
}

fn within(segment: &str, doc: &Doc, pointer: &mut String, problems: &mut Vec<Problem>) -> Template {
    let before = pointer.len();
    push_segment(pointer, segment);
    let template = compile(doc, pointer, problems);
    pointer.truncate(before);
    template
}

fn fold_list(templates: Vec<Template>, pointer: &str, problems: &mut Vec<Problem>) -> Template {
    if !templates
        .iter()
        .all(|template| matches!(template, Template::Literal(_)))
    {
        return Template::List(templates);
    }
    let items = templates
        .into_iter()
        .filter_map(Template::literal)
        .collect();
    folded(Value::list(items), pointer, problems)
}

fn fold_map(
    templates: Vec<(Key, Template)>,
    pointer: &str,
    problems: &mut Vec<Problem>,
) -> Template {
    if !templates
        .iter()
        .all(|(_, template)| matches!(template, Template::Literal(_)))
    {
        return Template::Map(templates);
    }
    let entries = templates
        .into_iter()
        .filter_map(|(key, template)| Some((key, template.literal()?)))
        .collect();
    folded(Value::map(entries), pointer, problems)
}

fn folded(value: Result<Value, Fault>, pointer: &str, problems: &mut Vec<Problem>) -> Template {
    match value {
        Ok(value) => Template::Literal(value),
        Err(fault) => {
            problems.push(Problem::new(Class::Limit, fault.to_string()).at(pointer));
            Template::Broken
        }
    }
}

impl Template {
    fn literal(self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// All expressions, in document order.
    pub(crate) fn expressions<'t>(&'t self, found: &mut Vec<&'t Expression>) {
        match self {
            Self::Literal(_) | Self::Broken => {}
            Self::Whole(expression) => found.push(expression),
            Self::Text(text) => found.extend(text.parts.iter().filter_map(|part| match part {
                Part::Expression(expression) => Some(expression),
                _ => None,
            })),
            Self::List(items) => items.iter().for_each(|item| item.expressions(found)),
            Self::Map(fields) => fields.iter().for_each(|(_, item)| item.expressions(found)),
        }
    }
}

/// Reads one string.
pub(crate) fn string(text: &str, pointer: &str, problems: &mut Vec<Problem>) -> Template {
    let pieces = match split(text) {
        Ok(pieces) => pieces,
        Err(problem) => {
            problems.push(problem.at(pointer));
            return Template::Broken;
        }
    };
    let pointer: Arc<str> = Arc::from(pointer);
    let mut parts = Vec::with_capacity(pieces.len());
    let mut plain = true;
    for piece in pieces {
        match piece {
            Piece::Text(text) => parts.push(Part::Text(text)),
            Piece::Expression {
                source,
                start,
                tokens,
            } => {
                plain = false;
                let trimmed = source.trim_end_matches(BLANK);
                let lead = trimmed.len() - trimmed.trim_start_matches(BLANK).len();
                let source = &trimmed[lead..];
                let begin = start + lead;
                if source.is_empty() || tokens.is_empty() {
                    let problem = Problem::new(
                        Class::EmptyExpression,
                        "there is no expression between `${` and `}`",
                    );
                    problems.push(
                        problem
                            .at(&pointer)
                            .hint(Some("write `$${` for a literal `${`")),
                    );
                    parts.push(Part::Broken);
                    continue;
                }
                match cel::parse_tokens(&tokens, begin, begin + source.len()) {
                    Ok(expr) => {
                        let pointer = Arc::clone(&pointer);
                        parts.push(Part::Expression(Expression {
                            source: Arc::from(source),
                            expr,
                            pointer,
                            broken: AtomicBool::new(false),
                            whole: false,
                        }));
                    }
                    Err(error) => {
                        let class = if error.unknown_function {
                            Class::UnknownFunction
                        } else {
                            Class::ParseError
                        };
                        let problem = Problem::new(class, error.message)
                            .at(&pointer)
                            .in_expression(source, error.offset);
                        problems.push(problem.hint(error.hint));
                        parts.push(Part::Broken);
                    }
                }
            }
        }
    }
    if plain {
        let text: String = parts
            .into_iter()
            .map(|part| match part {
                Part::Text(text) => text,
                _ => String::new(),
            })
            .collect();
        return Template::Literal(Value::string(text));
    }
    match <[Part; 1]>::try_from(parts) {
        Ok([Part::Expression(expression)]) => Template::Whole(Expression {
            whole: true,
            ..expression
        }),
        Ok([Part::Broken]) => Template::Broken,
        Ok([part]) => Template::Text(Text { parts: vec![part] }),
        Err(parts) => Template::Text(Text { parts }),
    }
}

/// A stretch of a string.
enum Piece<'s> {
    Text(String),
    Expression {
        source: &'s str,
        start: usize,
        tokens: Vec<Token>,
    },
}

impl Piece<'_> {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Expression { .. } => String::new(),
        }
    }
}

/// Splits a string at its expressions; `$${` is a literal `${`.
fn split(text: &str) -> Result<Vec<Piece<'_>>, Box<Problem>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut at = 0;
    while let Some(found) = text[at..].find('$') {
        let dollar = at + found;
        literal.push_str(&text[at..dollar]);
        let rest = &text[dollar..];
        if rest.starts_with("$${") {
            literal.push_str("${");
            at = dollar + 3;
        } else if rest.starts_with("${") {
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            let start = dollar + 2;
            let (tokens, end) = expression(text, start)?;
            pieces.push(Piece::Expression {
                source: &text[start..end],
                start,
                tokens,
            });
            at = end + 1;
        } else {
            literal.push('$');
            at = dollar + 1;
        }
    }
    literal.push_str(&text[at..]);
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

/// The tokens of the expression that starts here, and where its closing brace is.
fn expression(text: &str, start: usize) -> Result<(Vec<Token>, usize), Box<Problem>> {
    let mut tokens = Vec::new();
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(token) = lexer::next(text, at) {
        at = token.end;
        match token.kind {
            TokenKind::Sym("{") => depth += 1,
            TokenKind::Sym("}") if depth == 0 => return Ok((tokens, token.start)),
            TokenKind::Sym("}") => depth -= 1,
            _ => {}
        }
        tokens.push(token);
    }
    let cause = tokens.last().and_then(|token| match &token.kind {
        TokenKind::Bad(message) => Some(message.clone()),
        _ => None,
    });
    let message = match cause {
        Some(cause) => format!("`${{` has no closing `}}`: {cause}"),
        None => "`${` has no closing `}`".to_owned(),
    };
    let source = text[start..].trim_matches(BLANK);
    let problem = Problem::new(Class::UnterminatedExpression, message);
    let problem = problem.in_expression(source, source.len());
    Err(Box::new(
        problem.hint(Some("write `$${` for a literal `${`")),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Template, Vec<Problem>) {
        let mut problems = Vec::new();
        let template = string(text, "/spec/x", &mut problems);
        (template, problems)
    }

    #[test]
    fn the_end_of_an_expression_is_found_past_braces_quotes_and_comments() {
        for text in [
            "${{'a': {'b': 1}}}",
            "${'}' + \"}\"}",
            "${r'\\}' + '''}'''}",
            "${'a' // } not yet\n}",
            "${b'}'}",
            "${x.`a-b`}",
        ] {
            let (template, problems) = read(text);
            assert!(
                matches!(template, Template::Whole(_)),
                "{text}: {problems:?}"
            );
        }
    }

    #[test]
    fn white_space_that_is_none_of_cels_is_told_where_it_stands() {
        for text in [
            "${\u{b} a }",
            "${ a \u{a0}}",
            "${\u{2028}// b\n}",
            "${\u{b} // pick \0\u{b}spec.app\n}",
        ] {
            let (template, problems) = read(text);
            assert!(matches!(template, Template::Broken), "{text:?}");
            assert_eq!(problems.len(), 1, "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn dollars_without_a_brace_and_escaped_ones_are_text() {
        for (text, plain) in [
            ("cost $5 $ {x}", "cost $5 $ {x}"),
            ("$${x}", "${x}"),
            ("$$${x}", "$${x}"),
            ("$", "$"),
            ("", ""),
        ] {
            let (template, problems) = read(text);
            assert!(problems.is_empty());
            assert_eq!(
                template
                    .literal()
                    .and_then(|value| value.as_str().map(str::to_owned))
                    .as_deref(),
                Some(plain)
            );
        }
    }

    #[test]
    fn a_broken_expression_does_not_hide_the_next_one() {
        let (_, problems) = read("${ a +* b } and ${ } and ${ foo(${x}) }");
        let classes: Vec<_> = problems.iter().map(|problem| problem.class).collect();
        assert_eq!(
            classes,
            [Class::ParseError, Class::EmptyExpression, Class::ParseError]
        );
    }

    #[test]
    fn columns_count_characters_from_the_expression() {
        let (_, problems) = read("né ${ 'é' +* 2 }");
        assert_eq!(problems[0].position, Some((1, 6)), "{}", problems[0]);
        let (_, problems) = read("${1 +\n  * 2}");
        assert_eq!(problems[0].position, Some((2, 3)));
    }
}
