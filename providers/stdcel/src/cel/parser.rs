//! Tokens to tree.
//!
//! Precedence climbing: one stack frame per level of nesting and at most one per precedence, with nesting capped by
//! [`MAX_NESTING`]. Macros and functions are resolved here, so an unknown name or a wrong number of arguments is an error
//! of the text, found without an instance.

mod calls;

use std::sync::Arc;

use super::ast::{Element, Entry, Expr, Link, Node, Operator, Step, StepKind};
use super::functions;
use super::lexer::{self, MIN_MAGNITUDE, Token, TokenKind};
use super::value::Value;
use super::{MAX_NESTING, MAX_SOURCE};

/// Why a text is no expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Byte offset into the source.
    pub(crate) offset: usize,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) unknown_function: bool,
}

const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether a name may be used as a variable.
pub(crate) fn is_variable_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&name)
        && !matches!(name, "true" | "false" | "null" | "in")
}

/// Parses a whole text.
pub(crate) fn parse(source: &str) -> Result<Expr, SyntaxError> {
    parse_tokens(&lexer::tokens(source), 0, source.len())
}

/// Parses tokens that a template was split into; `base` is where the expression starts in their text, `end` where it ends.
pub(crate) fn parse_tokens(tokens: &[Token], base: usize, end: usize) -> Result<Expr, SyntaxError> {
    let mut parser = Parser {
        tokens,
        base,
        end,
        at: 0,
        depth: 0,
    };
    if end.saturating_sub(base) > MAX_SOURCE {
        return Err(parser.error(
            base,
            format!("the expression is longer than {MAX_SOURCE} bytes"),
        ));
    }
    let expr = parser.expression()?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(parser.unexpected(token)),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    base: usize,
    end: usize,
    at: usize,
    depth: u32,
}

type Parsed<T> = Result<T, SyntaxError>;

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn offset(&self) -> u32 {
        let absolute = self.peek().map_or(self.end, |token| token.start);
        u32::try_from(absolute - self.base).unwrap_or(u32::MAX)
    }

    fn error(&self, at: usize, message: impl Into<String>) -> SyntaxError {
        SyntaxError {
            offset: at - self.base,
            message: message.into(),
            hint: None,
            unknown_function: false,
        }
    }

    fn unexpected(&self, token: &Token) -> SyntaxError {
        let message = match &token.kind {
            TokenKind::Bad(message) => message.clone(),
            TokenKind::Sym(symbol) => format!("unexpected `{symbol}`"),
            TokenKind::Name(name) | TokenKind::Quoted(name) => format!("unexpected `{name}`"),
            TokenKind::Literal(_) => "unexpected literal".to_owned(),
        };
        let mut error = self.error(token.start, message);
        if let TokenKind::Sym("?") = token.kind {
            error.hint = Some("`??` is not CEL; write `a.?b.orValue(c)`".into());
        }
        error
    }

    fn fail_here<T>(&self, wanted: &str) -> Parsed<T> {
        Err(match self.peek() {
            Some(token) if matches!(token.kind, TokenKind::Bad(_)) => self.unexpected(token),
            Some(token) => {
                let mut error = self.unexpected(token);
                error.message = format!("{}, expected {wanted}", error.message);
                error
            }
            None => self.error(
                self.end,
                format!("the expression ends where {wanted} should follow"),
            ),
        })
    }

    fn symbol(&self) -> Option<&'static str> {
        match self.peek()?.kind {
            TokenKind::Sym(symbol) => Some(symbol),
            _ => None,
        }
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = self.symbol() == Some(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.accept(symbol) {
            Ok(())
        } else {
            self.fail_here(&format!("`{symbol}`"))
        }
    }

    fn expression(&mut self) -> Parsed<Expr> {
        self.depth += 1;
        if self.depth > MAX_NESTING {
            let at = self.offset() as usize + self.base;
            return Err(self.error(
                at,
                format!("the expression nests deeper than {MAX_NESTING} levels"),
            ));
        }
        let offset = self.offset();
        let mut condition = self.binary(0)?;
        let mut arms = Vec::new();
        while self.accept("?") {
            let value = self.expression()?;
            self.expect(":")?;
            arms.push((condition, value));
            condition = self.binary(0)?;
        }
        self.depth -= 1;
        if arms.is_empty() {
            return Ok(condition);
        }
        Ok(Expr {
            offset,
            node: Node::Ternary {
                arms,
                otherwise: Box::new(condition),
            },
        })
    }

    fn precedence(&self) -> Option<u8> {
        Some(match self.symbol()? {
            "||" => 0,
            "&&" => 1,
            "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" => 2,
            "+" | "-" => 3,
            "*" | "/" | "%" => 4,
            _ => return None,
        })
    }

    fn binary(&mut self, least: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Some(level) = self.precedence().filter(|level| *level >= least) {
            let offset = self.offset();
            let mut rest = Vec::new();
            while self.precedence() == Some(level) {
                let link_offset = self.offset();
                let operator = operator(self.symbol().unwrap_or_default());
                self.at += 1;
                rest.push((operator, link_offset, self.binary(level + 1)?));
            }
            let node = if level < 2 {
                let terms = std::iter::once(left)
                    .chain(rest.into_iter().map(|(_, _, term)| term))
                    .collect();
                if level == 0 {
                    Node::Or(terms)
                } else {
                    Node::And(terms)
                }
            } else {
                let rest = rest.into_iter();
                let rest = rest
                    .map(|(operator, offset, operand)| Link {
                        operator,
                        offset,
                        operand,
                    })
                    .collect();
                Node::Chain {
                    first: Box::new(left),
                    rest,
                }
            };
            left = Expr { offset, node };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let offset = self.offset();
        let Some(sign @ ("!" | "-")) = self.symbol() else {
            return self.member();
        };
        let mut count = 0_usize;
        while self.accept(sign) {
            count += 1;
        }
        let odd = count % 2 == 1;
        if sign == "!" {
            return Ok(Expr {
                offset,
                node: Node::Not {
                    odd,
                    operand: Box::new(self.member()?),
                },
            });
        }
        if let Some(Token {
            kind: TokenKind::Bad(message),
            ..
        }) = self.peek()
            && message == MIN_MAGNITUDE
            && count == 1
        {
            self.at += 1;
            return Ok(Expr {
                offset,
                node: Node::Literal(Value::Int(i64::MIN)),
            });
        }
        Ok(Expr {
            offset,
            node: Node::Negate {
                odd,
                operand: Box::new(self.member()?),
            },
        })
    }

    fn member(&mut self) -> Parsed<Expr> {
        let base = self.primary()?;
        let mut steps = Vec::new();
        let mut base = base;
        loop {
            let offset = self.offset();
            if self.accept(".") {
                let optional = self.accept("?");
                let name_offset = self.offset();
                let name = match self.peek().map(|token| &token.kind) {
                    Some(TokenKind::Name(name) | TokenKind::Quoted(name)) => Arc::clone(name),
                    _ => return self.fail_here("a field name"),
                };
                self.at += 1;
                if !optional && self.accept("(") {
                    let args = self.arguments(")")?;
                    self.method(&mut base, &mut steps, &name, name_offset, args)?;
                } else {
                    steps.push(Step {
                        offset: name_offset,
                        kind: StepKind::Field { name, optional },
                    });
                }
            } else if self.accept("[") {
                let optional = self.accept("?");
                let index = self.expression()?;
                self.expect("]")?;
                steps.push(Step {
                    offset,
                    kind: StepKind::Index { index, optional },
                });
            } else {
                break;
            }
        }
        if let Some(name) = calls::dotted(&base, &steps)
            && name.contains('.')
            && let Some(found) = functions::type_named(&name)
        {
            let offset = base.offset;
            return Ok(Expr {
                offset,
                node: Node::Literal(Value::Type(found)),
            });
        }
        if self.symbol() == Some("{") && calls::dotted(&base, &steps).is_some() {
            let mut error = self.error(
                self.offset() as usize + self.base,
                "message types have no meaning here",
            );
            error.hint = Some("a map is written {'key': value}".into());
            return Err(error);
        }
        Ok(path(base, steps))
    }

    fn arguments(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        if self.accept(close) {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.accept(close) {
                return Ok(args);
            }
            self.expect(",")
                .or_else(|_| self.fail_here(&format!("`,` or `{close}`")))?;
        }
    }

    fn primary(&mut self) -> Parsed<Expr> {
        let offset = self.offset();
        let Some(token) = self.peek() else {
            return self.fail_here("a value");
        };
        match &token.kind {
            TokenKind::Literal(value) => {
                self.at += 1;
                Ok(Expr {
                    offset,
                    node: Node::Literal(value.clone()),
                })
            }
            TokenKind::Name(name) => {
                self.at += 1;
                self.name(offset, name)
            }
            TokenKind::Sym("(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            TokenKind::Sym("[") => {
                self.at += 1;
                self.list(offset)
            }
            TokenKind::Sym("{") => {
                self.at += 1;
                self.map(offset)
            }
            TokenKind::Sym(".")
                if matches!(
                    self.tokens.get(self.at + 1).map(|t| &t.kind),
                    Some(TokenKind::Name(_))
                ) =>
            {
                self.at += 1;
                self.primary()
            }
            TokenKind::Bad(_) => Err(self.unexpected(token)),
            _ => self.fail_here("a value"),
        }
    }

    fn name(&mut self, offset: u32, name: &Arc<str>) -> Parsed<Expr> {
        if RESERVED.contains(&&**name) {
            let mut error = self.error(
                offset as usize + self.base,
                format!("`{name}` is a reserved word"),
            );
            if matches!(&**name, "if" | "else") {
                error.hint = Some("a choice is written `condition ? a : b`".into());
            }
            return Err(error);
        }
        if !self.accept("(") {
            return Ok(Expr {
                offset,
                node: Node::Name(Arc::clone(name)),
            });
        }
        let args = self.arguments(")")?;
        if &**name == "has" {
            return self.has(offset, args);
        }
        let function = self.resolve(name, false, args.len(), offset)?;
        Ok(Expr {
            offset,
            node: Node::Call { function, args },
        })
    }

    fn list(&mut self, offset: u32) -> Parsed<Expr> {
        let mut elements = Vec::new();
        while !self.accept("]") {
            let optional = self.accept("?");
            elements.push(Element {
                optional,
                value: self.expression()?,
            });
            if !self.accept(",") {
                self.expect("]").or_else(|_| self.fail_here("`,` or `]`"))?;
                break;
            }
        }
        Ok(Expr {
            offset,
            node: Node::List(elements),
        })
    }

    fn map(&mut self, offset: u32) -> Parsed<Expr> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push(Entry {
                optional,
                key,
                value: self.expression()?,
            });
            if !self.accept(",") {
                self.expect("}").or_else(|_| self.fail_here("`,` or `}`"))?;
                break;
            }
        }
        Ok(Expr {
            offset,
            node: Node::Map(entries),
        })
    }
}

fn path(base: Expr, steps: Vec<Step>) -> Expr {
    if steps.is_empty() {
        return base;
    }
    Expr {
        offset: base.offset,
        node: Node::Path {
            base: Box::new(base),
            steps,
        },
    }
}

fn operator(symbol: &str) -> Operator {
    match symbol {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterEqual,
        "in" => Operator::In,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Remainder,
        _ => Operator::Add,
    }
}
