//! Shows answers: as they came (json), as YAML, as tables, as names.
//!
//! What must hold: nothing here re-encodes a number, and text from the server never reaches a terminal with control
//! characters in it.

mod json;
mod list;
mod table;
mod time;
mod yaml;

use clap::ValueEnum;
use converge_client::types::{Json, List, Phase};
use serde_json::value::RawValue;

pub(crate) use json::{compact, pretty};
pub(crate) use list::{
    kind_table, provider_config_table, reactor_binding_table, resource_row, resource_table,
};
pub(crate) use table::Table;
pub(crate) use time::{Clock, since, until};
pub(crate) use yaml::to_yaml;

use crate::context::Out;
use crate::document::raw;
use crate::exit::Result;

/// How to show what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// More columns.
    Wide,
    /// The API's body.
    Json,
    /// The same as YAML.
    Yaml,
    /// One name a line.
    Name,
}

/// Shows one JSON value as JSON or YAML; other formats are the caller's.
pub(crate) fn document(out: &mut Out, format: Format, value: &RawValue) -> Result {
    match format {
        Format::Yaml => out.text(&to_yaml(value)),
        _ => out.line(&pretty(value.get())),
    }
}

/// Shows a whole list as JSON or YAML, where that is the format; else it is the caller's. Says which.
pub(crate) fn whole_list(out: &mut Out, format: Format, list: &List<Json>) -> Result<bool> {
    if !matches!(format, Format::Json | Format::Yaml) {
        return Ok(false);
    }
    let items: Vec<&str> = list.items.iter().map(|item| item.get()).collect();
    let body = raw(format!(
        "{{\"items\":[{}],\"revision\":{}}}",
        items.join(","),
        list.revision
    ))?;
    document(out, format, &body)?;
    Ok(true)
}

/// A text in one line without control characters, so that it can neither move a cursor nor break a table.
pub(crate) fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => clean.push(' '),
            c if is_unsafe(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

/// The same for a text of several lines.
pub(crate) fn clean_lines(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => clean.push('\n'),
            '\r' => {}
            '\t' => clean.push_str("    "),
            c if is_unsafe(c) => clean.extend(c.escape_unicode()),
            c => clean.push(c),
        }
    }
    clean
}

fn is_unsafe(c: char) -> bool {
    // Control characters, and those that turn the direction of the text around them.
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The first line of a text, cut where it gets long.
pub(crate) fn brief(text: &str, limit_chars: usize) -> String {
    let mut lines = text.trim().lines();
    let first = clean(lines.next().unwrap_or_default());
    let more = lines.next().is_some();
    if first.chars().count() <= limit_chars && !more {
        return first;
    }
    let mut brief: String = first.chars().take(limit_chars).collect();
    brief.push('…');
    brief
}

/// A phase, coloured where that is wanted, after padding to `width`.
pub(crate) fn phase_cell(phase: Phase, colour: bool) -> table::Cell {
    let code = match phase {
        Phase::Ready => "32",
        Phase::Reconciling | Phase::Deleting => "36",
        Phase::Degraded | Phase::Orphaned | Phase::Quarantined => "33",
        Phase::Failed => "31",
    };
    table::Cell::coloured(phase.as_str(), colour.then_some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_afar_cannot_drive_a_terminal() {
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}"), "a\\u{1b}[31mb c\\u{202e}");
        assert_eq!(clean_lines("a\r\n\tb\x07"), "a\n    b\\u{7}");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(brief("short", 10), "short");
        assert_eq!(brief("first\nsecond", 10), "first…");
        assert_eq!(brief("0123456789ab", 10), "0123456789…");
    }
}
