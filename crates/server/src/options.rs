//! What `converge` is told on its command line and in its environment.
//!
//! A flag wins over its variable. Every value is read here and not by the command-line library, so that all that is wrong with them is
//! said at once; wrong usage ends with [`USAGE`].

mod tls;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use converge_types::limits;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub(crate) use tls::ENTRY_VARIABLES;
pub use tls::Entry;

/// Exit code for wrong usage, in all our binaries.
pub const USAGE: u8 = 64;
/// A lease shorter than this many heartbeats ends while its worker is well.
pub(crate) const HEARTBEATS_PER_LEASE: u32 = 3;
/// No interval is longer than this.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

const NOTES: &str = "\
LOG_LEVEL: error, warn, info, debug, trace, or a filter such as info,converge_broker=debug (info); the log goes to stderr.
Durations read 500ms, 30s, 5m, 1h30m. A flag wins over its variable.
Exit codes: 0 ended in order, 1 something broke, 64 usage.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "converge",
    version,
    about = "The control plane: REST API, scheduler and broker in one process.",
    propagate_version = true
)]
pub struct Cli {
    #[command(subcommand)]
    /// What to do.
    pub command: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Everything in one process, on an embedded database in the data directory.
    ///
    /// Prints both addresses once they answer and writes them to DATA_DIR/addresses.json.
    #[command(after_help = NOTES)]
    Dev(Box<DevArgs>),
}

/// Flags of `converge dev`, as they were written.
#[derive(Debug, Default, Args)]
pub struct DevArgs {
    /// Where everything is kept [default: ./.converge]
    #[arg(long, value_name = "DIR", env = "CONVERGE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Where the REST API listens; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "LISTEN_ADDR")]
    listen: Option<String>,
    /// Where workers connect; port 0 takes a free one [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR", env = "BROKER_LISTEN_ADDR")]
    broker_listen: Option<String>,
    /// A host name that may be in the headers Host and Origin beside loopback; may be repeated
    #[arg(
        long,
        value_name = "HOST",
        env = "CONVERGE_ALLOWED_HOSTS",
        value_delimiter = ','
    )]
    allowed_host: Vec<String>,
    #[command(flatten)]
    tls: tls::TlsArgs,
    /// Listen beyond loopback although nobody is asked who he is: whoever reaches the port can then run scripts
    #[arg(
        long,
        env = "CONVERGE_INSECURE",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        help_heading = "Who is let in"
    )]
    insecure: Option<String>,
    /// A worker program to start, point at the broker, and start again when it ends
    ///
    /// It has this process's environment: where the broker speaks TLS, set BROKER_CA_FILE, and TLS_CERT_FILE and TLS_KEY_FILE where it asks
    /// workers for certificates. The broker's certificate must be for the address it listens on, for 127.0.0.1 or ::1 if those are all.
    #[arg(long, value_name = "PATH", env = "CONVERGE_WORKER")]
    worker: Option<PathBuf>,
    /// How long a task stays with a worker that is silent [default: 30s]
    #[arg(long, value_name = "DURATION", env = "CONVERGE_LEASE")]
    lease: Option<String>,
    /// How often workers say that they live; a lease is at least three of these [default: 5s]
    ///
    /// A worker of --worker is told. Any other has its own WORKER_HEARTBEAT_INTERVAL, 5s by default, and loses its tasks when that is longer
    /// than the lease.
    #[arg(long, value_name = "DURATION", env = "CONVERGE_HEARTBEAT")]
    heartbeat: Option<String>,
    /// How often timers are looked for that no commit announced [default: 5s]
    #[arg(long, value_name = "DURATION", env = "CONVERGE_SWEEP_INTERVAL")]
    sweep_interval: Option<String>,
    /// How often what was removed long ago is forgotten [default: 1h]
    #[arg(long, value_name = "DURATION", env = "CONVERGE_FORGET_INTERVAL")]
    forget_interval: Option<String>,
    /// Streams of workers at a time [default: 10000]
    #[arg(long, value_name = "COUNT", env = "CONVERGE_MAX_STREAMS")]
    max_streams: Option<String>,
}

/// What `converge dev` runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the flags of the same names say it")]
pub struct Dev {
    pub data_dir: PathBuf,
    pub listen: SocketAddr,
    pub broker_listen: SocketAddr,
    pub allowed_hosts: Vec<String>,
    pub entry: Entry,
    pub worker: Option<PathBuf>,
    pub lease: Duration,
    pub heartbeat: Duration,
    pub sweep_interval: Duration,
    pub forget_interval: Duration,
    pub max_streams: usize,
}

impl DevArgs {
    /// The values, or everything that is wrong with them, one line each.
    ///
    /// # Errors
    /// The list, never empty.
    pub fn read(self) -> Result<Dev, Vec<String>> {
        let mut wrong = Vec::new();
        let listen = address(
            &mut wrong,
            "--listen (LISTEN_ADDR)",
            self.listen.as_deref().unwrap_or("127.0.0.1:8080"),
        );
        let broker = address(
            &mut wrong,
            "--broker-listen (BROKER_LISTEN_ADDR)",
            self.broker_listen.as_deref().unwrap_or("127.0.0.1:9090"),
        );
        let insecure = switch(
            &mut wrong,
            "--insecure (CONVERGE_INSECURE)",
            self.insecure.as_deref(),
        );
        let entry = self.tls.read(&mut wrong);
        if let Some(entry) = entry.as_ref().filter(|_| !insecure) {
            wrong.extend(listen.and_then(|listen| entry.api_on(listen)));
            wrong.extend(broker.and_then(|broker| entry.broker_on(broker)));
        }
        if let (Some(listen), Some(broker)) = (listen, broker)
            && listen == broker
            && listen.port() != 0
        {
            wrong.push(format!(
                "--listen and --broker-listen are both {listen}; each needs its own"
            ));
        }
        let lease = duration(
            &mut wrong,
            "--lease (CONVERGE_LEASE)",
            self.lease.as_deref(),
            limits::LEASE,
        );
        let heartbeat = duration(
            &mut wrong,
            "--heartbeat (CONVERGE_HEARTBEAT)",
            self.heartbeat.as_deref(),
            limits::HEARTBEAT,
        );
        if let (Some(lease), Some(heartbeat)) = (lease, heartbeat)
            && lease < heartbeat * HEARTBEATS_PER_LEASE
        {
            wrong.push(format!(
                "--lease (CONVERGE_LEASE): {lease:?} is below three heartbeats of {heartbeat:?}; a lease that short ends while its worker is well"
            ));
        }
        let sweep = duration(
            &mut wrong,
            "--sweep-interval (CONVERGE_SWEEP_INTERVAL)",
            self.sweep_interval.as_deref(),
            Duration::from_secs(5),
        );
        let forget = duration(
            &mut wrong,
            "--forget-interval (CONVERGE_FORGET_INTERVAL)",
            self.forget_interval.as_deref(),
            Duration::from_secs(3_600),
        );
        let streams = match self
            .max_streams
            .as_deref()
            .unwrap_or("10000")
            .parse::<usize>()
        {
            Ok(count) if (1..=1_000_000).contains(&count) => Some(count),
            _ => {
                wrong.push(format!("--max-streams (CONVERGE_MAX_STREAMS): {:?} is no whole number from 1 to 1000000", self.max_streams.unwrap_or_default()));
                None
            }
        };
        let mut allowed_hosts = Vec::new();
        for host in self
            .allowed_host
            .iter()
            .map(|host| host.trim())
            .filter(|host| !host.is_empty())
        {
            if host.contains("://")
                || host.contains(['/', '*', '@'])
                || host.contains(char::is_whitespace)
            {
                wrong.push(format!("--allowed-host (CONVERGE_ALLOWED_HOSTS): {host:?} is no host name, such as control.example or control.example:8080"));
            } else {
                allowed_hosts.push(host.to_owned());
            }
        }
        if let Some(worker) = self
            .worker
            .as_deref()
            .filter(|worker| worker.components().count() > 1)
        {
            let path = worker.display();
            if !worker.is_file() {
                wrong.push(format!(
                    "--worker (CONVERGE_WORKER): there is no program {path}"
                ));
            } else if !is_executable(worker) {
                wrong.push(format!("--worker (CONVERGE_WORKER): {path} is not executable; set its execute permission (chmod +x)"));
            }
        }
        match (
            listen, broker, entry, lease, heartbeat, sweep, forget, streams,
        ) {
            (
                Some(listen),
                Some(broker_listen),
                Some(entry),
                Some(lease),
                Some(heartbeat),
                Some(sweep_interval),
                Some(forget_interval),
                Some(max_streams),
            ) if wrong.is_empty() => Ok(Dev {
                data_dir: self.data_dir.unwrap_or_else(|| PathBuf::from(".converge")),
                listen,
                broker_listen,
                allowed_hosts,
                entry,
                worker: self.worker,
                lease,
                heartbeat,
                sweep_interval,
                forget_interval,
                max_streams,
            }),
            _ => Err(wrong),
        }
    }
}

/// `ADDRESS:PORT`, or `localhost:PORT` for the loopback of IPv4.
fn address(wrong: &mut Vec<String>, name: &str, text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let local = text
        .strip_prefix("localhost:")
        .and_then(|port| port.parse::<u16>().ok());
    let found = local
        .map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
        .or_else(|| text.parse().ok());
    if found.is_none() {
        wrong.push(format!("{name}: {text:?} is no address to listen on, such as 127.0.0.1:8080 or [::1]:8080; port 0 takes a free one"));
    }
    found
}

/// What is logged: `LOG_LEVEL` as it was found.
///
/// # Errors
/// A line that says what is wrong with it.
pub fn log_filter(text: Option<&str>) -> Result<EnvFilter, String> {
    let text = text.map_or("info", str::trim);
    let text = if text.is_empty() { "info" } else { text };
    // A bare word that is no level would be taken for the name of a crate, and nothing else would be logged.
    let bare = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let level = text.parse::<LevelFilter>().is_ok();
    match EnvFilter::try_new(text) {
        Ok(filter) if level || !bare => Ok(filter),
        _ => Err(format!(
            "LOG_LEVEL: {text:?} is none of error, warn, info, debug, trace, and no filter such as info,converge_broker=debug"
        )),
    }
}

/// True if somebody may run it; whether this process may is the kernel's to say.
fn is_executable(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
}

/// A switch, which a variable can only set by a word.
fn switch(wrong: &mut Vec<String>, name: &str, text: Option<&str>) -> bool {
    match text.unwrap_or_default().trim() {
        "true" | "1" => true,
        "false" | "0" | "" => false,
        other => {
            wrong.push(format!("{name}: {other:?} is neither true nor false"));
            false
        }
    }
}

fn duration(
    wrong: &mut Vec<String>,
    name: &str,
    text: Option<&str>,
    default: Duration,
) -> Option<Duration> {
    let Some(text) = text else {
        return Some(default);
    };
    let found = parse_duration(text).filter(|found| !found.is_zero() && *found <= LONGEST);
    if found.is_none() {
        wrong.push(format!(
            "{name}: {text:?} is no duration above zero and up to 24h, such as 500ms, 30s or 1h30m"
        ));
    }
    found
}

/// Durations as all our programs write them: `500ms`, `30s`, `5m`, `1h30m`.
fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("ms", 1), ("m", 60_000), ("s", 1_000)];
    let mut rest = text.trim();
    let mut total = 0_u64;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let (unit, millis) = UNITS.iter().find(|(unit, _)| rest.starts_with(unit))?;
        // Larger units first, each once.
        if *millis >= smallest {
            return None;
        }
        smallest = *millis;
        rest = &rest[unit.len()..];
        total = total.checked_add(number.checked_mul(*millis)?)?;
    }
    (smallest != u64::MAX).then(|| Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(change: impl FnOnce(&mut DevArgs)) -> Result<Dev, Vec<String>> {
        let mut args = DevArgs::default();
        change(&mut args);
        args.read()
    }

    #[test]
    fn without_flags_it_listens_on_loopback() {
        let dev = args(|_| {}).unwrap();
        assert_eq!(dev.listen, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(dev.broker_listen, "127.0.0.1:9090".parse().unwrap());
        assert_eq!(dev.lease, Duration::from_secs(30));
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let wrong = args(|args| {
            args.listen = Some("here".to_owned());
            args.broker_listen = Some("0.0.0.0:1".to_owned());
            args.lease = Some("30".to_owned());
            args.heartbeat = Some("0s".to_owned());
            args.max_streams = Some("-1".to_owned());
            args.allowed_host = vec!["https://x".to_owned()];
            args.worker = Some("./no/such/worker".into());
            args.insecure = Some("maybe".to_owned());
        })
        .unwrap_err();
        let text = wrong.join("\n");
        for name in [
            "--listen",
            "--broker-listen",
            "--lease",
            "--heartbeat",
            "--max-streams",
            "--allowed-host",
            "--worker",
            "--insecure",
        ] {
            assert!(text.contains(name), "{name} is missing in:\n{text}");
        }
        assert_eq!(wrong.len(), 8, "{text}");
    }

    #[test]
    fn a_worker_that_cannot_be_run_is_wrong_usage() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("worker");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        let with = |program: &Path| args(|args| args.worker = Some(program.to_owned()));
        let wrong = with(&program).unwrap_err();
        assert!(wrong[0].contains("not executable"), "{wrong:?}");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(with(&program).is_ok());
    }

    #[test]
    fn beyond_loopback_only_when_strangers_are_turned_away_or_somebody_insists() {
        let wrong = args(|args| args.listen = Some("0.0.0.0:0".to_owned())).unwrap_err();
        assert!(wrong[0].contains("--insecure"), "{wrong:?}");
        assert!(wrong[0].contains("--token-file"), "{wrong:?}");
        let api = |change: fn(&mut tls::TlsArgs)| {
            args(|args| {
                args.listen = Some("0.0.0.0:0".to_owned());
                change(&mut args.tls);
            })
            .is_ok()
        };
        assert!(api(|tls| tls.token_file = Some("t".into())));
        // What an unset variable leaves must not open anything, on loopback neither.
        let wrong = args(|args| {
            args.tls.token_file = Some("".into());
            args.tls.tls_cert = Some("".into());
            args.tls.tls_key = Some("".into());
        })
        .unwrap_err();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(
            wrong.iter().all(|line| line.contains("it is empty")),
            "{wrong:?}"
        );
        let pair = |tls: &mut tls::TlsArgs| {
            tls.tls_cert = Some("c".into());
            tls.tls_key = Some("k".into());
        };
        assert!(
            args(|args| {
                args.listen = Some("[::]:0".to_owned());
                pair(&mut args.tls);
            })
            .is_err()
        );
        assert!(
            args(|args| {
                args.listen = Some("[::]:0".to_owned());
                pair(&mut args.tls);
                args.tls.tls_client_ca = Some("a".into());
            })
            .is_ok()
        );
        // What the API asks for says nothing of the broker.
        let broker = |ca: Option<&str>| {
            args(|args| {
                args.broker_listen = Some("0.0.0.0:0".to_owned());
                pair(&mut args.tls);
                args.tls.tls_client_ca = Some("a".into());
                args.tls.token_file = Some("t".into());
                args.tls.broker_tls_cert = Some("c".into());
                args.tls.broker_tls_key = Some("k".into());
                args.tls.broker_tls_client_ca = ca.map(Into::into);
            })
        };
        let wrong = broker(None).unwrap_err();
        assert!(wrong[0].contains("--broker-tls-client-ca"), "{wrong:?}");
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        assert!(broker(Some("a")).is_ok());
        let open = |args: &mut DevArgs| {
            args.listen = Some("0.0.0.0:0".to_owned());
            args.insecure = Some("true".to_owned());
        };
        assert!(args(open).is_ok());
        assert!(args(|args| args.listen = Some("[::1]:0".to_owned())).is_ok());
    }

    #[test]
    fn a_certificate_and_its_key_come_together() {
        let wrong = args(|args| {
            args.tls.tls_cert = Some("c".into());
            args.tls.tls_client_ca = Some("a".into());
            args.tls.broker_tls_client_ca = Some("a".into());
            args.tls.tls_reload_interval = Some("often".to_owned());
        })
        .unwrap_err();
        for (at, name) in [
            "--tls-key (CONVERGE_TLS_KEY_FILE)",
            "--broker-tls-cert (CONVERGE_BROKER_TLS_CERT_FILE)",
            "--tls-reload-interval",
        ]
        .into_iter()
        .enumerate()
        {
            assert!(wrong[at].contains(name), "{wrong:?}");
        }
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_and_not_taken_for_a_crate() {
        for text in [
            None,
            Some(""),
            Some("DEBUG"),
            Some("off"),
            Some("warn,converge_broker=trace"),
        ] {
            assert!(log_filter(text).is_ok(), "{text:?}");
        }
        for text in ["blah", "verbose", "a=b=c"] {
            let said = log_filter(Some(text)).unwrap_err();
            assert!(said.contains("LOG_LEVEL") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn the_switch_stands_alone_or_says_true_or_false() {
        let insecure = |line: &[&str]| {
            let args = ["converge", "dev", "--listen=0.0.0.0:0"].iter().chain(line);
            match Cli::try_parse_from(args) {
                Ok(Cli {
                    command: Verb::Dev(args),
                }) => args.read().is_ok(),
                Err(error) => panic!("{error}"),
            }
        };
        assert!(insecure(&["--insecure"]));
        assert!(insecure(&["--insecure", "--lease", "30s"]));
        assert!(insecure(&["--insecure=true"]));
        assert!(!insecure(&["--insecure=false"]));
        assert!(!insecure(&[]));
    }

    #[test]
    fn a_lease_is_at_least_three_heartbeats() {
        let with = |lease: &str| {
            args(|args| {
                args.lease = Some(lease.to_owned());
                args.heartbeat = Some("1s".to_owned());
            })
        };
        assert!(with("3s").is_ok());
        assert!(with("2999ms").unwrap_err()[0].contains("three heartbeats"));
    }

    #[test]
    fn durations_have_units_larger_ones_first() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1s500ms", 1_500),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in [
            "",
            "5",
            "s",
            "1.5s",
            "-1s",
            "5m1h",
            "1s1s",
            "5 s",
            "99999999999999999999s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
