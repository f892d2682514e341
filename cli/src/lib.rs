//! `sallyport`, the command: the suite at a desk and in scripts.
//!
//! ```text
//! sallyport dev ────┐
//!                   ├─▶ suite: webhook ══gRPC══▶ mutator, validator   (all in this process, real TLS)
//! sallyport review ─┤
//!                   └─▶ client ──HTTPS──▶ any front
//! sallyport certs ───▶ files
//! sallyport cel, sallyport test ─────▶ the engine of the policies, and nothing else
//!   … status, rotate, freeze ─┐
//!                             ├─▶ cluster: an API server, as whoever the kubeconfig names
//! sallyport doctor ───────────┘
//! ```
//!
//! It adds nothing of its own to a decision: reviews take the way that an API server's take, through the
//! services' own code. The invariant: what `sallyport review` shows is what a cluster with the same policies
//! would do with the same review. On a cluster it only reads, but for two annotations of one Secret.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod cel;
mod certs;
mod cluster;
mod completion;
mod dev;
mod doctor;
mod door;
mod input;
mod leadership;
mod output;
mod policies;
mod review;
mod suite;
mod test;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::output::terminal;

const EXAMPLES: &str = "\
Examples:
  Try policies on manifests, without a cluster:
    sallyport review --policy-dir policies pod.yaml

  Check that policies do what their suites say:
    sallyport test policies

  Try an expression on an object:
    sallyport cel 'object.spec.containers.map(c, c.image)' -f pod.yaml

  Run the suite here and have a cluster on this machine use it:
    sallyport dev --policy-dir policies --kubeconfig ~/.kube/config

  Make certificates for a webhook of your own:
    sallyport certs --service my-webhook --namespace prod --output certs

  Look whether a release on a cluster is well:
    sallyport doctor
    sallyport certs status

Exit status:
  0  done; of a review: everything was allowed; of a check: everything is well
  1  an error
  2  wrong usage
  3  a review was denied; something is not as it should be";

/// Admission control for Kubernetes, at your desk: try, run and equip the suite without a cluster, and look after it
/// on one.
#[derive(Debug, Parser)]
#[command(name = "sallyport", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Dev(dev::DevArgs),
    Review(Box<review::ReviewArgs>),
    Test(test::TestArgs),
    Cel(Box<cel::CelArgs>),
    Certs(Box<certs::CertsArgs>),
    Doctor(doctor::DoctorArgs),
    Completion(completion::CompletionArgs),
}

/// Runs one command to its end.
pub async fn run(args: Args) -> ExitCode {
    let outcome = match args.command {
        Command::Dev(args) => dev::run(args).await,
        Command::Review(args) => review::run(*args).await,
        Command::Test(args) => test::run(&args),
        Command::Cel(args) => cel::run(&args),
        Command::Certs(args) => certs::run(*args).await,
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Completion(args) => completion::run(&args, Args::command()),
    };
    match outcome {
        Ok(status) => status.into(),
        // Whoever reads has seen enough, as with `| head`.
        Err(error) if terminal::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::print_error(&error);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Args;

    #[test]
    fn the_flags_are_consistent_r13() {
        Args::command().debug_assert();
    }

    /// Every flag can be set in the environment too.
    #[test]
    fn every_flag_has_a_variable_of_the_same_name() {
        let mut commands: Vec<_> = Args::command().get_subcommands().cloned().collect();
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
