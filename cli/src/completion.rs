//! `sallyport completion`: scripts with which shells complete the command.

use clap::CommandFactory;
use std::io::Write;
use std::process::ExitCode;

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

pub(crate) fn run(args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Args::command(), "sallyport", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent_r13() {
        crate::Args::command().debug_assert();
    }

    /// Every flag can be set in the environment too.
    #[test]
    fn every_flag_has_a_variable_of_the_same_name() {
        let mut commands: Vec<_> = crate::Args::command().get_subcommands().cloned().collect();
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
                let name = argument.get_long().unwrap();
                if ["help", "version"].contains(&name) {
                    continue;
                }
                let variable = format!("SALLYPORT_{}", name.replace('-', "_").to_uppercase());
                let given = argument.get_env().and_then(|name| name.to_str());
                assert_eq!(given, Some(variable.as_str()), "--{name} of {}", command.get_name());
            }
        }
    }
}
