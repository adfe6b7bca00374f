//! The token file: read before anything is bound, and again at an interval, so that a token can be replaced under a running server.
//!
//! What cannot be used, a file caught empty for example, is warned about and changes nothing. The token itself never reaches a log.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use converge_api::Token;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::tls::shown;

/// A token longer than this is not a token.
const LIMIT_BYTES: u64 = 16 * 1024;
/// A token shorter than this can be guessed.
const LEAST_BYTES: usize = 16;

/// The file and what was last read from it.
pub(crate) struct TokenFile {
    path: PathBuf,
    current: watch::Sender<Arc<Token>>,
    /// Why it could not be read last time.
    failing: Option<String>,
}

impl TokenFile {
    /// Reads it. Blocks.
    pub(crate) fn read(path: PathBuf) -> Result<Self, String> {
        let token = read(&path).map_err(|why| format!("--token-file {}: {why}", shown(&path)))?;
        Ok(Self {
            path,
            current: watch::Sender::new(Arc::new(token)),
            failing: None,
        })
    }

    /// Where the newest token is found.
    pub(crate) fn current(&self) -> watch::Receiver<Arc<Token>> {
        self.current.subscribe()
    }

    /// Reads the file again at this interval until `stop`.
    pub(crate) async fn keep_fresh(mut self, every: Duration, stop: CancellationToken) {
        let mut tick = interval_at(Instant::now() + every, every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tick.tick() => {}
            }
            let path = self.path.clone();
            let file = shown(&self.path);
            let Ok(read) = tokio::task::spawn_blocking(move || read(&path)).await else {
                tracing::warn!(%file, "reading the token file again panicked");
                continue;
            };
            match read {
                Ok(token) if **self.current.borrow() == token => self.failing = None,
                Ok(token) => {
                    self.failing = None;
                    self.current.send_replace(Arc::new(token));
                    tracing::info!(%file, "the token file has changed; requests need the new token");
                }
                Err(why) if self.failing.as_ref() == Some(&why) => {}
                Err(why) => {
                    tracing::warn!(%file, error = why, "the token file cannot be used; the token read before stays in use");
                    self.failing = Some(why);
                }
            }
        }
    }
}

fn read(path: &Path) -> Result<Token, String> {
    let cannot = |error: std::io::Error| format!("it cannot be read: {error}");
    // Asked first: opening a pipe waits for its writer.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let file = File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(LIMIT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    let token = bytes.trim_ascii();
    if token.is_empty() {
        return Err("the token in it is empty".to_owned());
    }
    if bytes.len() as u64 > LIMIT_BYTES || !token.iter().all(u8::is_ascii_graphic) {
        return Err("the token in it is not one word of printable ASCII".to_owned());
    }
    if token.len() < LEAST_BYTES {
        return Err(format!(
            "the token in it has fewer than {LEAST_BYTES} characters and can be guessed; make one with `openssl rand -hex 32`"
        ));
    }
    Ok(Token::new(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_token_is_refused_without_being_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let with = |text: &str| {
            std::fs::write(&path, text).unwrap();
            TokenFile::read(path.clone()).map(drop)
        };
        assert!(with("0123456789abcdef\n").is_ok());
        for text in [
            "",
            " \n",
            "short-secret",
            "two words of some length",
            "0123456789abcd\u{e9}f",
        ] {
            let said = with(text).unwrap_err();
            assert!(said.starts_with("--token-file "), "{said}");
            assert!(text.trim().is_empty() || !said.contains(text), "{said}");
        }
        assert!(TokenFile::read(dir.path().to_owned()).is_err());
        assert!(TokenFile::read(dir.path().join("none")).is_err());
        let token = "f7c3bc1d808e04732adf679965ccc34ca7ae3441";
        let said = TokenFile::read(token.into()).map(drop).unwrap_err();
        assert!(!said.contains(token), "{said}");
        // A pipe without a writer holds up nobody.
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let said = TokenFile::read(pipe).map(drop).unwrap_err();
        assert!(said.ends_with("it is no regular file"), "{said}");
    }
}
