//! Who is let in: the certificates and the token of both listeners, read and kept fresh.

use std::sync::Arc;
use std::time::Duration;

use converge_api::Token;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::options;
use crate::tls::{self, Listener, Tls, TlsConfigs};
use crate::token::TokenFile;

/// What was read, before anything is bound.
pub(crate) struct Entry {
    api: Option<Tls>,
    broker: Option<Tls>,
    token: Option<TokenFile>,
    reload_interval: Duration,
}

impl Entry {
    /// Reads every file; all that is wrong with them, one line each. Blocks.
    pub(crate) fn read(options: &options::Entry) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let token_instead = match options.token_file {
            Some(_) => tls::Token::Instead,
            None => tls::Token::No,
        };
        let mut read = |listener, files: &Option<tls::TlsFiles>| {
            let tls = files.clone().map(|files| Tls::read(listener, files));
            tls.transpose().unwrap_or_else(|lines| {
                wrong.extend(lines);
                None
            })
        };
        let api = Listener::Api {
            token: token_instead,
        };
        let api = read(api, &options.api);
        let broker = read(Listener::Broker, &options.broker);
        let token = options.token_file.clone().map(TokenFile::read);
        let token = token.transpose().unwrap_or_else(|line| {
            wrong.push(line);
            None
        });
        if !wrong.is_empty() {
            return Err(wrong);
        }
        Ok(Self {
            api,
            broker,
            token,
            reload_interval: options.reload_interval,
        })
    }

    /// What the API speaks TLS by.
    pub(crate) fn api(&self) -> Option<TlsConfigs> {
        self.api.as_ref().map(Tls::configs)
    }

    /// What the broker speaks TLS by.
    pub(crate) fn broker(&self) -> Option<TlsConfigs> {
        self.broker.as_ref().map(Tls::configs)
    }

    /// What the API wants to see of who shows no certificate.
    pub(crate) fn token(&self) -> Option<watch::Receiver<Arc<Token>>> {
        self.token.as_ref().map(TokenFile::current)
    }

    /// Reads the files again and again, until `stop`.
    pub(crate) async fn keep_fresh(self, stop: CancellationToken) {
        let every = self.reload_interval;
        let api = self.api.map(|tls| tls.keep_fresh(every, stop.clone()));
        let broker = self.broker.map(|tls| tls.keep_fresh(every, stop.clone()));
        let token = self
            .token
            .map(|token| token.keep_fresh(every, stop.clone()));
        tokio::join!(maybe(api), maybe(broker), maybe(token), stop.cancelled());
    }
}

async fn maybe(part: Option<impl Future<Output = ()>>) {
    if let Some(part) = part {
        part.await;
    }
}
