//! `converge`: the control plane. All of it is in `converge-server`.

use std::process::ExitCode;

fn main() -> ExitCode {
    converge_server::main(std::env::args_os())
}
