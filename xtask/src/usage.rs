//! A command line that makes no sense: what it exits with, here as in our binaries.

use std::fmt;
use std::process::ExitCode;

/// As `sysexits.h` has it.
const USAGE: u8 = 64;

/// Something was asked for that there is not.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A task's error that is its caller's.
pub(crate) fn usage(message: impl Into<String>) -> anyhow::Error {
    Usage(message.into()).into()
}

/// What a task that failed exits with.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Usage>() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::FAILURE
    }
}

/// Prints what the reader of the command line says: help to stdout, which is no error, or what is wrong.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // Nothing can be done about a closed stderr.
    let _ = error.print();
    if error.use_stderr() {
        ExitCode::from(USAGE)
    } else {
        ExitCode::SUCCESS
    }
}
