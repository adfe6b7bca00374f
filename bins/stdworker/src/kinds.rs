//! `stdworker kinds`: what would be served, to stdout.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::flags::Flags;
use crate::hosted::{Hosted, HostedKind};

#[derive(Debug, Args)]
pub(crate) struct KindsArgs {
    /// The form of the output: a table, JSON, or names only.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Name,
}

pub(crate) fn run(args: &KindsArgs, flags: &Flags, hosted: &Hosted) -> ExitCode {
    let only = flags
        .get("WORKER_KINDS")
        .filter(|text| !text.trim().is_empty());
    let only: Option<Vec<String>> =
        only.map(|text| text.split(',').map(|name| name.trim().to_owned()).collect());
    if let Err(error) = hosted.check_selection(only.as_deref()) {
        eprintln!("stdworker: {error}");
        return ExitCode::from(error.exit_code());
    }
    let kinds: Vec<&HostedKind> = hosted.selected(only.as_deref()).collect();
    match std::io::stdout().write_all(render(args.output, &kinds).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stdworker: could not write to stdout: {error}");
            ExitCode::FAILURE
        }
    }
}

fn render(format: Format, kinds: &[&HostedKind]) -> String {
    match format {
        Format::Name => kinds
            .iter()
            .map(|kind| format!("{}\n", kind.pair.kind()))
            .collect(),
        Format::Json => {
            let kinds: Vec<_> = kinds
                .iter()
                .map(|kind| {
                    serde_json::json!({
                        "kind": kind.pair.kind(), "kind_version": kind.pair.version(), "about": kind.about,
                    })
                })
                .collect();
            format!("{:#}\n", serde_json::Value::Array(kinds))
        }
        Format::Table => {
            let width = kinds
                .iter()
                .map(|kind| kind.pair.kind().len())
                .max()
                .unwrap_or(0)
                .max("KIND".len());
            let mut text = format!("{:width$}  VERSION  RUNS\n", "KIND");
            for kind in kinds {
                text.push_str(&format!(
                    "{:width$}  {:<7}  {}\n",
                    kind.pair.kind(),
                    kind.pair.version(),
                    kind.about
                ));
            }
            text
        }
    }
}
