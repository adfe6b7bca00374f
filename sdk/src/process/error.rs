//! Why a program did not start, in words a person can act on, and whether trying again helps.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::TaskError;

/// A program was not started.
///
/// The message names what is wrong, cause included; [`is_transient`](Self::is_transient) says whether the machine may cure it
/// by itself. As with [`TaskError`], `?` decides between terminal and transient, which is why this is no
/// [`std::error::Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such program, by path or in the `PATH` the program would have been given.
    ProgramMissing {
        /// The program as it was given.
        program: String,
        /// The `PATH` that was searched, for a bare name.
        searched: Option<String>,
    },
    /// The file exists but the worker may not execute it.
    ProgramNotExecutable {
        /// The program as it was given.
        program: String,
    },
    /// The path names a directory.
    ProgramIsDirectory {
        /// The program as it was given.
        program: String,
    },
    /// The file is neither a binary of this machine nor a script with a `#!` line.
    ProgramFormat {
        /// The program as it was given.
        program: String,
    },
    /// The file exists, but the interpreter its first line names (or its dynamic loader) does not.
    InterpreterMissing {
        /// The program as it was given.
        program: String,
    },
    /// The working directory does not exist, is no directory or may not be entered.
    WorkingDirectory {
        /// The directory asked for.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A NUL byte, which no argument and no variable can carry.
    NulByte {
        /// Where: `argument 2`, `spec.env.NAME`.
        field: String,
    },
    /// A name that cannot be an environment variable.
    VariableName {
        /// Which map the name stands in.
        field: String,
        /// The name.
        name: String,
    },
    /// One argument or variable is too long, or all of them together.
    TooLong {
        /// Which argument or variable.
        what: String,
        /// Its length.
        bytes: usize,
    },
    /// The program file is open for writing somewhere: it is being installed right now.
    TextBusy {
        /// The program as it was given.
        program: String,
    },
    /// The machine is out of processes, memory, descriptors or disk.
    Exhausted {
        /// What ran out.
        resource: &'static str,
        /// The program as it was given.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The private directory or a file in it could not be made.
    Scratch {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Cancelled before the program started.
    Cancelled {
        /// The program as it was given.
        program: String,
    },
    /// Anything else the operating system answered.
    Other {
        /// The program as it was given.
        program: String,
        /// The operating system's error.
        source: io::Error,
    },
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::ProgramMissing { program, searched } => {
                write!(f, "program {program:?} was not found")?;
                if let Some(path) = searched {
                    write!(f, " in PATH ({path})")?;
                }
                f.write_str("; correct its name or path, or install it on the worker")
            }
            SpawnError::ProgramNotExecutable { program } => write!(
                f,
                "program {program:?} is not executable for the worker; set its execute permission (chmod +x), and check \
                 that no directory above it is closed or mounted noexec"
            ),
            SpawnError::ProgramIsDirectory { program } => {
                write!(
                    f,
                    "program {program:?} is a directory; name the file to run inside it"
                )
            }
            SpawnError::ProgramFormat { program } => write!(
                f,
                "program {program:?} cannot be run by the kernel: it is no binary of this machine and has no \"#!\" first \
                 line; add one, or name its interpreter as the program"
            ),
            SpawnError::InterpreterMissing { program } => write!(
                f,
                "program {program:?} exists, but the interpreter its first line names, or its loader, does not exist on \
                 the worker"
            ),
            SpawnError::WorkingDirectory { path, problem } => {
                write!(f, "working directory {path:?} {problem}")
            }
            SpawnError::NulByte { field } => {
                write!(
                    f,
                    "{field} contains a NUL byte, which cannot be passed to a program"
                )
            }
            SpawnError::VariableName { field, name } => write!(
                f,
                "{field}: {name:?} cannot name an environment variable: a name is not empty and holds no \"=\""
            ),
            SpawnError::TooLong { what, bytes } => write!(
                f,
                "{what}: too long for the kernel ({bytes} bytes; one string may have 131071 bytes, all together about \
                 2 MiB); pass large values on stdin or in a file"
            ),
            SpawnError::TextBusy { program } => {
                write!(f, "program {program:?} is being written by another process")
            }
            SpawnError::Exhausted {
                resource,
                program,
                source,
            } => write!(
                f,
                "the worker's machine is out of {resource} while starting {program:?}: {source}"
            ),
            SpawnError::Scratch { path, source } => {
                write!(f, "could not write {path:?} for the program: {source}")
            }
            SpawnError::Cancelled { program } => write!(f, "cancelled before {program:?} started"),
            SpawnError::Other { program, source } => {
                write!(f, "could not start {program:?}: {source}")
            }
        }
    }
}

impl From<SpawnError> for TaskError {
    fn from(error: SpawnError) -> Self {
        if error.is_transient() {
            TaskError::transient(error.to_string())
        } else {
            TaskError::terminal(error.to_string())
        }
    }
}

impl SpawnError {
    /// Whether the same command may start later without anybody changing it.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            SpawnError::TextBusy { .. }
                | SpawnError::Exhausted { .. }
                | SpawnError::Scratch { .. }
                | SpawnError::Cancelled { .. }
                | SpawnError::Other { .. }
        )
    }

    /// Whether the machine ran out of something.
    #[must_use]
    pub fn is_exhaustion(&self) -> bool {
        matches!(self, SpawnError::Exhausted { .. })
    }
}

/// What ran out, when `error` says that something did.
pub(super) fn exhausted(error: &io::Error) -> Option<&'static str> {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error)?;
    Some(match errno {
        Errno::AGAIN => "processes (EAGAIN: a limit on processes or threads)",
        Errno::NOMEM => "memory",
        Errno::MFILE | Errno::NFILE => "file descriptors",
        Errno::NOSPC | Errno::DQUOT => "disk space",
        _ => return None,
    })
}

/// A scratch file or directory that could not be written.
pub(super) fn scratch(program: &str, path: PathBuf, source: io::Error) -> SpawnError {
    match exhausted(&source) {
        Some(resource) => SpawnError::Exhausted {
            resource,
            program: program.to_owned(),
            source,
        },
        None => SpawnError::Scratch { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_anything_is_transient_exhaustion() {
        for errno in [11, 12, 24, 23, 28, 122] {
            let error = scratch(
                "sh",
                PathBuf::from("/x"),
                io::Error::from_raw_os_error(errno),
            );
            assert!(
                error.is_exhaustion() && error.is_transient(),
                "{errno}: {error}"
            );
        }
        let error = scratch("sh", PathBuf::from("/x"), io::Error::from_raw_os_error(13));
        assert!(!error.is_exhaustion());
        assert!(error.to_string().contains("ermission denied"), "{error}");
    }
}
