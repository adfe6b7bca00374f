//! Lays JSON out anew without reading it as values: every token stays as it came, only the space between them changes.

/// Indentation stops growing here, so that deep nesting cannot make the output quadratic.
const INDENT_LIMIT: usize = 64;

/// Two spaces a level. `text` must be JSON.
pub(crate) fn pretty(text: &str) -> String {
    layout(text, true)
}

/// One line. `text` must be JSON.
pub(crate) fn compact(text: &str) -> String {
    layout(text, false)
}

fn layout(text: &str, pretty: bool) -> String {
    let mut out = String::with_capacity(text.len() * if pretty { 2 } else { 1 });
    let mut depth = 0_usize;
    let mut just_opened = false;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let width = match c {
            '"' => string_width(rest),
            '{' | '}' | '[' | ']' | ',' | ':' => 1,
            c if c.is_ascii_whitespace() => {
                rest = &rest[1..];
                continue;
            }
            _ => rest
                .find(|c: char| {
                    matches!(c, '{' | '}' | '[' | ']' | ',' | ':' | '"') || c.is_ascii_whitespace()
                })
                .unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(width);
        rest = after;
        let closes = matches!(c, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        // An empty object or list stays on its line.
        if pretty && ((just_opened && !closes) || (closes && !just_opened)) {
            new_line(&mut out, depth);
        }
        out.push_str(token);
        just_opened = false;
        match c {
            '{' | '[' => {
                depth += 1;
                just_opened = true;
            }
            ',' if pretty => new_line(&mut out, depth),
            ':' if pretty => out.push(' '),
            _ => {}
        }
    }
    out
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    for _ in 0..depth.min(INDENT_LIMIT) {
        out.push_str("  ");
    }
}

/// How many bytes the string at the start of `text` takes, quotes included.
fn string_width(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "a" : [1, 2.50,
        123456789012345678901234567890], "b":{}, "c": [ ], "d":"x\"{,}: é", "e":{"f":null}}"#;

    #[test]
    fn only_the_space_between_tokens_changes() {
        let one_line = r#"{"a":[1,2.50,123456789012345678901234567890],"b":{},"c":[],"d":"x\"{,}: é","e":{"f":null}}"#;
        assert_eq!(compact(TEXT), one_line);
        assert_eq!(compact(&pretty(TEXT)), one_line);
    }

    #[test]
    fn pretty_is_two_spaces_a_level() {
        assert_eq!(
            pretty(r#"{"a":[1,{"b":{}}],"c":[]}"#),
            "{\n  \"a\": [\n    1,\n    {\n      \"b\": {}\n    }\n  ],\n  \"c\": []\n}"
        );
    }

    #[test]
    fn deep_nesting_does_not_blow_up() {
        let text = "[".repeat(20_000) + &"]".repeat(20_000);
        assert!(pretty(&text).len() < 20_000 * 2 * 140);
    }
}
