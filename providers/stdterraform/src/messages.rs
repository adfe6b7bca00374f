//! What Terraform says while it runs, line by line (`-json`), in the worker's words.
//!
//! Owns reading the lines and the summary made of them: counts, changed addresses, errors, warnings, whether anything was begun. A line that
//! is no JSON (an old version, a crash) is shown as it stands. Must hold: a snippet of source never leaves here (it can quote the variable
//! file); bounded, whatever the run prints. Redaction is the caller's.

use serde_json::Value;

/// Most diagnostics and addresses kept.
const MOST: usize = 200;
/// Longest text of one diagnostic that is kept.
const LONGEST: usize = 4 * 1024;

/// How serious a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

/// One line for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) text: String,
}

/// An error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    pub(crate) summary: String,
    pub(crate) detail: String,
    /// `main.tf:3`, when it is about a place in the module.
    pub(crate) place: Option<String>,
}

impl Diagnostic {
    /// In one line.
    pub(crate) fn one_line(&self) -> String {
        let mut text = self.summary.clone();
        if let Some(place) = &self.place {
            text.push_str(&format!(" ({place})"));
        }
        let detail = self.detail.split_whitespace().collect::<Vec<_>>().join(" ");
        if !detail.is_empty() {
            text.push_str(": ");
            text.push_str(&detail);
        }
        text
    }
}

/// What a run changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) added: u64,
    pub(crate) changed: u64,
    pub(crate) destroyed: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} added, {} changed, {} destroyed",
            self.added, self.changed, self.destroyed
        )
    }
}

/// Everything of a run that later decisions need.
#[derive(Debug, Default, Clone)]
pub(crate) struct Summary {
    /// From the last `change_summary`.
    pub(crate) counts: Option<Counts>,
    /// Resource instances the plan would change.
    pub(crate) planned: Vec<String>,
    /// Outputs the plan would change.
    pub(crate) outputs: Vec<String>,
    /// More were planned than are listed.
    pub(crate) more: usize,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Work on a resource was begun.
    pub(crate) begun: bool,
    /// It waits, or waited, for the lock.
    pub(crate) waited_for_lock: bool,
}

impl Summary {
    /// Takes one line and gives what of it belongs in the log.
    pub(crate) fn take(&mut self, line: &str) -> Option<Line> {
        let text = plain(line);
        if text.trim().is_empty() {
            return None;
        }
        let Ok(Value::Object(message)) = serde_json::from_str::<Value>(line) else {
            return Some(Line {
                level: Level::Info,
                text,
            });
        };
        let get = |name: &str| message.get(name).and_then(Value::as_str);
        let shown = plain(get("@message").unwrap_or_default());
        let level = match get("@level") {
            Some("error") => Level::Error,
            Some("warn") => Level::Warn,
            _ => Level::Info,
        };
        match get("type").unwrap_or_default() {
            "diagnostic" => {
                let Some(diagnostic) = message.get("diagnostic").map(diagnostic) else {
                    return Some(Line { level, text: shown });
                };
                let text = diagnostic.one_line();
                let list = if level == Level::Error {
                    &mut self.errors
                } else {
                    &mut self.warnings
                };
                if list.len() < MOST {
                    list.push(diagnostic);
                }
                return Some(Line { level, text });
            }
            "change_summary" => {
                let count = |name: &str| {
                    message
                        .get("changes")
                        .and_then(|changes| changes.get(name))
                        .and_then(Value::as_u64)
                        .unwrap_or(0)
                };
                self.counts = Some(Counts {
                    added: count("add") + count("import"),
                    changed: count("change"),
                    destroyed: count("remove"),
                });
            }
            "planned_change" => {
                let change = message.get("change");
                let action = change
                    .and_then(|change| change.get("action"))
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let address = change
                    .and_then(|change| change.pointer("/resource/addr"))
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                if !matches!(action, "" | "noop" | "read") {
                    self.note(address);
                }
            }
            "outputs" => {
                for (name, output) in message
                    .get("outputs")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                {
                    let action = output
                        .get("action")
                        .and_then(Value::as_str)
                        .unwrap_or("noop");
                    if action != "noop" && self.outputs.len() < MOST {
                        self.outputs.push(name.clone());
                    }
                }
            }
            "apply_start" | "provision_start" => self.begun = true,
            "state_lock_acquire" => self.waited_for_lock = true,
            _ => {}
        }
        if shown.trim().is_empty() {
            None
        } else {
            Some(Line { level, text: shown })
        }
    }

    fn note(&mut self, address: &str) {
        if self.planned.len() < MOST {
            self.planned.push(address.chars().take(512).collect());
        } else {
            self.more += 1;
        }
    }

    /// What the plan would change, in one bounded phrase.
    pub(crate) fn planned_text(&self) -> String {
        const SHOWN: usize = 20;
        let outputs = self.outputs.iter().map(|name| format!("output.{name}"));
        let all: Vec<_> = if self.planned.is_empty() {
            outputs.collect()
        } else {
            self.planned.clone()
        };
        let more = all.len().saturating_sub(SHOWN) + self.more;
        let mut text = all
            .iter()
            .take(SHOWN)
            .cloned()
            .collect::<Vec<_>>()
            .join(", ");
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
        text
    }

    /// The errors in one bounded phrase.
    pub(crate) fn errors_text(&self) -> Option<String> {
        const SHOWN: usize = 5;
        let mut lines: Vec<_> = self.errors.iter().map(Diagnostic::one_line).collect();
        lines.dedup();
        let more = lines.len().saturating_sub(SHOWN);
        lines.truncate(SHOWN);
        if lines.is_empty() {
            return None;
        }
        let mut text = lines.join("; ");
        if more > 0 {
            text.push_str(&format!("; and {more} more errors"));
        }
        Some(text)
    }
}

fn diagnostic(value: &Value) -> Diagnostic {
    let text = |name: &str| {
        cut(
            &plain(value.get(name).and_then(Value::as_str).unwrap_or_default()),
            LONGEST,
        )
    };
    let file = value.pointer("/range/filename").and_then(Value::as_str);
    let line = value.pointer("/range/start/line").and_then(Value::as_u64);
    // A place in the variable file is a place in our own directory; its name says nothing to a person.
    let place = file
        .filter(|file| !file.ends_with(VARIABLE_FILE))
        .map(|file| match line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        });
    Diagnostic {
        summary: text("summary"),
        detail: text("detail"),
        place,
    }
}

/// The name of the variable file, whose lines are never quoted.
pub(crate) const VARIABLE_FILE: &str = "stdterraform.tfvars.json";

/// Text without terminal sequences, NUL and other control characters; newline and tab stay.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.peek() == Some(&'[') {
                characters.next();
                while characters
                    .next_if(|c| !('\u{40}'..='\u{7e}').contains(c))
                    .is_some()
                {}
                characters.next();
            }
        } else if character == '\0' {
            out.push('\u{fffd}');
        } else if !character.is_control() || matches!(character, '\n' | '\t') {
            out.push(character);
        }
    }
    out
}

/// At most `limit` bytes of the beginning, cut on a character.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Who holds a lock, from the text Terraform prints about it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LockInfo {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) operation: String,
    pub(crate) who: String,
    pub(crate) created: String,
}

impl LockInfo {
    /// Reads the `Lock Info:` of a message; `None` when it names no holder.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (_, info) = text.split_once("Lock Info:")?;
        let mut found = Self::default();
        for line in info.lines() {
            let Some((name, value)) = line
                .trim()
                .trim_start_matches(['│', '╷', ' '])
                .split_once(':')
            else {
                continue;
            };
            let value = value.trim();
            match name.trim() {
                "ID" => found.id = value.to_owned(),
                "Path" => found.path = value.to_owned(),
                "Operation" => found.operation = value.to_owned(),
                "Who" => found.who = value.to_owned(),
                "Created" => found.created = value.to_owned(),
                _ => {}
            }
        }
        let good = |text: &str| text.len() <= 512 && !text.is_empty();
        (good(&found.id) && good(&found.who)).then_some(found)
    }
}

impl std::fmt::Display for LockInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} since {} ({}, lock {})",
            self.who, self.created, self.operation, self.id
        )
    }
}

/// Whether a summary is the one of a lock that somebody else holds.
pub(crate) fn is_lock_error(summary: &str) -> bool {
    summary.contains("Error acquiring the state lock") || summary.contains("Error locking state")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKED: &str = r#"{"@level":"error","@message":"Error: Error acquiring the state lock","@module":"terraform.ui","diagnostic":{"severity":"error","summary":"Error acquiring the state lock","detail":"Error message: resource temporarily unavailable\nLock Info:\n  ID:        37543f1d-abad-082f-6185-159f2509aa8c\n  Path:      /tmp/x.tfstate\n  Operation: OperationTypeApply\n  Who:       root@vm\n  Version:   1.11.4\n  Created:   2026-11-29 23:39:33.515417766 +0000 UTC\n  Info:      \n\n\nTerraform acquires a state lock"},"type":"diagnostic"}"#;

    #[test]
    fn a_held_lock_names_its_holder() {
        let mut summary = Summary::default();
        summary.take(LOCKED).unwrap();
        assert!(is_lock_error(&summary.errors[0].summary));
        let lock = LockInfo::parse(&summary.errors[0].detail).unwrap();
        assert_eq!(
            lock.to_string(),
            "root@vm since 2026-11-29 23:39:33.515417766 +0000 UTC (OperationTypeApply, lock 37543f1d-abad-082f-6185-159f2509aa8c)"
        );
        assert_eq!(LockInfo::parse("Lock Info:\n  ID: \n"), None);
    }

    #[test]
    fn counts_and_changes_are_collected() {
        let mut summary = Summary::default();
        for line in [
            r#"{"@level":"info","@message":"terraform_data.x: Plan to update","change":{"resource":{"addr":"terraform_data.x"},"action":"update"},"type":"planned_change"}"#,
            r#"{"@level":"info","@message":"data.x: read","change":{"resource":{"addr":"data.x"},"action":"read"},"type":"planned_change"}"#,
            r#"{"@level":"info","@message":"Apply complete!","changes":{"add":1,"change":2,"import":1,"remove":3,"operation":"apply"},"type":"change_summary"}"#,
            r#"{"@level":"info","@message":"Outputs: 2","outputs":{"o":{"action":"update"},"s":{"action":"noop"}},"type":"outputs"}"#,
        ] {
            assert!(summary.take(line).is_some());
        }
        assert_eq!(
            summary.counts.unwrap().to_string(),
            "2 added, 2 changed, 3 destroyed"
        );
        assert_eq!(
            (summary.planned_text().as_str(), summary.begun),
            ("terraform_data.x", false)
        );
        summary.take(r#"{"@message":"x: Creating...","type":"apply_start"}"#);
        assert!(summary.begun);
    }

    #[test]
    fn a_snippet_is_never_shown() {
        let line = r#"{"@level":"error","@message":"Error: Invalid value for input variable","diagnostic":{"severity":"error","summary":"Invalid value for input variable","detail":"unsuitable value","range":{"filename":"/d/stdterraform.tfvars.json","start":{"line":2}},"snippet":{"code":"  \"secret\": \"hunter2\","}},"type":"diagnostic"}"#;
        let mut summary = Summary::default();
        let shown = summary.take(line).unwrap();
        assert_eq!(
            shown.text,
            "Invalid value for input variable: unsuitable value"
        );
        assert!(!summary.errors_text().unwrap().contains("hunter2"));
    }

    #[test]
    fn other_text_is_shown_plain() {
        let mut summary = Summary::default();
        assert_eq!(
            summary
                .take("\u{1b}[31mpanic:\u{1b}[0m \0x\r")
                .unwrap()
                .text,
            "panic: \u{fffd}x"
        );
        assert_eq!(summary.take("   "), None);
        assert_eq!(summary.take("{\"type\":\"version\"}"), None);
    }

    #[test]
    fn the_summary_is_bounded() {
        let mut summary = Summary::default();
        for index in 0..1000 {
            summary.take(&format!(
                r#"{{"@message":"p","change":{{"resource":{{"addr":"r.x[{index}]"}},"action":"create"}},"type":"planned_change"}}"#
            ));
            summary.take(r#"{"@level":"error","@message":"Error: e","diagnostic":{"summary":"e","detail":"d"},"type":"diagnostic"}"#);
        }
        assert!(summary.planned_text().ends_with("and 980 more"));
        assert_eq!(summary.errors.len(), MOST);
        assert_eq!(summary.errors_text().unwrap(), "e: d");
    }
}
