//! Text to tokens.
//!
//! Used twice on the same text: to find where an expression inside a template ends, and as input of the parser. A
//! character that belongs to no token becomes [`TokenKind::Bad`] and scanning goes on, so that the end of a broken
//! expression is still found and the rest of the template is still checked.

use std::sync::Arc;

use super::value::Value;

/// One token and where it starts and ends, in bytes of the text it was scanned from.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Debug, Clone)]
pub(crate) enum TokenKind {
    Name(Arc<str>),
    /// A field name in backticks.
    Quoted(Arc<str>),
    Literal(Value),
    /// Operators and brackets, and the word `in`.
    Sym(&'static str),
    /// What is wrong here.
    Bad(String),
}

const SYMBOLS: [&str; 27] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "-",
    "+", "*", "/", "%", "<", ">", "=", "&", "|",
];

/// Scans one token at or after `at`; `None` when only blanks and comments are left.
pub(crate) fn next(text: &str, at: usize) -> Option<Token> {
    let start = skip_blank(text, at);
    let rest = text.get(start..)?;
    let first = rest.chars().next()?;
    let token = |kind, length: usize| {
        Some(Token {
            kind,
            start,
            end: start + length,
        })
    };
    if let Some((length, prefix)) = string_prefix(rest) {
        let (kind, used) = string(&rest[length..], prefix);
        return token(kind, length + used);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let kind = match &rest[..length] {
            "true" => TokenKind::Literal(Value::Bool(true)),
            "false" => TokenKind::Literal(Value::Bool(false)),
            "null" => TokenKind::Literal(Value::Null),
            "in" => TokenKind::Sym("in"),
            name => TokenKind::Name(Arc::from(name)),
        };
        return token(kind, length);
    }
    if first.is_ascii_digit()
        || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit()))
    {
        let (kind, length) = number(rest);
        return token(kind, length);
    }
    if first == '`' {
        let allowed =
            |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ');
        let length = rest[1..].find(|c| !allowed(c)).unwrap_or(rest.len() - 1);
        if length == 0 || !rest[1 + length..].starts_with('`') {
            let message =
                "a name in backticks holds letters, digits, `_`, `.`, `-`, `/` and blanks";
            return token(TokenKind::Bad(message.into()), 1 + length);
        }
        return token(TokenKind::Quoted(Arc::from(&rest[1..=length])), length + 2);
    }
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        let kind = match *symbol {
            "=" => TokenKind::Bad("`=` is not an operator; equality is `==`".into()),
            "&" => TokenKind::Bad("`&` is not an operator; logical and is `&&`".into()),
            "|" => TokenKind::Bad("`|` is not an operator; logical or is `||`".into()),
            other => TokenKind::Sym(other),
        };
        return token(kind, symbol.len());
    }
    let message = match first {
        '$' => "`$` means nothing inside an expression; an expression cannot hold another `${…}`"
            .to_owned(),
        other => format!("unexpected character {other:?}"),
    };
    token(TokenKind::Bad(message), first.len_utf8())
}

/// All tokens of a text.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(token) = next(text, at) {
        at = token.end;
        out.push(token);
    }
    out
}

/// What CEL calls white space: less than Unicode does, so that what is trimmed off an expression is what the lexer skips.
pub(crate) const BLANK: [char; 5] = ['\t', '\n', '\u{c}', '\r', ' '];

fn skip_blank(text: &str, mut at: usize) -> usize {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with(BLANK) {
            at += 1;
        } else {
            return at;
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Prefix {
    raw: bool,
    bytes: bool,
}

/// The prefix letters before a quote, if a string literal starts here.
fn string_prefix(rest: &str) -> Option<(usize, Prefix)> {
    let mut prefix = Prefix::default();
    for (at, c) in rest.char_indices().take(3) {
        match c {
            'r' | 'R' if !prefix.raw => prefix.raw = true,
            'b' | 'B' if !prefix.bytes => prefix.bytes = true,
            '"' | '\'' => return Some((at, prefix)),
            _ => return None,
        }
    }
    None
}

/// Scans a string that starts with its quote; also says how many bytes it took.
fn string(rest: &str, prefix: Prefix) -> (TokenKind, usize) {
    let quote = if rest.starts_with('"') { '"' } else { '\'' };
    let triple = if quote == '"' { "\"\"\"" } else { "'''" };
    let long = rest.starts_with(triple);
    let close = if long { triple } else { &triple[..1] };
    let body_start = close.len();
    let body = &rest[body_start..];
    let mut at = 0;
    let end = loop {
        let left = &body[at..];
        let Some(c) = left.chars().next() else {
            return (
                TokenKind::Bad("the string is not closed".into()),
                rest.len(),
            );
        };
        if left.starts_with(close) {
            break at;
        }
        if !long && (c == '\n' || c == '\r') {
            return (
                TokenKind::Bad(
                    "the string is not closed before the end of its line; use a triple-quoted one"
                        .into(),
                ),
                body_start + at,
            );
        }
        at += c.len_utf8();
        if c == '\\'
            && let Some(escaped) = body[at..].chars().next()
        {
            at += escaped.len_utf8();
        }
    };
    let used = body_start + end + close.len();
    let body = &body[..end];
    let kind = match (prefix.raw, prefix.bytes) {
        (true, true) => TokenKind::Literal(Value::Bytes(Arc::from(body.as_bytes()))),
        (true, false) => TokenKind::Literal(Value::string(body)),
        (false, bytes) => match unescape(body, bytes) {
            Ok(content) if bytes => TokenKind::Literal(Value::Bytes(Arc::from(content))),
            Ok(content) => match String::from_utf8(content) {
                Ok(text) => TokenKind::Literal(Value::string(text)),
                Err(_) => TokenKind::Bad("the string is not valid text".into()),
            },
            Err(message) => TokenKind::Bad(message),
        },
    };
    (kind, used)
}

fn unescape(body: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let c = rest
            .chars()
            .next()
            .ok_or("a lone backslash ends the string")?;
        rest = &rest[c.len_utf8()..];
        let simple = match c {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '\\' | '?' | '"' | '\'' | '`' => c as u8,
            'x' | 'X' | 'u' | 'U' | '0'..='3' => {
                // An octal escape has its first digit in `c` already.
                let (digits, radix, lead) = match c {
                    'x' | 'X' => (2, 16, 0),
                    'u' => (4, 16, 0),
                    'U' => (8, 16, 0),
                    _ => (2, 8, c.to_digit(8).unwrap_or(0) * 64),
                };
                let taken = rest
                    .get(..digits)
                    .filter(|text| text.chars().all(|d| d.is_digit(radix)));
                let taken = taken
                    .ok_or_else(|| format!("the escape \\{c} needs {digits} digits after it"))?;
                rest = &rest[digits..];
                let code =
                    lead + u32::from_str_radix(taken, radix).map_err(|err| err.to_string())?;
                if bytes {
                    if matches!(c, 'u' | 'U') {
                        return Err("bytes cannot hold \\u escapes".into());
                    }
                    out.push(u8::try_from(code).map_err(|_| "the escape is beyond one byte")?);
                } else {
                    let decoded = char::from_u32(code)
                        .ok_or_else(|| format!("\\{c}{taken} is no character"))?;
                    out.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
                }
                continue;
            }
            other => {
                return Err(format!(
                    "unknown escape \\{other}; a raw string r'…' takes backslashes as they are"
                ));
            }
        };
        out.push(simple);
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

fn number(rest: &str) -> (TokenKind, usize) {
    let bytes = rest.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    if let Some(hex) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
        let length = hex
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(hex.len());
        return integer(&hex[..length], 16, rest, 2 + length);
    }
    let mut end = digits(0);
    let mut double = false;
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        double = true;
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let after = digits(end + 1 + sign);
        if after > end + 1 + sign {
            double = true;
            end = after;
        }
    }
    if double {
        let kind = match rest[..end].parse::<f64>() {
            Ok(value) if value.is_finite() => TokenKind::Literal(Value::Double(value)),
            _ => TokenKind::Bad("the number does not fit a double".into()),
        };
        return (kind, end);
    }
    integer(&rest[..end], 10, rest, end)
}

/// An integer literal. `9223372036854775808` is kept as an unsigned magnitude for the parser to negate.
fn integer(digits: &str, radix: u32, rest: &str, end: usize) -> (TokenKind, usize) {
    if rest[end..].starts_with(['u', 'U']) {
        let kind = match u64::from_str_radix(digits, radix) {
            Ok(value) => TokenKind::Literal(Value::Uint(value)),
            Err(_) => TokenKind::Bad("the number does not fit 64 bits".into()),
        };
        return (kind, end + 1);
    }
    let kind = match i64::from_str_radix(digits, radix) {
        Ok(value) => TokenKind::Literal(Value::Int(value)),
        Err(_) if u64::from_str_radix(digits, radix) == Ok(1 << 63) => {
            TokenKind::Bad(MIN_MAGNITUDE.into())
        }
        Err(_) => TokenKind::Bad("the number does not fit 64 bits".into()),
    };
    (kind, end)
}

/// The message of the one literal that is right only after a minus.
pub(crate) const MIN_MAGNITUDE: &str = "9223372036854775808 is one more than the greatest int";
