//! Certificates: as stored, as served, and on their way to others.

use std::time::{Duration, SystemTime};

use super::diagnosis::{Check, Verdict};
use super::snapshot::Snapshot;
use crate::cluster::clock;
use crate::cluster::inventory::{FREEZE, ROTATE, STUCK, UNANSWERED, is_overdue};
use crate::cluster::serving::Loaded;
use crate::leadership::Condition;

/// A rotation that has waited so long will not go on by itself.
const HOPELESS: Duration = Duration::from_secs(60 * 60);
/// A freeze that stands for so long may have been forgotten.
const LONG_FREEZE: Duration = Duration::from_secs(24 * 60 * 60);

/// The rotation that is under way.
fn rotating(snapshot: &Snapshot) -> Option<(&Condition, Duration)> {
    let leadership = snapshot.leadership.as_ref().ok()?.as_ref()?;
    let condition = leadership.holds("Rotating")?;
    Some((condition, condition.age(snapshot.now).unwrap_or_default()))
}

/// Whether the stored certificates are good, and long enough.
pub(super) fn certificates(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("certificates");
    let installation = &snapshot.installation;
    let secret = |member: Option<_>| match member {
        Some(member) => format!("Secret {}", installation.secret(member)),
        None => format!("Secret {}", installation.authority_secret()),
    };
    if let Err(unread) = &snapshot.inventory.authority {
        check.unread(secret(None), unread);
    }
    for (member, read) in &snapshot.inventory.members {
        if let Err(unread) = read {
            check.unread(secret(Some(*member)), unread);
        }
    }
    let mut soonest: Option<SystemTime> = None;
    let mut count = 0;
    for entry in snapshot.inventory.entries(installation, snapshot.now) {
        let is_left_out = entry.member.is_some_and(|member| {
            snapshot.deployments.is_ok() && snapshot.deployment(member.word()).is_none()
        });
        if entry.certificate.is_none() && is_left_out {
            continue;
        }
        let object = format!("{} ({})", secret(entry.member), entry.name);
        if let Some(fault) = entry.fault {
            let log = snapshot.rotator_log();
            let advice = format!("the cert-rotator replaces it within a minute; if not, {log} says why");
            check.add(Verdict::Failure, object, fault, advice);
            continue;
        }
        let Some(certificate) = entry.certificate.filter(|_| entry.name != "former") else { continue };
        count += 1;
        soonest = soonest.into_iter().chain([certificate.not_after()]).min();
        if is_overdue(&certificate, snapshot.now) {
            let left = clock::format_relative(certificate.not_after(), snapshot.now);
            let problem = format!("it ends {left}: less than a quarter of its life is left");
            let advice = format!("it should have been renewed; {} says why not", snapshot.rotator_log());
            check.add(Verdict::Warning, object, problem, advice);
        }
    }
    let soonest = soonest.map(|soonest| clock::format_relative(soonest, snapshot.now)).unwrap_or_default();
    check.summary = format!("{count} are good, the first ends {soonest}");
    check
}

/// Whether pods have loaded what is stored.
pub(super) fn served(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("served");
    let processes = match &snapshot.processes {
        Ok(processes) => processes,
        Err(unread) => {
            check.unread("pods", unread);
            return check;
        }
    };
    let moves = rotating(snapshot).is_some_and(|(_, age)| age <= STUCK);
    let mut current = 0;
    for process in processes {
        let pod = format!("pod {}", process.pod);
        if let Ok(page) = &process.page {
            let now = snapshot.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            if page.not_after < i64::try_from(now.as_secs()).unwrap_or(i64::MAX) {
                let advice = format!("{} delete {pod}; its log says what is wrong", snapshot.kubectl());
                check.add(Verdict::Failure, pod, "the certificate that it serves has expired", advice);
                continue;
            }
        }
        let says = process.describe(&snapshot.inventory).unwrap_or_default();
        match process.loaded(&snapshot.inventory) {
            Loaded::Current => current += 1,
            Loaded::Unknown => check.add(Verdict::NotChecked, pod, says, ""),
            Loaded::Incomparable => {
                check.add(Verdict::NotChecked, pod, "what should be served could not be read", "");
            }
            Loaded::OtherCertificate | Loaded::OtherBundle if moves => {}
            Loaded::OtherCertificate | Loaded::OtherBundle => {
                let kubectl = snapshot.kubectl();
                let advice = format!(
                    "pods take over what is stored within two minutes; if it lasts, {kubectl} delete {pod}"
                );
                check.add(Verdict::Warning, pod, says, advice);
            }
        }
    }
    if processes.is_empty() {
        let problem = "no pod has anything loaded";
        check.add(Verdict::NotChecked, snapshot.installation.to_string(), problem, "");
    }
    let count = processes.len();
    check.summary = format!("{current} of {count} pods have loaded what is stored");
    check
}

/// Whether rotations go on, or are held for long.
pub(super) fn rotation(snapshot: &Snapshot) -> Check {
    let mut check = Check::new("rotation");
    "none is under way, and none is asked for".clone_into(&mut check.summary);
    if let Err(unread) = &snapshot.leadership {
        check.unread("the cert-rotator's conditions", unread);
    }
    if let Some((condition, age)) = rotating(snapshot) {
        let Condition { reason, message, .. } = condition;
        let text = format!("{reason} for {}; waiting: {message}", clock::format_span(age));
        if age > STUCK {
            let verdict = if age > HOPELESS { Verdict::Failure } else { Verdict::Warning };
            let advice = "it never goes on by hope: delete the pod that is named if it hangs; see the runbook, \
                          SallyportRotationStuck";
            check.add(verdict, "rotation", text, advice);
        } else {
            check.summary = text;
        }
    }
    let authority = match &snapshot.inventory.authority {
        Err(unread) => {
            check.unread(format!("Secret {}", snapshot.installation.authority_secret()), unread);
            return check;
        }
        Ok(authority) => authority,
    };
    let Some(authority) = authority else { return check };
    let age = |key: &str| authority.annotated_since(key).map(|at| clock::since(at, snapshot.now));
    if let Some(reason) = authority.freeze() {
        let leadership = snapshot.leadership.as_ref().ok().and_then(Option::as_ref);
        let frozen = leadership.and_then(|leadership| leadership.holds("Frozen")?.age(snapshot.now));
        let age = age(FREEZE).into_iter().chain(frozen).max();
        let since = age.map(|age| format!(" for {}", clock::format_span(age))).unwrap_or_default();
        let text = format!("rotations and renewals are held{since}: {reason}");
        let entries = snapshot.inventory.entries(&snapshot.installation, snapshot.now);
        let certificates = entries.iter().filter_map(|entry| entry.certificate.as_ref());
        let verdict = if certificates.into_iter().any(|certificate| is_overdue(certificate, snapshot.now)) {
            Verdict::Failure
        } else if age.is_none_or(|age| age > LONG_FREEZE) {
            Verdict::Warning
        } else {
            Verdict::Ok
        };
        if verdict == Verdict::Ok {
            check.summary = text;
        } else {
            check.add(verdict, "freeze", text, "sallyport certs unfreeze, or certificates end");
        }
    } else if let Some(request) = authority.request() {
        if rotating(snapshot).is_none() && age(ROTATE).is_none_or(|age| age > UNANSWERED) {
            let problem = format!("nobody answers the request {request}");
            let advice = format!("{} says why", snapshot.rotator_log());
            check.add(Verdict::Warning, "rotation", problem, advice);
        } else {
            "another authority is asked for".clone_into(&mut check.summary);
        }
    }
    check
}

#[cfg(test)]
mod tests {
    use sallyport_pki::Authority;
    use sallyport_pki::names::Member;
    use serde_json::json;

    use super::super::judge::fixtures::{assert_found, healthy};
    use super::*;
    use crate::cluster::Unread;
    use crate::cluster::inventory::Holding;
    use crate::cluster::inventory::fixtures::{bundle, leaf, secret};
    use crate::leadership::Leadership;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn with(change: impl FnOnce(&Authority, &mut Snapshot)) -> Snapshot {
        let (authority, mut snapshot) = healthy();
        change(&authority, &mut snapshot);
        snapshot
    }

    fn set(snapshot: &mut Snapshot, r#type: &str, age: Duration) {
        let since = clock::format_instant(snapshot.now - age);
        let condition = json!([{"type": r#type, "status": "True", "reason": "Published",
                                "message": "pod x: no answer", "lastTransitionTime": since}]);
        let annotations = json!({"sallyport.dev/conditions": condition.to_string()});
        snapshot.leadership = Ok(Some(Leadership::of(&json!({"metadata": {"annotations": annotations}}))));
    }

    /// Annotates the authority's Secret, so long ago.
    fn annotate(authority: &Authority, snapshot: &mut Snapshot, key: &str, value: &str, age: Duration) {
        let mut ca = secret("sallyport-ca", authority.key_pair(), &bundle([authority]), None);
        let field = format!("f:{key}");
        ca["metadata"]["annotations"] = json!({key: value});
        ca["metadata"]["managedFields"] = json!([{"time": clock::format_instant(snapshot.now - age),
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {}}}}}]);
        snapshot.inventory.authority = Ok(Some(Holding::of(&ca)));
    }

    #[test]
    fn certificates_that_are_lost_wrong_or_near_their_end_are_found() {
        let absent = |member: Member, is_deployed: bool| {
            with(|_, s| {
                s.inventory.members.insert(member, Ok(None));
                if !is_deployed {
                    s.deployments.as_mut().unwrap().retain(|d| d["metadata"]["name"] != "sallyport-mutator");
                }
            })
        };
        for (snapshot, verdict, words) in [
            (absent(Member::Mutator, true), Verdict::Failure, "sallyport-mutator-tls (mutator): nothing"),
            (absent(Member::Mutator, false), Verdict::Ok, ""),
            (with(|_, s| s.now += DAY * 60), Verdict::Ok, ""),
            (with(|_, s| s.now += DAY * 70), Verdict::Warning, "less than a quarter"),
            (with(|_, s| s.now += DAY * 91), Verdict::Failure, "the certificate has expired"),
            (
                with(|authority, s| {
                    let other = leaf(authority, "renamed", Member::Webhook, s.now);
                    let secret = secret("x", other, &bundle([authority]), None);
                    s.inventory.members.insert(Member::Webhook, Ok(Some(Holding::of(&secret))));
                }),
                Verdict::Failure,
                "the names differ",
            ),
            (
                with(|_, s| s.inventory.authority = Err(Unread::Unauthorized)),
                Verdict::NotChecked,
                "Secret sallyport-ca",
            ),
        ] {
            assert_found(&certificates(&snapshot), verdict, words);
        }
    }

    #[test]
    fn pods_that_serve_something_else_are_found_and_those_that_cannot_be_asked_are_said() {
        let page = |change: fn(&mut crate::cluster::serving::Page)| {
            with(|_, s| change(s.processes.as_mut().unwrap()[0].page.as_mut().unwrap()))
        };
        let moving = |age: Duration| {
            with(|_, s| {
                s.processes.as_mut().unwrap()[0].page.as_mut().unwrap().serial = "0a".into();
                set(s, "Rotating", age);
            })
        };
        for (snapshot, verdict, words) in [
            (page(|page| page.serial = "0a".into()), Verdict::Warning, "pod webhook-a: serves another"),
            (page(|page| page.bundle_sha256 = "0".into()), Verdict::Warning, "trusts another bundle"),
            (page(|page| page.not_after = 1), Verdict::Failure, "has expired"),
            (moving(Duration::from_secs(60)), Verdict::Ok, ""),
            (moving(HOPELESS), Verdict::Warning, "serves another"),
            (
                with(|_, s| s.processes.as_mut().unwrap()[0].page = Err(Unread::Forbidden("no".into()))),
                Verdict::NotChecked,
                "could not be asked: not allowed: no",
            ),
            (with(|_, s| s.processes = Ok(Vec::new())), Verdict::NotChecked, "no pod has anything loaded"),
        ] {
            assert_found(&served(&snapshot), verdict, words);
        }
    }

    #[test]
    fn rotations_that_are_stuck_and_freezes_that_stand_are_found() {
        let rotating = |age: Duration| with(|_, s| set(s, "Rotating", age));
        let annotated = |key: &str, age: Duration| with(|a, s| annotate(a, s, key, "because", age));
        for (snapshot, verdict, words) in [
            (rotating(STUCK), Verdict::Ok, ""),
            (rotating(STUCK * 2), Verdict::Warning, "Published for 30 min; waiting: pod x: no answer"),
            (rotating(HOPELESS * 2), Verdict::Failure, "Published for 2 h"),
            (annotated(ROTATE, Duration::from_secs(60)), Verdict::Ok, ""),
            (annotated(ROTATE, UNANSWERED * 2), Verdict::Warning, "nobody answers the request because"),
            (annotated(FREEZE, DAY / 2), Verdict::Ok, ""),
            (annotated(FREEZE, DAY * 3), Verdict::Warning, "are held for 3 d: because"),
            (
                with(|a, s| {
                    s.now += DAY * 80;
                    annotate(a, s, FREEZE, "x", Duration::ZERO);
                }),
                Verdict::Failure,
                "are held",
            ),
        ] {
            assert_found(&rotation(&snapshot), verdict, words);
        }
    }
}
