//! The same over TLS: who is let in, and who holds nobody up.

use axum::extract::Extension;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::pki::{Pair, Pki};
use crate::tls::{Listener, Tls, Token};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

async fn served(pki: &Pki, token: Token, handshake: Duration) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let who = async |shown: Option<Extension<ClientCertificate>>| match shown {
        Some(_) => "known",
        None => "unknown",
    };
    let router = Router::new().route("/", get(who));
    let tls = Tls::read(Listener::Api { token }, pki.files());
    let tls = tls.expect("the files fit");
    let patience = Patience {
        handshake,
        head: LIMIT,
        answer: LIMIT,
        grace: Duration::ZERO,
    };
    let mut serving = JoinSet::new();
    let configs = Some(tls.configs());
    serving.spawn(serve(listener, configs, router, stop.clone(), patience));
    Served {
        address,
        stop,
        serving,
    }
}

/// What a request is answered, or why there was no answer.
async fn ask(served: &Served, pki: &Pki, identity: Option<&Pair>) -> std::io::Result<String> {
    let connector = TlsConnector::from(pki.client(identity));
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = connector.connect(name, served.dial().await).await?;
    stream.write_all(GET).await?;
    let mut said = String::new();
    timeout(LIMIT, stream.read_to_string(&mut said))
        .await
        .expect("it ends")?;
    Ok(said)
}

#[tokio::test]
async fn a_certificate_is_demanded_and_makes_its_client_known() {
    let (pki, other) = (Pki::new("ours"), Pki::new("other"));
    let served = served(&pki, Token::No, LIMIT).await;
    let said = ask(&served, &pki, Some(&pki.issue()))
        .await
        .expect("let in");
    assert!(said.ends_with("\r\n\r\nknown"), "{said}");
    assert!(ask(&served, &pki, None).await.is_err());
    assert!(ask(&served, &pki, Some(&other.issue())).await.is_err());
    // In cleartext nobody is told anything.
    let mut stream = served.dial().await;
    stream.write_all(GET).await.expect("sent");
    let mut said = Vec::new();
    let _ = timeout(LIMIT, stream.read_to_end(&mut said))
        .await
        .expect("it ends");
    assert!(said.is_empty() || said[0] == 21, "{said:?}");
}

#[tokio::test]
async fn with_a_token_the_certificate_is_asked_for_and_may_be_missing() {
    let (pki, other) = (Pki::new("ours"), Pki::new("other"));
    let served = served(&pki, Token::Instead, LIMIT).await;
    let said = ask(&served, &pki, Some(&pki.issue()))
        .await
        .expect("let in");
    assert!(said.ends_with("\r\n\r\nknown"), "{said}");
    let said = ask(&served, &pki, None).await.expect("let in");
    assert!(said.ends_with("\r\n\r\nunknown"), "{said}");
    assert!(ask(&served, &pki, Some(&other.issue())).await.is_err());
}

#[tokio::test]
async fn a_handshake_that_stalls_is_cut_and_holds_up_nobody() {
    let pki = Pki::new("ours");
    let served = served(&pki, Token::No, Duration::from_secs(1)).await;
    let mut silent = served.dial().await;
    assert!(ask(&served, &pki, Some(&pki.issue())).await.is_ok());
    let mut said = Vec::new();
    let _ = timeout(LIMIT, silent.read_to_end(&mut said))
        .await
        .expect("it ends");
    assert!(said.is_empty(), "{said:?}");
}
