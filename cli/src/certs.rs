//! `sallyport certs`: certificates as files, for webhooks without a rotator and for a suite without a cluster; and,
//! as subcommands, those of a release.

mod freeze;
mod lifetime;
mod rotate;
mod status;

use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use sallyport_pki::Algorithm;
use sallyport_pki::names::{DEFAULT_CLUSTER_DOMAIN, Extras, Member, ServiceName, Suite};
use sallyport_pki::offline::{self, Options};

use self::lifetime::parse_lifetime;
use crate::output::exit_status::ExitStatus;
use crate::output::terminal::{self, STRONG};

const EXAMPLES: &str = "\
Written are ca.crt, ca.key, tls.crt and tls.key; keys can be read by their owner alone. The certificate is
good for SERVICE, SERVICE.NAMESPACE, SERVICE.NAMESPACE.svc and SERVICE.NAMESPACE.svc.DOMAIN. Standard output
is the caBundle for a webhook configuration, in base64, and nothing else. Run again on the same directory,
the authority stays and the certificate is renewed, so every caBundle stays right.

Examples:
  sallyport certs --service my-webhook --namespace prod --output certs
  bundle=$(sallyport certs --service my-webhook --namespace prod --output certs)

  Also for a process on this machine, for a year:
    sallyport certs --service hook --namespace dev --extra-name localhost --extra-ip 127.0.0.1 --life 365d --output certs

  For all services of a suite, in webhook/, mutator/ and validator/ below certs; always anew:
    sallyport certs --suite --loopback --output certs

  Of a release on a cluster:
    sallyport certs status
    sallyport certs rotate --wait 10m";

/// Make certificates as files, without a cluster; or look at those of a release.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct CertsArgs {
    #[command(subcommand)]
    command: Option<CertsCommand>,

    /// Service that the certificate is for: a DNS-1123 label.
    #[arg(
        long,
        env = "SALLYPORT_SERVICE",
        value_name = "NAME",
        required_unless_present = "suite",
        conflicts_with = "suite"
    )]
    service: Option<String>,

    /// Make certificates for a whole suite.
    #[arg(long, env = "SALLYPORT_SUITE")]
    suite: bool,

    /// With --suite: the Services are PREFIX-webhook, PREFIX-mutator and PREFIX-validator.
    #[arg(
        long,
        env = "SALLYPORT_PREFIX",
        value_name = "PREFIX",
        default_value = "sallyport",
        requires = "suite"
    )]
    prefix: String,

    /// Namespace of the Service [with --suite: sallyport].
    #[arg(long, env = "SALLYPORT_NAMESPACE", value_name = "NAME", required_unless_present = "suite")]
    namespace: Option<String>,

    /// Directory to write to; made if it is not there.
    #[arg(long, short, env = "SALLYPORT_OUTPUT", value_name = "DIR", required = true)]
    output: Option<PathBuf>,

    /// DNS domain of the cluster.
    #[arg(long, env = "SALLYPORT_CLUSTER_DOMAIN", value_name = "DOMAIN", default_value = DEFAULT_CLUSTER_DOMAIN)]
    cluster_domain: String,

    /// Further DNS names, separated by commas or given repeatedly.
    #[arg(long = "extra-name", env = "SALLYPORT_EXTRA_NAME", value_name = "NAME", value_delimiter = ',')]
    extra_names: Vec<String>,

    /// IP addresses, separated by commas or given repeatedly.
    #[arg(long = "extra-ip", env = "SALLYPORT_EXTRA_IP", value_name = "IP", value_delimiter = ',')]
    extra_addresses: Vec<IpAddr>,

    /// Add localhost and the loopback addresses.
    #[arg(long, env = "SALLYPORT_LOOPBACK")]
    loopback: bool,

    /// How long the certificate lives: a number with s, m, h or d.
    #[arg(long, env = "SALLYPORT_LIFE", value_name = "TIME", default_value = "90d", value_parser = parse_lifetime, conflicts_with = "suite")]
    life: Duration,

    /// How long a new authority lives.
    #[arg(long, env = "SALLYPORT_CA_LIFE", value_name = "TIME", default_value = "365d", value_parser = parse_lifetime, conflicts_with = "suite")]
    ca_life: Duration,

    /// Kind of keys of a new authority; certificates have their authority's.
    #[arg(
        long,
        env = "SALLYPORT_KEY_ALGORITHM",
        value_enum,
        value_name = "KIND",
        default_value = "ecdsa-p256",
        conflicts_with = "suite"
    )]
    key_algorithm: KeyAlgorithm,

    /// Make the certificate good for a client as well.
    #[arg(long, env = "SALLYPORT_CLIENT", conflicts_with = "suite")]
    client: bool,
}

#[derive(Debug, Subcommand)]
enum CertsCommand {
    Status(status::StatusArgs),
    Rotate(rotate::RotateArgs),
    Freeze(freeze::FreezeArgs),
    Unfreeze(freeze::UnfreezeArgs),
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeyAlgorithm {
    /// ECDSA on P-256.
    EcdsaP256,
    /// RSA with 2048 bits.
    #[value(name = "rsa-2048")]
    Rsa2048,
}

pub(crate) async fn run(args: CertsArgs) -> anyhow::Result<ExitStatus> {
    match &args.command {
        None => write_certificates(&args),
        Some(CertsCommand::Status(args)) => status::run(args).await,
        Some(CertsCommand::Rotate(args)) => rotate::run(args).await,
        Some(CertsCommand::Freeze(args)) => freeze::freeze(args).await,
        Some(CertsCommand::Unfreeze(args)) => freeze::unfreeze(args).await,
    }
}

fn write_certificates(args: &CertsArgs) -> anyhow::Result<ExitStatus> {
    let directory = args.output.as_deref().context("--output is missing")?;
    let mut extras = if args.loopback { Extras::loopback() } else { Extras::default() };
    extras.dns_names.extend(args.extra_names.iter().cloned());
    extras.addresses.extend(args.extra_addresses.iter().copied());
    let bundle = if args.suite {
        write_suite(args, directory, &extras)
    } else {
        write_single(args, directory, extras)
    }?;
    let mut output = std::io::stdout();
    writeln!(output, "{bundle}")?;
    Ok(ExitStatus::Success)
}

fn write_single(args: &CertsArgs, directory: &Path, extras: Extras) -> anyhow::Result<String> {
    // Both are there, or clap would have said so; an empty name is refused like any other bad one.
    let (service, namespace) = (args.service.as_deref(), args.namespace.as_deref());
    let service =
        ServiceName::new(service.unwrap_or_default(), namespace.unwrap_or_default(), &args.cluster_domain)?;
    anyhow::ensure!(args.life <= args.ca_life, "--life is longer than --ca-life");
    let options = Options {
        extras,
        client_auth: args.client,
        algorithm: match args.key_algorithm {
            KeyAlgorithm::EcdsaP256 => Algorithm::EcdsaP256,
            KeyAlgorithm::Rsa2048 => Algorithm::Rsa2048,
        },
        authority_life: args.ca_life,
        leaf_life: args.life,
        ..Options::new(directory.to_owned(), service)
    };
    let report = offline::write(&options, SystemTime::now())?;
    let addresses = report.leaf.addresses().iter().map(ToString::to_string);
    let names: Vec<_> = report.leaf.dns_names().iter().cloned().chain(addresses).collect();
    terminal::print_note(&format!("{STRONG}certificate for{STRONG:#} {}", names.join(", ")));
    if report.authority_reused {
        terminal::print_note("the authority that was there has signed it; its caBundle stays right");
    }
    for file in &report.files {
        terminal::print_note(&format!("wrote {}", file.display()));
    }
    Ok(report.ca_bundle)
}

fn write_suite(args: &CertsArgs, directory: &Path, extras: &Extras) -> anyhow::Result<String> {
    let namespace = args.namespace.as_deref().unwrap_or("sallyport");
    let suite = Suite::with_prefix(&args.prefix, namespace, &args.cluster_domain)
        .context("--prefix, --namespace or --cluster-domain cannot be used")?;
    let bundle = offline::write_suite(directory, &suite, extras, SystemTime::now())?;
    for member in Member::ALL {
        let directory = directory.join(member.word());
        let name = suite.service(member).server_name();
        terminal::print_note(&format!("{STRONG}{name}{STRONG:#}: wrote {}", directory.display()));
    }
    Ok(bundle.to_ca_bundle())
}
