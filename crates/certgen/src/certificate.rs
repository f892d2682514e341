//! Making the Secret's certificate, or keeping the one that is there.
//!
//! A new certificate never comes alone: the authorities that were trusted before stay in the bundle until they expire,
//! so whoever still serves the former certificate stays trusted. Where the objects with the `caBundle` are known
//! (`bootstrap`), a new authority is trusted there first, and only then is the certificate replaced.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use sallyport_pki::{
    Algorithm, Authority, Bundle, Certificate, Defect, Identity, LeafRequest, Renewal, check,
};
use tracing::{info, warn};

use crate::arguments::{CertificateArgs, CommonArgs, TargetArgs};
use crate::error::JobError;
use crate::patch;
use crate::secret::{Found, Place};
use crate::session::{Outcome, Session};
use crate::signer::Signer;

/// The most authorities in a bundle. More than two or three are there only if somebody renews far too often.
const MAX_AUTHORITIES: usize = 8;
/// How long API servers are given to see a configuration: each has a watch of its own.
const PROPAGATION: Duration = Duration::from_secs(10);

/// What is wanted of a certificate.
struct Wanted {
    leaf: LeafRequest,
    renewal: Renewal,
    /// `<service>.<namespace>.svc`.
    name: String,
    /// Names and addresses by which it surely is called: that one, and what was asked for besides.
    called: BTreeSet<String>,
}

/// What to do about what was found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// All is good until then.
    Keep(SystemTime),
    /// The certificate is good, but more authorities have to be trusted.
    Trust(Bundle, SystemTime),
    /// The certificate has to be replaced.
    Replace(Defect),
}

/// Makes the Secret good. With `targets`, an authority is trusted there before its certificate replaces one that
/// still serves.
pub(crate) async fn create(
    session: &Session,
    common: &CommonArgs,
    args: &CertificateArgs,
    targets: Option<&TargetArgs>,
) -> Result<Outcome, JobError> {
    let name = args.service(&common.namespace)?.server_name();
    let wanted = Wanted {
        leaf: args.wanted(&common.namespace)?,
        renewal: args.renewal(),
        called: args.hosts.iter().map(ToString::to_string).chain([name.clone()]).collect(),
        name,
    };
    let place = Place::of(session, common, &wanted.name, args.replace);
    let mut signer = match &args.signer {
        Some(name) => Some(Signer::new(session, common, args, name)?),
        None => None,
    };
    let outcome = session
        .persevere(async || {
            let issuer = issuer(session, common, args).await?;
            let required = match (&issuer, &signer) {
                (Some(authority), _) => bundle_of(authority),
                (None, Some(signer)) => signer.authorities().clone(),
                (None, None) => Bundle::empty(),
            };
            let found = place.load().await?;
            let now = SystemTime::now();
            let defect = match judge(&found, &required, &wanted, now) {
                Verdict::Keep(until) => return Ok(kept(&place, &wanted, until)),
                Verdict::Trust(bundle, until) => {
                    place.permit_write(&found, "authorities are missing")?;
                    place.save(&found, &Identity { pair: found.identity().pair, bundle }).await?;
                    return Ok(Outcome {
                        is_changed: true,
                        text: format!("added authorities to {}, valid until {}", place.text(), date(until)),
                    });
                }
                Verdict::Replace(defect) => defect,
            };
            place.permit_replacement(&found, &defect)?;
            info!(secret = place.text(), reason = %defect, "a certificate is needed");
            let life = args.life.unwrap_or(CertificateArgs::LIFE);
            let (pair, authorities) = match (&issuer, &mut signer) {
                (Some(authority), _) => (authority.issue(&wanted.leaf, now, life)?, required),
                (None, Some(signer)) => (signer.sign(&wanted.leaf).await?, required),
                (None, None) => {
                    let authority = Authority::generate(args.key_algorithm.into(), now, life)?;
                    (authority.issue(&wanted.leaf, now, life)?, bundle_of(&authority))
                }
            };
            let fresh = Identity { bundle: merged(&authorities, &found.identity(), now), pair };
            let found = match targets {
                Some(targets) if serves(&found.identity(), &fresh.bundle, now) => {
                    publish(session, common, targets, &place, found, &fresh.bundle).await?
                }
                _ => found,
            };
            place.save(&found, &fresh).await?;
            let until = Certificate::from_pem(fresh.pair.certificate_pem.as_bytes())
                .map_or(now, |certificate| certificate.not_after());
            Ok(Outcome {
                is_changed: true,
                text: format!(
                    "stored a new certificate for {} in {}, valid until {}",
                    wanted.name,
                    place.text(),
                    date(until)
                ),
            })
        })
        .await;
    if let Some(signer) = &mut signer {
        signer.discard().await;
    }
    outcome
}

fn kept(place: &Place, wanted: &Wanted, until: SystemTime) -> Outcome {
    let text =
        format!("{} holds a good certificate for {}, valid until {}", place.text(), wanted.name, date(until));
    Outcome { is_changed: false, text }
}

/// Whether what was found still is what it has to be, and all that is `required` is trusted.
fn judge(found: &Found, required: &Bundle, wanted: &Wanted, now: SystemTime) -> Verdict {
    let identity = found.identity();
    let trusted = merged(required, &identity, now);
    let verdict = check::leaf(&identity.pair, &trusted, &wanted.leaf, now, wanted.renewal);
    let good = match verdict.map(|validity| validity.not_after) {
        Err(defect) if !found.is_ours => suffices(&identity, &trusted, wanted, now, defect),
        verdict => verdict,
    };
    match good {
        Err(defect) => Verdict::Replace(defect),
        Ok(until) if required.certificates().iter().all(|one| identity.bundle.contains(one)) => {
            Verdict::Keep(until)
        }
        Ok(until) => Verdict::Trust(trusted, until),
    }
}

/// Whether a certificate that was not made here does what it is for, although it has a `defect`.
fn suffices(
    identity: &Identity,
    trusted: &Bundle,
    wanted: &Wanted,
    now: SystemTime,
    defect: Defect,
) -> Result<SystemTime, Defect> {
    let chain =
        Certificate::all_from_pem(identity.pair.certificate_pem.as_bytes()).map_err(Defect::Certificate)?;
    let is_named = match &defect {
        Defect::Due => true,
        Defect::Names { missing, .. } => !missing.iter().any(|name| wanted.called.contains(name)),
        _ => false,
    };
    if !is_named {
        return Err(defect);
    }
    let chain: Vec<_> = chain.iter().map(|certificate| certificate.der().clone()).collect();
    let leaf = check::presented(&chain, trusted, &wanted.name, now)?;
    if wanted.renewal.due(&leaf).is_some_and(|due| now >= due) {
        warn!("the certificate is due for renewal, but it was not made here; it is left as it is");
    }
    Ok(leaf.not_after())
}

/// The authorities of `first`, then those that are trusted in what is `stored` and whose time is not over. However many
/// there are, the one that verifies the stored certificate is among them: somebody may serve it.
fn merged(first: &Bundle, stored: &Identity, now: SystemTime) -> Bundle {
    let chain = Certificate::all_from_pem(stored.pair.certificate_pem.as_bytes()).unwrap_or_default();
    let is_in_use = |authority: &&Certificate| {
        let mut alone = Bundle::empty();
        alone.add((*authority).clone());
        check::verifies(&chain, &alone, now)
    };
    let former = stored.bundle.certificates();
    let (in_use, others): (Vec<_>, Vec<_>) = former.iter().partition(is_in_use);
    let mut bundle = first.clone();
    for certificate in in_use.into_iter().chain(others) {
        bundle.add(certificate.clone());
    }
    bundle.current(now, MAX_AUTHORITIES)
}

fn bundle_of(authority: &Authority) -> Bundle {
    let mut bundle = Bundle::empty();
    bundle.add(authority.certificate().clone());
    bundle
}

/// Whether somebody may serve what is stored, and `bundle` has authorities that are not trusted yet.
fn serves(stored: &Identity, bundle: &Bundle, now: SystemTime) -> bool {
    let chain = Certificate::all_from_pem(stored.pair.certificate_pem.as_bytes()).unwrap_or_default();
    check::verifies(&chain, &stored.bundle, now)
        && !bundle.certificates().iter().all(|authority| stored.bundle.contains(authority))
}

/// Has a new authority trusted everywhere while the former certificate is still the one to be served. Returns the
/// Secret as it then is.
async fn publish(
    session: &Session,
    common: &CommonArgs,
    targets: &TargetArgs,
    place: &Place,
    found: Found,
    bundle: &Bundle,
) -> Result<Found, JobError> {
    let published = Identity { pair: found.identity().pair, bundle: bundle.clone() };
    place.save(&found, &published).await?;
    patch::patch(session, common, targets).await?;
    info!("the new authority is trusted; the certificate follows when every API server has seen it");
    tokio::time::sleep(PROPAGATION.min(session.patience / 4)).await;
    let found = place.load().await?;
    if found.identity() == published { Ok(found) } else { Err(JobError::Overtaken(place.text().to_owned())) }
}

/// The authority that is kept in a Secret, made if need be; `None` without such a Secret.
async fn issuer(
    session: &Session,
    common: &CommonArgs,
    args: &CertificateArgs,
) -> Result<Option<Authority>, JobError> {
    let Some(name) = &args.ca_secret else { return Ok(None) };
    let place = Place::of_authority(session, common, name, args.replace);
    let found = place.load().await?;
    let (pair, now) = (found.identity().pair, SystemTime::now());
    match check::authority(&pair, now, Renewal::TwoThirds) {
        Ok(_) => return Ok(Some(Authority::from_pem(&pair)?)),
        Err(Defect::Due) if !found.is_ours => {
            warn!(
                secret = place.text(),
                "the authority is old, but it was not made here; it is left as it is"
            );
            return Ok(Some(Authority::from_pem(&pair)?));
        }
        Err(defect) => {
            place.permit_replacement(&found, &defect)?;
            info!(secret = place.text(), reason = %defect, "an authority is needed");
        }
    }
    let authority = Authority::generate(Algorithm::from(args.key_algorithm), now, args.ca_life)?;
    let identity = Identity { pair: authority.key_pair(), bundle: bundle_of(&authority) };
    place.save(&found, &identity).await?;
    Ok(Some(authority))
}

/// A date for people, to the second.
fn date(time: SystemTime) -> String {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use sallyport_pki::ServiceName;

    use super::*;

    #[test]
    fn what_is_served_stays_trusted_however_often_a_renewal_fails_r04() {
        let (now, life) = (SystemTime::now(), Duration::from_hours(1));
        let service = ServiceName::new("hook", "prod", "cluster.local").unwrap();
        let authority = || Authority::generate(Algorithm::EcdsaP256, now, life).unwrap();
        let first = authority();
        let pair = first.issue(&LeafRequest::for_service(&service), now, life).unwrap();
        let mut stored = Identity { pair, bundle: bundle_of(&first) };
        for _ in 0..MAX_AUTHORITIES * 2 {
            stored.bundle = merged(&bundle_of(&authority()), &stored, now);
        }
        assert_eq!(stored.bundle.certificates().len(), MAX_AUTHORITIES);
        assert!(stored.bundle.contains(first.certificate()));
        let later = now + Duration::from_hours(2);
        assert!(merged(&Bundle::empty(), &stored, later).is_empty(), "expired ones are dropped");
    }

    #[test]
    fn dates_are_for_people() {
        assert_eq!(date(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)), "1970-01-02T00:00:00Z");
    }
}
