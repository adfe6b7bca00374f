//! `conctl completion`: the shell's completion script.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::context::Context;
use crate::exit::Result;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(conctl completion bash)
  conctl completion zsh > ~/.zfunc/_conctl
  conctl completion fish > ~/.config/fish/completions/conctl.fish")]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(cx: &mut Context, args: CompletionArgs) -> Result {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "conctl", &mut script);
    cx.out.bytes(&script)
}
