//! Reading paths and queries: everything wrong with a request in one answer.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use converge_api_types::ProblemItem;
use converge_types::ids::{Kind, KindVersion, ResourceName};

use crate::problem::{Problem, item};

/// Collects what is wrong with a request.
#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<ProblemItem>);

impl Checks {
    pub(crate) fn add(&mut self, location: impl Into<String>, message: impl Into<String>) {
        self.0.push(item(location, message));
    }

    /// The value, or a note of why there is none.
    pub(crate) fn take<T, E: Display>(&mut self, location: &str, found: Result<T, E>) -> Option<T> {
        found
            .map_err(|error| self.add(location, error.to_string()))
            .ok()
    }

    pub(crate) fn parse<T: FromStr<Err: Display>>(
        &mut self,
        location: &str,
        text: &str,
    ) -> Option<T> {
        self.take(location, text.parse())
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.0.is_empty()
    }

    /// Nothing was noted.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(self.into_problem())
    }

    /// What was noted, for a caller that knows there is something.
    pub(crate) fn into_problem(self) -> Problem {
        let detail = match self.0.as_slice() {
            [one] if one.location.is_empty() => one.message.clone(),
            [one] => format!("{}: {}", one.location, one.message),
            many => format!("{} things are wrong with the request", many.len()),
        };
        Problem::bad_request(detail).with_errors(self.0)
    }
}

/// The decoded variables of the path.
#[derive(Debug)]
pub(crate) struct PathArgs(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for PathArgs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::bad_request(format!("the path cannot be read: {error}")))?;
        Ok(Self(
            params
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
        ))
    }
}

impl PathArgs {
    fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    /// The one variable of a path.
    pub(crate) fn only<T: FromStr<Err: Display>>(&self, name: &str) -> Result<T, Problem> {
        let mut checks = Checks::default();
        let found = checks.parse(name, self.get(name));
        found.ok_or_else(|| checks.into_problem())
    }

    pub(crate) fn kind(&self) -> Result<Kind, Problem> {
        self.only("kind")
    }

    pub(crate) fn resource(&self) -> Result<(Kind, ResourceName), Problem> {
        let mut checks = Checks::default();
        let kind = checks.parse("kind", self.get("kind"));
        let name = checks.parse("name", self.get("name"));
        kind.zip(name).ok_or_else(|| checks.into_problem())
    }

    /// `{kind}` and `{v}`, which is `2` or `v2`.
    pub(crate) fn pair(&self) -> Result<KindVersion, Problem> {
        let mut checks = Checks::default();
        let kind = checks.parse::<Kind>("kind", self.get("kind"));
        let version = version(&mut checks, "version", self.get("v"));
        let (Some(kind), Some(version)) = (kind, version) else {
            return Err(checks.into_problem());
        };
        let pair = checks.take("version", KindVersion::new(kind, version));
        pair.ok_or_else(|| checks.into_problem())
    }
}

/// A kind version in a path or query: `2` or `v2`.
fn version(checks: &mut Checks, location: &str, text: &str) -> Option<i32> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<i32>().ok().filter(|_| plain);
    let number = number.filter(|number| KindVersion::VERSIONS.contains(number));
    if number.is_none() {
        checks.add(
            location,
            format!("{text:?} is no kind version: a whole number from 1 to 32767"),
        );
    }
    number
}

/// The decoded parameters of the query.
#[derive(Debug)]
pub(crate) struct QueryArgs(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for QueryArgs {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(
            form_urlencoded::parse(query.as_bytes())
                .into_owned()
                .collect(),
        ))
    }
}

impl QueryArgs {
    /// Notes parameters the route does not have, and those given twice that may be given once.
    fn known(&self, checks: &mut Checks, once: &[&str], many: &[&str]) {
        for (at, (key, _)) in self.0.iter().enumerate() {
            let is_once = once.contains(&key.as_str());
            if !is_once && !many.contains(&key.as_str()) {
                let all: Vec<_> = once.iter().chain(many).copied().collect();
                let message = if all.is_empty() {
                    "this route takes no parameters".to_owned()
                } else {
                    format!("unknown parameter; there are: {}", all.join(", "))
                };
                checks.add(key.clone(), message);
            } else if is_once && self.0[..at].iter().any(|(other, _)| other == key) {
                checks.add(key.clone(), "given more than once");
            }
        }
    }

    /// The parameters of a route, which has these and no others; all that is wrong with them is told together.
    pub(crate) fn read<T>(
        &self,
        once: &[&str],
        many: &[&str],
        read: impl FnOnce(&mut Checks) -> T,
    ) -> Result<T, Problem> {
        let mut checks = Checks::default();
        self.known(&mut checks, once, many);
        let found = read(&mut checks);
        checks.finish()?;
        Ok(found)
    }

    /// Refuses every parameter.
    pub(crate) fn none(&self) -> Result<(), Problem> {
        self.read(&[], &[], |_| ())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A parameter that has a type of its own.
    pub(crate) fn parsed<T: FromStr<Err: Display>>(
        &self,
        checks: &mut Checks,
        name: &str,
    ) -> Option<T> {
        checks.parse(name, self.get(name)?)
    }

    /// `version`: `2` or `v2`.
    pub(crate) fn version(&self, checks: &mut Checks) -> Option<i32> {
        version(checks, "version", self.get("version")?)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// `?flag`, `?flag=true` or `?flag=false`.
    pub(crate) fn flag(&self, checks: &mut Checks, name: &str) -> bool {
        match self.get(name) {
            None | Some("false") => false,
            Some("" | "true") => true,
            Some(other) => {
                checks.add(name, format!("{other:?} is neither true nor false"));
                false
            }
        }
    }

    /// `limit`, within the bound every list has.
    pub(crate) fn limit(&self, checks: &mut Checks) -> u32 {
        const MAX: u32 = converge_api_types::MAX_PAGE;
        let Some(text) = self.get("limit") else {
            return MAX;
        };
        match text.parse::<u32>() {
            Ok(limit) if (1..=MAX).contains(&limit) => limit,
            _ => {
                checks.add(
                    "limit",
                    format!("{text:?} is no whole number from 1 to {MAX}"),
                );
                MAX
            }
        }
    }
}
