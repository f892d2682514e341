//! A real cert-manager issues the certificates, and the rotator carries them to the services.
//!
//! Pods stand in for the services. Each takes into use what its Secret held a while before, as a mount does, and
//! shows it on its admin page. The fronts among them serve the API server behind one address, so its verifier, which
//! is Go's, judges what cert-manager issued at every create.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Certificate, Identity, KeyPair, check};
use sallyport_testkit::{Balancer, Process, Program};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cluster::{Cluster, NAMESPACE, PATIENCE, eventually};
use crate::programs::programs;
use crate::registration::{Front, bundles, configuration, entry, front};
use crate::rotation::Pods;

const FLAGS: [&str; 10] = [
    "--brought-webhook-secret",
    "issued-webhook",
    "--brought-mutator-secret",
    "issued-mutator",
    "--brought-validator-secret",
    "issued-validator",
    "--registration-configmap",
    "registration",
    "--propagation",
    "3s",
];
/// The pods, and how late each takes into use what is stored.
const PODS: [(&str, Member, Duration); 5] = [
    ("front-0", Member::Webhook, Duration::from_millis(500)),
    ("front-1", Member::Webhook, Duration::from_millis(2500)),
    ("mutator-0", Member::Mutator, Duration::from_secs(1)),
    ("mutator-1", Member::Mutator, Duration::from_secs(3)),
    ("validator", Member::Validator, Duration::from_secs(2)),
];
/// How many objects are created at a time.
const CREATORS: usize = 4;
/// The wait after each create.
const PAUSE: Duration = Duration::from_millis(10);
/// How often everything in use is verified against everything else.
const SAMPLE: Duration = Duration::from_millis(100);

fn resource(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "cert-manager.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    })
}

/// A Certificate with a new key each time.
fn certificate(name: &str, secret: &str, issuer: &str, mut spec: Value) -> Value {
    spec["secretName"] = json!(secret);
    spec["issuerRef"] = json!({"name": issuer, "kind": "Issuer"});
    spec["privateKey"] = json!({"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"});
    resource("Certificate", name, &spec)
}

async fn start_cert_manager(cluster: &Cluster, programs: &Path) -> Process {
    let definitions = programs.join("cert-manager-crds.yaml");
    // Too long for the annotation of an apply.
    cluster.kubectl(&["create", "-f", definitions.to_str().unwrap()], None).await;
    let established = ["wait", "--for=condition=Established", "crd", "--all"];
    cluster.kubectl(&established, None).await;
    Program::new(programs.join("testbed-cert-manager"))
        .arg(format!("--kubeconfig={}", cluster.control_plane.kubeconfig().display()))
        .args(["--namespace", NAMESPACE])
        .start()
        .unwrap()
}

/// An authority that signs itself, and by it a certificate for each member.
async fn order(cluster: &Cluster) {
    cluster.apply(&resource("Issuer", "self", &json!({"selfSigned": {}}))).await;
    let authority = json!({"isCA": true, "commonName": "authority", "duration": "24h"});
    cluster.apply(&certificate("authority", "authority", "self", authority)).await;
    cluster.apply(&resource("Issuer", "authority", &json!({"ca": {"secretName": "authority"}}))).await;
    for member in Member::ALL {
        let word = member.word();
        let mut spec = json!({
            "duration": "12h", "dnsNames": [format!("sallyport-{word}.{NAMESPACE}.svc")],
            "usages": ["digital signature", "server auth"],
        });
        if member == Member::Webhook {
            // The fronts are registered by their address.
            spec["ipAddresses"] = json!(["127.0.0.1"]);
            spec["usages"] = json!(["digital signature", "server auth", "client auth"]);
        }
        cluster.apply(&certificate(word, &format!("issued-{word}"), "authority", spec)).await;
    }
}

/// Asks cert-manager for a renewal, as `cmctl renew` does.
async fn renew(cluster: &Cluster, name: &str) {
    eventually("a renewal that is asked for", async || {
        let mut certificate = cluster.get("certificates.cert-manager.io", name).await?;
        let conditions = certificate["status"]["conditions"].as_array_mut()?;
        conditions.retain(|condition| condition["type"] != "Issuing");
        conditions.push(json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "renewed by hand",
        }));
        let arguments = ["replace", "--subresource=status", "-f", "-"];
        let output = cluster.control_plane.kubectl(&arguments, Some(&certificate.to_string())).await.unwrap();
        // It may have been written in between.
        output.success.then_some(())
    })
    .await;
}

fn bundle(authority: &KeyPair) -> Bundle {
    Bundle::from_pem(authority.certificate_pem.as_bytes()).unwrap()
}

fn is_of(pair: &KeyPair, bundle: &Bundle) -> bool {
    let chain = Certificate::all_from_pem(pair.certificate_pem.as_bytes()).unwrap();
    check::verifies(&chain, bundle, SystemTime::now())
}

/// Renews a member's certificate until the authority of `trusted` has issued it: cert-manager may still have the
/// former one in its cache.
async fn renew_by(cluster: &Cluster, member: Member, trusted: &Bundle) {
    let secret = format!("issued-{}", member.word());
    loop {
        let before = cluster.identity(&secret).await.unwrap().pair;
        renew(cluster, member.word()).await;
        let issued = eventually("a certificate", async || {
            cluster.identity(&secret).await.filter(|issued| issued.pair != before)
        });
        if is_of(&issued.await.pair, trusted) {
            return;
        }
    }
}

/// What goes on all the while, and what was seen of it.
struct Traffic<'a> {
    pods: &'a Pods<'a>,
    balancer: &'a Balancer,
    /// How many reviews each front answered that there ever was.
    reviews: RefCell<Vec<Arc<AtomicUsize>>>,
    is_open: Cell<bool>,
    created: Cell<usize>,
    failures: RefCell<Vec<String>>,
    verified: Cell<usize>,
}

impl Traffic<'_> {
    fn secret(member: Member) -> String {
        format!("sallyport-{}-tls", member.word())
    }

    /// A pod takes into use what is stored for it, late.
    async fn mount(&self, name: &str, delay: Duration) -> Infallible {
        let (member, loaded) = &self.pods.loaded[name];
        let mut served: Option<SocketAddr> = None;
        loop {
            let stored = self.pods.cluster.identity(&Self::secret(*member)).await;
            sleep(delay).await;
            let Some(identity) = stored.filter(|stored| loaded.lock().as_ref() != Some(stored)) else {
                continue;
            };
            if *member == Member::Webhook {
                let Front { address, reviews, .. } = front(&identity).await;
                self.reviews.borrow_mut().push(reviews);
                self.balancer.add(address);
                if let Some(former) = served.replace(address) {
                    self.balancer.remove(former);
                }
            }
            *loaded.lock() = Some(identity);
        }
    }

    /// Creates one object after the other, once it is open.
    async fn create(&self) -> Infallible {
        let api: Api<ConfigMap> = Api::namespaced(self.pods.cluster.client.clone(), NAMESPACE);
        let object: ConfigMap = serde_json::from_value(json!({
            "metadata": {"generateName": "load-", "labels": {"reviewed": "yes"}},
        }))
        .unwrap();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        loop {
            if self.is_open.get() {
                match api.create(&params, &object).await {
                    Ok(_) => self.created.set(self.created.get() + 1),
                    Err(error) => self.failures.borrow_mut().push(error.to_string()),
                }
            }
            sleep(PAUSE).await;
        }
    }

    /// Verifies what every front has in use against what every backend has, and the other way round.
    async fn verify(&self) -> Infallible {
        loop {
            let (mut fronts, mut backends) = (Vec::new(), Vec::new());
            for (member, loaded) in self.pods.loaded.values() {
                let side = if *member == Member::Webhook { &mut fronts } else { &mut backends };
                side.extend(loaded.lock().clone());
            }
            for front in &fronts {
                for backend in &backends {
                    for (presented, trusting) in [(front, backend), (backend, front)] {
                        assert!(is_of(&presented.pair, &trusting.bundle), "a call would have failed");
                        self.verified.set(self.verified.get() + 1);
                    }
                }
            }
            sleep(SAMPLE).await;
        }
    }

    async fn run(&self) -> Infallible {
        let mounts = join_all(PODS.map(|(name, _, delay)| self.mount(name, delay)));
        let creates = join_all((0..CREATORS).map(|_| self.create()));
        let (_, _, never) = tokio::join!(mounts, creates, self.verify());
        never
    }

    /// Waits until every pod of a member has in use what is stored for it, and that is wanted.
    async fn in_use(&self, member: Member, wanted: impl Fn(&Identity) -> bool) -> Identity {
        let what = format!("in use by the {}", member.word());
        eventually(&what, async || {
            let stored = self.pods.cluster.identity(&Self::secret(member)).await.filter(&wanted)?;
            let mut of_member = self.pods.loaded.values().filter(|(whose, _)| *whose == member);
            of_member.all(|(_, loaded)| loaded.lock().as_ref() == Some(&stored)).then_some(stored)
        })
        .await
    }

    fn reviewed(&self) -> usize {
        self.reviews.borrow().iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Says how it went since `since`; not one create may have failed.
    fn report(&self, what: &str, since: Instant) {
        println!(
            "{what}: {:.1} s; creates so far {}, failed {}, reviews {}, verified {}",
            since.elapsed().as_secs_f64(),
            self.created.get(),
            self.failures.borrow().len(),
            self.reviewed(),
            self.verified.get()
        );
        assert_eq!(self.failures.borrow().first(), None, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds cert-manager, minutes"]
async fn a_real_cert_manager_issues_renews_and_changes_its_authority_r12() {
    let programs = programs("cert-manager").await;
    let cluster = Cluster::start().await;
    cluster.kubectl(&["create", "serviceaccount", "default", "-n", NAMESPACE], None).await;
    let balancer = Balancer::start([]).await.unwrap();
    let mut pods = Pods { cluster: &cluster, loaded: std::collections::BTreeMap::new() };
    for (name, member, _) in PODS {
        pods.add(name, member).await;
    }
    let url = json!({"url": format!("https://{}/mutate/fail", balancer.address())});
    let entry = entry("fail.mutate.sallyport.dev", &url);
    cluster.describe(&[configuration("MutatingWebhookConfiguration", &[entry])]).await;
    let cert_manager = start_cert_manager(&cluster, &programs).await;
    let rotator = cluster.rotator(&FLAGS).await;

    let traffic = Traffic {
        pods: &pods,
        balancer: &balancer,
        reviews: RefCell::default(),
        is_open: Cell::new(false),
        created: Cell::new(0),
        failures: RefCell::default(),
        verified: Cell::new(0),
    };
    tokio::select! {
        never = traffic.run() => match never {},
        () = scenario(&cluster, &traffic, cert_manager) => {}
    }
    assert!(traffic.reviewed() >= traffic.created.get(), "creates passed by the fronts");
    assert!(traffic.created.get() > 100, "too few creates to say anything");
    rotator.stop().await;
}

async fn scenario(cluster: &Cluster, traffic: &Traffic<'_>, mut cert_manager: Process) {
    let registered = async || cluster.get("mutatingwebhookconfiguration", "sallyport").await;

    // From nothing to a registration that the API server accepts.
    let begun = Instant::now();
    order(cluster).await;
    let issued = cert_manager.wait_until("it had issued all", PATIENCE, async || {
        for member in Member::ALL {
            cluster.identity(&format!("issued-{}", member.word())).await?;
        }
        cluster.identity("authority").await
    });
    let first = bundle(&issued.await.unwrap().pair);
    let mut served = Vec::new();
    for member in Member::ALL {
        served.push(traffic.in_use(member, |identity| identity.bundle == first).await);
    }
    let live = eventually("the registration", registered).await;
    assert_eq!(bundles(&live), [first.to_pem()]);
    assert_eq!(cluster.faults(&FLAGS).await, "");
    let authority = cluster.get("secret", "sallyport-ca").await.unwrap();
    assert_eq!(authority["data"]["tls.key"], "", "no key is made here");
    // The API servers hear of a configuration by their watch.
    let reviewed = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "reviewed", "namespace": NAMESPACE, "labels": {"reviewed": "yes"}},
    });
    eventually("a review", async || {
        cluster.kubectl(&["create", "--dry-run=server", "-f", "-"], Some(&reviewed.to_string())).await;
        (traffic.reviewed() > 0).then_some(())
    })
    .await;
    cluster.kubectl(&["create", "-f", "-"], Some(&reviewed.to_string())).await;
    traffic.is_open.set(true);
    traffic.report("issued and registered", begun);

    // A renewal, asked for by its owner, and one because the Secret is gone.
    let begun = Instant::now();
    renew(cluster, "webhook").await;
    traffic.in_use(Member::Webhook, |identity| identity.pair != served[0].pair).await;
    traffic.report("the front's certificate renewed", begun);
    let begun = Instant::now();
    cluster.kubectl(&["delete", "secret", "issued-mutator", "-n", NAMESPACE], None).await;
    let renewed = traffic.in_use(Member::Mutator, |identity| identity.pair != served[1].pair).await;
    assert_eq!(renewed.bundle, first, "the authority is the same");
    traffic.report("the mutator's certificate issued again", begun);

    // Another authority of the same name: trusted by all before anything of it is in use, and alone in the end.
    let begun = Instant::now();
    renew(cluster, "authority").await;
    let second = eventually("another authority", async || {
        let pair = cluster.identity("authority").await?.pair;
        Some(bundle(&pair)).filter(|second| *second != first)
    })
    .await;
    let renewing = join_all(Member::ALL.map(|member| renew_by(cluster, member, &second)));
    let overlap = eventually("both trusted", async || {
        let live = bundles(&registered().await?).swap_remove(0);
        let live = Bundle::from_pem(live.as_bytes()).unwrap();
        (live.certificates().len() == 2).then_some(live)
    });
    let (_, overlap) = tokio::join!(renewing, overlap);
    for authority in [&first, &second] {
        assert!(overlap.contains(&authority.certificates()[0]));
    }
    for member in Member::ALL {
        traffic.in_use(member, |identity| is_of(&identity.pair, &second) && identity.bundle == second).await;
    }
    eventually("the new authority alone", async || {
        (bundles(&registered().await?) == [second.to_pem()]).then_some(())
    })
    .await;
    traffic.report("the authority changed", begun);
    assert_eq!(cluster.faults(&FLAGS).await, "");

    // The former authority is over, and creates go on.
    let before = traffic.created.get();
    eventually("more creates", async || (traffic.created.get() > before + 20).then_some(())).await;
    traffic.report("afterwards", begun);
    assert_eq!(cert_manager.try_exit().unwrap(), None, "{}", cert_manager.log_tail());
}
