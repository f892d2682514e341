//! Having a certificate signed by a signer of the cluster: certificates.k8s.io/v1.
//!
//! The private key is made here and never leaves but into the webhook's Secret. The request's object is named after the
//! Service, so one that an earlier run left behind is found and replaced, and two jobs at once do not fill the cluster
//! with requests; it is deleted when the job has what it wants, or nothing more to hope for.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use rustls::pki_types::CertificateDer;
use sallyport_error_chain::format_chain;
use sallyport_leadership::{AccessError, Verb, call};
use sallyport_pki::certificate::MAX_PEM;
use sallyport_pki::request::Subject;
use sallyport_pki::{Algorithm, Bundle, Certificate, KeyPair, LeafRequest, Renewal, SigningRequest, check};
use serde_json::json;
use tracing::{info, warn};

use crate::arguments::{CertificateArgs, CommonArgs};
use crate::error::JobError;
use crate::session::{FIELD_MANAGER, Session};

/// The resource, in plural.
const RESOURCE: &str = "certificatesigningrequests";

/// A signer of the cluster, and what to ask it for.
pub(crate) struct Signer<'a> {
    session: &'a Session,
    api: Api<CertificateSigningRequest>,
    /// Name of the request's object.
    name: String,
    /// The signer's name.
    signed_by: String,
    authorities: Bundle,
    subject: Subject,
    algorithm: Algorithm,
    life: Option<Duration>,
    is_approver: bool,
    /// Whether a request of ours was there: then one of the same name is another job's, not left behind.
    has_requested: bool,
    /// UID of our request's object, until it is deleted.
    outstanding: Option<String>,
}

impl<'a> Signer<'a> {
    /// Reads the signer's authorities.
    pub fn new(
        session: &'a Session,
        common: &CommonArgs,
        args: &CertificateArgs,
        signer: &str,
    ) -> Result<Self, JobError> {
        Ok(Self {
            session,
            api: Api::all(session.client.clone()),
            name: format!("{}.{}", args.service, common.namespace),
            signed_by: signer.to_owned(),
            authorities: authorities(args.signer_ca_file.as_deref(), &session.roots)?,
            subject: Subject {
                common_name: args.common_name.clone(),
                organization: args.subject_organization.clone(),
            },
            algorithm: args.key_algorithm.into(),
            life: args.life,
            is_approver: args.approve,
            has_requested: false,
            outstanding: None,
        })
    }

    /// Whom a certificate of this signer verifies against.
    pub fn authorities(&self) -> &Bundle {
        &self.authorities
    }

    /// What people call the request.
    fn text(&self) -> String {
        format!("certificate signing request {:?}", self.name)
    }

    /// Has a certificate signed, and checks it.
    pub async fn sign(&mut self, wanted: &LeafRequest) -> Result<KeyPair, JobError> {
        let request = SigningRequest::generate(self.algorithm, wanted, &self.subject)?;
        let uid = self.request(request.request_pem).await?;
        let pair = KeyPair { certificate_pem: self.signed(&uid).await?, key_pem: request.key_pem };
        match check::leaf(&pair, &self.authorities, wanted, SystemTime::now(), Renewal::Never) {
            Ok(_) => Ok(pair),
            Err(source) => Err(JobError::Unsound { signer: self.signed_by.clone(), source }),
        }
    }

    /// Makes the request's object, in place of one that was left behind. Returns its UID.
    async fn request(&mut self, pem: String) -> Result<String, JobError> {
        self.discard().await;
        let mut usages = vec!["digital signature".to_owned(), "server auth".to_owned()];
        if self.algorithm == Algorithm::Rsa2048 {
            usages.push("key encipherment".to_owned());
        }
        let object = CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(pem.into_bytes()),
                signer_name: self.signed_by.clone(),
                usages: Some(usages),
                expiration_seconds: self.life.map(|life| i32::try_from(life.as_secs()).unwrap_or(i32::MAX)),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        };
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let create = || call(Verb::Create, RESOURCE, &self.name, self.api.create(&params, &object));
        let made = match create().await {
            Err(AccessError::Refused { source, .. }) if source.code == 409 => {
                if self.has_requested {
                    return Err(JobError::Busy(self.text()));
                }
                let there = call(Verb::Get, RESOURCE, &self.name, self.api.get_opt(&self.name)).await?;
                if let Some(uid) = there.and_then(|there| there.metadata.uid) {
                    info!(name = self.name, "replacing a certificate signing request that was left behind");
                    self.delete(&uid).await;
                }
                create().await?
            }
            made => made?,
        };
        self.has_requested = true;
        info!(name = self.name, signer = self.signed_by, "asked for a certificate");
        let uid = made.metadata.uid.ok_or_else(|| JobError::Overtaken(self.text()))?;
        self.outstanding = Some(uid.clone());
        Ok(uid)
    }

    /// Waits for the certificate, approving the request first if that is this job's part.
    async fn signed(&self, uid: &str) -> Result<String, JobError> {
        let pending = |awaited: String| JobError::Pending { request: self.text(), awaited };
        let signed = self.session.persevere(async || {
            let there = call(Verb::Get, RESOURCE, &self.name, self.api.get_opt(&self.name)).await?;
            let Some(there) = there.filter(|there| there.metadata.uid.as_deref() == Some(uid)) else {
                // Another job replaced it; a new attempt begins with what is stored then.
                return Ok(None);
            };
            match progress(&there, &self.text())? {
                Progress::Signed(pem) => return Ok(Some(pem)),
                Progress::Approved => {}
                Progress::New if self.is_approver => self.approve(&there).await?,
                Progress::New => {
                    return Err(pending(format!("approved (kubectl certificate approve {})", self.name)));
                }
            }
            Err(pending(format!("signed by {}", self.signed_by)))
        });
        signed.await?.ok_or_else(|| JobError::Overtaken(self.text()))
    }

    async fn approve(&self, there: &CertificateSigningRequest) -> Result<(), JobError> {
        let mut conditions = there.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.push(CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("RequestedByJob".to_owned()),
            message: Some(format!("approved by {FIELD_MANAGER}, which made this request")),
            ..CertificateSigningRequestCondition::default()
        });
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": there.metadata.resource_version},
            "status": {"conditions": conditions},
        }));
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let approved = self.api.patch_approval(&self.name, &params, &patch);
        call(Verb::Patch, "certificatesigningrequests/approval", &self.name, approved).await?;
        Ok(())
    }

    /// Deletes our request's object. Without the key, which dies with the attempt, it is of no use to anybody.
    pub async fn discard(&mut self) {
        if let Some(uid) = self.outstanding.take() {
            self.delete(&uid).await;
        }
    }

    /// Deletes that very request; one that cannot be deleted is no reason to fail.
    async fn delete(&self, uid: &str) {
        let exactly = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams::background().preconditions(exactly);
        let deleted = call(Verb::Delete, RESOURCE, &self.name, self.api.delete(&self.name, &params)).await;
        if let Err(error) = deleted
            && !error.is_overtaken()
        {
            warn!(error = format_chain(&error), "failed to delete a certificate signing request");
        }
    }
}

/// How far a request has come.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Nobody has looked at it.
    New,
    /// It may be signed.
    Approved,
    /// The certificate, PEM.
    Signed(String),
}

fn progress(there: &CertificateSigningRequest, text: &str) -> Result<Progress, JobError> {
    let status = there.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    for (type_, condition) in [("Denied", "denied"), ("Failed", "failed")] {
        if let Some(there) = conditions.iter().find(|condition| condition.type_ == type_) {
            return Err(JobError::Refused {
                request: text.to_owned(),
                condition,
                reason: there.reason.clone().unwrap_or_default(),
                message: there.message.clone().unwrap_or_default(),
            });
        }
    }
    match status.certificate {
        Some(ByteString(pem)) if !pem.is_empty() => {
            // What is no text is no certificate either; the check says so.
            Ok(Progress::Signed(String::from_utf8_lossy(&pem).into_owned()))
        }
        _ if conditions.iter().any(|condition| condition.type_ == "Approved") => Ok(Progress::Approved),
        _ => Ok(Progress::New),
    }
}

/// The authorities in `file`, or else those that the API server's own certificate is verified against.
fn authorities(file: Option<&Path>, roots: &[Vec<u8>]) -> Result<Bundle, JobError> {
    let failed = |origin: &str, source: Box<dyn Error + Send + Sync>| JobError::SignerAuthorities {
        origin: origin.to_owned(),
        source,
    };
    if let Some(path) = file {
        let origin = format!("--signer-ca-file {}", path.display());
        let pem = read(path).map_err(|source| failed(&origin, source.into()))?;
        return Bundle::from_pem(&pem).map_err(|source| failed(&origin, source.into()));
    }
    let origin = "the ServiceAccount or kubeconfig";
    let mut bundle = Bundle::empty();
    for der in roots {
        let certificate = Certificate::from_der(CertificateDer::from(der.clone()));
        bundle.add(certificate.map_err(|source| failed(origin, source.into()))?);
    }
    if bundle.is_empty() {
        return Err(failed(origin, "there are none; give them with --signer-ca-file".into()));
    }
    Ok(bundle)
}

/// Reads a file, but not more than any bundle has.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_PEM as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
