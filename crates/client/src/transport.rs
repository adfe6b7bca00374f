//! The one way to the server and back: a request with what all of them have in common, and what its answer means.

use bytes::{Bytes, BytesMut};
use converge_api_types::{ApplyResult, List, Problem, header};
use reqwest::{Method, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::answer::Answer;
use crate::error::{Error, OptionsError};
use crate::options::{Options, Parts};
use crate::path::url;
use crate::tls::{self, Brought};

/// The largest answer taken: one status of the largest size, its spec and room for the rest.
const ANSWER_LIMIT_BYTES: usize = 256 * 1024 * 1024;

/// How much of an answer that is not ours is quoted.
const QUOTE_CHARS: usize = 200;
/// A request of more bytes may break off because a server does not take so many.
const LARGE: usize = 1024 * 1024;

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    server: String,
    token: Option<String>,
    brought: Brought,
    precondition: Precondition,
}

/// What must hold of the stored object for a write to happen; else the server refuses it with 412.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// It still has this entity tag, from [`Answer::etag`].
    Match(String),
    /// It does not exist yet.
    Absent,
}

/// One request: what is the same for all of them.
#[derive(Default)]
pub(crate) struct Request<'a> {
    pub(crate) path: &'a [&'a str],
    pub(crate) query: &'a [(&'a str, &'a str)],
    pub(crate) body: Option<Bytes>,
    pub(crate) headers: &'a [(&'static str, &'a str)],
}

/// What came back and was not an error.
pub(crate) struct Reply {
    pub(crate) body: Bytes,
    etag: Option<String>,
    applied: Option<ApplyResult>,
    pub(crate) next_cursor: Option<String>,
}

impl Client {
    /// A client of the server that `options` name; connects at the first call.
    ///
    /// # Errors
    /// The address, a file or the TLS settings cannot be used.
    pub fn new(options: &Options) -> Result<Self, OptionsError> {
        let Parts {
            http,
            base,
            server,
            token,
            brought,
        } = options.build()?;
        Ok(Self {
            http,
            base,
            server,
            token,
            brought,
            precondition: Precondition::None,
        })
    }

    /// The same client, whose writes happen only when `precondition` holds.
    #[must_use]
    pub fn when(&self, precondition: Precondition) -> Self {
        Self {
            precondition,
            ..self.clone()
        }
    }

    /// The server, as it was given.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Reads bytes as a type of the API; what does not fit is not this API.
    pub fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|err| {
            let text = err.to_string();
            // Nobody sees the text that a line and column would be of.
            let bare = text.rsplit_once(" at line ");
            self.not_this_api(bare.map_or(text.as_str(), |(bare, _)| bare))
        })
    }

    pub(crate) async fn typed_list<T: DeserializeOwned>(
        &self,
        path: &[&str],
    ) -> Result<List<T>, Error> {
        let raw = self.list(path, &[]).await?;
        let items = raw
            .items
            .iter()
            .map(|item| self.decode(item.get().as_bytes()))
            .collect::<Result<_, _>>()?;
        Ok(List {
            items,
            revision: raw.revision,
        })
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Answer<T>, Error> {
        let reply = self.read(path, query).await?;
        self.answer(reply)
    }

    pub(crate) async fn read(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Reply, Error> {
        let request = Request {
            path,
            query,
            ..Request::default()
        };
        self.send(Method::GET, request).await
    }

    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<Bytes>,
    ) -> Result<Answer<T>, Error> {
        let body = Some(body.unwrap_or_else(|| Bytes::from_static(b"{}")));
        let reply = self
            .send(
                method,
                Request {
                    path,
                    query,
                    body,
                    ..Request::default()
                },
            )
            .await?;
        self.answer(reply)
    }

    pub(crate) async fn delete(&self, path: &[&str], query: &[(&str, &str)]) -> Result<(), Error> {
        let request = Request {
            path,
            query,
            ..Request::default()
        };
        self.send(Method::DELETE, request).await.map(drop)
    }

    pub(crate) async fn act(
        &self,
        path: &[&str],
        recursive: bool,
        headers: &[(&'static str, &str)],
    ) -> Result<(), Error> {
        let query: &[_] = if recursive {
            &[("recursive", "true")]
        } else {
            &[]
        };
        let body = Some(Bytes::from_static(b"{}"));
        self.send(
            Method::POST,
            Request {
                path,
                query,
                body,
                headers,
            },
        )
        .await
        .map(drop)
    }

    pub(crate) fn encode<T: Serialize>(&self, body: &T) -> Result<Bytes, Error> {
        serde_json::to_vec(body)
            .map(Bytes::from)
            .map_err(|err| self.not_this_api(&format!("a request could not be written: {err}")))
    }

    pub(crate) fn answer<T: DeserializeOwned>(&self, reply: Reply) -> Result<Answer<T>, Error> {
        Ok(Answer {
            value: self.decode(&reply.body)?,
            body: reply.body,
            etag: reply.etag,
            applied: reply.applied,
        })
    }

    pub(crate) fn not_this_api(&self, reason: &str) -> Error {
        Error::NotThisApi {
            server: self.server.clone(),
            reason: reason.to_owned(),
        }
    }

    /// `sending`: bytes of a body that was being sent; a server that takes no such body says so and hangs up, which we may see first.
    fn unreachable(&self, err: &reqwest::Error, sending: usize) -> Error {
        // The outer layers only repeat the URL; the innermost names what happened ("Connection refused").
        let mut cause: &dyn std::error::Error = err;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        if let Some(reason) = tls::explain(err, self.brought) {
            return Error::Tls {
                server: self.server.clone(),
                reason,
            };
        }
        let reason = if err.is_timeout() {
            "no answer in time".to_owned()
        } else if sending > LARGE && !err.is_connect() {
            format!(
                "{cause} while {sending} bytes were being sent, which may be more than it takes"
            )
        } else {
            cause.to_string()
        };
        Error::Unreachable {
            server: self.server.clone(),
            reason,
        }
    }

    pub(crate) async fn send(&self, method: Method, request: Request<'_>) -> Result<Reply, Error> {
        let url = url(&self.base, request.path, request.query);
        let (asked, path) = (method.clone(), request.path);
        // A DELETE is a write too: the server asks every write to say that it is JSON.
        let is_write = method != Method::GET;
        let mut builder = self
            .http
            .request(method, url)
            .header("accept", "application/json");
        if is_write {
            builder = builder.header("content-type", "application/json");
        }
        let mut sending = 0;
        if let Some(body) = request.body {
            sending = body.len();
            builder = builder.body(body);
        }
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        if is_write {
            builder = match &self.precondition {
                Precondition::None => builder,
                Precondition::Match(etag) => builder.header("if-match", etag),
                Precondition::Absent => builder.header("if-none-match", "*"),
            };
        }
        if let Some(token) = &self.token {
            builder = builder.bearer_auth(token);
        }
        let response = builder
            .send()
            .await
            .map_err(|err| self.unreachable(&err, sending))?;
        let status = response.status();
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let etag = header("etag");
        let applied = header(header::APPLY_RESULT).and_then(|word| ApplyResult::parse(&word));
        let next_cursor = header(header::NEXT_CURSOR).filter(|cursor| !cursor.is_empty());
        let body = self.body(response).await?;
        if status.is_success() {
            return Ok(Reply {
                body,
                etag,
                applied,
                next_cursor,
            });
        }
        Err(self.refusal(&asked, path, status.as_u16(), &body))
    }

    async fn body(&self, mut response: Response) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|err| self.unreachable(&err, 0))?
        {
            if body.len() + chunk.len() > ANSWER_LIMIT_BYTES {
                return Err(Error::TooLarge {
                    limit_bytes: ANSWER_LIMIT_BYTES,
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn refusal(&self, method: &Method, path: &[&str], status: u16, body: &[u8]) -> Error {
        match serde_json::from_slice::<Problem>(body) {
            // The status line is what happened; a document that disagrees is only its description.
            Ok(problem) => {
                let problem = Problem { status, ..problem };
                if problem.is_no_route() {
                    return Error::NotServed {
                        server: self.server.clone(),
                        what: part(method, path),
                    };
                }
                Error::Refused(problem)
            }
            Err(_) => {
                let text: String = String::from_utf8_lossy(body)
                    .chars()
                    .take(QUOTE_CHARS)
                    .collect();
                let text = text.trim();
                self.not_this_api(&format!(
                    "it answered {status} without a problem document: {text:?}"
                ))
            }
        }
    }
}

/// What of the API a route belongs to, for people.
fn part(method: &Method, path: &[&str]) -> String {
    match path {
        ["resources", _, _, "ops", ..] => "operations".to_owned(),
        ["reactor-bindings", ..] => "reactor bindings".to_owned(),
        _ => format!("{method} /{}", path.join("/")),
    }
}
