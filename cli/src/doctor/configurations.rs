//! Webhook configurations: are ours as described, does each lead to a Service that answers, does its `caBundle`
//! fit what is served there (SYS-4)?

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sallyport_pki::names::Member;
use sallyport_pki::{Bundle, Defect, check};
use sallyport_registration::{Description, Difference, FIELD_MANAGER, difference};
use serde_json::Value;

use super::diagnosis::{Check, Verdict, counted};
use super::entry::{Entry, Target, entries, text, title};
use super::release::is_running;
use super::snapshot::Snapshot;

/// A problem and what to do about it.
type Problem = (String, String);

/// Whether what is described is registered, and as described.
pub(super) fn registration(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("registration");
    let name = format!("ConfigMap {}", snapshot.installation.object("registration"));
    let configurations = match (&snapshot.description, &snapshot.configurations) {
        (Err(unread), _) => {
            check.unread(name, unread);
            return check;
        }
        (_, Err(unread)) => {
            check.unread("webhook configurations", unread);
            return check;
        }
        (Ok(_), Ok(configurations)) => configurations,
    };
    let Some(map) = snapshot.description.as_ref().ok().and_then(Option::as_ref) else {
        check.add(Verdict::Failure, name, "it does not exist", "helm upgrade puts it back");
        return check;
    };
    let parts = map.get("data").and_then(Value::as_object);
    let parts: Vec<&str> = parts.into_iter().flatten().filter_map(|(_, part)| part.as_str()).collect();
    let description = match Description::parse(&parts.join("\n---\n"), &snapshot.installation.namespace) {
        Ok(description) => description,
        Err(error) => {
            check.add(Verdict::Failure, name, error.to_string(), "helm upgrade puts it back");
            return check;
        }
    };
    let authority = snapshot.inventory.authority();
    let bundle = authority.map(|authority| authority.bundle.clone()).unwrap_or_default();
    let mut registered = 0;
    for described in &description.configurations {
        let object = format!("{} {}", described.kind.kind(), described.name);
        let live = configurations.iter().find(|configuration| title(configuration) == object);
        match (described.is_wanted(), live) {
            (true, None) => {
                let (why, advice) = why_unregistered(snapshot);
                let problem = format!("it is not registered, so its policies have no effect: {why}");
                check.add(Verdict::Failure, object, problem, advice);
            }
            (true, Some(live)) => {
                registered += 1;
                if difference(&described.complete(&bundle, &[]), live, FIELD_MANAGER) == Difference::Fields {
                    let problem = "it is not as described";
                    let advice = "the cert-rotator repairs it within seconds; if it stays so, see who else \
                                  writes it (metadata.managedFields) and the runbook, \
                                  SallyportRegistrationFight";
                    check.add(Verdict::Warning, object, problem, advice);
                }
            }
            (false, Some(_)) => {
                let problem = "it is registered, although no policy wants it";
                let advice = format!("the cert-rotator removes it; {} says why not", snapshot.rotator_log());
                check.add(Verdict::Warning, object, problem, advice);
            }
            (false, None) => {}
        }
    }
    check.summary = match registered {
        0 => "nothing is registered, as no policy is on".to_owned(),
        count => format!("{} as described", counted(count, "configuration", "configurations")),
    };
    check
}

/// Why nothing is registered yet: the rotator registers only what it has proven.
fn why_unregistered(snapshot: &Snapshot) -> Problem {
    let log = snapshot.rotator_log();
    if is_running(snapshot, "cert-rotator") == Some(false) {
        return ("no cert-rotator is running".to_owned(), format!("{log} or its Events say why"));
    }
    if is_running(snapshot, Member::Webhook.word()) == Some(false) {
        let advice = format!("it is registered once every webhook is proven; {log} says more");
        return ("no webhook is ready".to_owned(), advice);
    }
    let leadership = snapshot.leadership.as_ref().ok().and_then(Option::as_ref);
    let ready = leadership.and_then(|leadership| leadership.condition("Ready"));
    let why = ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone());
    (why.unwrap_or_else(|| "the reason is in the cert-rotator's log".to_owned()), log)
}

/// Whether every entry of ours has a `caBundle` against which what is stored for the webhook verifies.
pub(super) fn ca_bundles(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("ca-bundles");
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    let mut count = 0;
    for entry in entries(configurations).filter(|entry| snapshot.is_ours(entry.configuration)) {
        count += 1;
        judge_bundle(snapshot, &entry, &mut check);
    }
    check.summary = match count {
        0 => "nothing is registered".to_owned(),
        _ => format!("what is stored verifies against those of {}", counted(count, "entry", "entries")),
    };
    check
}

fn judge_bundle(snapshot: &Snapshot, entry: &Entry<'_>, check: &mut Check) {
    let object = entry.title();
    let repair = format!(
        "every call to it fails; the cert-rotator repairs it within seconds; if not, {} says why",
        snapshot.rotator_log()
    );
    let bundle = match parse(entry.ca_bundle()) {
        Ok(bundle) => bundle,
        Err(problem) => return check.add(Verdict::Failure, object, problem, repair),
    };
    let secret = snapshot.installation.secret(Member::Webhook);
    let holding = match snapshot.inventory.members.get(&Member::Webhook) {
        Some(Ok(Some(holding))) => holding,
        Some(Err(unread)) => return check.unread(format!("Secret {secret}"), unread),
        // That it is absent is another check's finding.
        Some(Ok(None)) | None => {
            return check.add(Verdict::NotChecked, object, "there is no certificate to verify", "");
        }
    };
    let stored = snapshot.inventory.authority().map(|authority| &authority.bundle);
    let Some(target) = entry.target() else { return };
    let name = format!("{}.{}.svc", target.name, target.namespace);
    let chain: Vec<_> = holding.chain.iter().map(|certificate| certificate.der().clone()).collect();
    match check::presented(&chain, &bundle, &name, snapshot.now) {
        Ok(_) => {
            if stored.is_some_and(|stored| !stored.holds_same(&bundle)) {
                let problem = "its caBundle is stale: it is not the stored one, though it still verifies";
                check.add(Verdict::Warning, object, problem, repair.replace("every call to it fails; ", ""));
            }
        }
        Err(Defect::Names { .. }) => {
            let names = holding.certificate().map(|leaf| leaf.dns_names().clone()).unwrap_or_default();
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let problem = format!("the certificate is not good for {name}, only for {names}");
            let advice = format!("Service and certificate have to have one name; delete the Secret {secret}");
            check.add(Verdict::Failure, object, problem, advice);
        }
        Err(Defect::Chain(why)) => {
            let knows =
                stored.is_some_and(|stored| bundle.certificates().iter().any(|known| stored.contains(known)));
            let what = if knows { "is stale" } else { "is of a foreign authority" };
            let problem = format!("its caBundle {what}: what is served does not verify: {why}");
            check.add(Verdict::Failure, object, problem, repair);
        }
        Err(defect) => check.add(Verdict::Failure, object, format!("what is served: {defect}"), repair),
    }
}

/// Reads a `caBundle` as it is registered.
fn parse(ca_bundle: &str) -> Result<Bundle, String> {
    if ca_bundle.is_empty() {
        return Err("it has no caBundle: the API server trusts it only if a public authority does".to_owned());
    }
    let pem = STANDARD.decode(ca_bundle).map_err(|_| "its caBundle is not base64".to_owned())?;
    Bundle::from_pem(&pem).map_err(|error| format!("its caBundle cannot be read: {error}"))
}

/// Whether the Service that our entries call is there and leads to somebody.
pub(super) fn service(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("service");
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    let ours = || entries(configurations).filter(|entry| snapshot.is_ours(entry.configuration));
    let targets: BTreeSet<Target> = ours().filter_map(|entry| entry.target()).collect();
    let is_fail = ours().any(|entry| entry.is_fail());
    for target in &targets {
        judge_target(snapshot, target, is_fail, Verdict::Failure, "", &mut check);
    }
    check.summary = match targets.first() {
        None => "nothing is registered".to_owned(),
        Some(target) => format!("{}/{} has ready endpoints", target.namespace, target.name),
    };
    check
}

/// Looks whether a target can be reached. `broken` is how bad it is if not, `whose` which entry it is of.
fn judge_target(
    snapshot: &Snapshot,
    target: &Target,
    is_fail: bool,
    broken: Verdict,
    whose: &str,
    check: &mut Check,
) {
    let Target { namespace, name, port } = target;
    let object = match whose {
        "" => format!("Service {namespace}/{name}"),
        whose => format!("{whose}, Service {namespace}/{name}"),
    };
    let means = if is_fail { "everything that it matches is refused" } else { "nothing is reviewed by it" };
    let Some(service) = snapshot.services.get(target) else {
        return check.add(Verdict::NotChecked, object, "there are more Services than this command reads", "");
    };
    let live = match &service.service {
        Err(unread) => return check.unread(object, unread),
        Ok(None) => {
            let advice = "bring the Service back, or remove the configuration";
            return check.add(broken, object, format!("it does not exist: {means}"), advice);
        }
        Ok(Some(live)) => live,
    };
    let ports = live.pointer("/spec/ports").and_then(Value::as_array);
    let service_port = ports.into_iter().flatten().find(|there| {
        there.get("port").and_then(Value::as_u64) == Some(u64::from(*port))
            && matches!(text(there, "/protocol"), "" | "TCP")
    });
    let Some(service_port) = service_port else {
        let advice = "give Service and clientConfig the same port";
        return check.add(broken, object, format!("it has no port {port}: {means}"), advice);
    };
    // Its endpoints are somebody else's.
    if text(live, "/spec/type") == "ExternalName" {
        return;
    }
    let slices = match &service.slices {
        Ok(slices) => slices,
        Err(unread) => return check.unread(object, unread),
    };
    let ready = ready_addresses(slices, text(service_port, "/name"));
    let advice = format!("kubectl -n {namespace} get endpointslices,pods shows who should be ready");
    match ready {
        0 => check.add(broken, object, format!("it has no ready endpoint: {means}"), advice),
        1 if is_fail => {
            let problem = "it has one ready endpoint, behind failurePolicy Fail: what it matches is refused while \
                           that is away (C-102)";
            check.add(Verdict::Warning, object, problem, "let it have two or more replicas");
        }
        _ => {}
    }
}

/// How many addresses are ready at a port.
fn ready_addresses(slices: &[Value], port: &str) -> usize {
    let mut addresses = BTreeSet::new();
    for slice in slices {
        let ports = slice.get("ports").and_then(Value::as_array);
        if !ports.into_iter().flatten().any(|there| text(there, "/name") == port) {
            continue;
        }
        let endpoints = slice.get("endpoints").and_then(Value::as_array);
        for endpoint in endpoints.into_iter().flatten() {
            // A condition that is not known counts as ready, as it does for the API server.
            if endpoint.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true) {
                let list = endpoint.get("addresses").and_then(Value::as_array);
                addresses.extend(list.into_iter().flatten().filter_map(Value::as_str));
            }
        }
    }
    addresses.len()
}

/// Whether the webhooks of others can be reached, and have a `caBundle` that can verify anything.
pub(super) fn others(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("others");
    let configurations = match &snapshot.configurations {
        Ok(configurations) => configurations,
        Err(unread) => {
            check.unread("webhook configurations", unread);
            return check;
        }
    };
    for name in &snapshot.named {
        if !configurations.iter().any(|configuration| text(configuration, "/metadata/name") == name) {
            let problem = "there is no webhook configuration of this name";
            let advice = "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations";
            check.add(Verdict::Failure, name, problem, advice);
        }
    }
    let mut count = 0;
    for entry in entries(configurations).filter(|entry| !snapshot.is_ours(entry.configuration)) {
        let Some(target) = entry.target() else { continue };
        count += 1;
        let held = snapshot.is_held_to_all(entry.configuration);
        let broken = if held { Verdict::Failure } else { Verdict::Warning };
        judge_target(snapshot, &target, entry.is_fail(), broken, &entry.title(), &mut check);
        let advice = "see what should inject it (an annotation of cert-manager's or Sallyport's, a job)";
        match parse(entry.ca_bundle()) {
            Err(problem) => check.add(broken, entry.title(), problem, advice),
            Ok(bundle) if bundle.current(snapshot.now, usize::MAX).is_empty() => {
                let problem = "every authority in its caBundle has expired: calls to it fail";
                check.add(broken, entry.title(), problem, advice);
            }
            Ok(_) => {}
        }
    }
    check.summary = match count {
        0 => "there are none that call a Service".to_owned(),
        _ => format!("{} of others with Services that answer", counted(count, "entry", "entries")),
    };
    check
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sallyport_pki::Authority;
    use serde_json::json;

    use super::super::judge::fixtures::{
        assert_found, configuration, entry, foreign, healthy, healthy_and, service as good_service,
        with_bundle, with_services,
    };
    use super::*;
    use crate::cluster::Unread;
    use crate::cluster::inventory::Holding;
    use crate::cluster::inventory::fixtures::{authority, bundle, leaf, secret};

    const KIND: &str = "ValidatingWebhookConfiguration";
    const NAME: &str = "sallyport.sallyport";

    fn with(change: impl FnOnce(&Authority, &mut Snapshot)) -> Snapshot {
        let (authority, mut snapshot) = healthy();
        change(&authority, &mut snapshot);
        with_services(snapshot)
    }

    /// The healthy release, with this `caBundle` in all its entries.
    fn bundled(ca_bundle: &str) -> Snapshot {
        with(|_, s| {
            let entries =
                [entry("validate", "Fail"), entry("validate", "Ignore")].map(|e| with_bundle(e, ca_bundle));
            s.configurations = Ok(vec![configuration(KIND, NAME, &entries)]);
        })
    }

    #[test]
    fn a_registration_that_is_not_as_described_is_found_and_why() {
        let unregistered = |change: fn(&mut Snapshot)| {
            with(|_, s| {
                s.configurations = Ok(Vec::new());
                change(s);
            })
        };
        for (snapshot, verdict, words) in [
            (unregistered(|_| {}), Verdict::Failure, "not registered, so its policies have no effect"),
            (
                unregistered(|s| {
                    s.deployments.as_mut().unwrap()[0]["status"]["readyReplicas"] = json!(0);
                }),
                Verdict::Failure,
                "no webhook is ready",
            ),
            (
                unregistered(|s| {
                    s.deployments.as_mut().unwrap()[3]["status"]["readyReplicas"] = json!(0);
                }),
                Verdict::Failure,
                "no cert-rotator is running",
            ),
            (
                // No policy is on: the description has no entries.
                unregistered(|s| {
                    let none = configuration(KIND, NAME, &[]);
                    let none = json!({"apiVersion": none["apiVersion"], "kind": KIND,
                                      "metadata": {"name": NAME}, "webhooks": []});
                    s.description = Ok(Some(json!({"data": {"a": none.to_string()}})));
                }),
                Verdict::Ok,
                "",
            ),
            (
                with(|_, s| {
                    s.configurations.as_mut().unwrap()[0]["webhooks"][0]["failurePolicy"] = json!("Ignore");
                }),
                Verdict::Warning,
                "it is not as described",
            ),
            (
                with(|_, s| {
                    let live = configuration("MutatingWebhookConfiguration", NAME, &[]);
                    s.configurations.as_mut().unwrap().push(live);
                }),
                Verdict::Warning,
                "although no policy wants it",
            ),
            (with(|_, s| s.description = Ok(None)), Verdict::Failure, "does not exist"),
            (
                with(|_, s| s.description = Ok(Some(json!({"data": {"a": "kind: ["}})))),
                Verdict::Failure,
                "not YAML",
            ),
        ] {
            assert_found(&registration(&snapshot), verdict, words);
        }
    }

    #[test]
    fn ca_bundles_that_do_not_fit_what_is_served_are_told_apart_sys4() {
        let (_, good) = healthy();
        let now = good.now;
        let other = bundle([&authority(now)]).to_ca_bundle();
        let grown = with(|authority, s| {
            let more = bundle([authority, &another(s)]);
            s.configurations.as_mut().unwrap()[0]["webhooks"][0]["clientConfig"]["caBundle"] =
                json!(more.to_ca_bundle());
        });
        // The leaf is of a new authority, which this bundle, a part of the stored one, does not have.
        let stale = with(|old, s| {
            let new = another(s);
            let trust = bundle([old, &new]);
            let ca = secret("sallyport-ca", new.key_pair(), &trust, None);
            s.inventory.authority = Ok(Some(Holding::of(&ca)));
            let tls = secret("tls", leaf(&new, "sallyport", Member::Webhook, s.now), &trust, None);
            s.inventory.members.insert(Member::Webhook, Ok(Some(Holding::of(&tls))));
        });
        let renamed = with(|authority, s| {
            let tls = leaf(authority, "renamed", Member::Webhook, s.now);
            let tls = secret("tls", tls, &bundle([authority]), None);
            s.inventory.members.insert(Member::Webhook, Ok(Some(Holding::of(&tls))));
        });
        for (snapshot, verdict, words) in [
            (bundled(""), Verdict::Failure, "has no caBundle"),
            (bundled("!"), Verdict::Failure, "not base64"),
            (bundled("aGVsbG8="), Verdict::Failure, "cannot be read"),
            (bundled(&other), Verdict::Failure, "of a foreign authority"),
            (stale, Verdict::Failure, "its caBundle is stale: what is served does not verify"),
            (grown, Verdict::Warning, "its caBundle is stale: it is not the stored one"),
            (
                renamed,
                Verdict::Failure,
                "not good for sallyport-webhook.sallyport.svc, only for renamed-webhook",
            ),
            (
                with(|_, s| s.now += Duration::from_secs(91 * 86_400)),
                Verdict::Failure,
                "what is served: the certificate has expired",
            ),
            (
                with(|_, s| {
                    s.inventory.members.insert(Member::Webhook, Err(Unread::Forbidden("no".into())));
                }),
                Verdict::NotChecked,
                "Secret sallyport-webhook-tls",
            ),
            (with(|_, s| s.configurations = Ok(Vec::new())), Verdict::Ok, ""),
        ] {
            assert_found(&ca_bundles(&snapshot), verdict, words);
        }
    }

    /// Another authority of the snapshot's day.
    fn another(snapshot: &Snapshot) -> Authority {
        authority(snapshot.now)
    }

    #[test]
    fn a_service_that_leads_nowhere_is_a_failure_for_ours_and_a_warning_for_others_sys4() {
        let change = |change: &dyn Fn(&mut super::super::snapshot::Service)| {
            let make = |mut snapshot: Snapshot| {
                for service in snapshot.services.values_mut() {
                    change(service);
                }
                snapshot
            };
            (make(with(|_, _| {})), make(healthy_and(foreign(|_| {}))))
        };
        let port = |number: u64, protocol: &str| json!({"spec": {"ports": [{"name": "https", "port": number, "protocol": protocol}]}});
        let external = json!({"spec": {"type": "ExternalName", "ports": [{"port": 443}]}});
        let unready = json!([{"ports": [{"name": "https"}], "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": false}}]}]);
        let elsewhere = json!([{"ports": [{"name": "metrics"}], "endpoints": [{"addresses": ["10.0.0.1"]}]}]);
        let slices = |list: &Value| list.as_array().cloned().unwrap();
        for ((ours, theirs), is_broken, words) in [
            (change(&|s| s.service = Ok(None)), true, "it does not exist: everything that it matches"),
            (change(&|s| s.service = Ok(Some(port(8443, "TCP")))), true, "it has no port 443"),
            (change(&|s| s.service = Ok(Some(port(443, "UDP")))), true, "it has no port 443"),
            (change(&|s| s.slices = Ok(Vec::new())), true, "it has no ready endpoint"),
            (change(&|s| s.slices = Ok(slices(&unready))), true, "it has no ready endpoint"),
            (change(&|s| s.slices = Ok(slices(&elsewhere))), true, "it has no ready endpoint"),
            (change(&|s| *s = good_service(1)), false, "one ready endpoint, behind failurePolicy Fail"),
        ] {
            let verdict = if is_broken { Verdict::Failure } else { Verdict::Warning };
            assert_found(&service(&ours), verdict, words);
            // Theirs has no good caBundle, so ours is what is looked for.
            let found = others(&theirs);
            let found = found.findings.iter().find(|finding| finding.problem.contains(words));
            assert_eq!(found.map(|finding| finding.verdict), Some(Verdict::Warning), "{words}");
        }
        let (ours, _) = change(&|s| {
            *s = super::super::snapshot::Service {
                service: Ok(Some(external.clone())),
                slices: Ok(Vec::new()),
            };
        });
        assert_found(&service(&ours), Verdict::Ok, "");
        let (ours, _) = change(&|s| s.slices = Err(Unread::Forbidden("no".into())));
        assert_found(&service(&ours), Verdict::NotChecked, "not allowed");
    }

    #[test]
    fn the_ca_bundle_of_others_is_looked_at_and_a_named_one_is_held_to_all() {
        let (_, good) = healthy();
        let fine = bundle([&authority(good.now)]).to_ca_bundle();
        let past = bundle([&authority(good.now - Duration::from_secs(400 * 86_400))]).to_ca_bundle();
        for (ca_bundle, verdict, words) in [
            (fine.as_str(), Verdict::Ok, ""),
            (past.as_str(), Verdict::Warning, "every authority in its caBundle has expired"),
            ("", Verdict::Warning, "it has no caBundle"),
        ] {
            let theirs = foreign(|entry| entry["clientConfig"]["caBundle"] = json!(ca_bundle));
            let mut snapshot = healthy_and(theirs);
            assert_found(&others(&snapshot), verdict, words);
            snapshot.named = vec!["guard".into()];
            let strictly = if verdict == Verdict::Warning { Verdict::Failure } else { verdict };
            assert_found(&others(&snapshot), strictly, words);
        }
        let (_, mut snapshot) = healthy();
        snapshot.named = vec!["gaurd".into()];
        assert_found(&others(&snapshot), Verdict::Failure, "gaurd: there is no webhook configuration");
    }
}
