//! A server that answers from a script and remembers what it was asked.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::oneshot;

/// One scripted answer.
#[derive(Clone)]
pub(crate) struct Reply {
    status: u16,
    body: String,
    headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

pub(crate) fn ok(body: impl Into<String>) -> Reply {
    Reply {
        status: 200,
        body: body.into(),
        headers: Vec::new(),
    }
}

pub(crate) fn applied(result: &str, body: impl Into<String>) -> Reply {
    ok(body).header("x-apply-result", result)
}

pub(crate) fn accepted() -> Reply {
    Reply {
        status: 202,
        ..ok("{}")
    }
}

/// A refusal; `errors` are location and message.
pub(crate) fn refused(status: u16, detail: &str, errors: &[(&str, &str)]) -> Reply {
    let errors: Vec<_> = errors
        .iter()
        .map(|(location, message)| serde_json::json!({ "location": location, "message": message }))
        .collect();
    let body = serde_json::json!({ "title": "Refused", "status": status, "detail": detail, "errors": errors });
    Reply {
        status,
        body: body.to_string(),
        headers: Vec::new(),
    }
}

/// The answer of a server that has no such route.
pub(crate) fn no_route(path: &str) -> Reply {
    let detail =
        format!("there is no route /api/v1{path}; /api/v1/openapi.json and /docs list them");
    let title = converge_client::types::Problem::NO_ROUTE;
    let body = serde_json::json!({ "title": title, "status": 404, "detail": detail });
    Reply {
        status: 404,
        body: body.to_string(),
        headers: Vec::new(),
    }
}

/// What the server was asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `GET /resources?kind=a`, without the `/api/v1`.
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

#[derive(Default)]
struct Script {
    replies: HashMap<String, Vec<Reply>>,
    asked: Vec<Asked>,
}

/// A running fake. Stops when dropped.
pub(crate) struct Fake {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start() -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel::<SocketAddr>();
        let app = Router::new().fallback(answer).with_state(script.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
                    .await
                    .expect("a port");
                tell.send(listener.local_addr().expect("an address"))
                    .expect("the test waits for it");
                tokio::select! {
                    served = axum::serve(listener, app) => served.expect("the fake serves"),
                    _ = stopped => {}
                }
            });
        });
        let addr = told.recv().expect("the fake starts");
        Self {
            url: format!("http://{addr}"),
            script,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Scripts the answers of one route, given as `GET /resources/a/b`: one after the other, the last for ever.
    pub(crate) fn on(self, route: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.script
            .lock()
            .expect("no test panics with it")
            .replies
            .insert(route.to_owned(), replies.into_iter().collect());
        self
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.script
            .lock()
            .expect("no test panics with it")
            .asked
            .clone()
    }

    /// The request lines alone.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// The bodies of the writes to a route.
    pub(crate) fn bodies(&self, line: &str) -> Vec<String> {
        self.asked()
            .into_iter()
            .filter(|asked| asked.line == line)
            .map(|asked| asked.body)
            .collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn answer(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 64 * 1024 * 1024)
        .await
        .expect("a body");
    let uri = parts
        .uri
        .path_and_query()
        .map(ToString::to_string)
        .unwrap_or_default();
    let uri = uri.strip_prefix("/api/v1").unwrap_or(&uri).to_owned();
    let line = format!("{} {uri}", parts.method);
    let path_only = line.split('?').next().unwrap_or_default().to_owned();
    let mut script = script.lock().expect("no test panics with it");
    script.asked.push(Asked {
        line: line.clone(),
        headers: parts.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    });
    let key = if script.replies.contains_key(&line) {
        line
    } else {
        path_only
    };
    let reply = match script.replies.get_mut(&key) {
        Some(replies) if replies.len() > 1 => replies.remove(0),
        Some(replies) => replies[0].clone(),
        None => refused(404, "there is no such thing", &[]),
    };
    let kind = if reply.status < 400 {
        "application/json"
    } else {
        "application/problem+json"
    };
    let mut response = (
        StatusCode::from_u16(reply.status).expect("a status"),
        [("content-type", kind)],
        reply.body,
    )
        .into_response();
    for (name, value) in reply.headers {
        response
            .headers_mut()
            .insert(name, value.parse().expect("a header"));
    }
    response
}
