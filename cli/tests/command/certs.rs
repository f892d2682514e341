//! SYS-7, all points.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use crate::process::run;

const FILES: [&str; 4] = ["ca.crt", "ca.key", "tls.crt", "tls.key"];

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn with_certificate<T>(path: &Path, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let pem = Pem::iter_from_buffer(&fs::read(path).unwrap()).next().unwrap().unwrap();
    look(&pem.parse_x509().unwrap())
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let mut names: Vec<_> = names
        .value
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(name) => (*name).to_owned(),
            GeneralName::IPAddress(bytes) => format!("{bytes:?}"),
            other => panic!("{other:?}"),
        })
        .collect();
    names.sort();
    names
}

fn days(certificate: &X509Certificate<'_>) -> i64 {
    let validity = certificate.validity();
    (validity.not_after.timestamp() - validity.not_before.timestamp() + 43_200) / 86_400
}

fn decode(bundle: &str) -> Vec<u8> {
    STANDARD.decode(bundle.trim()).unwrap()
}

#[test]
fn a_service_gets_files_modes_names_lives_and_its_ca_bundle_sys7() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("new/out");
    let output = out.to_str().unwrap();
    let made = run([
        "certs",
        "--service",
        "hook",
        "--namespace",
        "prod",
        "--cluster-domain",
        "k8s.example",
        "--extra-name",
        "hook.example,other.example",
        "--extra-ip",
        "192.0.2.7",
        "--life",
        "30d",
        "--ca-life",
        "60d",
        "--output",
        output,
    ])
    .ended(0);
    for file in FILES {
        let wanted = if Path::new(file).extension().is_some_and(|end| end == "key") { 0o600 } else { 0o644 };
        assert_eq!(mode(&out.join(file)) & !wanted, 0, "{file}");
        assert!(made.stderr.contains(file), "{}", made.stderr);
    }
    assert_eq!((mode(&out.join("ca.key")), mode(&out.join("tls.key"))), (0o600, 0o600));
    with_certificate(&out.join("tls.crt"), |leaf| {
        let names = [
            "[192, 0, 2, 7]",
            "hook",
            "hook.example",
            "hook.prod",
            "hook.prod.svc",
            "hook.prod.svc.k8s.example",
            "other.example",
        ];
        assert_eq!(alternative_names(leaf), names);
        assert_eq!(days(leaf), 30);
    });
    with_certificate(&out.join("ca.crt"), |authority| assert_eq!(days(authority), 60));
    // Standard output is the bundle, and nothing else.
    assert_eq!(made.stdout.lines().count(), 1);
    assert_eq!(decode(&made.stdout), fs::read(out.join("ca.crt")).unwrap());

    let again = run(["certs", "--service", "hook", "--namespace", "prod", "--output", output]).ended(0);
    assert_eq!(again.stdout, made.stdout, "the authority stays");
    assert!(
        !run(["certs", "--service", "hook", "--namespace", "prod", "--output", output])
            .ended(0)
            .stderr
            .contains("PRIVATE KEY")
    );
}

#[test]
fn empty_names_and_those_outside_dns_1123_are_refused_and_nothing_is_written_sys7() {
    let directory = TempDir::new().unwrap();
    let long = "a".repeat(64);
    let rows: [(&[&str], &str); 9] = [
        (&["--service", "", "--namespace", "prod"], "must not be empty"),
        (&["--service", "hook", "--namespace", ""], "must not be empty"),
        (&["--service", "My_Hook", "--namespace", "prod"], "DNS-1123"),
        (&["--service", "a.b", "--namespace", "prod"], "DNS-1123"),
        (&["--service", "hook", "--namespace=-prod"], "DNS-1123"),
        (&["--service", &long, "--namespace", "prod"], "at most 63"),
        (&["--service", "hook", "--namespace", "prod", "--cluster-domain", "a..b"], "DNS-1123"),
        (&["--service", "hook", "--namespace", "prod", "--extra-name", "a b"], "DNS-1123"),
        (&["--suite", "--prefix", "Upper"], "DNS-1123"),
    ];
    for (flags, message) in rows {
        let out = directory.path().join("out");
        let flags = ["certs", "--output", out.to_str().unwrap()].into_iter().chain(flags.iter().copied());
        let refused = run(flags.clone()).ended(1);
        assert!(refused.stderr.contains(message) && refused.stdout.is_empty(), "{refused:?}");
        assert!(!out.exists(), "{:?}", flags.collect::<Vec<_>>());
    }
    for flags in [
        &["certs", "--output", "x"] as &[_],
        &["certs", "--service", "a", "--namespace", "b"],
        &["certs", "--service", "a", "--namespace", "b", "--output", "x", "--life", "soon"],
        &["certs", "--service", "a", "--namespace", "b", "--output", "x", "--extra-ip", "here"],
        &["certs", "--suite", "--output", "x", "--life", "1d"],
    ] {
        run(flags).ended(2);
    }
}

#[test]
fn a_suite_gets_a_directory_a_service() {
    let directory = TempDir::new().unwrap();
    let out = directory.path();
    let made =
        run(["certs", "--suite", "--loopback", "--namespace", "ns", "--output", out.to_str().unwrap()])
            .ended(0);
    for service in ["webhook", "mutator", "validator"] {
        let names = with_certificate(&out.join(service).join("tls.crt"), alternative_names);
        for name in [&format!("sallyport-{service}.ns.svc"), "localhost", "[127, 0, 0, 1]"] {
            assert!(names.iter().any(|there| there == name), "{service}: {names:?}");
        }
        assert_eq!(mode(&out.join(service).join("tls.key")), 0o600);
        assert_eq!(decode(&made.stdout), fs::read(out.join(service).join("ca.crt")).unwrap());
    }
    assert_eq!(mode(&out.join("ca")), 0o700);
}
