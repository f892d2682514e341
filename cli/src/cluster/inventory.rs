//! The certificates of a release as its Secrets hold them, judged: who issued each, whether it is trusted, until
//! when, and what is wrong with it. Private keys are left where they are found.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sallyport_pki::authority::BACKDATE;
use sallyport_pki::names::Member;
use sallyport_pki::stored::{CERTIFICATE, SUCCESSOR_CERTIFICATE, TRUST};
use sallyport_pki::{Bundle, Certificate, CertificateError, check};
use serde_json::Value;

use crate::cluster::clock;
use crate::cluster::installation::Installation;
use crate::cluster::{Cluster, Read};

/// Annotation of the authority's Secret: asks for another authority.
pub(crate) const ROTATE: &str = "sallyport.dev/rotate";
/// Annotation of the authority's Secret: the request that was answered last.
pub(crate) const ROTATED: &str = "sallyport.dev/rotated";
/// Annotation of the authority's Secret: holds rotations and renewals, and says why.
pub(crate) const FREEZE: &str = "sallyport.dev/freeze";

/// A rotation that waits longer than this is stuck: the kubelet takes two minutes at most.
pub(crate) const STUCK: Duration = Duration::from_secs(15 * 60);
/// A request that nobody answers for so long is not being answered.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(5 * 60);

/// What one Secret holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    /// The certificate, with what it chains to.
    pub(crate) chain: Vec<Certificate>,
    /// Why there is none.
    pub(crate) unreadable: Option<CertificateError>,
    /// Whom to trust.
    pub(crate) bundle: Bundle,
    /// The authority that is to follow.
    pub(crate) successor: Option<Certificate>,
    annotations: BTreeMap<String, String>,
    metadata: Value,
}

impl Holding {
    /// Reads a Secret. What cannot be read of it is absent.
    pub(crate) fn of(secret: &Value) -> Self {
        let decoded = |key: &str| {
            let text = secret.get("data")?.get(key)?.as_str()?;
            STANDARD.decode(text).ok()
        };
        let chain = Certificate::all_from_pem(&decoded(CERTIFICATE).unwrap_or_default());
        let (chain, unreadable) = match chain {
            Ok(chain) => (chain, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let successor = decoded(SUCCESSOR_CERTIFICATE).and_then(|pem| Certificate::from_pem(&pem).ok());
        let metadata = secret.get("metadata").cloned().unwrap_or_default();
        Self {
            chain,
            unreadable,
            bundle: decoded(TRUST).and_then(|pem| Bundle::from_pem(&pem).ok()).unwrap_or_default(),
            successor,
            annotations: annotations(&metadata),
            metadata,
        }
    }

    /// The certificate itself.
    pub(crate) fn certificate(&self) -> Option<&Certificate> {
        self.chain.first()
    }

    /// The value of an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Since when an annotation has its value, if the API server kept a record.
    pub(crate) fn annotated_since(&self, key: &str) -> Option<SystemTime> {
        let field = format!("f:{key}");
        let writers = self.metadata.get("managedFields")?.as_array()?;
        let wrote = writers.iter().filter(|writer| {
            let fields = writer.pointer("/fieldsV1/f:metadata/f:annotations");
            fields.is_some_and(|fields| fields.get(&field).is_some())
        });
        wrote.filter_map(|writer| clock::parse(writer.get("time")?.as_str()?)).max()
    }

    /// A request for another authority that was not answered yet.
    pub(crate) fn request(&self) -> Option<&str> {
        self.annotation(ROTATE).filter(|request| self.annotation(ROTATED) != Some(request))
    }

    /// Why rotations and renewals are held, if they are.
    pub(crate) fn freeze(&self) -> Option<&str> {
        self.annotation(FREEZE)
    }
}

/// Annotations of an object, from its metadata.
pub(crate) fn annotations(metadata: &Value) -> BTreeMap<String, String> {
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    annotations.into_iter().flatten().filter_map(text).collect()
}

/// Everything that is stored.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    /// The authority's Secret; `None` if there is none.
    pub(crate) authority: Read<Option<Holding>>,
    /// The Secret of each service.
    pub(crate) members: BTreeMap<Member, Read<Option<Holding>>>,
}

/// What an issuer is to the suite today.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It issues.
    InOffice,
    /// It is to follow.
    Next,
    /// It issued, and is trusted still.
    Former,
    /// Nobody knows it.
    Foreign,
}

impl Standing {
    /// The words for it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::InOffice => "in office",
            Self::Next => "next",
            Self::Former => "former",
            Self::Foreign => "foreign",
        }
    }
}

/// One certificate, judged.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// `authority`, `successor`, `former`, or the service's word.
    pub(crate) name: &'static str,
    /// The service whose certificate it is.
    pub(crate) member: Option<Member>,
    /// The certificate, if it can be read.
    pub(crate) certificate: Option<Certificate>,
    /// What its issuer is; `None` if the authority is not known.
    pub(crate) issuer: Option<Standing>,
    /// Whether it is in the bundle, or verifies against it; `None` if that is not known.
    pub(crate) trusted: Option<bool>,
    /// What is wrong.
    pub(crate) fault: Option<String>,
}

impl Inventory {
    /// Reads all Secrets of a release.
    pub(crate) async fn read(cluster: &Cluster, installation: &Installation) -> Self {
        let secret = async |name: String| {
            let path = installation.path("/api/v1", "secrets", &name);
            cluster.get(&path).await.map(|secret| secret.as_ref().map(Holding::of))
        };
        let (authority, webhook, mutator, validator) = tokio::join!(
            secret(installation.authority_secret()),
            secret(installation.secret(Member::Webhook)),
            secret(installation.secret(Member::Mutator)),
            secret(installation.secret(Member::Validator)),
        );
        let members =
            [(Member::Webhook, webhook), (Member::Mutator, mutator), (Member::Validator, validator)];
        Self { authority, members: members.into() }
    }

    /// The authority's Secret, if it is there and can be read.
    pub(crate) fn authority(&self) -> Option<&Holding> {
        self.authority.as_ref().ok()?.as_ref()
    }

    /// A service's Secret, if it is there and can be read.
    pub(crate) fn member(&self, member: Member) -> Option<&Holding> {
        self.members.get(&member)?.as_ref().ok()?.as_ref()
    }

    /// What the authority with this key is.
    fn standing(&self, key: Option<&[u8]>) -> Option<Standing> {
        let authority = self.authority()?;
        let is = |certificate: &Certificate| key.is_some() && certificate.subject_key_id() == key;
        Some(if authority.certificate().is_some_and(is) {
            Standing::InOffice
        } else if authority.successor.as_ref().is_some_and(is) {
            Standing::Next
        } else if authority.bundle.certificates().iter().any(is) {
            Standing::Former
        } else {
            Standing::Foreign
        })
    }

    /// Every certificate that is stored, and what should be stored and is not. Secrets that cannot be read have none.
    pub(crate) fn entries(&self, installation: &Installation, now: SystemTime) -> Vec<Entry> {
        let mut entries = Vec::new();
        match &self.authority {
            Err(_) => {}
            Ok(None) => entries.push(absent("authority", None)),
            Ok(Some(holding)) => entries.extend(self.authorities(holding, now)),
        }
        for (member, read) in &self.members {
            match read {
                Err(_) => {}
                // Backends can be left out; whoever knows the Deployments decides.
                Ok(None) => entries.push(absent(member.word(), Some(*member))),
                Ok(Some(holding)) => entries.push(self.leaf(installation, *member, holding, now)),
            }
        }
        entries
    }

    fn authorities(&self, holding: &Holding, now: SystemTime) -> Vec<Entry> {
        let judged = |name, certificate: &Certificate| {
            let trusted = holding.bundle.contains(certificate);
            let fault = if !certificate.is_authority() {
                Some("it is not an authority's certificate".to_owned())
            } else if let Some(fault) = date_fault(certificate, now) {
                Some(fault.to_owned())
            } else {
                (!trusted).then(|| "it is not in the trust bundle".to_owned())
            };
            let issuer = self.standing(certificate.subject_key_id());
            let (certificate, trusted) = (Some(certificate.clone()), Some(trusted));
            Entry { name, member: None, certificate, issuer, trusted, fault }
        };
        let mut entries = Vec::new();
        entries.push(match holding.certificate() {
            Some(certificate) => judged("authority", certificate),
            None => unreadable("authority", None, holding),
        });
        entries.extend(holding.successor.iter().map(|certificate| judged("successor", certificate)));
        let current = [holding.certificate(), holding.successor.as_ref()];
        let former = holding.bundle.certificates().iter().filter(|former| !current.contains(&Some(*former)));
        entries.extend(former.map(|certificate| {
            // It leaves the bundle when its time is over, or before: no fault of its own.
            Entry { fault: None, ..judged("former", certificate) }
        }));
        entries
    }

    fn leaf(&self, installation: &Installation, member: Member, holding: &Holding, now: SystemTime) -> Entry {
        let name = member.word();
        let Some(certificate) = holding.certificate() else { return unreadable(name, Some(member), holding) };
        // What everybody else verifies it against; a service's own bundle is a copy.
        let bundle = self.authority().map(|authority| &authority.bundle);
        let trusted = bundle.map(|bundle| check::verifies(&holding.chain, bundle, now));
        let chain: Vec<_> = holding.chain.iter().map(|certificate| certificate.der().clone()).collect();
        let against = bundle.unwrap_or(&holding.bundle);
        let verdict = check::presented(&chain, against, &installation.server_name(member), now);
        let fault = match verdict {
            Err(defect) => Some(defect.to_string()),
            Ok(_) if bundle.is_some_and(|bundle| *bundle != holding.bundle) => {
                Some("its Secret has another trust bundle than the authority's".to_owned())
            }
            Ok(_) => None,
        };
        Entry {
            name,
            member: Some(member),
            certificate: Some(certificate.clone()),
            issuer: self.standing(certificate.authority_key_id()),
            trusted,
            fault,
        }
    }
}

fn absent(name: &'static str, member: Option<Member>) -> Entry {
    let fault = Some("nothing is stored".to_owned());
    Entry { name, member, certificate: None, issuer: None, trusted: None, fault }
}

fn unreadable(name: &'static str, member: Option<Member>, holding: &Holding) -> Entry {
    let fault = match &holding.unreadable {
        None | Some(CertificateError::Empty) => "nothing is stored".to_owned(),
        Some(error) => format!("it cannot be read: {error}"),
    };
    Entry { name, member, certificate: None, issuer: None, trusted: None, fault: Some(fault) }
}

fn date_fault(certificate: &Certificate, now: SystemTime) -> Option<&'static str> {
    if now < certificate.not_before() {
        Some("it is not valid yet")
    } else if now > certificate.not_after() {
        Some("it has expired")
    } else {
        None
    }
}

/// Whether less than a quarter of a certificate's life is left: it is renewed after two thirds, so somebody who
/// should have done it did not.
pub(crate) fn is_overdue(certificate: &Certificate, now: SystemTime) -> bool {
    let (start, end) = (certificate.not_before(), certificate.not_after());
    let issued = start.checked_add(BACKDATE).filter(|issued| *issued < end).unwrap_or(start);
    let life = end.duration_since(issued).unwrap_or_default();
    end.duration_since(now).unwrap_or_default() < life / 4
}

/// The first characters of an authority's key identifier, by which people tell authorities apart.
pub(crate) fn key_id(id: Option<&[u8]>) -> String {
    let Some(id) = id.filter(|id| !id.is_empty()) else { return "unknown".to_owned() };
    hex::encode(id.get(..4).unwrap_or(id))
}

#[cfg(test)]
pub(crate) mod fixtures {
    use std::time::Duration;

    use sallyport_pki::authority::{AUTHORITY_LIFE, Algorithm, LEAF_LIFE};
    use sallyport_pki::names::{Extras, Suite};
    use sallyport_pki::{Authority, Identity, KeyPair, Stored};
    use serde_json::json;

    use super::*;

    /// A day on which everything in tables happens.
    pub(crate) fn today() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(490_000)
    }

    pub(crate) fn installation() -> Installation {
        Installation {
            namespace: "sallyport".into(),
            release: "sallyport".into(),
            fullname: "sallyport".into(),
        }
    }

    pub(crate) fn authority(now: SystemTime) -> Authority {
        Authority::generate(Algorithm::EcdsaP256, now, AUTHORITY_LIFE).unwrap()
    }

    pub(crate) fn bundle<'a>(authorities: impl IntoIterator<Item = &'a Authority>) -> Bundle {
        let mut bundle = Bundle::empty();
        for authority in authorities {
            bundle.add(authority.certificate().clone());
        }
        bundle
    }

    /// A leaf of a member of the suite called `prefix`.
    pub(crate) fn leaf(authority: &Authority, prefix: &str, member: Member, now: SystemTime) -> KeyPair {
        let suite = Suite::with_prefix(prefix, "sallyport", "cluster.local").unwrap();
        authority.issue(&suite.leaf(member, &Extras::default()).unwrap(), now, LEAF_LIFE).unwrap()
    }

    pub(crate) fn secret(name: &str, pair: KeyPair, bundle: &Bundle, successor: Option<&KeyPair>) -> Value {
        let mut stored = Stored::default();
        Identity { pair, bundle: bundle.clone() }.store(&mut stored);
        stored.set_successor(successor);
        let data: BTreeMap<_, _> =
            stored.0.iter().map(|(key, bytes)| (key, STANDARD.encode(bytes))).collect();
        json!({"kind": "Secret", "metadata": {"name": name, "namespace": "sallyport"}, "data": data})
    }

    /// An inventory in which all is well, with its authority.
    pub(crate) fn sound(now: SystemTime) -> (Authority, Inventory) {
        let authority = authority(now);
        let bundle = bundle([&authority]);
        let ca = secret("sallyport-ca", authority.key_pair(), &bundle, None);
        let members = Member::ALL.map(|member| {
            let secret = secret("tls", leaf(&authority, "sallyport", member, now), &bundle, None);
            (member, Ok(Some(Holding::of(&secret))))
        });
        (authority, Inventory { authority: Ok(Some(Holding::of(&ca))), members: members.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::fixtures::*;
    use super::*;
    use crate::cluster::Unread;

    const DAY: Duration = Duration::from_hours(24);

    fn faults(inventory: &Inventory, now: SystemTime) -> Vec<String> {
        let entries = inventory.entries(&installation(), now);
        entries
            .iter()
            .filter_map(|entry| Some(format!("{}: {}", entry.name, entry.fault.as_ref()?)))
            .collect()
    }

    #[test]
    fn what_is_stored_well_has_no_fault_and_what_is_not_has_one() {
        let now = today();
        let (authority, good) = sound(now);
        let entries = good.entries(&installation(), now);
        let names: Vec<_> = entries.iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["authority", "webhook", "mutator", "validator"]);
        for entry in &entries {
            assert_eq!(
                (entry.issuer, entry.trusted),
                (Some(Standing::InOffice), Some(true)),
                "{}",
                entry.name
            );
        }
        assert_eq!(faults(&good, now), [""; 0]);
        assert_eq!(faults(&good, now + DAY * 91).len(), 3, "leaves live ninety days");
        assert_eq!(faults(&good, now + DAY * 366)[0], "authority: it has expired");

        let with = |member: Member, holding: Option<Holding>| {
            let mut inventory = good.clone();
            inventory.members.insert(member, Ok(holding));
            faults(&inventory, now)
        };
        let trust = bundle([&authority]);
        let other = fixtures::authority(now);
        for (holding, wanted) in [
            (None, "nothing is stored"),
            (Some(Holding::of(&json!({"data": {"tls.crt": "aGVsbG8="}}))), "it cannot be read"),
            (
                Some(Holding::of(&secret(
                    "x",
                    leaf(&other, "sallyport", Member::Webhook, now),
                    &trust,
                    None,
                ))),
                "the chain does not verify",
            ),
            (
                Some(Holding::of(&secret(
                    "x",
                    leaf(&authority, "other", Member::Webhook, now),
                    &trust,
                    None,
                ))),
                "the names differ: missing [\"sallyport-webhook.sallyport.svc\"]",
            ),
            (
                Some(Holding::of(&secret(
                    "x",
                    leaf(&authority, "sallyport", Member::Webhook, now),
                    &bundle([&authority, &other]),
                    None,
                ))),
                "another trust bundle",
            ),
        ] {
            let found = with(Member::Webhook, holding);
            assert!(found.len() == 1 && found[0].contains(wanted), "{wanted}: {found:?}");
        }
    }

    #[test]
    fn a_rotation_under_way_is_no_fault_and_each_issuer_has_its_standing_r04() {
        let now = today();
        let (former, office, next, foreign) =
            (authority(now), authority(now), authority(now), authority(now));
        let trust = bundle([&former, &office, &next]);
        let ca = secret("sallyport-ca", office.key_pair(), &trust, Some(&next.key_pair()));
        let issuers = [(Member::Webhook, &former), (Member::Mutator, &office), (Member::Validator, &foreign)];
        let members = issuers.map(|(member, issuer)| {
            let secret = secret("tls", leaf(issuer, "sallyport", member, now), &trust, None);
            (member, Ok(Some(Holding::of(&secret))))
        });
        let inventory = Inventory { authority: Ok(Some(Holding::of(&ca))), members: members.into() };
        let entries = inventory.entries(&installation(), now);
        let seen: Vec<_> = entries.iter().map(|e| (e.name, e.issuer, e.fault.is_some())).collect();
        let wanted = [
            ("authority", Some(Standing::InOffice), false),
            ("successor", Some(Standing::Next), false),
            ("former", Some(Standing::Former), false),
            ("webhook", Some(Standing::Former), false),
            ("mutator", Some(Standing::InOffice), false),
            ("validator", Some(Standing::Foreign), true),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn without_the_authority_a_leaf_is_judged_by_its_own_bundle() {
        let now = today();
        let (_, mut inventory) = sound(now);
        inventory.authority = Err(Unread::Forbidden("no".into()));
        let entries = inventory.entries(&installation(), now);
        assert_eq!(entries.len(), 3);
        assert!(entries.iter().all(|e| e.fault.is_none() && e.trusted.is_none() && e.issuer.is_none()));
    }

    #[test]
    fn requests_stand_until_they_are_answered() {
        let holding = |annotations: Value| Holding::of(&json!({"metadata": {"annotations": annotations}}));
        assert_eq!(holding(json!({ROTATE: "1"})).request(), Some("1"));
        assert_eq!(holding(json!({ROTATE: "2", ROTATED: "1"})).request(), Some("2"));
        assert_eq!(holding(json!({ROTATE: "1", ROTATED: "1"})).request(), None);
        assert_eq!(holding(json!({})).request(), None);
        assert_eq!(holding(json!({FREEZE: "holidays"})).freeze(), Some("holidays"));
        let written = Holding::of(&json!({"metadata": {"managedFields": [
            {"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:annotations": {"f:other": {}}}}},
            {"time": "2026-01-02T00:00:00Z",
             "fieldsV1": {"f:metadata": {"f:annotations": {"f:sallyport.dev/freeze": {}}}}},
        ]}}));
        assert_eq!(written.annotated_since(FREEZE), clock::parse("2026-01-02T00:00:00Z"));
        assert_eq!(written.annotated_since(ROTATE), None);
    }

    #[test]
    fn a_certificate_in_the_last_quarter_of_its_life_is_overdue() {
        let now = today();
        let certificate = authority(now).certificate().clone();
        let life = certificate.not_after().duration_since(now).unwrap();
        assert!(!is_overdue(&certificate, now + life.mul_f64(0.74)));
        assert!(is_overdue(&certificate, now + life.mul_f64(0.76)));
        assert!(is_overdue(&certificate, now + life * 2));
    }
}
