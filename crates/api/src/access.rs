//! Who may call: `Host` and `Origin` must be loopback or named, whoever shows no certificate needs the token where there is one, and a
//! write must say that it is JSON.
//!
//! The API runs scripts, so a web page must not reach it through somebody's browser: a page elsewhere sends its `Origin`, a name that
//! was rebound to loopback sends its `Host`, and a form cannot send `application/json`. There are no CORS headers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::Api;
use crate::problem::{Problem, item};
use crate::token::{self, ClientCertificate};

/// Runs around everything, unknown routes included.
pub(crate) async fn guard(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let allowed = &api.options.allowed_hosts;
    let response = match check(request.uri(), request.headers(), allowed) {
        Err(problem) => problem.into_response(),
        Ok(()) if !is_known(&api, &request) => unauthorized(request.headers()),
        Ok(()) => next.run(request).await,
    };
    let class = usize::from(response.status().as_u16() / 100).min(5);
    api.answered[class].fetch_add(1, Ordering::Relaxed);
    response
}

/// Whether the caller has shown who it is, where that is asked for. A probe has nothing to show, and what it hears is no secret.
fn is_known(api: &Api, request: &Request) -> bool {
    let Some(token) = &api.options.token else {
        return true;
    };
    let is_probe = matches!(request.uri().path(), "/livez" | "/healthz" | "/readyz");
    is_probe
        || request.extensions().get::<ClientCertificate>().is_some()
        || token::is_borne(request.headers(), &token.borrow())
}

fn unauthorized(headers: &HeaderMap) -> Response {
    let detail = if headers.contains_key(AUTHORIZATION) {
        "the token is not the one in this server's --token-file; conctl takes it with --token-file"
    } else {
        "this server wants a token: send the header Authorization: Bearer TOKEN; conctl takes it with --token-file"
    };
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    let challenge = HeaderValue::from_static("Bearer realm=\"converge\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// Runs around the routes that exist, when the method does too.
pub(crate) async fn writes_are_json(request: Request, next: Next) -> Response {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
    if reads.contains(request.method()) || is_json(request.headers()) {
        return next.run(request).await;
    }
    let found = match request.headers().get(CONTENT_TYPE) {
        None => "it has none".to_owned(),
        Some(value) => format!("it has {value:?}"),
    };
    let detail = format!(
        "a write needs the header Content-Type: application/json, also without a body; {found}"
    );
    let errors = vec![item("content-type", found)];
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
        .with_errors(errors)
        .into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let essence = value
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

fn check(uri: &Uri, headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    // HTTP/2 says it in the authority, HTTP/1.1 in the header; whoever sends both must be right twice.
    let authority = uri
        .authority()
        .map(|authority| authority.as_str().to_owned());
    let hosts: Vec<String> = headers
        .get_all(HOST)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .chain(authority)
        .collect();
    let mut errors = Vec::new();
    if hosts.is_empty() {
        errors.push(item("host", "is missing"));
    }
    for host in hosts.iter().filter(|host| !is_allowed(host, allowed)) {
        errors.push(item(
            "host",
            format!("{host:?} is neither loopback nor given with --allowed-host"),
        ));
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = String::from_utf8_lossy(origin.as_bytes()).into_owned();
        let host = origin.split_once("://").map(|(_, host)| host);
        if !host.is_some_and(|host| is_allowed(host, allowed)) {
            errors.push(item(
                "origin",
                format!("{origin:?} is neither loopback nor given with --allowed-host"),
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let detail = "this API answers loopback and the names given with --allowed-host only";
    Err(Problem::new(StatusCode::FORBIDDEN, detail).with_errors(errors))
}

/// Whether `host` (with or without a port) is loopback or in the list; an entry with a port means that port only.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let bare = without_port(host);
    let ip = bare
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    let loopback = match ip {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => bare.eq_ignore_ascii_case("localhost"),
    };
    loopback
        || allowed
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host) || name.eq_ignore_ascii_case(bare))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((bare, port))
            if !port.is_empty()
                && port.bytes().all(|byte| byte.is_ascii_digit())
                && (!bare.contains(':') || bare.ends_with(']')) =>
        {
            bare
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_many_spellings_and_a_name_that_begins_like_one_is_not_it() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1",
            "127.8.9.1:1",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert!(is_allowed(host, &[]), "{host}");
        }
        for host in [
            "",
            "example.com",
            "localhost.example.com",
            "127.0.0.1.nip.io",
            "10.0.0.1:8080",
            "[::2]",
            "localhost:x",
            "evil@localhost:1",
            "0.0.0.0",
        ] {
            assert!(!is_allowed(host, &[]), "{host}");
        }
    }

    #[test]
    fn a_named_host_is_taken_with_its_port_if_one_was_named() {
        let allowed = ["Control.Example".to_owned(), "other:81".to_owned()];
        assert!(is_allowed("control.example", &allowed));
        assert!(is_allowed("control.example:8080", &allowed));
        assert!(is_allowed("other:81", &allowed));
        assert!(!is_allowed("other:82", &allowed));
        assert!(!is_allowed("x.control.example", &allowed));
    }
}
