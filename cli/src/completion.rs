//! `sallyport completion`: scripts with which shells complete the command.

use std::io::Write;

use crate::output::exit_status::ExitStatus;

const EXAMPLES: &str = "\
Examples:
  sallyport completion bash > /etc/bash_completion.d/sallyport
  sallyport completion zsh > \"${fpath[1]}/_sallyport\"
  sallyport completion fish > ~/.config/fish/completions/sallyport.fish";

/// Print a script that makes a shell complete this command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Writes the script for `command`.
pub(crate) fn run(args: &CompletionArgs, mut command: clap::Command) -> anyhow::Result<ExitStatus> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "sallyport", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitStatus::Success)
}
