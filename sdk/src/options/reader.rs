//! Reads variables into types and gathers what is wrong with them; what may be secret in a value is not said.

use std::path::PathBuf;
use std::time::Duration;

use super::OptionProblem;
use crate::settings::parse_duration;

/// Whether this is what a file holds, given where its path belongs.
fn is_contents(text: &str) -> bool {
    text.contains('\n') || text.contains("-----BEGIN")
}

/// A value as it may be said: neither what a file holds nor the password of a URL.
fn shown(value: &str) -> String {
    if is_contents(value) {
        return "(not shown)".to_owned();
    }
    match value.rsplit_once('@') {
        Some((before, after)) => {
            let scheme = before.split_once("://").map_or("", |(scheme, _)| scheme);
            let separator = if scheme.is_empty() { "" } else { "://" };
            format!("{scheme}{separator}(not shown)@{after}")
        }
        None => value.to_owned(),
    }
}

/// Reads variables and gathers what is wrong with them.
pub(super) struct Reader<F> {
    pub(super) get: F,
    pub(super) problems: Vec<OptionProblem>,
}

impl<F: Fn(&str) -> Option<String>> Reader<F> {
    pub(super) fn parse<T>(
        &mut self,
        variable: &'static str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = (self.get)(variable)?;
        let text = value.trim();
        if text.is_empty() {
            return None;
        }
        let parsed = read(text);
        if parsed.is_none() {
            self.problems.push(OptionProblem {
                variable,
                value: Some(shown(&value)),
                expected: expected.to_owned(),
            });
        }
        parsed
    }

    pub(super) fn set<T>(
        &mut self,
        place: &mut T,
        variable: &'static str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) {
        if let Some(value) = self.parse(variable, expected, read) {
            *place = value;
        }
    }

    pub(super) fn duration(
        &mut self,
        place: &mut Duration,
        variable: &'static str,
        least: Duration,
    ) {
        self.set(
            place,
            variable,
            "a duration such as 500ms, 30s, 5m or 1h30m",
            |text| {
                parse_duration(text)
                    .ok()
                    .filter(|duration| *duration >= least)
            },
        );
    }

    pub(super) fn path(&mut self, variable: &'static str) -> Option<PathBuf> {
        self.parse(variable, "the path of a file, not what is in it", |text| {
            (!is_contents(text)).then(|| PathBuf::from(text))
        })
    }

    pub(super) fn missing(&mut self, variable: &'static str, expected: &str) {
        self.problems.push(OptionProblem {
            variable,
            value: None,
            expected: expected.to_owned(),
        });
    }
}
