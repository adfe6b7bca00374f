//! The command line: the verbs, and the options all of them share. Each verb's own options are in its file.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::verbs;

/// Apply resources and watch them converge.
#[derive(Debug, Parser)]
#[command(
    name = "conctl",
    version,
    max_term_width = 110,
    after_help = "\
Types: resource (res), manifest (crd, kind), providerconfig (pc), reactorbinding (rb),
cluster (nodes). TYPE defaults to resource, and a resource is named kind/name.

Examples:
  conctl apply -f kinds/ -f demo.yaml --wait   in the right order; wait until all are Ready
  conctl list -w                               all resources, and then every change
  conctl describe stdshell/hello               why it is not Ready
  conctl get pc fast -o yaml                   a providerconfig as YAML
  conctl delete stdshell/hello --wait          tear it down and wait until it is gone

Exit codes: 0 ok, 1 refused, failed, or not served by that server, 3 not found,
4 conflict, 5 timeout, 6 server unreachable, 64 usage."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the server is and how to talk to it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The server.
    #[arg(long, global = true, env = "CONVERGE_SERVER", value_name = "URL", default_value = converge_client::DEFAULT_SERVER)]
    pub(crate) server: String,
    /// PEM certificates that sign the server's; the system's when absent.
    #[arg(long, global = true, env = "TLS_CA_FILE", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// This client's certificate, PEM.
    #[arg(long, global = true, env = "TLS_CERT_FILE", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate, PEM.
    #[arg(long, global = true, env = "TLS_KEY_FILE", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Take any certificate. Whoever is in between can read and change everything.
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// A file with the bearer token.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// What conctl can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Apply(verbs::apply::ApplyArgs),
    Get(verbs::get::GetArgs),
    #[command(visible_alias = "ls")]
    List(verbs::list::ListArgs),
    Describe(verbs::describe::DescribeArgs),
    Delete(verbs::delete::DeleteArgs),
    Events(verbs::events::EventsArgs),
    Graph(verbs::graph::GraphArgs),
    Wait(verbs::wait::WaitArgs),
    Reconcile(verbs::reconcile::ReconcileArgs),
    /// Hold a resource back: no new task of it starts, teardown included.
    #[command(
        after_help = "Examples:\n  conctl quarantine stdshell/hello\n  conctl quarantine stdcel/app --recursive"
    )]
    Quarantine(verbs::quarantine::QuarantineArgs),
    /// Let a resource go on after a quarantine.
    #[command(after_help = "Examples:\n  conctl unquarantine stdshell/hello")]
    Unquarantine(verbs::quarantine::QuarantineArgs),
    Rollback(verbs::rollback::RollbackArgs),
    Ops(verbs::ops::OpsArgs),
    Cluster(verbs::cluster::ClusterArgs),
    Sync(verbs::sync::SyncArgs),
    Diff(verbs::diff::DiffArgs),
    Bundle(verbs::bundle::BundleArgs),
    Completion(verbs::completion::CompletionArgs),
}

/// Whether to wait, and how long.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitFlags {
    /// Wait until it is done.
    #[arg(long)]
    pub(crate) wait: bool,
    /// How long to wait: 30s, 5m, 1h30m.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// Reads `30s`, `5m`, `1h30m`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| Duration::try_from(duration).ok())
        .ok_or_else(|| "it must look like 30s, 5m or 1h30m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_duration_is_read_as_people_write_it() {
        for (text, seconds) in [("90", 90), ("30s", 30), ("5m", 300), ("1h30m", 5400)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-5s", "soon", "5 parsecs"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
