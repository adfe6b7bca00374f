//! The bearer token that a caller without a client certificate shows.
//!
//! Only its hash is kept, and hashes are compared in constant time: neither the token nor how much of a guess was right can be had from
//! here. Not here: the file it comes from (`converge-server`), who is asked for it (`access`).

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Put by the server into the extensions of each request on a connection whose client showed a certificate that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCertificate;

/// A token, as its hash.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token of these bytes.
    #[must_use]
    pub fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Whether a request bears this token, and nothing beside it.
pub(crate) fn is_borne(headers: &HeaderMap, token: &Token) -> bool {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let (scheme, shown) = match value.as_bytes().split_at_checked(7) {
        Some((scheme, shown)) => (scheme, shown.trim_ascii()),
        None => return false,
    };
    scheme.eq_ignore_ascii_case(b"bearer ") && Token::new(shown) == *token
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn borne(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        is_borne(&headers, &Token::new(b"secret"))
    }

    #[test]
    fn the_token_alone_is_taken() {
        assert!(borne(&["Bearer secret"]));
        assert!(borne(&["bearer  secret"]));
        for values in [
            &[][..],
            &[""],
            &["secret"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer secrets"],
            &["Bearer secre"],
            &["Basic secret"],
            &["Bearer secret", "Bearer secret"],
        ] {
            assert!(!borne(values), "{values:?}");
        }
    }

    #[test]
    fn it_is_not_shown() {
        assert_eq!(format!("{:?}", Token::new(b"secret")), "Token");
    }
}
