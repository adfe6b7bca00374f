//! Versions of the binary: what is asked for, what a module allows, what of the versions at hand fits best.
//!
//! Pure. Must hold: only a version of strict syntax ever becomes part of a path or an argument (a `../../x` given to a version manager
//! runs that file). Not here: asking a manager, installing (`binary`).

use std::cmp::Ordering;
use std::fmt;

use regex::Regex;

/// `1.7.5` or `1.8.0-rc1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    numbers: [u64; 3],
    pre: String,
}

impl Version {
    /// Reads `MAJOR.MINOR.PATCH[-PRE]`, nothing shorter.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (core, pre) = text
            .split_once('-')
            .map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut numbers = core.split('.').map(number);
        let version = Self {
            numbers: [numbers.next()??, numbers.next()??, numbers.next()??],
            pre: match pre {
                None => String::new(),
                Some(pre) => {
                    let fits = |part: &str| {
                        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric())
                    };
                    if pre.len() > 32 || !pre.split('.').all(fits) {
                        return None;
                    }
                    pre.to_owned()
                }
            },
        };
        numbers.next().is_none().then_some(version)
    }

    /// Whether it is a release.
    pub(crate) fn is_release(&self) -> bool {
        self.pre.is_empty()
    }

    /// Whether it is at least `major.minor.0`, releases and what leads to them alike.
    pub(crate) fn at_least(&self, major: u64, minor: u64) -> bool {
        (self.numbers[0], self.numbers[1]) >= (major, minor)
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = (1..=6).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if self.pre.is_empty() {
            Ok(())
        } else {
            write!(f, "-{}", self.pre)
        }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre.is_empty(), other.pre.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let mut ours = self.pre.split('.');
                    let mut theirs = other.pre.split('.');
                    loop {
                        match (ours.next(), theirs.next()) {
                            (None, None) => return Ordering::Equal,
                            (None, Some(_)) => return Ordering::Less,
                            (Some(_), None) => return Ordering::Greater,
                            (Some(a), Some(b)) => {
                                let order = match (a.parse::<u64>(), b.parse::<u64>()) {
                                    (Ok(a), Ok(b)) => a.cmp(&b),
                                    (Ok(_), Err(_)) => Ordering::Less,
                                    (Err(_), Ok(_)) => Ordering::Greater,
                                    (Err(_), Err(_)) => a.cmp(b),
                                };
                                if order != Ordering::Equal {
                                    return order;
                                }
                            }
                        }
                    }
                }
            }
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Pessimistic,
}

/// One condition of a `required_version`; `parts` is how many numbers were written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    operator: Operator,
    version: Version,
    parts: usize,
}

/// A `required_version`, such as `>= 1.2, < 2.0` or `~> 1.7`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Constraint {
    conditions: Vec<Condition>,
}

impl Constraint {
    /// Reads the text of a `required_version`; `None` when it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let conditions: Option<Vec<_>> = text.split(',').map(condition).collect();
        conditions
            .filter(|conditions| !conditions.is_empty())
            .map(|conditions| Self { conditions })
    }

    /// All of `constraints` in one.
    pub(crate) fn all(constraints: impl IntoIterator<Item = Self>) -> Self {
        Self {
            conditions: constraints
                .into_iter()
                .flat_map(|one| one.conditions)
                .collect(),
        }
    }

    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether `version` fits. As in Terraform itself, a pre-release fits only where it is named exactly.
    pub(crate) fn allows(&self, version: &Version) -> bool {
        self.conditions
            .iter()
            .all(|condition| condition.allows(version))
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, condition) in self.conditions.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let operator = match condition.operator {
                Operator::Equal => "=",
                Operator::NotEqual => "!=",
                Operator::Greater => ">",
                Operator::GreaterEqual => ">=",
                Operator::Less => "<",
                Operator::LessEqual => "<=",
                Operator::Pessimistic => "~>",
            };
            let numbers: Vec<_> = condition
                .version
                .numbers
                .iter()
                .take(condition.parts)
                .map(u64::to_string)
                .collect();
            write!(f, "{separator}{operator} {}", numbers.join("."))?;
            if !condition.version.pre.is_empty() {
                write!(f, "-{}", condition.version.pre)?;
            }
        }
        Ok(())
    }
}

impl Condition {
    fn allows(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if !version.is_release() && self.operator != Operator::NotEqual {
            let exact = self.operator == Operator::Equal && version == wanted;
            let at_the_pre_release = !wanted.is_release() && version.numbers == wanted.numbers;
            if !exact && !at_the_pre_release {
                return false;
            }
        }
        match self.operator {
            Operator::Equal => version == wanted,
            Operator::NotEqual => version != wanted,
            Operator::Greater => version > wanted,
            Operator::GreaterEqual => version >= wanted,
            Operator::Less => version < wanted,
            Operator::LessEqual => version <= wanted,
            Operator::Pessimistic => {
                let fixed = self.parts.saturating_sub(1).max(1);
                version >= wanted && version.numbers[..fixed] == wanted.numbers[..fixed]
            }
        }
    }
}

fn condition(text: &str) -> Option<Condition> {
    let text = text.trim();
    let at = text
        .find(|c: char| !matches!(c, '=' | '!' | '>' | '<' | '~'))
        .unwrap_or(text.len());
    let operator = match &text[..at] {
        "" | "=" => Operator::Equal,
        "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessEqual,
        "~>" => Operator::Pessimistic,
        _ => return None,
    };
    let written = text[at..].trim().trim_start_matches('v');
    let (core, pre) = written
        .split_once('-')
        .map_or((written, None), |(core, pre)| (core, Some(pre)));
    let parts = core.split('.').count();
    let mut full = core.to_owned();
    for _ in parts..3 {
        full.push_str(".0");
    }
    if let Some(pre) = pre {
        full.push('-');
        full.push_str(pre);
    }
    Some(Condition {
        operator,
        version: Version::parse(&full)?,
        parts,
    })
}

/// Which version somebody asks for.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// This one.
    Exact(Version),
    /// The newest release, or the newest version whose text matches.
    Latest(Option<Regex>),
    /// The oldest that the module allows.
    MinRequired,
    /// The newest that the module allows.
    LatestAllowed,
}

impl Wanted {
    /// Reads `1.7.5`, `latest`, `latest:^1.7`, `min-required` or `latest-allowed`; nothing else.
    ///
    /// # Errors
    /// What may be written.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected a full version such as 1.7.5, latest, latest:REGEX, min-required or latest-allowed".to_owned()
        };
        match text {
            "latest" => return Ok(Self::Latest(None)),
            "min-required" => return Ok(Self::MinRequired),
            "latest-allowed" => return Ok(Self::LatestAllowed),
            _ => {}
        }
        if let Some(pattern) = text.strip_prefix("latest:") {
            let fits = |b: u8| b.is_ascii_alphanumeric() || b".^$*+?-|()[]\\".contains(&b);
            if pattern.is_empty() || pattern.len() > 64 || !pattern.bytes().all(fits) {
                return Err(format!(
                    "the pattern after latest: is empty, too long or holds an odd character; {}",
                    wrong()
                ));
            }
            return regex::RegexBuilder::new(pattern)
                .size_limit(1 << 20)
                .build()
                .map(|regex| Self::Latest(Some(regex)))
                .map_err(|_| {
                    format!(
                        "the pattern after latest: is no regular expression; {}",
                        wrong()
                    )
                });
        }
        Version::parse(text).map(Self::Exact).ok_or_else(wrong)
    }

    /// Whether `version` would do when nothing can be chosen, as with the one binary on PATH.
    pub(crate) fn accepts(&self, version: &Version, allowed: &Constraint) -> bool {
        match self {
            Self::Exact(wanted) => version == wanted,
            Self::Latest(None) => true,
            Self::Latest(Some(pattern)) => pattern.is_match(&version.to_string()),
            Self::MinRequired | Self::LatestAllowed => allowed.allows(version),
        }
    }

    /// The best of `versions`: releases before pre-releases, newest first (oldest for `min-required`).
    pub(crate) fn choose(&self, versions: &[Version], allowed: &Constraint) -> Option<Version> {
        let best = |releases: bool| {
            let fitting = versions.iter().filter(|version| {
                version.is_release() == releases && self.accepts(version, allowed)
            });
            if matches!(self, Self::MinRequired) {
                fitting.min()
            } else {
                fitting.max()
            }
        };
        let pre_releases_too = !matches!(self, Self::Latest(None));
        best(true)
            .or_else(|| if pre_releases_too { best(false) } else { None })
            .cloned()
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(version) => version.fmt(f),
            Self::Latest(None) => f.write_str("latest"),
            Self::Latest(Some(pattern)) => write!(f, "latest:{pattern}"),
            Self::MinRequired => f.write_str("min-required"),
            Self::LatestAllowed => f.write_str("latest-allowed"),
        }
    }
}

/// All versions in the output of a manager's `list` or `list-remote`, one a line, whatever stands around them.
pub(crate) fn listed(output: &str) -> Vec<Version> {
    let mut versions: Vec<_> = output
        .lines()
        .take(10_000)
        .filter_map(|line| {
            line.trim_start_matches(['*', ' ', '\t'])
                .split_whitespace()
                .next()
                .and_then(Version::parse)
        })
        .collect();
    versions.sort();
    versions.dedup();
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn only_strict_versions_are_versions() {
        for bad in [
            "1.7",
            "1.7.5.1",
            "v1.7.5",
            "../../evil",
            "1.7.5/..",
            "1.7.5-",
            "1.7.5-a/b",
            "1.7.5 ",
            "01234567.1.1",
            "1..2",
            "",
        ] {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
        assert_eq!(v("1.8.0-rc1").to_string(), "1.8.0-rc1");
        assert!(
            v("1.8.0-rc1") < v("1.8.0")
                && v("1.8.0-beta10") > v("1.8.0-beta1")
                && v("1.10.0") > v("1.9.9")
        );
    }

    #[test]
    fn constraints_decide_as_terraform_does() {
        for (constraint, version, fits) in [
            (">= 1.2, < 2.0.0", "1.11.4", true),
            (">= 1.2, < 2.0.0", "2.0.0", false),
            ("~> 1.7", "1.11.4", true),
            ("~> 1.7", "2.0.0", false),
            ("~> 1.7.2", "1.7.9", true),
            ("~> 1.7.2", "1.8.0", false),
            ("~> 1.7.2", "1.7.1", false),
            ("~>1", "1.9.0", true),
            ("!= 1.3.0", "1.3.0", false),
            ("1.3.0", "1.3.0", true),
            ("= 1.3", "1.3.0", true),
            (">1.3", "1.3.0", false),
            ("<= 1.3", "1.3.0", true),
            (">= 1.0", "1.8.0-rc1", false),
            ("1.8.0-rc1", "1.8.0-rc1", true),
        ] {
            assert_eq!(
                Constraint::parse(constraint).unwrap().allows(&v(version)),
                fits,
                "{constraint} {version}"
            );
        }
        for bad in ["", ">=", "=> 1.2", "1.x", "latest", ">= 1.2,"] {
            assert_eq!(Constraint::parse(bad), None, "{bad}");
        }
        assert_eq!(
            Constraint::parse(">=1.2,<2").unwrap().to_string(),
            ">= 1.2, < 2"
        );
    }

    #[test]
    fn the_best_version_is_chosen() {
        let versions =
            listed("* 1.4.0 (set by x)\n  1.7.5\n1.7.6\n1.8.0-rc1\n1.11.4\nnot a version\n");
        assert_eq!(versions.len(), 5);
        let allowed = Constraint::parse("~> 1.4, < 1.8").unwrap();
        let choose = |wanted: &str| {
            Wanted::parse(wanted)
                .unwrap()
                .choose(&versions, &allowed)
                .map(|v| v.to_string())
        };
        assert_eq!(choose("latest").as_deref(), Some("1.11.4"));
        assert_eq!(choose("latest:^1\\.7").as_deref(), Some("1.7.6"));
        assert_eq!(choose("latest:^1.8").as_deref(), Some("1.8.0-rc1"));
        assert_eq!(choose("min-required").as_deref(), Some("1.4.0"));
        assert_eq!(choose("latest-allowed").as_deref(), Some("1.7.6"));
        assert_eq!(choose("1.7.5").as_deref(), Some("1.7.5"));
        assert_eq!(choose("1.9.9"), None);
    }

    #[test]
    fn odd_requests_are_refused() {
        for bad in [
            "1.7",
            "../../evilx",
            "latest:",
            "latest:$(x);y",
            "latest:a b",
            "latest:(",
            "newest",
            "--help",
            "",
        ] {
            assert!(Wanted::parse(bad).is_err(), "{bad}");
        }
    }
}
