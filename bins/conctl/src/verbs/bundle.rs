//! `conctl bundle pack`: a directory as the zip of a providerconfig, without a server.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::bundle;
use crate::context::Context;
use crate::exit::{Failure, Result};

/// Make bundles.
#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    #[command(subcommand)]
    command: BundleCommand,
}

#[derive(Debug, Subcommand)]
enum BundleCommand {
    /// Pack a directory into a zip.
    ///
    /// The same files give the same bytes, on every machine and at any time. Hidden files, symbolic links and whatever is
    /// not a regular file are left out, and named. At most 4 MiB in all, 512 KiB for each .star file, 2,000 files.
    #[command(after_help = "\
Examples:
  conctl bundle pack policies/ -o policies.zip
  conctl apply -f config.yaml --bundle policies/    packs and applies in one step")]
    Pack(PackArgs),
}

#[derive(Debug, Args)]
struct PackArgs {
    /// The directory.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The zip to write; - is stdout.
    #[arg(short = 'o', long, value_name = "FILE.zip")]
    output: PathBuf,
}

pub(crate) fn run(cx: &mut Context, args: BundleArgs) -> Result {
    let BundleCommand::Pack(args) = args.command;
    let packed = bundle::pack(&args.dir)?;
    for skipped in &packed.skipped {
        cx.progress.note(&format!("not packed: {skipped}"));
    }
    if args.output.as_os_str() == "-" {
        return cx.out.bytes(&packed.bytes);
    }
    fs::write(&args.output, &packed.bytes)
        .map_err(|err| Failure::usage(format!("cannot write {}: {err}", args.output.display())))?;
    let (files, bytes) = (packed.files, packed.bytes.len());
    cx.progress.note(&format!(
        "packed {files} files into {} ({bytes} bytes)",
        args.output.display()
    ));
    Ok(())
}
