//! however the files are replaced, whole sets take effect and broken ones do not.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use sallyport_net::{AcceptLimits, Credentials, CredentialsError, Reload, Shutdown};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::authority::{Ca, Layout, Member, Set, name, serial};
use crate::server::{Echo, PATIENCE, connect, echo, eventually, plain_client, shown};

const POLL: Duration = Duration::from_millis(20);

/// What an observer was told, in short.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Replaced(String),
    Refused(String),
}

fn watch(credentials: &Arc<Credentials>, shutdown: &Shutdown) -> UnboundedReceiver<Told> {
    let (sender, receiver) = unbounded_channel();
    let observer = move |reload: &Reload| {
        let told = match reload {
            Reload::Replaced(status) => Told::Replaced(status.serial.clone()),
            Reload::Refused(error) => Told::Refused(error.to_string()),
        };
        let _ = sender.send(told);
    };
    tokio::spawn(credentials.clone().watch(POLL, observer, shutdown.clone()));
    receiver
}

async fn next(told: &mut UnboundedReceiver<Told>) -> Told {
    tokio::time::timeout(PATIENCE, told.recv()).await.expect("nothing was told").unwrap()
}

/// What is told within several polls more.
async fn rest(told: &mut UnboundedReceiver<Told>) -> Vec<Told> {
    let mut rest = Vec::new();
    while let Ok(Some(one)) = tokio::time::timeout(POLL * 8, told.recv()).await {
        rest.push(one);
    }
    rest
}

/// Sets that cannot be used, and what is said of them.
fn broken(good: &Set, other: &Set) -> Vec<(&'static str, Set, &'static str)> {
    let with = |change: fn(&mut Set, &Set)| {
        let mut set = good.clone();
        change(&mut set, other);
        set
    };
    vec![
        ("half-written", with(|set, other| set.key.clone_from(&other.key)), "tls.key does not belong"),
        (
            "garbage",
            with(|set, _| set.certificate = "garbage".into()),
            "tls.crt holds no usable PEM certificate",
        ),
        ("empty key", with(|set, _| set.key.clear()), "tls.key holds no usable PEM private key"),
        ("empty bundle", with(|set, _| set.bundle.clear()), "ca.crt holds no usable PEM certificate"),
        (
            "truncated",
            with(|set, _| set.certificate.truncate(200)),
            "tls.crt holds no usable PEM certificate",
        ),
        ("too large", with(|set, _| set.bundle = " ".repeat((1 << 20) + 1)), "is larger than"),
    ]
}

async fn replacements(layout: Layout) {
    let ca = Ca::new();
    let (first, second, other) = (ca.leaf("front"), ca.leaf("front"), ca.leaf("front"));
    let directory = tempfile::tempdir().unwrap();
    let good = Set::new(&first, &ca.pem());
    layout.publish(directory.path(), &good);
    let credentials = Credentials::load(directory.path()).unwrap();
    assert_eq!(credentials.status().serial, serial(&first));
    let server = Echo::start(credentials.https_config().unwrap(), AcceptLimits::default()).await;
    let client = plain_client(&ca, &[]);
    let name = name("front");
    let mut open = connect(server.address, &name, client.clone()).await.unwrap();
    let shutdown = Shutdown::new();
    let mut told = watch(&credentials, &shutdown);

    for (what, set, message) in broken(&good, &Set::new(&other, &ca.pem())) {
        layout.publish(directory.path(), &set);
        // Files replaced one by one may be seen in between, as other broken sets.
        let mut heard = vec![next(&mut told).await];
        heard.extend(rest(&mut told).await);
        let expected =
            heard.iter().filter(|told| matches!(told, Told::Refused(m) if m.contains(message))).count();
        assert_eq!(expected, 1, "{layout:?}, {what}: {heard:?}");
        assert!(
            matches!(heard.last(), Some(Told::Refused(m)) if m.contains(message)),
            "{layout:?}, {what}: {heard:?}"
        );
        assert!(layout != Layout::DataSwap || heard.len() == 1, "{layout:?}, {what}: {heard:?}");
        let fresh = connect(server.address, &name, client.clone()).await.unwrap();
        assert_eq!(shown(&fresh), serial(&first), "{layout:?}, {what}: the last good pair stays");
    }

    layout.publish(directory.path(), &Set::new(&second, &ca.pem()));
    while next(&mut told).await != Told::Replaced(serial(&second)) {}
    let mut fresh = connect(server.address, &name, client).await.unwrap();
    assert_eq!(shown(&fresh), serial(&second), "{layout:?}");
    echo(&mut fresh).await.unwrap();
    echo(&mut open).await.unwrap();
    assert_eq!(credentials.status().serial, serial(&second));
    shutdown.trigger();
    eventually("the watch ends at the shutdown", || told.is_closed()).await;
}

#[tokio::test]
async fn kubelets_data_swap_r10() {
    replacements(Layout::DataSwap).await;
}

#[tokio::test]
async fn rename_r10() {
    replacements(Layout::Rename).await;
}

#[tokio::test]
async fn overwriting_in_place_r10() {
    replacements(Layout::Overwrite).await;
}

#[tokio::test]
async fn delete_and_recreate_r10() {
    replacements(Layout::Recreate).await;
}

#[tokio::test]
async fn files_that_are_gone_are_told_once_and_taken_when_they_return_r10() {
    let ca = Ca::new();
    let member = ca.member("front");
    let before = member.credentials.status();
    let shutdown = Shutdown::new();
    let mut told = watch(&member.credentials, &shutdown);
    fs::remove_file(member.directory.path().join("tls.key")).unwrap();
    assert!(matches!(next(&mut told).await, Told::Refused(message) if message.contains("tls.key")));
    assert_eq!(rest(&mut told).await, []);
    assert_eq!(member.credentials.status(), before);
    let second = ca.leaf("front");
    member.publish(&second, &ca.pem());
    while next(&mut told).await != Told::Replaced(serial(&second)) {}
    fs::remove_file(member.directory.path().join("tls.crt")).unwrap();
    assert!(
        matches!(next(&mut told).await, Told::Refused(message) if message.contains("tls.crt")),
        "told again"
    );
    shutdown.trigger();
}

#[tokio::test]
async fn what_changes_between_loading_and_watching_is_not_missed_r10() {
    let ca = Ca::new();
    let member = ca.member("front");
    let second = ca.leaf("front");
    member.publish(&second, &ca.pem());
    let mut told = watch(&member.credentials, &Shutdown::new());
    assert_eq!(next(&mut told).await, Told::Replaced(serial(&second)));
    assert_eq!(rest(&mut told).await, [], "the same files again are nothing new");
}

#[test]
fn what_cannot_be_loaded_is_named_r13() {
    let ca = Ca::new();
    let good = Set::new(&ca.leaf("front"), &ca.pem());
    for (what, set, message) in broken(&good, &Set::new(&ca.leaf("front"), &ca.pem())) {
        let directory = tempfile::tempdir().unwrap();
        Layout::Overwrite.publish(directory.path(), &set);
        let error = Credentials::load(directory.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{what}: {error}");
    }
    let empty = tempfile::tempdir().unwrap();
    let error = Credentials::load(empty.path()).unwrap_err();
    assert!(matches!(&error, CredentialsError::Read { path, .. } if path.ends_with("tls.crt")), "{error}");
}

#[test]
fn a_status_says_what_is_in_use_r11() {
    let ca = Ca::new();
    let pair = ca.leaf("front");
    let member = Member::new(&pair, &ca.pem());
    let status = member.credentials.status();
    let leaf = sallyport_pki::Certificate::from_pem(pair.certificate_pem.as_bytes()).unwrap();
    let not_after = leaf.not_after().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(
        (status.serial.as_str(), status.not_after),
        (leaf.serial().as_str(), i64::try_from(not_after).unwrap())
    );
    assert_eq!(
        status.bundle_sha256,
        sallyport_pki::Bundle::from_pem(ca.pem().as_bytes()).unwrap().fingerprint()
    );
}
