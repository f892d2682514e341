//! Certificates as files, without any cluster: one Service's set, or a whole suite's (SYS-7).

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::authority::{AUTHORITY_LIFE, Algorithm, Authority, IssueError, LEAF_LIFE};
use crate::bundle::Bundle;
use crate::certificate::{Certificate, CertificateError};
use crate::check;
use crate::files::{self, FileError};
use crate::key_pair::KeyPair;
use crate::leaf::LeafRequest;
use crate::names::{AUTHORITY, Extras, Member, NameError, ServiceName, Suite};
use crate::renewal::Renewal;
use crate::stored::{self, Identity, Stored};

/// File of the authority's private key.
pub const AUTHORITY_KEY: &str = "ca.key";

/// Why no certificates were written.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// A name is not one.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Making a certificate failed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A new certificate cannot be read back.
    #[error("failed to read the certificate that was just made")]
    ReadBack(#[source] CertificateError),
    /// An authority is there, but not a good one, and would have been overwritten.
    #[error("{} holds an authority that cannot be used: {defect}; remove it or choose another directory", path.display())]
    Authority {
        /// The directory.
        path: PathBuf,
        /// What is wrong with the authority.
        defect: check::Defect,
    },
}

/// What to make.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to. Made if it is not there.
    pub directory: PathBuf,
    /// The Service that the certificate is for.
    pub service: ServiceName,
    /// Names and addresses beyond the Service's own.
    pub extras: Extras,
    /// Whether the certificate is a client's as well.
    pub client_auth: bool,
    /// The kind of keys.
    pub algorithm: Algorithm,
    /// How long a new authority lives.
    pub authority_life: Duration,
    /// How long the leaf lives.
    pub leaf_life: Duration,
}

impl Options {
    /// The usual options for a Service.
    pub fn new(directory: PathBuf, service: ServiceName) -> Self {
        Self {
            directory,
            service,
            extras: Extras::default(),
            client_auth: false,
            algorithm: Algorithm::default(),
            authority_life: AUTHORITY_LIFE,
            leaf_life: LEAF_LIFE,
        }
    }
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Report {
    /// The files, in the order of writing.
    pub files: Vec<PathBuf>,
    /// The authority. It was there before if `authority_reused`.
    pub authority: Certificate,
    /// Whether the directory had a good authority, which then signed the leaf.
    pub authority_reused: bool,
    /// The leaf.
    pub leaf: Certificate,
    /// What belongs into `caBundle`: base64 of the authority's PEM.
    pub ca_bundle: String,
}

/// Writes `ca.crt`, `ca.key`, `tls.crt` and `tls.key` into a directory. An authority that is there and good is
/// kept, so that running it again renews the leaf and leaves every `caBundle` valid; one that is there and not
/// good is an error, never overwritten.
pub fn write(options: &Options, now: SystemTime) -> Result<Report, OfflineError> {
    let mut request = LeafRequest::for_service(&options.service).with_extras(&options.extras)?;
    if options.client_auth {
        request = request.with_client_auth();
    }
    let directory = &options.directory;
    let there = files::read(directory)?;
    let (authority, authority_reused) = authority(options, &there, now)?;
    let leaf = authority.issue(&request, now, options.leaf_life)?;

    files::create(directory, 0o755)?;
    let pair = authority.key_pair();
    let mut contents =
        vec![(stored::CERTIFICATE, &leaf.certificate_pem), (stored::PRIVATE_KEY, &leaf.key_pem)];
    if !authority_reused {
        contents.extend([(AUTHORITY_KEY, &pair.key_pem), (stored::TRUST, &pair.certificate_pem)]);
    }
    // The authority first: a leaf without it could not be renewed.
    contents.reverse();
    let mut written = Vec::with_capacity(contents.len());
    for (name, text) in contents {
        let path = directory.join(name);
        files::write_file(&path, text.as_bytes())?;
        written.push(path);
    }
    let mut bundle = Bundle::empty();
    bundle.add(authority.certificate().clone());
    Ok(Report {
        files: written,
        authority: authority.certificate().clone(),
        authority_reused,
        leaf: Certificate::from_pem(leaf.certificate_pem.as_bytes()).map_err(OfflineError::ReadBack)?,
        ca_bundle: bundle.to_ca_bundle(),
    })
}

fn authority(options: &Options, there: &Stored, now: SystemTime) -> Result<(Authority, bool), OfflineError> {
    let text = |key: &str| {
        there.0.get(key).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    let pair = KeyPair { certificate_pem: text(stored::TRUST), key_pem: text(AUTHORITY_KEY) };
    match check::authority(&pair, now, Renewal::Never) {
        Ok(_) => Ok((Authority::from_pem(&pair)?, true)),
        Err(check::Defect::Absent) => {
            Ok((Authority::generate(options.algorithm, now, options.authority_life)?, false))
        }
        Err(defect) => Err(OfflineError::Authority { path: options.directory.clone(), defect }),
    }
}

/// Makes a new authority and all leaves of a suite: `webhook/`, `mutator/` and `validator/` below `directory`,
/// each with `tls.crt`, `tls.key` and `ca.crt`, and `ca/` with the authority's key. What is there is replaced.
pub fn write_suite(
    directory: &Path,
    suite: &Suite,
    extras: &Extras,
    now: SystemTime,
) -> Result<Bundle, OfflineError> {
    let authority = Authority::generate(Algorithm::default(), now, AUTHORITY_LIFE)?;
    let mut bundle = Bundle::empty();
    bundle.add(authority.certificate().clone());
    files::create(&directory.join(AUTHORITY), 0o700)?;
    let put = |word: &str, pair: KeyPair| -> Result<(), OfflineError> {
        let mut contents = Stored::default();
        Identity { pair, bundle: bundle.clone() }.store(&mut contents);
        Ok(files::write(&directory.join(word), &contents)?)
    };
    put(AUTHORITY, authority.key_pair())?;
    for member in Member::ALL {
        put(member.word(), authority.issue(&suite.leaf(member, extras)?, now, LEAF_LIFE)?)?;
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use base64::Engine as _;

    use super::*;

    fn options(directory: &Path) -> Options {
        let service = ServiceName::new("hook", "prod", "cluster.local").unwrap();
        Options::new(directory.join("out"), service)
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(490_000)
    }

    #[test]
    fn files_modes_names_and_bundle_sys7() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path());
        options.extras = Extras {
            dns_names: vec!["hook.example".into()],
            addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
        };
        options.leaf_life = Duration::from_hours(48);
        let report = write(&options, now()).unwrap();
        let names: Vec<_> =
            report.files.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        assert_eq!(names, ["ca.crt", "ca.key", "tls.key", "tls.crt"]);
        for (name, mode) in [("ca.key", 0o600), ("tls.key", 0o600)] {
            let there = fs::metadata(options.directory.join(name)).unwrap().permissions().mode() & 0o777;
            assert_eq!(there, mode, "{name}");
        }
        let sans: Vec<_> = report.leaf.dns_names().iter().map(String::as_str).collect();
        assert_eq!(
            sans,
            ["hook", "hook.example", "hook.prod", "hook.prod.svc", "hook.prod.svc.cluster.local"]
        );
        assert_eq!(report.leaf.addresses().len(), 2);
        assert_eq!(report.leaf.not_after(), now() + Duration::from_hours(48));
        let bundle = base64::engine::general_purpose::STANDARD.decode(&report.ca_bundle).unwrap();
        assert_eq!(bundle, fs::read(options.directory.join("ca.crt")).unwrap());
    }

    #[test]
    fn a_second_run_renews_the_leaf_and_keeps_the_authority() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        let first = write(&options, now()).unwrap();
        let second = write(&options, now() + Duration::from_hours(1)).unwrap();
        assert!(!first.authority_reused && second.authority_reused);
        assert_eq!(first.ca_bundle, second.ca_bundle);
        assert_ne!(first.leaf.serial(), second.leaf.serial());
    }

    #[test]
    fn a_bad_authority_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(dir.path());
        fs::create_dir_all(&options.directory).unwrap();
        fs::write(options.directory.join("ca.crt"), "somebody's").unwrap();
        let error = write(&options, now()).unwrap_err();
        assert!(error.to_string().contains("holds an authority that cannot be used"), "{error}");
        assert_eq!(fs::read(options.directory.join("ca.crt")).unwrap(), b"somebody's");
    }

    #[test]
    fn a_suite_has_a_directory_a_member() {
        let dir = tempfile::tempdir().unwrap();
        let suite = Suite::with_prefix("sallyport", "sallyport", "cluster.local").unwrap();
        let extras = Extras::loopback();
        let bundle = write_suite(dir.path(), &suite, &extras, now()).unwrap();
        for member in Member::ALL {
            let identity = Identity::from_stored(&files::read(&dir.path().join(member.word())).unwrap());
            assert_eq!(identity.bundle, bundle);
            let wanted = suite.leaf(member, &extras).unwrap();
            check::leaf(&identity.pair, &bundle, &wanted, now(), Renewal::TwoThirds).unwrap();
        }
        let mode = fs::metadata(dir.path().join("ca")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
    }
}
