//! How a worker is told to run: environment and defaults, parsed once into types.
//!
//! All problems are reported together, before anything is dialled. Every interval is a field, so that tests can wait for
//! events in milliseconds; those without a variable are not meant to be changed in production.

mod reader;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use self::reader::Reader;
use crate::tls::Tls;

/// Where the broker is: `http://host:port` or `https://host:port`; no scheme means `http://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddr {
    tls: bool,
    host: String,
    port: u16,
}

/// A text that is no broker address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a broker address: expected http://HOST:PORT or https://HOST:PORT")]
pub struct BrokerAddrError(String);

impl BrokerAddr {
    /// True for `https://`.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Name or address of the host, an IPv6 address without its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as an authority, IPv6 addresses in brackets.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for BrokerAddr {
    type Err = BrokerAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BrokerAddrError(text.to_owned());
        let text = text.trim();
        let (tls, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(_) => return Err(bad()),
            None => (false, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once("]:").ok_or_else(bad)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| bad())?;
                (host, port)
            }
            None => rest.split_once(':').ok_or_else(bad)?,
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(legal) {
            return Err(bad());
        }
        let port = port
            .parse::<u16>()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(bad)?;
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for BrokerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The files of a TLS identity and of the CA that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TlsFiles {
    /// Client certificate chain and key, PEM: both or neither.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The CA that signs the broker, PEM; the system's roots if not set.
    pub ca: Option<PathBuf>,
}

/// Everything that decides how a worker runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOptions {
    /// `BROKER_ADDR`.
    pub broker: BrokerAddr,
    /// `WORKER_KINDS`: only these of the registered kinds are served; `None` means all.
    pub kinds: Option<Vec<String>>,
    /// `WORKER_MAX_PARALLEL`, default 16: tasks in flight, advertised to the broker as credit.
    pub max_parallel: usize,
    /// `WORKER_DRAIN_TIMEOUT`, default 50 s: how long running tasks may finish after shutdown begins.
    pub drain_timeout: Duration,
    /// `HEALTH_ADDR`, default off: serve `/livez`, `/healthz`, `/readyz` and Prometheus `/metrics` there, over plain HTTP. What
    /// they answer is in the crate's `METRICS.md`. Port 0 takes a free one, which the log names.
    pub health_addr: Option<SocketAddr>,
    /// `WORKER_PARENT_PID`, default off: end in order once the process with this number is gone. Read by `serve`
    /// only; for whoever starts workers and may be killed.
    pub parent: Option<u32>,
    /// `LOG_LEVEL`, default `info`: a level or a filter such as `info,converge_sdk=debug`. Read by `serve` only.
    pub log_level: String,
    /// `LOG_FORMAT`, default `text`. Read by `serve` only.
    pub log_format: LogFormat,
    /// `TLS_CERT_FILE`, `TLS_KEY_FILE`, `BROKER_CA_FILE`: for a broker at `https://`.
    pub tls: TlsFiles,
    /// `TLS_RELOAD_INTERVAL`, default 30 s: how often the files are read again. The next connection uses them; files that
    /// cannot be used, because they are half-written for example, are warned about and change nothing.
    pub tls_reload_interval: Duration,
    /// What was read from those files; a running worker's own.
    pub(crate) tls_loaded: Option<Arc<Tls>>,
    /// `WORKER_HEARTBEAT_INTERVAL`, default 5 s.
    pub heartbeat_interval: Duration,
    /// The broker's lease, 30 s.
    pub lease: Duration,
    /// How often readiness is polled, 2 s.
    pub ready_poll_interval: Duration,
    /// How long a task waits for its pair to become ready, 10 s.
    pub ready_wait: Duration,
    /// How often the default configs are pulled although pushes arrive, 5 min.
    pub config_pull_interval: Duration,
    /// First pause before dialling again, 100 ms.
    pub backoff_min: Duration,
    /// Longest pause before dialling again, 30 s.
    pub backoff_max: Duration,
    /// Longest pause before dialling again while tasks run or results wait, 5 s.
    pub backoff_max_busy: Duration,
    /// How long a session must have been up for the pauses to start over, 10 s.
    pub healthy_after: Duration,
    /// How long connecting may take, 10 s.
    pub connect_timeout: Duration,
    /// How often a ping is sent, 5 s.
    pub keepalive_interval: Duration,
    /// How long a ping may stay without answer, 5 s.
    pub keepalive_timeout: Duration,
    /// How long the broker may take to close its side after a drain, 5 s.
    pub close_wait: Duration,
    /// How many results are kept until they have certainly arrived, 1,024; at least `max_parallel` are.
    pub result_buffer: usize,
    /// How many bytes of results are kept, 256 MiB.
    pub result_buffer_bytes: usize,
}

/// What is wrong with the options, all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionsError {
    problems: Vec<OptionProblem>,
}

/// One variable that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionProblem {
    /// Its name.
    pub variable: &'static str,
    /// Its value, without what may be secret in it; `None` if it is missing.
    pub value: Option<String>,
    /// What it should be.
    pub expected: String,
}

impl OptionsError {
    /// Each problem.
    pub fn problems(&self) -> &[OptionProblem] {
        &self.problems
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            match &problem.value {
                Some(value) => write!(
                    f,
                    "{}={value:?}: expected {}",
                    problem.variable, problem.expected
                )?,
                None => write!(
                    f,
                    "{} is not set: expected {}",
                    problem.variable, problem.expected
                )?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for OptionsError {}

impl RunOptions {
    /// The defaults, for a broker.
    pub fn new(broker: BrokerAddr) -> Self {
        Self {
            broker,
            kinds: None,
            max_parallel: 16,
            drain_timeout: Duration::from_secs(50),
            health_addr: None,
            parent: None,
            log_level: "info".to_owned(),
            log_format: LogFormat::Text,
            tls: TlsFiles::default(),
            tls_reload_interval: Duration::from_secs(30),
            tls_loaded: None,
            heartbeat_interval: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            ready_poll_interval: Duration::from_secs(2),
            ready_wait: Duration::from_secs(10),
            config_pull_interval: Duration::from_secs(300),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            backoff_max_busy: Duration::from_secs(5),
            healthy_after: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            keepalive_interval: Duration::from_secs(5),
            keepalive_timeout: Duration::from_secs(5),
            close_wait: Duration::from_secs(5),
            result_buffer: 1024,
            result_buffer_bytes: 256 << 20,
        }
    }

    /// Reads the environment of the process.
    ///
    /// # Errors
    /// Every variable that is missing or malformed, together.
    pub fn from_env() -> Result<Self, OptionsError> {
        Self::from_vars(|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Reads variables from anywhere: a program with flags of its own answers with the flag where one was given. An empty
    /// value counts as not set.
    ///
    /// # Errors
    /// Every variable that is missing or malformed, together.
    pub fn from_vars(get: impl Fn(&str) -> Option<String>) -> Result<Self, OptionsError> {
        let mut read = Reader {
            get,
            problems: Vec::new(),
        };
        let broker = read.parse(
            "BROKER_ADDR",
            "http://HOST:PORT or https://HOST:PORT",
            |text| text.parse::<BrokerAddr>().ok(),
        );
        if broker.is_none() && read.problems.is_empty() {
            read.missing(
                "BROKER_ADDR",
                "the broker's URL, http://HOST:PORT or https://HOST:PORT; `converge dev` prints its own at start",
            );
        }
        let mut options = Self::new(broker.unwrap_or(BrokerAddr {
            tls: false,
            host: String::new(),
            port: 0,
        }));
        options.kinds = read.parse("WORKER_KINDS", "a comma list of kinds", |text| {
            let kinds: Vec<String> = text.split(',').map(|kind| kind.trim().to_owned()).collect();
            kinds.iter().all(|kind| !kind.is_empty()).then_some(kinds)
        });
        read.set(
            &mut options.max_parallel,
            "WORKER_MAX_PARALLEL",
            "a whole number from 1 to 100000",
            |text| text.parse().ok().filter(|n| (1..=100_000).contains(n)),
        );
        read.duration(
            &mut options.drain_timeout,
            "WORKER_DRAIN_TIMEOUT",
            Duration::ZERO,
        );
        options.health_addr = read.parse(
            "HEALTH_ADDR",
            "an address with a port, such as 127.0.0.1:8081",
            |text| {
                let text = if text.starts_with(':') {
                    format!("0.0.0.0{text}")
                } else {
                    text.to_owned()
                };
                text.parse().ok()
            },
        );
        options.parent = read.parse(PARENT_VARIABLE, "the number of a process", |text| {
            text.parse().ok()
        });
        read.set(
            &mut options.log_level,
            "LOG_LEVEL",
            "error, warn, info, debug, trace, or a filter such as info,converge_sdk=debug",
            |text| {
                let known = tracing_subscriber::EnvFilter::try_new(text).is_ok();
                // A bare word that is no level would be taken for the name of a crate.
                let bare = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                let level = text.parse::<tracing::level_filters::LevelFilter>().is_ok();
                (known && (level || !bare)).then(|| text.to_owned())
            },
        );
        read.set(
            &mut options.log_format,
            "LOG_FORMAT",
            "text or json",
            |text| match text {
                "text" => Some(LogFormat::Text),
                "json" => Some(LogFormat::Json),
                _ => None,
            },
        );
        let cert = read.path("TLS_CERT_FILE");
        let key = read.path("TLS_KEY_FILE");
        match (cert, key) {
            (Some(cert), Some(key)) => options.tls.client = Some((cert, key)),
            (None, None) => {}
            (Some(_), None) => {
                read.missing("TLS_KEY_FILE", "the key of TLS_CERT_FILE: both or neither")
            }
            (None, Some(_)) => read.missing(
                "TLS_CERT_FILE",
                "the certificate of TLS_KEY_FILE: both or neither",
            ),
        }
        options.tls.ca = read.path("BROKER_CA_FILE");
        let least = Duration::from_millis(1);
        read.duration(
            &mut options.heartbeat_interval,
            "WORKER_HEARTBEAT_INTERVAL",
            least,
        );
        read.duration(
            &mut options.tls_reload_interval,
            "TLS_RELOAD_INTERVAL",
            least,
        );
        if read.problems.is_empty() {
            Ok(options)
        } else {
            Err(OptionsError {
                problems: read.problems,
            })
        }
    }
}

/// Means this process alone: nothing that it starts has the same parent.
pub(crate) const PARENT_VARIABLE: &str = "WORKER_PARENT_PID";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<RunOptions, OptionsError> {
        let vars: Vec<(String, String)> = vars
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        RunOptions::from_vars(move |name| {
            vars.iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn the_defaults_are_those_of_the_documentation() {
        let options = read(&[("BROKER_ADDR", "localhost:7070"), ("WORKER_KINDS", "")]).unwrap();
        assert_eq!(options.broker.to_string(), "http://localhost:7070");
        assert_eq!(options.kinds, None);
        assert_eq!(options.max_parallel, 16);
        assert_eq!(options.drain_timeout, Duration::from_secs(50));
        assert_eq!(options.heartbeat_interval, Duration::from_secs(5));
        assert_eq!(options.tls_reload_interval, Duration::from_secs(30));
        assert_eq!(options.health_addr, None);
        assert_eq!(options.log_level, "info");
        assert_eq!(options.log_format, LogFormat::Text);
    }

    #[test]
    fn every_variable_is_read() {
        let options = read(&[
            ("BROKER_ADDR", "https://[::1]:7070/"),
            ("WORKER_KINDS", "a, b"),
            ("WORKER_MAX_PARALLEL", "3"),
            ("WORKER_DRAIN_TIMEOUT", "1m30s"),
            ("HEALTH_ADDR", ":8081"),
            ("LOG_LEVEL", "debug"),
            ("LOG_FORMAT", "json"),
            ("TLS_CERT_FILE", "/c"),
            ("TLS_KEY_FILE", "/k"),
            ("BROKER_CA_FILE", "/ca"),
            ("WORKER_HEARTBEAT_INTERVAL", "500ms"),
            ("TLS_RELOAD_INTERVAL", "1s"),
        ])
        .unwrap();
        assert_eq!(options.broker.to_string(), "https://[::1]:7070");
        assert_eq!(
            options.kinds.as_deref(),
            Some(&["a".to_owned(), "b".to_owned()][..])
        );
        assert_eq!(options.max_parallel, 3);
        assert_eq!(options.drain_timeout, Duration::from_secs(90));
        assert_eq!(options.health_addr, Some("0.0.0.0:8081".parse().unwrap()));
        assert_eq!(options.log_format, LogFormat::Json);
        assert_eq!(options.tls.client, Some(("/c".into(), "/k".into())));
        assert_eq!(options.tls.ca, Some("/ca".into()));
        assert_eq!(options.heartbeat_interval, Duration::from_millis(500));
        assert_eq!(options.tls_reload_interval, Duration::from_secs(1));
    }

    #[test]
    fn all_problems_are_reported_at_once_with_name_value_and_what_was_expected() {
        let error = read(&[
            ("WORKER_KINDS", "a,,b"),
            ("WORKER_MAX_PARALLEL", "0"),
            ("WORKER_DRAIN_TIMEOUT", "50"),
            ("HEALTH_ADDR", "nowhere"),
            ("LOG_LEVEL", "loud"),
            ("LOG_FORMAT", "xml"),
            ("TLS_CERT_FILE", "/c"),
            ("WORKER_HEARTBEAT_INTERVAL", "0s"),
            ("TLS_RELOAD_INTERVAL", "never"),
        ])
        .unwrap_err();
        let names: Vec<_> = error
            .problems()
            .iter()
            .map(|problem| problem.variable)
            .collect();
        assert_eq!(
            names,
            [
                "BROKER_ADDR",
                "WORKER_KINDS",
                "WORKER_MAX_PARALLEL",
                "WORKER_DRAIN_TIMEOUT",
                "HEALTH_ADDR",
                "LOG_LEVEL",
                "LOG_FORMAT",
                "TLS_KEY_FILE",
                "WORKER_HEARTBEAT_INTERVAL",
                "TLS_RELOAD_INTERVAL",
            ]
        );
        let text = error.to_string();
        assert!(
            text.contains("WORKER_DRAIN_TIMEOUT=\"50\": expected a duration such as"),
            "{text}"
        );
        assert!(text.contains("BROKER_ADDR is not set"), "{text}");
    }

    #[test]
    fn a_bad_broker_address_is_refused() {
        for text in [
            "ftp://a:1",
            "a",
            "a:0",
            "a:99999",
            ":1",
            "http://",
            "http://a b:1",
            "a:1/path",
            "[::1:1",
            "[x]:1",
        ] {
            assert!(text.parse::<BrokerAddr>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_secret_in_a_value_is_not_said() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEA\n-----END PRIVATE KEY-----\n";
        let vars = [
            ("BROKER_ADDR", "http://me:hunter2@broker:9090"),
            ("TLS_CERT_FILE", "/etc/worker.pem"),
            ("TLS_KEY_FILE", key),
        ];
        let get = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let said = RunOptions::from_vars(get).unwrap_err().to_string();
        assert!(
            said.contains("BROKER_ADDR=\"http://(not shown)@broker:9090\""),
            "{said}"
        );
        assert!(
            said.contains("TLS_KEY_FILE=\"(not shown)\": expected the path of a file"),
            "{said}"
        );
        assert!(
            !said.contains("hunter2") && !said.contains("MIGH"),
            "{said}"
        );
    }
}
