//! What the process shows of its certificates, and what it says when they change.

use std::sync::Arc;

use prometheus::{IntCounter, Registry};
use sallyport_net::{CertificateStatus, Credentials, Reload};
use serde::Serialize;

mod gauges;

pub use gauges::CertificateGauges;

/// Path of the page with the certificate and the bundle in use: what a prober of
/// TLS cannot see, and the rotator must know before it drops a CA.
pub const PAGE: &str = "/tls";

/// Metrics of the certificate.
#[derive(Clone, Debug)]
pub struct CertificateMeters {
    gauges: CertificateGauges,
    service: String,
    errors: IntCounter,
}

impl CertificateMeters {
    /// Makes and registers the metrics.
    ///
    /// # Errors
    /// When one of their names is taken.
    pub fn register(registry: &Registry, service: &str) -> prometheus::Result<Self> {
        let gauges = CertificateGauges::register(registry)?;
        let errors = IntCounter::new(
            "sallyport_tls_reload_errors_total",
            "New certificate files that could not be used; the last good ones stay.",
        )?;
        registry.register(Box::new(errors.clone()))?;
        Ok(Self { gauges, service: service.to_owned(), errors })
    }

    /// Shows the certificate in use.
    pub fn show(&self, status: &CertificateStatus) {
        // Seconds of any date that a certificate can have are exact.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        self.gauges.show(&self.service, &status.serial, status.not_after as f64);
    }

    /// Says what a look at the files found.
    pub fn observe(&self, reload: &Reload) {
        match reload {
            Reload::Replaced(status) => {
                self.show(status);
                tracing::info!(serial = status.serial, not_after = status.not_after, "certificates replaced");
            }
            Reload::Refused(error) => {
                self.errors.inc();
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "new certificate files cannot be used, the last good ones stay"
                );
            }
        }
    }
}

/// What [`PAGE`] shows, as JSON: serial, end of validity in seconds since the
/// epoch, and the SHA-256 of the trust bundle's file.
pub fn page(credentials: Arc<Credentials>) -> impl Fn() -> String + Send + Sync + 'static {
    move || render(&credentials.status())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    serial: &'a str,
    not_after: i64,
    bundle_sha256: &'a str,
}

fn render(status: &CertificateStatus) -> String {
    let page =
        Page { serial: &status.serial, not_after: status.not_after, bundle_sha256: &status.bundle_sha256 };
    serde_json::to_string(&page).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use sallyport_net::CertificateStatus;

    use super::render;

    #[test]
    fn the_page_tells_leaf_and_bundle() {
        let status =
            CertificateStatus { serial: "0a".to_owned(), not_after: 7, bundle_sha256: "ff".to_owned() };
        assert_eq!(render(&status), r#"{"serial":"0a","notAfter":7,"bundleSha256":"ff"}"#);
    }
}
