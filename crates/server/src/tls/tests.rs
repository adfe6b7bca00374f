//! Files: what is wrong with them, and that they may change under a running server.

use std::time::Instant;

use tokio::task::JoinSet;

use super::pki::Pki;
use super::*;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn everything_that_is_wrong_with_the_files_is_said_and_nothing_of_what_they_hold() {
    let pki = Pki::new("ours");
    let (one, other) = (pki.issue(), pki.issue());
    let good = pki.files();
    pki.write("none.pem", "of no use");
    pki.write("half.pem", &one.key[..one.key.len() / 2]);
    pki.write("odd.pem", &one.key.replace("PRIVATE KEY", "PRIVATE  KEY"));
    pki.write("other.pem", &other.key);
    let read = |cert: &str, key: &str, ca: &str| {
        let files = TlsFiles {
            cert: pki.path(cert),
            key: pki.path(key),
            client_ca: Some(pki.path(ca)),
        };
        let Err(wrong) = Tls::read(Listener::Broker, files) else {
            panic!("{cert} {key} {ca} are fine");
        };
        let said = wrong.join("\n");
        let secrets = one.key.lines().chain(other.key.lines());
        let mut secrets = secrets.filter(|line| !line.starts_with("-----"));
        assert!(!secrets.any(|line| said.contains(line)), "{said}");
        said
    };
    let said = read("key.pem", "missing.pem", "none.pem");
    for part in [
        "--broker-tls-cert ",
        "key.pem: there is no certificate in it; it holds a private key",
        "--broker-tls-key ",
        "missing.pem: it cannot be read",
        "--broker-tls-client-ca ",
        "none.pem: it is not PEM",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    for (key, expected) in [
        (
            "other.pem",
            "it is not the key of the certificate in --broker-tls-cert",
        ),
        ("half.pem", "its PEM is damaged or ends in the middle"),
        ("odd.pem", "there is no private key in it"),
        ("cert.pem", "it holds a certificate"),
        (".", "it is no regular file"),
    ] {
        let said = read("cert.pem", key, "ca.pem");
        assert!(said.contains(expected), "{expected}\n{said}");
    }
    let api = Listener::Api { token: Token::No };
    let broker = Tls::read(Listener::Broker, good.clone()).unwrap();
    let api = Tls::read(api, good).unwrap();
    let spoken = |tls: &Tls| tls.configs().borrow().alpn_protocols.clone();
    assert_eq!(spoken(&broker), [b"h2".to_vec()]);
    assert_eq!(spoken(&api), [b"h2".to_vec(), b"http/1.1".to_vec()]);
}

#[tokio::test]
async fn changed_files_are_taken_once_they_are_whole() {
    let pki = Pki::new("ours");
    let files = pki.files();
    let tls = Tls::read(Listener::Broker, files).unwrap();
    let mut configs = tls.configs();
    let stop = CancellationToken::new();
    let mut keeping = JoinSet::new();
    keeping.spawn(tls.keep_fresh(Duration::from_millis(5), stop.clone()));
    let next = pki.issue();
    // The certificate alone does not fit, and half a key is none.
    pki.write("cert.pem", &next.cert);
    pki.write("key.pem", &next.key[..next.key.len() / 2]);
    let started = Instant::now();
    let mut pause = tokio::time::interval(Duration::from_millis(5));
    while started.elapsed() < Duration::from_millis(100) {
        pause.tick().await;
        assert!(!configs.has_changed().unwrap(), "half a key was taken");
    }
    pki.write("key.pem", &next.key);
    let changed = tokio::time::timeout(LIMIT, configs.changed()).await;
    changed.expect("whole files are taken").unwrap();
    stop.cancel();
    assert!(keeping.join_next().await.unwrap().is_ok());
}

#[test]
fn a_certificate_that_has_ended_is_taken_and_spoken_of() {
    let pki = Pki::new("ours");
    let said = |files: TlsFiles| {
        let mut tls = Tls::read(Listener::Broker, files).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        // Said once already, so nothing is due.
        assert_eq!(tls.reminder.due(tls.validity, now), None);
        tls.validity.concern(now).is_some()
    };
    assert!(!said(pki.files()));
    let ended = pki.issue_until(2020);
    let mut files = pki.files();
    files.cert = pki.write("ended.pem", &ended.cert);
    files.key = pki.write("ended.key", &ended.key);
    assert!(said(files));
}
