//! What goes over the wire, byte for byte, against a server of one connection.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use converge_client::{Client, Error, Options, Precondition};

/// Answers one request with `answer` and gives what it was asked.
fn exchange<T>(answer: &str, ask: impl AsyncFnOnce(Client) -> T) -> (T, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = answer.to_owned();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a client");
        let mut request = Vec::new();
        let mut chunk = [0; 4096];
        while !(request.ends_with(b"\r\n\r\n") || request.ends_with(b"}")) {
            let n = socket.read(&mut chunk).expect("a request");
            request.extend_from_slice(&chunk[..n]);
        }
        socket.write_all(answer.as_bytes()).expect("an answer");
        String::from_utf8(request).expect("text")
    });
    let client = Client::new(&Options {
        server,
        ..Options::default()
    })
    .expect("options");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let result = runtime.block_on(ask(client));
    drop(runtime);
    (result, thread.join().expect("the server ends"))
}

fn response(head: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_precondition_goes_with_writes_and_a_refusal_keeps_its_problem() {
    let problem = r#"{"title":"Precondition Failed","status":412,"detail":"it changed","errors":[{"location":"If-Match","message":"stale"}]}"#;
    let refused = response(
        "412 Precondition Failed\r\ncontent-type: application/problem+json",
        problem,
    );
    let (result, asked) = exchange(&refused, async |client| {
        client
            .when(Precondition::Match("\"v7\"".to_owned()))
            .resource_apply("{}".into())
            .await
    });
    assert!(asked.contains("if-match: \"v7\"\r\n"), "{asked}");
    match result {
        Err(Error::Refused(problem)) => {
            assert_eq!(
                (problem.status, problem.detail.as_str()),
                (412, "it changed")
            );
            assert_eq!(problem.errors[0].location, "If-Match");
        }
        other => panic!("{other:?}"),
    }
    let (_, asked) = exchange(&refused, async |client| {
        client
            .when(Precondition::Absent)
            .resource_apply("{}".into())
            .await
    });
    assert!(asked.contains("if-none-match: *\r\n"), "{asked}");
    let (_, asked) = exchange(&refused, async |client| {
        client.when(Precondition::Absent).version().await
    });
    assert!(
        !asked.contains("if-none-match"),
        "reads are not conditional: {asked}"
    );
}

#[test]
fn a_connection_that_breaks_within_an_answer_is_unreachable() {
    let torn = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\nconnection: close\r\n\r\n{\"name\"";
    let (result, _) = exchange(torn, async |client| client.version().await);
    assert!(
        matches!(result, Err(Error::Unreachable { .. })),
        "{result:?}"
    );
}

#[test]
fn a_redirect_is_not_followed() {
    let away = response("302 Found\r\nlocation: http://127.0.0.1:1/", "");
    let (result, _) = exchange(&away, async |client| client.version().await);
    assert!(
        matches!(result, Err(Error::NotThisApi { .. })),
        "{result:?}"
    );
}
