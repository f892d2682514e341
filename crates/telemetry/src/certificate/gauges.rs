//! How a certificate is shown, by who stores it and by who serves it alike, so that the two can be compared.

use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

/// How many hexadecimal digits of a serial number a metric's value holds exactly.
const DIGITS: usize = 13;

/// The gauges of certificates, by name.
#[derive(Clone, Debug)]
pub struct CertificateGauges {
    not_after: GaugeVec,
    serial: IntGaugeVec,
}

impl CertificateGauges {
    /// Makes and registers them.
    ///
    /// # Errors
    /// When one of their names is taken.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let not_after = Opts::new(
            "sallyport_certificate_not_after_timestamp_seconds",
            "End of the validity of a certificate that is stored (cert-rotator) or in use (other services), in seconds \
             since the epoch.",
        );
        let serial = Opts::new(
            "sallyport_certificate_serial",
            "The last 52 bits of the certificate's serial number: the same value is the same certificate.",
        );
        let gauges = Self {
            not_after: GaugeVec::new(not_after, &["certificate"])?,
            serial: IntGaugeVec::new(serial, &["certificate"])?,
        };
        registry.register(Box::new(gauges.not_after.clone()))?;
        registry.register(Box::new(gauges.serial.clone()))?;
        Ok(gauges)
    }

    /// Shows a certificate: its serial number in hexadecimal, its end in seconds since the epoch.
    pub fn show(&self, certificate: &str, serial: &str, not_after: f64) {
        let digits = serial.len().saturating_sub(DIGITS);
        let value = serial.get(digits..).and_then(|digits| i64::from_str_radix(digits, 16).ok());
        self.serial.with_label_values(&[certificate]).set(value.unwrap_or_default());
        self.not_after.with_label_values(&[certificate]).set(not_after);
    }

    /// Shows nothing any more.
    pub fn reset(&self) {
        self.serial.reset();
        self.not_after.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_of_any_length_is_a_value_that_a_scraper_keeps() {
        let registry = Registry::new();
        let gauges = CertificateGauges::register(&registry).unwrap();
        let exact = 2_i64.pow(53);
        for (serial, wanted) in [
            ("", 0),
            ("0a", 10),
            ("ffffffffffffffffffffffffffffffff", 0xf_ffff_ffff_ffff),
            ("1fffffffffffff", 0xf_ffff_ffff_ffff),
            ("no number", 0),
            ("ä000000000001", 0),
        ] {
            gauges.show("webhook", serial, 7.0);
            let value = gauges.serial.with_label_values(&["webhook"]).get();
            assert_eq!(value, wanted, "{serial}");
            assert!((0..exact).contains(&value));
        }
        gauges.reset();
        assert!(registry.gather().iter().all(|family| family.get_metric().is_empty()));
    }
}
