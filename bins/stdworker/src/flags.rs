//! The flags, each with the variable that means the same. Values are texts here: `RunOptions` reads and judges them, flags and
//! variables alike, all at once.

use clap::Args;

/// The flags that only make sense for a worker that serves stand under this heading.
pub(crate) const SERVING: &str = "Serving";
/// The flags of the kinds that programs serve.
const PROGRAMS: &str = "Programs";

/// How to run.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = SERVING)]
pub(crate) struct Flags {
    /// The broker's URL, http://HOST:PORT or https://HOST:PORT; required to serve.
    #[arg(
        long,
        env = "BROKER_ADDR",
        value_name = "URL",
        hide_env_values = true,
        global = true
    )]
    broker_addr: Option<String>,

    /// Serve only these of the kinds hosted here, a comma list; all when not given.
    #[arg(
        long,
        env = "WORKER_KINDS",
        value_name = "KINDS",
        hide_env_values = true,
        global = true
    )]
    worker_kinds: Option<String>,

    /// How many tasks may run at once (16).
    #[arg(
        long,
        env = "WORKER_MAX_PARALLEL",
        value_name = "N",
        hide_env_values = true,
        global = true
    )]
    worker_max_parallel: Option<String>,

    /// How long running tasks may finish after shutdown begins (50s).
    #[arg(
        long,
        env = "WORKER_DRAIN_TIMEOUT",
        value_name = "DURATION",
        hide_env_values = true,
        global = true
    )]
    worker_drain_timeout: Option<String>,

    /// How often the broker is told which tasks run (5s).
    #[arg(
        long,
        env = "WORKER_HEARTBEAT_INTERVAL",
        value_name = "DURATION",
        hide_env_values = true,
        global = true
    )]
    worker_heartbeat_interval: Option<String>,

    /// Serve /livez, /healthz, /readyz and /metrics here, for example 127.0.0.1:8081; off when not given.
    #[arg(
        long,
        env = "HEALTH_ADDR",
        value_name = "ADDR",
        hide_env_values = true,
        global = true
    )]
    health_addr: Option<String>,

    /// error, warn, info, debug, trace, or a filter such as info,converge_sdk=debug (info).
    #[arg(
        long,
        env = "LOG_LEVEL",
        value_name = "LEVEL",
        hide_env_values = true,
        global = true
    )]
    log_level: Option<String>,

    /// text or json, to stderr (text).
    #[arg(
        long,
        env = "LOG_FORMAT",
        value_name = "FORMAT",
        hide_env_values = true,
        global = true
    )]
    log_format: Option<String>,

    /// The client certificate for mTLS; needs its key.
    #[arg(
        long,
        env = "TLS_CERT_FILE",
        value_name = "FILE",
        hide_env_values = true,
        global = true
    )]
    tls_cert_file: Option<String>,

    /// The key of the client certificate.
    #[arg(
        long,
        env = "TLS_KEY_FILE",
        value_name = "FILE",
        hide_env_values = true,
        global = true
    )]
    tls_key_file: Option<String>,

    /// How often the TLS files are read again (30s).
    #[arg(
        long,
        env = "TLS_RELOAD_INTERVAL",
        value_name = "DURATION",
        hide_env_values = true,
        global = true
    )]
    tls_reload_interval: Option<String>,

    /// The CA that signs the broker; the system's roots when not given.
    #[arg(
        long,
        env = "BROKER_CA_FILE",
        value_name = "FILE",
        hide_env_values = true,
        global = true
    )]
    broker_ca_file: Option<String>,

    /// Leaf kinds served by programs, a comma list (stdio); empty for none.
    #[arg(
        long,
        env = "STDIO_KINDS",
        help_heading = PROGRAMS,
        value_name = "KINDS",
        hide_env_values = true,
        global = true
    )]
    pub(crate) stdio_kinds: Option<String>,

    /// Composer kinds served by programs, a comma list (stdio-composer); empty for none.
    #[arg(
        long,
        env = "STDIO_COMPOSER_KINDS",
        help_heading = PROGRAMS,
        value_name = "KINDS",
        hide_env_values = true,
        global = true
    )]
    pub(crate) stdio_composer_kinds: Option<String>,

    /// The program of those kinds where their providerconfig names none.
    #[arg(
        long,
        env = "STDIO_COMMAND",
        help_heading = PROGRAMS,
        value_name = "PROGRAM",
        hide_env_values = true,
        global = true
    )]
    pub(crate) stdio_command: Option<String>,
}

impl Flags {
    /// What stands for a variable: the flag, else the variable itself.
    pub(crate) fn get(&self, variable: &str) -> Option<String> {
        match variable {
            "BROKER_ADDR" => self.broker_addr.clone(),
            "WORKER_KINDS" => self.worker_kinds.clone(),
            "WORKER_MAX_PARALLEL" => self.worker_max_parallel.clone(),
            "WORKER_DRAIN_TIMEOUT" => self.worker_drain_timeout.clone(),
            "WORKER_HEARTBEAT_INTERVAL" => self.worker_heartbeat_interval.clone(),
            "HEALTH_ADDR" => self.health_addr.clone(),
            "LOG_LEVEL" => self.log_level.clone(),
            "LOG_FORMAT" => self.log_format.clone(),
            "TLS_CERT_FILE" => self.tls_cert_file.clone(),
            "TLS_KEY_FILE" => self.tls_key_file.clone(),
            "TLS_RELOAD_INTERVAL" => self.tls_reload_interval.clone(),
            "BROKER_CA_FILE" => self.broker_ca_file.clone(),
            // A variable the SDK knows and this program has no flag for.
            other => std::env::var_os(other).map(|value| value.to_string_lossy().into_owned()),
        }
    }
}
