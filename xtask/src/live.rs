//! The live view: resources as a tree by owner. On a terminal it is redrawn in place; elsewhere each change of a phase is a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

use terminal_size::{Height, Width, terminal_size};

use crate::conctl::Row;

/// What was drawn last, so that it can be drawn over.
pub(crate) struct Live {
    started: Instant,
    terminal: bool,
    drawn: usize,
    phases: BTreeMap<String, String>,
}

impl Live {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            terminal: std::io::stdout().is_terminal(),
            drawn: 0,
            phases: BTreeMap::new(),
        }
    }

    /// Shows the state of things.
    pub(crate) fn show(&mut self, rows: &[Row]) {
        let mut text = String::new();
        if self.terminal {
            let (width, height) = terminal_size().map_or((100, 40), |(Width(w), Height(h))| {
                (usize::from(w), usize::from(h))
            });
            let mut lines = tree(rows);
            // A line that wraps would spoil the redraw.
            let widest = width.saturating_sub(16).max(8);
            for line in &mut lines {
                line.text = line.text.chars().take(widest).collect();
            }
            let room = height.saturating_sub(3).max(1);
            if lines.len() > room {
                let more = lines.len() - room + 1;
                lines.truncate(room - 1);
                lines.push(Line {
                    text: format!("… and {more} more"),
                    phase: String::new(),
                    note: String::new(),
                });
            }
            let column = lines
                .iter()
                .map(|line| line.text.chars().count())
                .max()
                .unwrap_or_default()
                + 2;
            if self.drawn > 0 {
                let _ = write!(text, "\x1b[{}A\x1b[J", self.drawn);
            }
            let ready = rows.iter().filter(|row| row.phase == "Ready").count();
            let _ = writeln!(
                text,
                "\x1b[1m{ready} of {} Ready\x1b[0m  {:.1} s",
                rows.len(),
                self.started.elapsed().as_secs_f64()
            );
            for line in &lines {
                let room = width.saturating_sub(column + 16);
                let note: String = line.note.chars().take(room).collect();
                let _ = writeln!(
                    text,
                    "{:<column$}{}{:<13}\x1b[0m  {note}",
                    line.text,
                    colour(&line.phase),
                    line.phase
                );
            }
            self.drawn = lines.len() + 1;
        } else {
            for (id, before, now, note) in self.changes(rows) {
                let _ = writeln!(
                    text,
                    "{:>7.2}s  {id:<32}  {before:>11} → {now:<11}  {note}",
                    self.started.elapsed().as_secs_f64()
                );
            }
        }
        let mut out = std::io::stdout().lock();
        // A closed stdout must not stop the clean-up that follows.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    fn changes(&mut self, rows: &[Row]) -> Vec<(String, String, String, String)> {
        let mut changes = Vec::new();
        let now: BTreeMap<String, &Row> = rows.iter().map(|row| (row.id(), row)).collect();
        for (id, row) in &now {
            let before = self.phases.get(id).map_or("new", String::as_str);
            if before != row.phase {
                changes.push((id.clone(), before.to_owned(), row.phase.clone(), row.note()));
            }
        }
        for id in self.phases.keys().filter(|id| !now.contains_key(*id)) {
            changes.push((
                id.clone(),
                self.phases[id].clone(),
                "gone".to_owned(),
                String::new(),
            ));
        }
        self.phases = now
            .into_iter()
            .map(|(id, row)| (id, row.phase.clone()))
            .collect();
        changes
    }
}

fn colour(phase: &str) -> &'static str {
    match phase {
        "Ready" => "\x1b[32m",
        "Failed" => "\x1b[31m",
        "Degraded" | "Orphaned" | "Quarantined" => "\x1b[33m",
        _ => "\x1b[36m",
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Line {
    text: String,
    phase: String,
    note: String,
}

/// The rows as a tree, children below their owner, each level by name.
fn tree(rows: &[Row]) -> Vec<Line> {
    let ids: BTreeMap<String, &Row> = rows.iter().map(|row| (row.id(), row)).collect();
    let mut below: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
    for (id, row) in &ids {
        // An owner that is not in the list (another page, just gone) does not hide its children.
        below
            .entry(row.owner().filter(|owner| ids.contains_key(owner)))
            .or_default()
            .push(id.clone());
    }
    let mut lines = Vec::new();
    for id in below.get(&None).into_iter().flatten() {
        branch(id, "", "", &ids, &below, &mut lines);
    }
    lines
}

fn branch(
    id: &str,
    lead: &str,
    under: &str,
    ids: &BTreeMap<String, &Row>,
    below: &BTreeMap<Option<String>, Vec<String>>,
    lines: &mut Vec<Line>,
) {
    let Some(row) = ids.get(id) else { return };
    lines.push(Line {
        text: format!("{lead}{id}"),
        phase: row.phase.clone(),
        note: row.note(),
    });
    let children = below
        .get(&Some(id.to_owned()))
        .map(Vec::as_slice)
        .unwrap_or_default();
    for (at, child) in children.iter().enumerate() {
        let last = at + 1 == children.len();
        let (lead, deeper) = if last {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        branch(
            child,
            &format!("{under}{lead}"),
            &format!("{under}{deeper}"),
            ids,
            below,
            lines,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_hang_below_their_owner() {
        let rows = [
            Row::made("leaf/b", "Ready", Some("app/a")),
            Row::made("app/a", "Reconciling", None),
            Row::made("app/inner", "Ready", Some("app/a")),
            Row::made("leaf/deep", "Ready", Some("app/inner")),
            Row::made("leaf/stray", "Ready", Some("app/elsewhere")),
        ];
        let lines: Vec<String> = tree(&rows).into_iter().map(|line| line.text).collect();
        assert_eq!(
            lines,
            [
                "app/a",
                "├─ app/inner",
                "│  └─ leaf/deep",
                "└─ leaf/b",
                "leaf/stray"
            ]
        );
    }

    #[test]
    fn a_change_is_told_once() {
        let mut live = Live::new();
        let row = |phase| [Row::made("a/b", phase, None)];
        let change = |before: &str, now: &str| {
            vec![(
                "a/b".to_owned(),
                before.to_owned(),
                now.to_owned(),
                String::new(),
            )]
        };
        assert_eq!(
            live.changes(&row("Reconciling")),
            change("new", "Reconciling")
        );
        assert_eq!(live.changes(&row("Reconciling")), []);
        assert_eq!(live.changes(&row("Ready")), change("Reconciling", "Ready"));
        assert_eq!(live.changes(&[]), change("Ready", "gone"));
    }
}
