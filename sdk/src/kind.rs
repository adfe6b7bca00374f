//! The pair a worker serves: a kind and its whole-number API version.
//!
//! Work is routed by the exact pair; a pair nobody serves waits and is never run by another version.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A kind at one API version, written `demo/v1`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindVersion {
    kind: Arc<str>,
    version: u16,
}

/// Why a text is not a [`KindVersion`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KindVersionError {
    /// The name breaks the rule for kind names.
    #[error(
        "kind name {kind:?} is not valid: it must start with a lower-case letter, followed by at most 62 of a-z, 0-9 and '-'"
    )]
    Name {
        /// The name as given.
        kind: String,
    },
    /// The version is outside of 1…32767.
    #[error(
        "version {version} of kind {kind:?} is not valid: expected a whole number from 1 to 32767"
    )]
    Version {
        /// The name as given.
        kind: String,
        /// The version as given.
        version: String,
    },
    /// The text is not of the form `kind/vN`.
    #[error("{text:?} is not a kind with its version: expected the form \"demo/v1\"")]
    Form {
        /// The text as given.
        text: String,
    },
}

impl KindVersion {
    /// The largest version there is.
    pub const MAX_VERSION: u16 = 32767;

    /// Names a pair. Nothing is checked here, so that it can be called from anywhere: `run_worker` refuses a provider whose
    /// pair does not pass [`check`](Self::check), and the control plane a child whose pair it does not know.
    pub fn new(kind: impl AsRef<str>, version: u16) -> Self {
        Self {
            kind: Arc::from(kind.as_ref()),
            version,
        }
    }

    /// The name of the kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The version, 1…32767.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Checks the name and the version against the rules of the control plane.
    ///
    /// # Errors
    /// Says which of the two is wrong and what was expected.
    pub fn check(&self) -> Result<(), KindVersionError> {
        let mut bytes = self.kind.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_lowercase());
        let rest = bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !first || !rest || self.kind.len() > 63 {
            return Err(KindVersionError::Name {
                kind: self.kind.to_string(),
            });
        }
        if self.version == 0 || self.version > Self::MAX_VERSION {
            return Err(KindVersionError::Version {
                kind: self.kind.to_string(),
                version: self.version.to_string(),
            });
        }
        Ok(())
    }
}

impl fmt::Display for KindVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/v{}", self.kind, self.version)
    }
}

impl fmt::Debug for KindVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KindVersion {
    type Err = KindVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, version) = text
            .rsplit_once("/v")
            .ok_or_else(|| KindVersionError::Form {
                text: text.to_owned(),
            })?;
        let number = version
            .parse::<u16>()
            .ok()
            .filter(|_| version.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| KindVersionError::Version {
                kind: kind.to_owned(),
                version: version.to_owned(),
            })?;
        let pair = Self::new(kind, number);
        pair.check()?;
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_reads_back_as_it_is_written() {
        let pair = KindVersion::new("stdio-composer", 32767);
        assert_eq!(pair.to_string(), "stdio-composer/v32767");
        assert_eq!(pair.to_string().parse::<KindVersion>().unwrap(), pair);
    }

    #[test]
    fn a_bad_pair_is_refused_with_what_was_expected() {
        let long = format!("{}/v1", "a".repeat(64));
        for (text, says) in [
            ("demo", "demo/v1"),
            ("demo/1", "demo/v1"),
            ("demo/v0", "from 1 to 32767"),
            ("demo/v32768", "from 1 to 32767"),
            ("demo/v+1", "from 1 to 32767"),
            ("demo/v99999999", "from 1 to 32767"),
            ("Demo/v1", "lower-case"),
            ("/v1", "lower-case"),
            ("1demo/v1", "lower-case"),
            ("de_mo/v1", "lower-case"),
            (long.as_str(), "at most 62"),
        ] {
            let error = text.parse::<KindVersion>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(
            format!("{}/v1", "a".repeat(63))
                .parse::<KindVersion>()
                .is_ok()
        );
    }
}
