//! The flags of the jobs, each also in the environment. What cannot be is refused here, with the flag's name.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use sallyport_pki::authority::MAX_LIFE;
use sallyport_pki::names::{
    DEFAULT_CLUSTER_DOMAIN, Extras, MAX_COMMON_NAME, NameError, ServiceName, dns_label, dns_subdomain,
};
use sallyport_pki::stored::{CERTIFICATE, PRIVATE_KEY, TRUST};
use sallyport_pki::{Algorithm, LeafRequest, Renewal};
use sallyport_telemetry::{LogFormat, TelemetryArgs};

/// The longest key of a Secret, in bytes.
const MAX_SECRET_KEY: usize = 253;
/// The shortest life that a signer of the cluster can be asked for.
const MIN_SIGNED_LIFE: Duration = Duration::from_secs(600);

/// Flags that name webhook configurations.
const WEBHOOKS: [&str; 3] = ["webhook", "mutating", "validating"];

/// Kinds of keys, as the flag spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    EcdsaP256,
    /// RSA with 2048 bits.
    #[value(name = "rsa-2048")]
    Rsa2048,
}

impl From<KeyAlgorithm> for Algorithm {
    fn from(kind: KeyAlgorithm) -> Self {
        match kind {
            KeyAlgorithm::EcdsaP256 => Self::EcdsaP256,
            KeyAlgorithm::Rsa2048 => Self::Rsa2048,
        }
    }
}

/// A job that ends.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Job {
    /// Make the Secret with a webhook's certificate, or keep the one that is there and good.
    #[command(after_help = CREATE_HELP)]
    Create(Box<CreateArgs>),
    /// Write the Secret's authorities into webhook configurations, `APIServices` and CRD conversions.
    #[command(after_help = PATCH_HELP)]
    Patch(Box<PatchArgs>),
    /// Create, then patch; a certificate is replaced only after its new authority is trusted.
    #[command(after_help = BOOTSTRAP_HELP)]
    Bootstrap(Box<BootstrapArgs>),
}

impl Job {
    /// What the flags cannot be together.
    pub fn check(&self) -> Result<(), String> {
        let (common, certificate) = match self {
            Self::Create(args) => (&args.common, Some(&args.certificate)),
            Self::Patch(args) => (&args.common, None),
            Self::Bootstrap(args) => (&args.common, Some(&args.certificate)),
        };
        common.check()?;
        certificate.map_or(Ok(()), |certificate| certificate.check(common))
    }
}

const CREATE_HELP: &str = "\
The certificate is good for SERVICE, SERVICE.NAMESPACE, SERVICE.NAMESPACE.svc and SERVICE.NAMESPACE.svc.DOMAIN,
and for every --host. One that is there and good is kept, so the job may run any number of times. It is replaced
when it is due, cannot be read, does not verify, or is for other names; the former authority stays in the Secret's
bundle until it expires. A private key that somebody else stored is never replaced without --replace.

Examples:
  sallyport-cert-rotator create --service hook --namespace prod --secret hook-tls

  With the key names of kube-webhook-certgen, and a name from outside:
    sallyport-cert-rotator create --service hook --namespace prod --secret hook-tls \\
      --ca-key ca --cert-key cert --key-key key --host hook.example,10.0.0.7

  With an authority that is kept, so that renewals need no new caBundle:
    sallyport-cert-rotator create --service hook --namespace prod --secret hook-tls --ca-secret hook-ca --life 90d

  Signed by a signer of the cluster, approved by this job:
    sallyport-cert-rotator create --service hook --namespace prod --secret hook-tls \\
      --signer kubernetes.io/kubelet-serving --approve \\
      --subject-organization system:nodes --common-name system:node:hook.prod.svc";

const PATCH_HELP: &str = "\
All entries of a configuration get the authorities. Nothing is written that is right already; objects and the
Secret that are not there yet are waited for.

Examples:
  sallyport-cert-rotator patch --namespace prod --secret hook-tls --webhook hook
  sallyport-cert-rotator patch --namespace prod --secret hook-tls --validating hook --failure-policy Fail
  sallyport-cert-rotator patch --namespace prod --secret hook-tls --apiservice v1.hook.example --crd things.hook.example";

const BOOTSTRAP_HELP: &str = "\
Example:
  sallyport-cert-rotator bootstrap --service hook --namespace prod --secret hook-tls --mutating hook --validating hook";

/// What `create` is told.
#[derive(Debug, Clone, Args)]
pub struct CreateArgs {
    /// The Secret and the cluster.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The certificate.
    #[command(flatten)]
    pub certificate: CertificateArgs,
}

/// What `patch` is told.
#[derive(Debug, Clone, Args)]
pub struct PatchArgs {
    /// The Secret and the cluster.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The objects.
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// What `bootstrap` is told.
#[derive(Debug, Clone, Args)]
pub struct BootstrapArgs {
    /// The Secret and the cluster.
    #[command(flatten)]
    pub common: CommonArgs,
    /// The certificate.
    #[command(flatten)]
    pub certificate: CertificateArgs,
    /// The objects.
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// The Secret, the cluster, and how patient to be.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Namespace of the Secret and the Service.
    #[arg(long, env = "SALLYPORT_NAMESPACE", value_name = "NAME", value_parser = label)]
    pub namespace: String,

    /// Secret of the webhook.
    #[arg(long, env = "SALLYPORT_SECRET", value_name = "NAME", value_parser = subdomain)]
    pub secret: String,

    /// Key in the Secret that holds the authorities.
    #[arg(long, env = "SALLYPORT_CA_KEY", value_name = "KEY", default_value = TRUST, value_parser = secret_key)]
    pub ca_key: String,

    /// Key in the Secret that holds the certificate.
    #[arg(long, env = "SALLYPORT_CERT_KEY", value_name = "KEY", default_value = CERTIFICATE, value_parser = secret_key)]
    pub cert_key: String,

    /// Key in the Secret that holds the private key.
    #[arg(long, env = "SALLYPORT_KEY_KEY", value_name = "KEY", default_value = PRIVATE_KEY, value_parser = secret_key)]
    pub key_key: String,

    /// Give up after this long: a number with s, m, h or d.
    #[arg(long, env = "SALLYPORT_TIMEOUT", value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub timeout: Duration,

    /// Kubeconfig of the cluster. Default: the pod's `ServiceAccount`, or the usual places.
    #[arg(long, env = "SALLYPORT_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Format of the log lines on standard error.
    #[arg(long, env = "SALLYPORT_LOG_FORMAT", value_enum, default_value = "json", value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// What is logged: a level (error, warn, info, debug, trace) or a list of target=level.
    #[arg(long, env = "SALLYPORT_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub log_level: String,
}

impl CommonArgs {
    /// Settings of the logs.
    pub(crate) fn telemetry(&self) -> TelemetryArgs {
        let log_level = self.log_level.clone();
        TelemetryArgs { log_format: self.log_format, log_level, ..TelemetryArgs::default() }
    }

    /// What the flags cannot be together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let keys = BTreeSet::from([&self.ca_key, &self.cert_key, &self.key_key]);
        if keys.len() == 3 {
            Ok(())
        } else {
            Err("--ca-key, --cert-key and --key-key must be three different keys".to_owned())
        }
    }
}

/// The certificate, and who signs it.
#[derive(Debug, Clone, Args)]
pub struct CertificateArgs {
    /// Service that the certificate is for.
    #[arg(long, env = "SALLYPORT_SERVICE", value_name = "NAME", value_parser = label)]
    pub service: String,

    /// Further DNS names and IP addresses, separated by commas or given repeatedly.
    #[arg(long = "host", env = "SALLYPORT_HOST", value_name = "NAME|IP", value_delimiter = ',', value_parser = host)]
    pub hosts: Vec<Host>,

    /// DNS domain of the cluster.
    #[arg(
        long,
        env = "SALLYPORT_CLUSTER_DOMAIN",
        value_name = "DOMAIN",
        default_value = DEFAULT_CLUSTER_DOMAIN,
        value_parser = subdomain
    )]
    pub cluster_domain: String,

    /// How long the certificate lives. The default outlives a job that nobody runs again; a `CronJob` that renews does
    /// well with 90d. With --signer the default is the signer's. [default: 3650d]
    #[arg(long, env = "SALLYPORT_LIFE", value_name = "TIME", value_parser = duration)]
    pub life: Option<Duration>,

    /// Replace the certificate when less than this is left. Default: before two thirds of its life have passed.
    #[arg(long, env = "SALLYPORT_RENEW_BEFORE", value_name = "TIME", value_parser = duration)]
    pub renew_before: Option<Duration>,

    /// Kind of new keys; with --ca-secret, certificates have their authority's.
    #[arg(
        long,
        env = "SALLYPORT_KEY_ALGORITHM",
        value_enum,
        value_name = "KIND",
        default_value = "ecdsa-p256"
    )]
    pub key_algorithm: KeyAlgorithm,

    /// Replace private keys of others, if what they stored cannot be used.
    #[arg(long, env = "SALLYPORT_REPLACE")]
    pub replace: bool,

    /// Keep the authority with its private key in this Secret. Without it each certificate has an authority of its
    /// own, whose key is forgotten. No pod may mount it.
    #[arg(long, env = "SALLYPORT_CA_SECRET", value_name = "NAME", value_parser = subdomain)]
    pub ca_secret: Option<String>,

    /// How long the authority in --ca-secret lives.
    #[arg(long, env = "SALLYPORT_CA_LIFE", value_name = "TIME", default_value = "3650d", value_parser = duration)]
    pub ca_life: Duration,

    /// Have the certificate signed by this signer of certificates.k8s.io.
    #[arg(long, env = "SALLYPORT_SIGNER", value_name = "NAME", value_parser = signer, conflicts_with = "ca_secret")]
    pub signer: Option<String>,

    /// Approve the request too, instead of waiting for somebody else to do it.
    #[arg(long, env = "SALLYPORT_APPROVE", requires = "signer")]
    pub approve: bool,

    /// File with the signer's authorities. Default: those of the API server, from the `ServiceAccount` or kubeconfig.
    #[arg(long, env = "SALLYPORT_SIGNER_CA_FILE", value_name = "FILE", requires = "signer")]
    pub signer_ca_file: Option<PathBuf>,

    /// Organization in the request's subject, for a signer that insists.
    #[arg(long, env = "SALLYPORT_SUBJECT_ORGANIZATION", value_name = "NAME", value_parser = subject, requires = "signer")]
    pub subject_organization: Option<String>,

    /// Common name in the request's subject. Default: SERVICE.NAMESPACE.svc, or none if that is too long.
    #[arg(long, env = "SALLYPORT_COMMON_NAME", value_name = "NAME", value_parser = subject, requires = "signer")]
    pub common_name: Option<String>,
}

impl CertificateArgs {
    /// How long a certificate lives that nobody else signs.
    pub const LIFE: Duration = Duration::from_secs(3650 * 24 * 60 * 60);

    /// What the flags cannot be together, with `common`.
    pub(crate) fn check(&self, common: &CommonArgs) -> Result<(), String> {
        self.wanted(&common.namespace).map_err(|error| format!("--service, --namespace: {error}"))?;
        if self.ca_secret.as_ref() == Some(&common.secret) {
            return Err("--ca-secret and --secret must be two different Secrets".to_owned());
        }
        for (flag, life) in [("--life", self.life), ("--ca-life", Some(self.ca_life))] {
            if life.is_some_and(|life| life > MAX_LIFE) {
                return Err(format!("{flag} is longer than {} days", MAX_LIFE.as_secs() / 86_400));
            }
        }
        if self.signer.is_some() && self.life.is_some_and(|life| life < MIN_SIGNED_LIFE) {
            return Err("--life is shorter than 10 minutes, which no signer accepts".to_owned());
        }
        Ok(())
    }

    /// The Service in `namespace`.
    pub(crate) fn service(&self, namespace: &str) -> Result<ServiceName, NameError> {
        ServiceName::new(&self.service, namespace, &self.cluster_domain)
    }

    /// What the certificate has to be.
    pub(crate) fn wanted(&self, namespace: &str) -> Result<LeafRequest, NameError> {
        let mut extras = Extras::default();
        for host in &self.hosts {
            match host {
                Host::Name(name) => extras.dns_names.push(name.clone()),
                Host::Address(address) => extras.addresses.push(*address),
            }
        }
        LeafRequest::for_service(&self.service(namespace)?).with_extras(&extras)
    }

    /// When a certificate is due.
    pub(crate) fn renewal(&self) -> Renewal {
        self.renew_before.map_or(Renewal::TwoThirds, Renewal::Before)
    }
}

/// The objects that hold a `caBundle`.
#[derive(Debug, Clone, Args)]
#[group(skip)]
#[command(group = ArgGroup::new("webhooks").multiple(true).args(WEBHOOKS))]
#[command(group = ArgGroup::new("targets").multiple(true).required(true).args(WEBHOOKS).args(["apiservice", "crd"]))]
pub struct TargetArgs {
    /// `MutatingWebhookConfiguration` and `ValidatingWebhookConfiguration` of one name; both have to be there.
    #[arg(long, env = "SALLYPORT_WEBHOOK", value_name = "NAME", value_parser = subdomain)]
    pub webhook: Option<String>,

    /// `MutatingWebhookConfiguration`; separated by commas or given repeatedly.
    #[arg(long, env = "SALLYPORT_MUTATING", value_name = "NAME", value_delimiter = ',', value_parser = subdomain)]
    pub mutating: Vec<String>,

    /// `ValidatingWebhookConfiguration`; separated by commas or given repeatedly.
    #[arg(long, env = "SALLYPORT_VALIDATING", value_name = "NAME", value_delimiter = ',', value_parser = subdomain)]
    pub validating: Vec<String>,

    /// `APIService` of an aggregated API.
    #[arg(long, env = "SALLYPORT_APISERVICE", value_name = "NAME", value_delimiter = ',', value_parser = subdomain)]
    pub apiservice: Vec<String>,

    /// `CustomResourceDefinition` that is converted by a webhook.
    #[arg(long, env = "SALLYPORT_CRD", value_name = "NAME", value_delimiter = ',', value_parser = subdomain)]
    pub crd: Vec<String>,

    /// Give every entry of the webhook configurations this failurePolicy as well.
    #[arg(long, env = "SALLYPORT_FAILURE_POLICY", value_name = "POLICY", value_enum, requires = "webhooks")]
    pub failure_policy: Option<FailurePolicy>,
}

/// What the API server does when a webhook does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailurePolicy {
    /// Goes on without it.
    #[value(name = "Ignore")]
    Ignore,
    /// Refuses.
    #[value(name = "Fail")]
    Fail,
}

impl FailurePolicy {
    /// The word in Kubernetes' API.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }
}

/// A name or address that a certificate is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// A DNS-1123 subdomain.
    Name(String),
    /// An IP address.
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn host(text: &str) -> Result<Host, NameError> {
    match text.parse() {
        Ok(address) => Ok(Host::Address(address)),
        Err(_) => subdomain(text).map(Host::Name),
    }
}

fn label(text: &str) -> Result<String, NameError> {
    dns_label("the name", text)?;
    Ok(text.to_owned())
}

fn subdomain(text: &str) -> Result<String, NameError> {
    dns_subdomain("the name", text)?;
    Ok(text.to_owned())
}

/// A key of a Secret: letters, digits, `-`, `_` and `.`.
fn secret_key(text: &str) -> Result<String, String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_SECRET_KEY).contains(&text.len())
        && text.bytes().all(is_good)
        && text != "."
        && !text.starts_with("..")
    {
        Ok(text.to_owned())
    } else {
        Err("a key of a Secret has 1 to 253 letters, digits, '-', '_' and '.'".to_owned())
    }
}

/// A signer's name: `<domain>/<path>`, as in `kubernetes.io/kubelet-serving`.
fn signer(text: &str) -> Result<String, String> {
    let is_good = text.split_once('/').is_some_and(|(domain, path)| {
        domain.contains('.')
            && dns_subdomain("domain", domain).is_ok()
            && !path.is_empty()
            && path.len() <= 253
    });
    if is_good {
        Ok(text.to_owned())
    } else {
        Err("a signer's name is a domain and a path, such as kubernetes.io/kubelet-serving".to_owned())
    }
}

/// A part of a subject: X.509 has room for 64 characters.
fn subject(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if (1..=MAX_COMMON_NAME).contains(&length) && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(format!("it has to have 1 to {MAX_COMMON_NAME} characters, and no control characters"))
    }
}

/// Reads a time: a whole number with `s`, `m`, `h` or `d`, at least one second.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: use a whole number with s, m, h or d, such as 90d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text.strip_suffix(unit).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    match number.checked_mul(seconds) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// A program with nothing but jobs.
    #[derive(clap::Parser)]
    struct Program {
        #[command(subcommand)]
        job: Job,
    }

    fn refusal(arguments: &[&str]) -> Option<String> {
        let all = ["sallyport-cert-rotator"].iter().chain(arguments);
        match Program::try_parse_from(all) {
            Err(error) => Some(error.to_string()),
            Ok(program) => program.job.check().err(),
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_r13_sys3() {
        let create = ["create", "--service", "hook", "--namespace", "prod", "--secret", "hook-tls"];
        let patch = ["patch", "--namespace", "prod", "--secret", "hook-tls"];
        for (command, without, wanted) in [
            (&create[..], "--service", "--service"),
            (&create, "--namespace", "--namespace"),
            (&create, "--secret", "--secret"),
            (&patch, "--namespace", "--namespace"),
            (&patch, "--secret", "--secret"),
        ] {
            let at = command.iter().position(|argument| *argument == without).unwrap();
            let arguments = [&command[..at], &command[at + 2..]].concat();
            assert!(refusal(&arguments).unwrap().contains(wanted), "{arguments:?}");
        }
        let rows: [(&[&str], &[&str], &str); 16] = [
            (&create, &["--host", "ok.example,not_ok"], "--host"),
            (&create, &["--service", "Bad_Name"], "--service"),
            (&create, &["--life", "10"], "--life"),
            (&create, &["--life", "40000d"], "--life"),
            (&create, &["--timeout", "soon"], "--timeout"),
            (&create, &["--ca-secret", "hook-tls"], "--ca-secret"),
            (&create, &["--cert-key", "ca.crt"], "--cert-key"),
            (&create, &["--key-key", "a/b"], "--key-key"),
            (&create, &["--signer", "nobody"], "--signer"),
            (&create, &["--approve"], "--signer"),
            (&create, &["--common-name", "x"], "--signer"),
            (&create, &["--signer", "a.b/c", "--ca-secret", "x"], "--ca-secret"),
            (&create, &["--signer", "a.b/c", "--common-name", &"x".repeat(65)], "--common-name"),
            (&patch, &[], "--webhook"),
            (&patch, &["--webhook", "x", "--failure-policy", "Perhaps"], "--failure-policy"),
            (&patch, &["--crd", "x", "--failure-policy", "Fail"], "--webhook"),
        ];
        for (command, more, wanted) in rows {
            let arguments: Vec<&str> = command.iter().chain(more).copied().collect();
            // Nothing may be given twice.
            let arguments = without_first(&arguments);
            let refused = refusal(&arguments).unwrap_or_else(|| panic!("{arguments:?} is accepted"));
            assert!(refused.contains(wanted), "{arguments:?}: {refused}");
        }
        let both = ["--validating", "x", "--mutating", "x,y", "--crd", "z", "--failure-policy", "Fail"];
        for good in [&create[..], &[&patch[..], &both].concat(), &[&patch[..], &["--crd", "x"]].concat()] {
            assert_eq!(refusal(good), None, "{good:?}");
        }
    }

    /// The arguments without the first of a flag that is given twice.
    fn without_first<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
        let twice = |flag: &&str| arguments.iter().filter(|other| *other == flag).count() > 1;
        match arguments.iter().position(|argument| argument.starts_with("--") && twice(argument)) {
            Some(at) => [&arguments[..at], &arguments[at + 2..]].concat(),
            None => arguments.to_vec(),
        }
    }

    #[test]
    fn a_long_service_name_is_no_obstacle_sys3() {
        let long = "s".repeat(63);
        assert_eq!(refusal(&["create", "--service", &long, "--namespace", "prod", "--secret", "x"]), None);
    }

    #[test]
    fn times_have_a_unit() {
        for (text, wanted) in
            [("90d", Some(7_776_000)), ("5m", Some(300)), ("1s", Some(1)), ("24h", Some(86_400))]
                .into_iter()
                .chain(
                    ["", "d", "0s", "-1s", "1", "1.5h", "1w", "1µ", "99999999999999999999d"]
                        .map(|text| (text, None)),
                )
        {
            assert_eq!(duration(text).ok().map(|d| d.as_secs()), wanted, "{text:?}");
        }
    }
}
