//! The API server, its clock, and what of the release has to run.

use std::time::Duration;

use sallyport_pki::names::Member;
use serde_json::Value;

use super::diagnosis::{Check, Verdict};
use super::snapshot::Snapshot;
use crate::cluster::clock as time;

/// How far two clocks may be apart: certificates allow for ten minutes, people for less.
const MAX_SKEW: Duration = Duration::from_secs(30);
/// The oldest minor version of Kubernetes 1 that has all that is registered.
const MIN_MINOR: u32 = 30;
/// How old a leader's last word may be, at the least.
const SILENCE: Duration = Duration::from_secs(60);
/// The rotator's component.
const ROTATOR: &str = "cert-rotator";

/// Whether the API server answers, and is new enough.
pub(super) fn api_server(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("api-server");
    let url = &snapshot.server.url;
    match &snapshot.server.version {
        Err(unread) => check.add(
            Verdict::Failure,
            url,
            unread.to_string(),
            "see whether kubectl reaches it; nothing else can be checked",
        ),
        Ok(version) => {
            check.summary = format!("{version} answers at {url}");
            let mut parts = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
            if let (Some(Ok(1)), Some(Ok(minor))) = (parts.next(), parts.next())
                && minor < MIN_MINOR
            {
                check.add(
                    Verdict::Warning,
                    url,
                    format!("{version} is older than 1.{MIN_MINOR}, the oldest that is supported"),
                    "upgrade the cluster",
                );
            }
        }
    }
    check
}

/// Whether this machine's clock and the API server's agree.
pub(super) fn clock(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("clock");
    let (skew, word) = match snapshot.server.skew {
        None => {
            check.add(Verdict::NotChecked, "", "the API server said no time", "");
            return check;
        }
        Some(Ok(ahead)) => (ahead, "ahead of"),
        Some(Err(behind)) => (behind, "behind"),
    };
    if skew > MAX_SKEW {
        check.add(
            Verdict::Warning,
            "",
            format!("the API server's clock is {} {word} this machine's", time::format_span(skew)),
            "set the one that is wrong; certificates are judged by the API server's here",
        );
    } else {
        // The header has whole seconds.
        check.summary = format!("the API server's and this machine's agree within {} s", skew.as_secs() + 1);
    }
    check
}

/// Whether the Deployments are there, and their pods ready.
pub(super) fn deployments(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("deployments");
    let deployments = match &snapshot.deployments {
        Ok(deployments) => deployments,
        Err(unread) => {
            check.unread("Deployments", unread);
            return check;
        }
    };
    if deployments.is_empty() {
        let installation = &snapshot.installation;
        let advice = "give --namespace and --release as helm list --all-namespaces shows them";
        check.add(Verdict::Failure, installation.to_string(), "it has no Deployments", advice);
        return check;
    }
    let mut good = Vec::new();
    for component in expected(snapshot) {
        let name = format!("Deployment {}", snapshot.installation.object(component));
        let Some(deployment) = snapshot.deployment(component) else {
            check.add(Verdict::Failure, name, "it does not exist", "helm upgrade puts it back");
            continue;
        };
        let (wanted, ready) = replicas(deployment);
        let kubectl = snapshot.kubectl();
        let is_rotator = component == ROTATOR;
        let look = format!("{kubectl} get pods,events says why");
        if wanted == 0 {
            let (verdict, means) = if is_rotator {
                (Verdict::Warning, "it is scaled to zero: nothing is renewed, repaired or registered")
            } else {
                (Verdict::Failure, "it is scaled to zero: its policies cannot be asked")
            };
            let object = snapshot.installation.object(component);
            let replicas = if is_rotator { 1 } else { 2 };
            let advice = format!("{kubectl} scale deployment {object} --replicas={replicas}");
            check.add(verdict, name, means, advice);
        } else if ready == 0 {
            check.add(Verdict::Failure, name, format!("none of {wanted} pods is ready"), look);
        } else if ready < wanted {
            check.add(Verdict::Warning, name, format!("{ready} of {wanted} pods are ready"), look);
        } else if wanted == 1 && !is_rotator {
            let problem = "it has one pod: while that is away, its policies cannot be asked (C-102)";
            check.add(Verdict::Warning, name, problem, "let it have two or more replicas");
        } else {
            good.push(format!("{component} {ready}/{wanted}"));
        }
    }
    check.summary = format!("ready: {}", good.join(", "));
    check
}

/// The components that have to run: backends can be left out, and are then not named to the webhook.
fn expected(snapshot: &Snapshot) -> Vec<&'static str> {
    let mut expected = vec![Member::Webhook.word()];
    let arguments = snapshot.deployment(Member::Webhook.word()).and_then(|webhook| {
        webhook.pointer("/spec/template/spec/containers/0/args").and_then(Value::as_array)
    });
    for backend in [Member::Mutator, Member::Validator] {
        let flag = format!("--{}=", backend.word());
        let mut arguments = arguments.into_iter().flatten().filter_map(Value::as_str);
        if arguments.any(|argument| argument.starts_with(&flag))
            || snapshot.deployment(backend.word()).is_some()
        {
            expected.push(backend.word());
        }
    }
    expected.push(ROTATOR);
    expected
}

/// How many pods are wanted, and how many are ready.
fn replicas(deployment: &Value) -> (u64, u64) {
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64);
    (number("/spec/replicas").unwrap_or(1), number("/status/readyReplicas").unwrap_or(0))
}

/// Whether a part of the release has a ready pod; `None` if that is not known.
pub(super) fn is_running(snapshot: &Snapshot, component: &str) -> Option<bool> {
    snapshot.deployments.as_ref().ok()?;
    Some(snapshot.deployment(component).is_some_and(|deployment| replicas(deployment).1 > 0))
}

/// Whether a cert-rotator leads, and is content.
pub(super) fn leader(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("leader");
    let lease = format!("Lease {}", snapshot.installation.object(ROTATOR));
    let log = snapshot.rotator_log();
    let leadership = match &snapshot.leadership {
        Err(unread) => {
            check.unread(lease, unread);
            return check;
        }
        Ok(None) => {
            let problem = "it does not exist: no cert-rotator has ever led";
            check.add(Verdict::Warning, lease, problem, format!("{log} says why"));
            return check;
        }
        Ok(Some(leadership)) => leadership,
    };
    let patience = SILENCE.max(leadership.duration.saturating_mul(4));
    let silence = leadership.renewed.map(|renewed| time::since(renewed, snapshot.now));
    match silence {
        Some(silence) if silence <= patience && !leadership.holder.is_empty() => {
            check.summary = format!("{}, {} ago", leadership.holder, time::format_span(silence));
        }
        _ => {
            let since = silence.map(|silence| format!(" for {}", time::format_span(silence)));
            let problem = format!("nobody has led{}", since.unwrap_or_default());
            let advice = format!("nothing is renewed or repaired meanwhile; {log} says why");
            check.add(Verdict::Failure, lease.clone(), problem, advice);
        }
    }
    if let Some(ready) = leadership.condition("Ready").filter(|ready| ready.status == "False") {
        let problem = format!("the cert-rotator is not content: {} {}", ready.reason, ready.message);
        check.add(Verdict::Failure, lease, problem.trim_end().to_owned(), format!("{log} says more"));
    }
    check
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::judge::fixtures::{assert_found, healthy};
    use super::*;
    use crate::cluster::Unread;
    use crate::leadership::Leadership;

    fn with(change: impl FnOnce(&mut Snapshot)) -> Snapshot {
        let (_, mut snapshot) = healthy();
        change(&mut snapshot);
        snapshot
    }

    #[test]
    fn an_api_server_that_does_not_answer_is_a_failure_and_an_old_one_a_warning() {
        for (version, verdict, words) in [
            (Ok("v1.30.0-gke.1"), Verdict::Ok, ""),
            (Ok("v1.29.9"), Verdict::Warning, "older than 1.30"),
            (Ok("nonsense"), Verdict::Ok, ""),
            (Err(Unread::Unauthorized), Verdict::Failure, "credentials"),
        ] {
            let snapshot = with(|s| s.server.version = version.map(str::to_owned));
            assert_found(&api_server(&snapshot), verdict, words);
        }
    }

    #[test]
    fn clocks_that_are_apart_are_warned_of() {
        let seconds = Duration::from_secs;
        for (skew, verdict, words) in [
            (Some(Ok(seconds(30))), Verdict::Ok, ""),
            (Some(Ok(seconds(31))), Verdict::Warning, "31 s ahead of"),
            (Some(Err(seconds(600))), Verdict::Warning, "10 min behind"),
            (None, Verdict::NotChecked, "no time"),
        ] {
            assert_found(&clock(&with(|s| s.server.skew = skew)), verdict, words);
        }
    }

    #[test]
    fn deployments_that_lack_pods_are_found() {
        let scaled = |index: usize, wanted: u64, ready: u64| {
            with(|s| {
                let deployment = &mut s.deployments.as_mut().unwrap()[index];
                deployment["spec"]["replicas"] = json!(wanted);
                deployment["status"]["readyReplicas"] = json!(ready);
            })
        };
        for (snapshot, verdict, words) in [
            (scaled(0, 2, 0), Verdict::Failure, "sallyport-webhook: none of 2"),
            (scaled(1, 3, 2), Verdict::Warning, "sallyport-mutator: 2 of 3"),
            (scaled(2, 1, 1), Verdict::Warning, "sallyport-validator: it has one pod"),
            (scaled(2, 0, 0), Verdict::Failure, "sallyport-validator: it is scaled to zero"),
            (scaled(3, 0, 0), Verdict::Warning, "sallyport-cert-rotator: it is scaled to zero"),
            (scaled(3, 1, 1), Verdict::Ok, ""),
            (with(|s| s.deployments = Ok(Vec::new())), Verdict::Failure, "it has no Deployments"),
            (
                with(|s| {
                    s.deployments.as_mut().unwrap().remove(1);
                }),
                Verdict::Failure,
                "sallyport-mutator: it does not exist",
            ),
            (
                // A backend that was left out is not named to the webhook.
                with(|s| {
                    let deployments = s.deployments.as_mut().unwrap();
                    deployments.remove(1);
                    deployments[0]["spec"]["template"]["spec"]["containers"][0]["args"] =
                        json!(["--validator=v"]);
                }),
                Verdict::Ok,
                "",
            ),
        ] {
            assert_found(&deployments(&snapshot), verdict, words);
        }
    }

    #[test]
    fn a_leader_that_is_silent_or_unhappy_is_a_failure() {
        let lease = |holder: &str, age: u64, conditions: &Value| {
            with(|s| {
                let renewed = time::format_instant(s.now - Duration::from_secs(age));
                s.leadership = Ok(Some(Leadership::of(&json!({
                    "metadata": {"annotations": {"sallyport.dev/conditions": conditions.to_string()}},
                    "spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15},
                }))));
            })
        };
        let unready =
            json!([{"type": "Ready", "status": "False", "reason": "Forbidden", "message": "secrets"}]);
        for (snapshot, verdict, words) in [
            (lease("a", 50, &json!([])), Verdict::Ok, ""),
            (lease("a", 61, &json!([])), Verdict::Failure, "nobody has led for 61 s"),
            (lease("", 1, &json!([])), Verdict::Failure, "nobody has led"),
            (lease("a", 1, &unready), Verdict::Failure, "not content: Forbidden secrets"),
            (with(|s| s.leadership = Ok(None)), Verdict::Warning, "does not exist"),
        ] {
            assert_found(&leader(&snapshot), verdict, words);
        }
    }
}
