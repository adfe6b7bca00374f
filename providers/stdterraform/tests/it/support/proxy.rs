//! A forwarder in front of an HTTP server: can drop a header on the way, or be down.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A running forwarder. Its thread ends with the process.
pub(crate) struct Proxy {
    port: u16,
    down: Arc<AtomicBool>,
}

impl Proxy {
    /// Forwards to `port`; `without` is a header that never arrives.
    pub(crate) fn start(to: u16, without: Option<&'static str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            down: Arc::default(),
        };
        let down = Arc::clone(&proxy.down);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if down.load(Ordering::SeqCst) {
                    continue;
                }
                std::thread::spawn(move || {
                    // Either side may go away at any time.
                    let _ = forward(client, to, without);
                });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From now on every connection is closed unanswered, or not.
    pub(crate) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }
}

/// One request per connection, so that every head is seen.
fn forward(mut client: TcpStream, to: u16, without: Option<&str>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 * 1024];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match client.read(&mut buffer)? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    };
    let mut head = String::new();
    let drops = ["connection:", "expect:"];
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let expects = text.to_ascii_lowercase().contains("\r\nexpect:");
    for line in text.split("\r\n") {
        let lower = line.to_ascii_lowercase();
        let unwanted = without.is_some_and(|name| lower.starts_with(&format!("{name}:")));
        if !unwanted && !drops.iter().any(|name| lower.starts_with(name)) {
            head.push_str(line);
            head.push_str("\r\n");
        }
    }
    head.push_str("Connection: close\r\n\r\n");
    if expects {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let mut server = TcpStream::connect(("127.0.0.1", to))?;
    server.write_all(head.as_bytes())?;
    server.write_all(&bytes[end + 4..])?;
    let mut from_client = client.try_clone()?;
    let mut to_server = server.try_clone()?;
    std::thread::spawn(move || std::io::copy(&mut from_client, &mut to_server));
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)
}
