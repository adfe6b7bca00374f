//! A small HTTP server for archives: fixed bodies, an endless one, redirects, and a note of what was asked for.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;

#[derive(Default)]
struct Shared {
    bodies: HashMap<String, Body>,
    requests: Vec<String>,
}

#[derive(Clone)]
enum Body {
    Bytes(Vec<u8>),
    Redirect(String),
    Endless,
}

/// A running server. Its thread ends with the process.
#[derive(Clone)]
pub(crate) struct Web {
    shared: Arc<Mutex<Shared>>,
    port: u16,
}

impl Web {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let web = Self {
            shared: Arc::default(),
            port: listener.local_addr().unwrap().port(),
        };
        let shared = Arc::clone(&web.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || answer(stream, &shared));
            }
        });
        web
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn put(&self, path: &str, body: Vec<u8>) {
        self.set(path, Body::Bytes(body));
    }

    pub(crate) fn redirect(&self, path: &str, to: &str) {
        self.set(path, Body::Redirect(to.to_owned()));
    }

    pub(crate) fn endless(&self, path: &str) {
        self.set(path, Body::Endless);
    }

    pub(crate) fn remove(&self, path: &str) {
        self.shared.lock().unwrap().bodies.remove(path);
    }

    /// Request lines and headers so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.lock().unwrap().requests.clone()
    }

    fn set(&self, path: &str, body: Body) {
        self.shared
            .lock()
            .unwrap()
            .bodies
            .insert(path.to_owned(), body);
    }
}

fn answer(mut stream: TcpStream, shared: &Mutex<Shared>) {
    let mut request = String::new();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while reader.read_line(&mut request).is_ok_and(|count| count > 2) {}
    let path = request
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default()
        .to_owned();
    let body = {
        let mut shared = shared.lock().unwrap();
        shared.requests.push(request);
        shared.bodies.get(&path).cloned()
    };
    // A client that goes away is its own affair.
    let _ = match body {
        None => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\nConnection: close\r\n\r\nnot found"),
        Some(Body::Redirect(to)) => stream.write_all(
            format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes(),
        ),
        Some(Body::Bytes(body)) => stream
            .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len()).as_bytes())
            .and_then(|()| stream.write_all(&body)),
        Some(Body::Endless) => {
            let chunk = vec![0; 64 * 1024];
            let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            while sent.is_ok() {
                sent = stream.write_all(&chunk);
            }
            sent
        }
    };
}

/// A `.tar.gz` of these files.
pub(crate) fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, text.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}
