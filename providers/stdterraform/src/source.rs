//! Where a module comes from: the text of `spec.source`, read once into a [`Source`].
//!
//! Owns the grammar and what of a source may be shown or recorded. Must hold: nothing parsed here can become an option of a program
//! (no field begins with `-`), a password or a signed query never reaches [`Source::shown`]. Not here: fetching (`fetch`).

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;
use url::Url;

/// A login taken out of a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(..)")
    }
}

/// A module's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// `s3://bucket/key.tar.gz`
    S3 { bucket: String, key: String },
    /// `gs://bucket/key.tar.gz`
    Gcs { bucket: String, key: String },
    /// `azblob://account/container/key.tar.gz`
    Azure {
        account: String,
        container: String,
        key: String,
    },
    /// `https://host/path.tar.gz`; `url` has no login, `query` is what a signed link carries.
    Https {
        url: Url,
        query: Option<String>,
        login: Option<Login>,
    },
    /// `git::https://host/repo[//subdir][?ref=REF]`
    Git {
        url: Url,
        subdir: Option<String>,
        reference: Option<String>,
        login: Option<Login>,
    },
}

/// What may be written, for messages.
const FORMS: &str = "s3://bucket/key.tar.gz, gs://bucket/key.tar.gz, azblob://account/container/key.tar.gz, https://host/path.tar.gz \
                     and git::https://host/repo[//subdir][?ref=REF]";

impl Source {
    /// Reads `spec.source`. Plain `http` is refused unless `plain_http` (loopback tests).
    ///
    /// # Errors
    /// What is wrong, without quoting the source: it may hold a password.
    pub(crate) fn parse(text: &str, plain_http: bool) -> Result<Self, String> {
        if text.len() > 4096 {
            return Err("longer than 4096 bytes".to_owned());
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(
                "holds a space or a control character; write %20 for a space in a path".to_owned(),
            );
        }
        if let Some(rest) = text.strip_prefix("git::") {
            return git(rest, plain_http);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(format!("no known form; known are {FORMS}"));
        };
        match scheme {
            "s3" => object(rest, 2).map(|mut parts| Self::S3 {
                key: parts.remove(1),
                bucket: parts.remove(0),
            }),
            "gs" => object(rest, 2).map(|mut parts| Self::Gcs {
                key: parts.remove(1),
                bucket: parts.remove(0),
            }),
            "azblob" => object(rest, 3).map(|mut parts| Self::Azure {
                key: parts.remove(2),
                container: parts.remove(1),
                account: parts.remove(0),
            }),
            "https" | "http" => https(text, plain_http),
            _ => Err(format!(
                "the scheme `{}` is not known; known are {FORMS}",
                short(scheme)
            )),
        }
    }

    /// The source as it may be shown and recorded: no login, no query of a signed link.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::S3 { bucket, key } => format!("s3://{bucket}/{key}"),
            Self::Gcs { bucket, key } => format!("gs://{bucket}/{key}"),
            Self::Azure {
                account,
                container,
                key,
            } => format!("azblob://{account}/{container}/{key}"),
            Self::Https { url, .. } => url.to_string(),
            Self::Git {
                url,
                subdir,
                reference,
                ..
            } => {
                let mut text = format!("git::{url}");
                if let Some(subdir) = subdir {
                    let _ = write!(text, "//{subdir}");
                }
                if let Some(reference) = reference {
                    let encoded = percent_encoding::utf8_percent_encode(reference, REF_ENCODED);
                    let _ = write!(text, "?ref={encoded}");
                }
                text
            }
        }
    }

    /// What of the source is secret: the password, and the query of a signed link with its values.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let (Self::Https { login, .. } | Self::Git { login, .. }) = self else {
            return Vec::new();
        };
        let mut secrets = Vec::new();
        if let Some(login) = login {
            secrets.push(login.password.clone());
            secrets.push(format!("{}:{}", login.user, login.password));
            if login.password.is_empty() {
                // A token is often given as the user alone.
                secrets.push(login.user.clone());
            }
        }
        if let Self::Https {
            query: Some(query), ..
        } = self
        {
            secrets.push(query.clone());
            for (_, value) in url::form_urlencoded::parse(query.as_bytes()) {
                if value.len() >= 8 {
                    secrets.push(value.into_owned());
                }
            }
        }
        secrets
    }

    /// The login and query of `other` put into this source, when both name the same place: for a destroy, where the recorded source has none.
    pub(crate) fn with_access_of(self, other: &Source) -> Self {
        match (self, other) {
            (
                Self::Https { url, .. },
                Self::Https {
                    url: theirs,
                    query,
                    login,
                },
            ) if url == *theirs => Self::Https {
                url,
                query: query.clone(),
                login: login.clone(),
            },
            (
                Self::Git {
                    url,
                    subdir,
                    reference,
                    ..
                },
                Self::Git {
                    url: theirs, login, ..
                },
            ) if url == *theirs => Self::Git {
                url,
                subdir,
                reference,
                login: login.clone(),
            },
            (same, _) => same,
        }
    }
}

/// What must be encoded in a shown `ref`.
const REF_ENCODED: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'&')
    .add(b'#')
    .add(b'+')
    .add(b'?')
    .add(b'"')
    .add(b'<')
    .add(b'>');

/// `a/b/key…` in `count` parts, each fit to be an argument of a command line tool.
fn object(rest: &str, count: usize) -> Result<Vec<String>, String> {
    let parts: Vec<String> = rest.splitn(count, '/').map(str::to_owned).collect();
    if parts.len() < count || parts.iter().any(String::is_empty) {
        let names = if count == 2 {
            "bucket and key"
        } else {
            "account, container and key"
        };
        return Err(format!("needs {names}"));
    }
    for name in &parts[..count - 1] {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !name.chars().all(fits) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(format!(
                "`{}` is no bucket, account or container name",
                short(name)
            ));
        }
    }
    let key = &parts[count - 1];
    archive_name(key)?;
    if key.contains(['?', '#', '*', '[']) {
        return Err(
            "the key holds one of ? # * [, which the tools read as more than a name".to_owned(),
        );
    }
    Ok(parts)
}

fn archive_name(path: &str) -> Result<(), String> {
    if path.ends_with(".tar.gz") || path.ends_with(".tgz") {
        Ok(())
    } else {
        Err("an archive source must end in .tar.gz".to_owned())
    }
}

/// Takes the login out of a URL and refuses what no source may carry.
fn web(text: &str, plain_http: bool) -> Result<(Url, Option<Login>), String> {
    // The parser would resolve them, and another place than the one that was written would be fetched.
    let path = text.split(['?', '#']).next().unwrap_or_default();
    if path
        .split('/')
        .any(|part| percent_decode_str(part).eq(b"..".iter().copied()))
    {
        return Err("a path with .. is refused".to_owned());
    }
    let mut url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
    match url.scheme() {
        "https" => {}
        "http" if plain_http => {}
        other => {
            return Err(format!(
                "`{}` is refused, only https is fetched",
                short(other)
            ));
        }
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err("the URL has no host".to_owned());
    }
    if url.fragment().is_some() {
        return Err("a URL with a #fragment is refused".to_owned());
    }
    let decode = |part: &str| {
        percent_decode_str(part)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
    };
    let login = if url.username().is_empty() && url.password().is_none() {
        None
    } else {
        let user =
            decode(url.username()).map_err(|_| "the user in the URL is not UTF-8".to_owned())?;
        let password = decode(url.password().unwrap_or_default())
            .map_err(|_| "the password in the URL is not UTF-8".to_owned())?;
        if user.chars().chain(password.chars()).any(char::is_control) {
            return Err("the login in the URL holds a control character".to_owned());
        }
        Some(Login { user, password })
    };
    url.set_username("")
        .and_then(|()| url.set_password(None))
        .map_err(|()| "the login of the URL cannot be read".to_owned())?;
    Ok((url, login))
}

fn https(text: &str, plain_http: bool) -> Result<Source, String> {
    let (mut url, login) = web(text, plain_http)?;
    archive_name(url.path())?;
    let query = url.query().map(str::to_owned);
    url.set_query(None);
    Ok(Source::Https { url, query, login })
}

fn git(rest: &str, plain_http: bool) -> Result<Source, String> {
    let (mut url, login) = web(rest, plain_http)?;
    let mut reference = None;
    for (name, value) in url.query_pairs() {
        if name != "ref" {
            return Err(format!(
                "`{}` is no parameter of a git source, only `ref` is",
                short(&name)
            ));
        }
        if reference.is_some() {
            return Err("`ref` is given twice".to_owned());
        }
        reference = Some(value.into_owned());
    }
    // `query_pairs` reads `+` as a space, as forms do; a ref is a path-like name, in which it stands for itself.
    if let Some(raw) = url.query().and_then(|query| query.strip_prefix("ref=")) {
        let decoded = percent_decode_str(raw)
            .decode_utf8()
            .map_err(|_| "the ref is not UTF-8".to_owned())?;
        reference = Some(decoded.into_owned());
    }
    url.set_query(None);
    let path = url.path().to_owned();
    let (repository, subdir) = match path.split_once("//") {
        Some((repository, subdir)) => (repository.to_owned(), Some(subdir.to_owned())),
        None => (path, None),
    };
    if repository.len() < 2 {
        return Err("the URL names no repository".to_owned());
    }
    url.set_path(&repository);
    let subdir = match subdir {
        None => None,
        Some(text) => {
            let decoded = percent_decode_str(&text)
                .decode_utf8()
                .map_err(|_| "the subdirectory is not UTF-8".to_owned())?;
            clean_subdir(&decoded)?
        }
    };
    if let Some(reference) = &reference {
        check_reference(reference)?;
    }
    Ok(Source::Git {
        url,
        subdir,
        reference,
        login,
    })
}

/// A relative path without `..`; `.` and empty parts dropped, nothing left is the root.
fn clean_subdir(text: &str) -> Result<Option<String>, String> {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err("the subdirectory leaves the repository".to_owned()),
            ".git" => return Err("the subdirectory is git's own".to_owned()),
            part if part.chars().any(char::is_control) => {
                return Err("the subdirectory holds a control character".to_owned());
            }
            part => parts.push(part),
        }
    }
    Ok((!parts.is_empty()).then(|| parts.join("/")))
}

/// The rules of `git check-ref-format --allow-onelevel`, and no leading `-`.
fn check_reference(reference: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("`ref` is no branch, tag or commit: {why}"));
    if reference.is_empty() {
        return bad("it is empty");
    }
    if reference.len() > 255 {
        return bad("it is longer than 255 bytes");
    }
    if reference.starts_with('-') {
        return bad("it begins with -");
    }
    if reference.chars().any(|c| {
        c.is_control() || matches!(c, ' ' | '~' | '^' | ':' | '?' | '*' | '[' | '\\' | '+')
    }) {
        // `+` is legal in a ref but forces an update at the start of a refspec; nobody needs it.
        return bad("it holds a space, a control character or one of ~ ^ : ? * [ \\ +");
    }
    if reference.contains("..")
        || reference.contains("@{")
        || reference.contains("//")
        || reference == "@"
    {
        return bad("it holds .. or // or @{");
    }
    if reference.starts_with('/') || reference.ends_with('/') || reference.ends_with('.') {
        return bad("it begins or ends with / or ends with .");
    }
    if reference
        .split('/')
        .any(|part| part.starts_with('.') || part.to_ascii_lowercase().ends_with(".lock"))
    {
        return bad("a part of it begins with . or ends with .lock");
    }
    Ok(())
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git_parts(text: &str) -> (String, Option<String>, Option<String>) {
        match Source::parse(text, false).unwrap() {
            Source::Git {
                url,
                subdir,
                reference,
                ..
            } => (url.to_string(), subdir, reference),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn object_sources_are_read() {
        assert_eq!(
            Source::parse("s3://modules/team/vpc/1.0.0.tar.gz", false).unwrap(),
            Source::S3 {
                bucket: "modules".into(),
                key: "team/vpc/1.0.0.tar.gz".into()
            }
        );
        assert_eq!(
            Source::parse("azblob://acct/box/a/b.tar.gz", false).unwrap(),
            Source::Azure {
                account: "acct".into(),
                container: "box".into(),
                key: "a/b.tar.gz".into()
            }
        );
        assert_eq!(
            Source::parse("gs://b/k.tgz", false).unwrap().shown(),
            "gs://b/k.tgz"
        );
    }

    #[test]
    fn a_ref_may_hold_slashes_however_they_are_written() {
        let want = (
            "https://h/r.git".to_owned(),
            Some("modules/vpc".to_owned()),
            Some("feat/example".to_owned()),
        );
        assert_eq!(
            git_parts("git::https://h/r.git//modules/vpc?ref=feat/example"),
            want
        );
        assert_eq!(
            git_parts("git::https://h/r.git//modules/vpc?ref=feat%2Fexample"),
            want
        );
    }

    #[test]
    fn what_could_become_an_option_or_leave_the_tree_is_refused() {
        for text in [
            "git::https://h/r.git?ref=--upload-pack=touch%20/tmp/x",
            "git::https://h/r.git?ref=main:refs/heads/evil",
            "git::https://h/r.git?ref=%2Brefs/*:refs/*",
            "git::https://h/r.git?ref=^main",
            "git::https://h/r.git?ref=a..b",
            "git::https://h/r.git?ref=x.lock",
            "git::https://h/r.git?depth=1",
            "git::https://h/r.git?ref=a&ref=b",
            "git::https://h/r.git//../x",
            "git::https://h/r.git//%2e%2e/x",
            "git::https://h/r.git//.git/hooks",
            "git::https://h",
            "git::http://h/r.git",
            "git::ssh://-oProxyCommand=x/r.git",
            "git::ext::sh -c x",
            "git::file:///etc",
            "git::--upload-pack=x",
            "s3://-bucket/k.tar.gz",
            "s3://bucket",
            "s3://bucket/key.zip",
            "s3://bucket/a*.tar.gz",
            "azblob://a/b.tar.gz",
            "http://h/x.tar.gz",
            "file:///x.tar.gz",
            "https://h/x.zip",
            "https:///x.tar.gz",
            "./module",
            "--help",
            "",
        ] {
            assert!(Source::parse(text, false).is_err(), "{text} was accepted");
        }
    }

    #[test]
    fn an_empty_ref_is_refused_and_no_ref_is_the_default_branch() {
        assert_eq!(
            git_parts("git::https://h/r"),
            ("https://h/r".to_owned(), None, None)
        );
        assert!(Source::parse("git::https://h/r?ref=", false).is_err());
    }

    #[test]
    fn logins_and_signed_queries_are_never_shown() {
        let source = Source::parse(
            "https://me:pa%2Fss@h/x.tar.gz?X-Amz-Signature=abcdef0123",
            false,
        )
        .unwrap();
        assert_eq!(source.shown(), "https://h/x.tar.gz");
        let secrets = source.secrets();
        assert!(
            secrets.contains(&"pa/ss".to_owned()) && secrets.contains(&"abcdef0123".to_owned())
        );
        let recorded = Source::parse(&source.shown(), false).unwrap();
        assert_eq!(recorded.with_access_of(&source), source);
        assert!(!format!("{source:?}").contains("pa/ss"));
    }

    #[test]
    fn what_is_shown_parses_to_the_same() {
        for text in [
            "git::https://h/r.git//a/b?ref=v1.2",
            "git::https://h/r?ref=a%25b",
            "s3://b/k.tar.gz",
        ] {
            let source = Source::parse(text, false).unwrap();
            assert_eq!(
                Source::parse(&source.shown(), false).unwrap(),
                source,
                "{text}"
            );
        }
    }

    #[test]
    fn an_error_never_quotes_a_password() {
        for text in [
            "https://u:hunter2@h/x.zip",
            "git::https://u:hunter2@h/r?x=1",
            "ftp://u:hunter2@h/x.tar.gz",
        ] {
            let error = Source::parse(text, false).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
