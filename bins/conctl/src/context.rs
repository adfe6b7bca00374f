//! What every verb needs: the client, made when first used, and the output.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::Duration;

use converge_client::{Client, Options};

use crate::cli::ServerArgs;
use crate::exit::Result;

/// How often a waiting or following verb asks again.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// What every verb needs.
pub(crate) struct Context {
    server: ServerArgs,
    client: Option<Client>,
    /// Where data goes.
    pub(crate) out: Out,
    /// Where people are told how it goes.
    pub(crate) progress: Progress,
}

impl Context {
    /// A context that has not looked at the server's options yet, so that offline verbs never trip over them.
    pub(crate) fn new(server: ServerArgs) -> Self {
        Self {
            server,
            client: None,
            out: Out::new(),
            progress: Progress::new(),
        }
    }

    /// The client.
    pub(crate) fn client(&mut self) -> Result<Client> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let options = Options {
            server: self.server.server.clone(),
            tls_ca: self.server.tls_ca.clone(),
            tls_cert: self.server.tls_cert.clone(),
            tls_key: self.server.tls_key.clone(),
            insecure: self.server.insecure,
            token_file: self.server.token_file.clone(),
            user_agent: concat!("conctl/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..Options::default()
        };
        let client = Client::new(&options)?;
        if options.exposes_token() {
            self.progress
                .note("warning: the token goes to this server in cleartext; use https://");
        }
        self.client = Some(client.clone());
        Ok(client)
    }
}

/// Stdout, buffered; knows whether to colour.
pub(crate) struct Out {
    stdout: BufWriter<io::Stdout>,
    /// Whether phases are coloured.
    pub(crate) colour: bool,
}

impl Out {
    fn new() -> Self {
        let stdout = io::stdout();
        let colour = stdout.is_terminal() && colour_wanted();
        Self {
            stdout: BufWriter::new(stdout),
            colour,
        }
    }

    /// Writes `text` as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result {
        Ok(self.stdout.write_all(text.as_bytes())?)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result {
        Ok(self.stdout.write_all(bytes)?)
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, line: &str) -> Result {
        self.text(line)?;
        self.text("\n")
    }

    /// Lets a reader see what was written so far.
    pub(crate) fn flush(&mut self) -> Result {
        Ok(self.stdout.flush()?)
    }
}

/// Notes and progress on stderr.
pub(crate) struct Progress {
    is_terminal: bool,
    shown: Option<String>,
}

impl Progress {
    fn new() -> Self {
        Self {
            is_terminal: io::stderr().is_terminal() && !dumb(),
            shown: None,
        }
    }

    /// Says something that stays. What cannot be said does not stop the work.
    pub(crate) fn note(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(io::stderr(), "{}", crate::output::clean_lines(text));
    }

    /// Shows what is going on, in one line that the next one replaces; only on a terminal.
    pub(crate) fn status(&mut self, text: &str) {
        if self.is_terminal && self.shown.as_deref() != Some(text) {
            let line: String = crate::output::clean(text).chars().take(110).collect();
            let _ = write!(io::stderr(), "\r\x1b[2K{line}");
            self.shown = Some(text.to_owned());
        }
    }

    /// Takes the progress line away.
    pub(crate) fn clear(&mut self) {
        if self.shown.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

fn dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

fn colour_wanted() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && !dumb()
}
