//! How an error in a program is shown to a person: file, line, column, the line itself, and who called.

use std::fmt::Write as _;

use starlark::codemap::FileSpan;

/// Longest line that is quoted; the caret's surroundings are kept.
const EXCERPT_CHARS: usize = 120;
/// Callers that are listed.
const CALLERS: usize = 10;
/// Longest message that is kept (`fail` may be given megabytes).
const MESSAGE_BYTES: usize = 4 << 10;

/// A whole error of the interpreter.
pub(crate) fn render(error: &starlark::Error) -> String {
    let message = error.without_diagnostic().to_string();
    let mut text = match error.span() {
        Some(span) => at(span, &message),
        None => clip(&message),
    };
    let frames = error.call_stack().clone().into_frames();
    let calls = frames.iter().rev().filter_map(|frame| {
        frame
            .location
            .as_ref()
            .map(|location| (&frame.name, location))
    });
    // A builtin that fails is called from the very place that is quoted already.
    let calls = calls.skip_while(|(_, location)| Some(*location) == error.span());
    for (name, location) in calls.take(CALLERS) {
        let begin = location.resolve_span().begin;
        let _ = write!(
            text,
            "\n  in {name}, called from {}:{}:{}",
            location.filename(),
            begin.line + 1,
            begin.column + 1
        );
    }
    text
}

/// A message about a place in a program, with the line quoted.
pub(crate) fn at(span: &FileSpan, message: &str) -> String {
    let resolved = span.resolve_span();
    let (line, column) = (resolved.begin.line, resolved.begin.column);
    let source = span.file.source_line(line);
    let until = if resolved.end.line == line {
        resolved.end.column
    } else {
        source.chars().count()
    };
    let number = (line + 1).to_string();
    let gutter = " ".repeat(number.len());
    let start = if source.chars().count() > EXCERPT_CHARS {
        column.saturating_sub(EXCERPT_CHARS / 2)
    } else {
        0
    };
    let excerpt: String = source
        .chars()
        .skip(start)
        .take(EXCERPT_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let carets = until
        .saturating_sub(column)
        .clamp(1, EXCERPT_CHARS.saturating_sub(column - start).max(1));
    format!(
        "{}:{number}:{}: {}\n {gutter} |\n {number} | {}\n {gutter} | {}{}",
        span.filename(),
        column + 1,
        clip(message),
        excerpt.trim_end(),
        " ".repeat(column - start),
        "^".repeat(carets),
    )
}

/// Where something is, without quoting it.
pub(crate) fn place(span: &FileSpan) -> String {
    let begin = span.resolve_span().begin;
    format!(
        "{}:{}:{}",
        span.filename(),
        begin.line + 1,
        begin.column + 1
    )
}

/// A message of bounded length, cut on a character.
pub(crate) fn clip(message: &str) -> String {
    let message = message.trim_end();
    if message.len() <= MESSAGE_BYTES {
        return message.to_owned();
    }
    let cut = message.floor_char_boundary(MESSAGE_BYTES);
    format!("{}… ({} bytes in all)", &message[..cut], message.len())
}
